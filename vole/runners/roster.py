"""Who is connected, and which requests they parked. Memory only: an idle runner costs no write. Leases nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from vole.base import limits
from vole.base.clock import Moment
from vole.base.ids import AccountId, AccountName, RepoId, SessionId
from vole.wire.runner import Cancel, Drain, FencedLease, Hello, Job, Nothing, Refused, Want, Welcome

Order = Cancel | FencedLease | Drain | Refused


@dataclass(eq=False)
class Parked:
    """A want that waits for work. `answer` is set once; a cancelled one wants nothing any more."""

    session: Session
    want: Want
    answer: asyncio.Future[Job | Nothing]
    looked: bool = False  # the dispatcher has looked for it once; only before that may its token have a lease

    def live(self) -> bool:
        """True while somebody waits for the answer, on a connection that stands."""
        return self.session.alive and not self.answer.done()


@dataclass(eq=False)
class Session:
    """One connected runner process. What `hello` holds is what it says about itself; grants are the server's word."""

    id: SessionId
    account: AccountId
    account_name: AccountName
    key_fingerprint: str
    hello: Hello
    welcome: Welcome
    granted: frozenset[RepoId]
    serves: frozenset[RepoId]  # granted, and not left out by its filter
    connected_at: Moment
    last_contact: Moment
    serves_as: int = 0  # the fleet event that noted what it serves; 0: its hello
    alive: bool = True
    draining: bool = False
    disk_low: bool = False
    parked: dict[str, Parked] = field(default_factory=dict)  # by token
    orders: asyncio.Queue[Order] = field(default_factory=lambda: asyncio.Queue(limits.RUNNER_ORDERS_MAX))

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.hello.labels)

    def park(self, parked: Parked) -> None:
        """A want waits; an older one with the same token waits no more."""
        older = self.parked.get(parked.want.token)
        if older is not None:
            older.answer.cancel()
        self.parked[parked.want.token] = parked
        self.disk_low = parked.want.disk_low

    def unpark(self, parked: Parked) -> None:
        if self.parked.get(parked.want.token) is parked:
            del self.parked[parked.want.token]

    def order(self, order: Order) -> None:
        """Tell the runner something it did not ask for; lost when its link is stuck, and said again at a renewal."""
        if not self.orders.full():
            self.orders.put_nowait(order)


class Roster:
    """Every connected session, by id. Two processes under one key are two sessions, and both are shown."""

    def __init__(self) -> None:
        self._sessions: dict[SessionId, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        """Oldest connection first."""
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session: SessionId) -> Session | None:
        return self._sessions.get(session)

    def enter(self, session: Session) -> Session | None:
        """The process is connected; its older connection, if there is one, is returned and counts no more."""
        older = self._sessions.pop(session.id, None)
        if older is not None:
            _close(older)
        self._sessions[session.id] = session
        return older

    def leave(self, session: Session) -> bool:
        """This connection is gone; False when it was not the process's newest."""
        _close(session)
        if self._sessions.get(session.id) is not session:
            return False
        del self._sessions[session.id]
        return True

    def parked(self) -> list[Parked]:
        """Every want that somebody waits for, in the order of arrival within each session."""
        return [parked for session in self for parked in session.parked.values() if parked.live()]


def _close(session: Session) -> None:
    session.alive = False
    for parked in session.parked.values():
        parked.answer.cancel()
    session.parked.clear()
