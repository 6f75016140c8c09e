"""The queue told again from its own log: does the code that leases decide as it did, and what if there were one more?

Nothing of the running queue is touched: it happens in memory, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Exhausted
from vole.base.ids import JobId
from vole.base.labels import Label
from vole.flows.replay.again import Difference, Replayed, replay
from vole.flows.replay.story import Story
from vole.flows.replay.whatif import Forecast, forecast
from vole.jobs import reads
from vole.runners import reads as runners
from vole.store.database import Database, View

__all__ = ["Difference", "Forecast", "Replayed", "Replays", "Story"]


@dataclass(frozen=True)
class Replays:
    """Both questions, of a span of the log."""

    db: Database

    async def unchanged(self, since: Moment, until: Moment) -> Replayed:
        """Every grant of the span decided again. Raises Exhausted for too many events."""
        return await asyncio.to_thread(replay, await self._story(since, until))

    async def with_runner(self, labels: Sequence[Label], since: Moment, until: Moment) -> Forecast:
        """What one more runner of one slot, granted everything, would have changed. Raises as `unchanged` does."""
        return await asyncio.to_thread(forecast, await self._story(since, until), frozenset(labels))

    async def addresses(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """How people call these jobs."""
        return await self.db.read(_addresses, jobs)

    async def _story(self, since: Moment, until: Moment) -> Story:
        story = await self.db.read(read_story, since, until)
        if len(story.jobs) > limits.REPLAY_EVENTS_MAX or len(story.fleet) > limits.REPLAY_EVENTS_MAX:
            raise Exhausted(
                f"more than {limits.REPLAY_EVENTS_MAX} events to tell again (REPLAY_EVENTS_MAX)",
                next_step="name a shorter span with --from and --to",
            )
        return story


async def read_story(view: View, since: Moment, until: Moment) -> Story:
    """Everything that decides in the span, from one snapshot."""
    most = limits.REPLAY_EVENTS_MAX + 1
    told = await reads.events_of_jobs(view, since, until, most)
    return Story(
        since=since,
        until=min(until, view.now),
        jobs=tuple(told),
        fleet=tuple(await runners.fleet_events(view, until, most)),
        needs=await reads.needs_of(view, {one.job for one in told}),
    )


async def _addresses(view: View, jobs: Sequence[JobId]) -> dict[JobId, str]:
    return {job: await reads.address_of(view, job) for job in jobs}
