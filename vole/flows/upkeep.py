"""What time does to the queue: the second-by-second sweep, and what a start gives back. Holds no rule and no timer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from vole.base import log
from vole.base.clock import Moment, StoreClock, after, in_seconds, seconds
from vole.base.errors import NotFound
from vole.base.ids import JobId
from vole.evidence.artifacts import ArtifactStore
from vole.jobs import ledger, reads
from vole.jobs.index import QueueIndex
from vole.jobs.model import Policy, Touched
from vole.people import ledger as people
from vole.repos import reads as hosted
from vole.runners import ledger as runners
from vole.store.database import Database, Tx, View

_log = log.get("vole.upkeep")

_PAUSE = seconds(0.001)  # between the last moment of one process and the first of the next: ids of one do not meet


class Reloadable(Protocol):
    """The settings of the queue that change while the server runs."""

    @property
    def max_jobs_per_repo(self) -> int | None: ...

    @property
    def queue_timeout_s(self) -> float: ...


@dataclass(frozen=True)
class UpkeepParts:
    """What upkeep works with. `ended` makes a change known, `waits` explains a job: leasing's, given by `app`."""

    db: Database
    index: QueueIndex
    artifacts: ArtifactStore
    ended: Callable[[Touched], None]
    waits: Callable[[JobId], Awaitable[str]]
    clock: StoreClock


class Upkeep:
    """`on_start` before any door opens; `once` each second."""

    def __init__(self, parts: UpkeepParts, policy: Policy) -> None:
        self._parts = parts
        self._policy = policy
        self._last: Moment | None = None

    async def on_start(self) -> None:
        """Every live lease gets one fresh span, nobody is connected, and the index is made from the rows.

        Time goes on from what is written down: ids sort by it, and so do the event log, runs and the queue.
        """
        behind = self._parts.clock.not_before(after(await self._parts.db.read(_last_moment), _PAUSE))
        if behind > _PAUSE:
            _log.warning(
                "the wall clock was set back: time goes on from the last moment stored", by_s=in_seconds(behind)
            )
        # From here on the first sweep measures its gap: until the doors are open nobody can renew.
        self._last = await self._parts.db.write(_restart, self._parts.index, self._policy)
        self._parts.artifacts.drop_partials(self._parts.index.held.keys())

    async def once(self) -> None:
        """Expire, time out and give up what is due. After a gap nothing expires by it: deadlines move first."""
        explained = {job: await self._waits(job) for job in await self._overdue()}
        swept = await self._parts.db.write(ledger.sweep, self._parts.index, self._policy, self._last, explained)
        self._last = swept.at
        if swept.touched:
            self._parts.ended(swept.touched)

    def reconfigure(self, queue: Reloadable) -> None:
        """Take new settings."""
        self._policy = replace(self._policy, cap=queue.max_jobs_per_repo, queue_timeout_s=queue.queue_timeout_s)

    async def _overdue(self) -> list[JobId]:
        return await self._parts.db.read(reads.overdue, self._policy.queue_timeout_s)

    async def _waits(self, job: JobId) -> str:
        try:
            return await self._parts.waits(job)
        except NotFound:
            return ""


async def _last_moment(view: View) -> Moment:
    """Of whatever has an id that must sort before the next one."""
    return max(await reads.last_moment(view), await hosted.last_moment(view))


def _restart(tx: Tx, index: QueueIndex, policy: Policy) -> Moment:
    ledger.restart(tx, index, policy)
    runners.disconnect_all(tx)
    for name, (keys, granted) in people.run_grants(tx).items():  # of a database from before they were noted
        runners.note_rights(tx, name, keys, granted)
    return tx.now
