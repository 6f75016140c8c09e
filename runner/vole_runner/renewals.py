"""The clock of the leases: renews each TTL/3, and says when one must be let go of. Does no other work.

The rule is `Hold`, which is pure. Nothing here waits for a disk, a child or a job.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vole.base.clock import Clock, Moment, after, in_seconds, seconds
from vole.base.limits import LeaseTimes, lease_times
from vole.wire.runner import LeaseRef, Renew, Renewal, Renewed, Started

_LOOK_S = 1.0  # the longest sleep: a machine that was suspended wakes with its leases over


@dataclass(frozen=True)
class Hold:
    """One lease as its keeper may believe in it."""

    times: LeaseTimes
    since: Moment  # when the last accepted renewal was SENT; before the first one, when the lease arrived
    confirmed: bool = False

    def renewed(self, sent_at: Moment) -> Hold:
        """A renewal that was sent then has been accepted. Late answers never make it older."""
        since = Moment(max(self.since, sent_at)) if self.confirmed else sent_at
        return dataclasses.replace(self, since=since, confirmed=True)

    @property
    def ends_at(self) -> Moment:
        """From here on the step tree is being ended. No step has begun before the first accepted renewal."""
        return after(self.since, seconds(self.times.fence_s if self.confirmed else self.times.start_window_s))


@dataclass
class Held:
    """A lease in the keeper's hands. `let_go` is called once, when it must end by itself."""

    hold: Hold
    progress: Callable[[], Renewal]
    let_go: Callable[[], None]
    confirmed: asyncio.Event


class Renewals:
    """Every lease of this keeper. `send` queues a message without waiting; False when there is no connection."""

    def __init__(self, clock: Clock, send: Callable[[object], bool]) -> None:
        self._clock = clock
        self._send = send
        self._held: dict[LeaseRef, Held] = {}
        self._sent: deque[Moment] = deque()  # of what this connection has not answered yet, in order
        self._renew_at = clock.now()
        self._changed = asyncio.Event()

    def take(
        self,
        lease: LeaseRef,
        ttl_s: float,
        progress: Callable[[], Renewal],
        let_go: Callable[[], None],
        since: Moment | None = None,
    ) -> Held:
        """Hold `lease`, which came at `since`, and say `started`: the first renewal once it is answered."""
        now = self._clock.now()
        held = Held(Hold(lease_times(ttl_s), now if since is None else since), progress, let_go, asyncio.Event())
        self._held[lease] = held
        self._say(Started(lease.job, lease.epoch))
        self._renew_at = after(now, seconds(self.renew_s)) if len(self._held) == 1 else self._renew_at
        self._changed.set()
        return held

    def drop(self, lease: LeaseRef) -> None:
        """The lease is over, whichever way."""
        self._held.pop(lease, None)

    def connected(self) -> None:
        """A new connection: what the last one did not answer counts for nothing, and every lease is renewed now."""
        self._sent.clear()
        self.start_again()
        self.renew()

    def start_again(self) -> None:
        """Say `started` once more for every lease whose start was not answered."""
        for lease, held in self._held.items():
            if not held.hold.confirmed:
                self._say(Started(lease.job, lease.epoch))

    def renew(self) -> None:
        """Renew every lease now. One whose start is not answered yet, too: a repeated `started` moves no deadline."""
        leases = tuple(held.progress() for held in self._held.values())
        if leases:
            self._say(Renew(leases))
        self._renew_at = after(self._clock.now(), seconds(self.renew_s))

    def answered(self, renewed: Renewed) -> None:
        """The forge's answer to the oldest unanswered `started` or `renew` of this connection."""
        if not self._sent:
            return
        sent_at = self._sent.popleft()
        for lease in renewed.leases:
            if (held := self._held.get(lease)) is not None:
                held.hold = held.hold.renewed(sent_at)
                held.confirmed.set()

    def look(self) -> float:
        """Renew if it is time, let go of what is over; how many seconds until the next look."""
        now = self._clock.now()
        if self._held and now >= self._renew_at:
            self.renew()
        for lease, held in list(self._held.items()):
            if now >= held.hold.ends_at:
                del self._held[lease]
                held.let_go()
        next_at = min([self._renew_at, *(held.hold.ends_at for held in self._held.values())])
        return min(_LOOK_S, max(0.0, in_seconds(next_at - now))) if self._held else _LOOK_S

    async def run(self) -> None:
        """Look for ever."""
        while True:
            pause_s = self.look()
            self._changed.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    @property
    def renew_s(self) -> float:
        """How often the most urgent lease is renewed."""
        return min((held.hold.times.renew_s for held in self._held.values()), default=_LOOK_S)

    def _say(self, message: Started | Renew) -> None:
        sent_at = self._clock.now()
        if self._send(message):
            self._sent.append(sent_at)


def machine_load() -> float:
    """The load average of a minute."""
    return round(os.getloadavg()[0], 2)
