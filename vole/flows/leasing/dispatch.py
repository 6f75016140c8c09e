"""Parked wants and the one dispatcher that serves them all in one change. A lost bell costs LOOK_S, never a job."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from vole.base import limits
from vole.base.errors import Denied, Fenced, Invalid, Unavailable
from vole.flows.leasing.desk import Desk, asks_of
from vole.jobs import ledger
from vole.jobs.index import QueueIndex
from vole.jobs.model import EndCause, Touched
from vole.runners.roster import Parked, Session
from vole.store.database import Tx
from vole.wire.runner import Job, Nothing, Refusal, Want


@dataclass(frozen=True)
class Dispatch:
    """From a want to a job."""

    desk: Desk

    async def next_job(self, session: Session, want: Want) -> Job | Nothing:
        """A job for the want; it waits for one, but in `once` and `ping` mode, where Nothing says that there is none.

        Safe to cancel: a request that is gone leases nothing, and what it was given goes back. The same token asked
        again gets the same lease.
        """
        if not session.alive:
            raise Denied(
                "this connection is over; another one of the same process took its place", code=Refusal.SUPERSEDED
            )
        if not 0 < len(want.token) <= limits.TEXT_CHARS_MAX:
            raise Invalid(f"a want has a token of 1 to {limits.TEXT_CHARS_MAX} characters")
        parked = Parked(session, want, asyncio.get_running_loop().create_future())
        session.park(parked)
        session.last_contact = self.desk.parts.clock.now()
        self.desk.parts.bells.ring("want")
        try:
            return await parked.answer
        except asyncio.CancelledError:
            await self._withdraw(parked)
            raise
        finally:
            session.unpark(parked)

    async def look(self) -> int:
        """Serve every parked want that can be served, in one change; how many were. The body of the dispatch sweep."""
        parts = self.desk.parts
        waiting = [parked for parked in parts.roster.parked() if parts.index.queued or not parked.looked]
        if not waiting:
            return 0
        given = await parts.db.write(ledger.lease_many, parts.index, asks_of(waiting), self.desk.policy)
        for parked, answer in zip(waiting, given.answers, strict=True):
            parked.looked = True
            await self._answer(parked, answer)
        self.desk.tell(given.touched)
        return sum(1 for answer in given.answers if isinstance(answer, Job))

    async def _answer(self, parked: Parked, answer: Job | str) -> None:
        if isinstance(answer, Job):
            if parked.live():
                parked.answer.set_result(answer)
            else:
                await self._return(answer, parked.session)
        elif parked.live() and parked.session.hello.mode != "daemon":
            why = "nothing_queued" if answer == "nothing_queued" else "nothing_for_you"
            parked.answer.set_result(Nothing(parked.want.slot, parked.want.token, why))  # type: ignore[arg-type]

    async def _withdraw(self, parked: Parked) -> None:
        given = parked.answer
        if given.done() and not given.cancelled() and isinstance(given.result(), Job):
            await self._return(given.result(), parked.session)

    async def _return(self, job: Job | Nothing, session: Session) -> None:
        """Give back a lease that nobody was there to take. Nothing was delivered, so nothing rests.

        Where the store cannot write just now, the start window gives it back; the others of this look get their answer.
        """
        assert isinstance(job, Job), "only a job is a lease"
        parts = self.desk.parts
        with contextlib.suppress(Unavailable):
            self.desk.tell(await parts.db.write(_undelivered, parts.index, job, session))


def _undelivered(tx: Tx, index: QueueIndex, job: Job, session: Session) -> Touched:
    try:
        held, _ = ledger.hold(tx, job.lease.job, session.id, job.lease.epoch)
    except Fenced:
        return Touched()  # it ended meanwhile
    return ledger.give_up(tx, index, held, EndCause.DISCONNECTED, "its request was withdrawn")
