"""The clock starts runs: schedules follow the default branch, and each time that has come starts its workflow once."""

from __future__ import annotations

from vole.base import log
from vole.base.clock import Moment
from vole.base.cron import first_after
from vole.base.errors import Exhausted, Invalid, NotFound, Unavailable, VoleError
from vole.flows.starting.tips import StartingParts
from vole.jobs import ledger as jobs
from vole.jobs.index import QueueIndex
from vole.jobs.model import QueuedRun, RunSource
from vole.repos import ledger as repos
from vole.repos import reads as hosted
from vole.repos.model import Schedule, UnreadSchedules
from vole.runners import reads as runners
from vole.store.database import Tx
from vole.wire.plan import RunPlan
from vole.workflows import expand

_log = log.get("vole.schedules")

ACTOR = "schedule"
_NO_LABELS: frozenset[str] = frozenset()  # whether a label is known does not change when a workflow starts


class Schedules:
    """`once` is the body of a sweep. Where nothing is due it reads twice and writes nothing."""

    def __init__(self, parts: StartingParts) -> None:
        self._parts = parts
        self._last: Moment | None = None

    async def once(self) -> None:
        """Read again what may have changed, then start what is due. One that fails stops no other."""
        now = self._parts.clock.now()
        if self._last is None or now < self._last:
            await self._put_back(now)
        self._last = now
        for unread in await self._parts.db.read(hosted.unread_schedules):
            await self._follow(unread)
        for due in await self._parts.db.read(hosted.due_schedules, now):
            await self._start(due)

    async def _put_back(self, now: Moment) -> None:
        """At a start, or when the clock went back: no next time lies beyond the first from now."""
        for schedule in await self._parts.db.read(hosted.schedules):
            if schedule.next_at > first_after(schedule.times, now):
                await self._parts.db.write(put_back_schedule, schedule)

    async def _follow(self, unread: UnreadSchedules) -> None:
        try:
            place = await self._parts.place(unread.repo_name, None)
            found = await self._parts.workflows(place, _NO_LABELS)
        except (NotFound, Invalid) as error:
            found = ()  # no branch, or workflows of a time when others were accepted
            _log.info("no schedules", repo=unread.repo_name, reason=error.sentence)
        except (Exhausted, Unavailable) as error:
            _log.error("schedules not read", repo=unread.repo_name, reason=error.sentence)
            return
        times = {workflow.path: workflow.schedule for workflow in found if workflow.schedule}
        await self._parts.db.write(follow_schedules, unread, times)

    async def _start(self, due: Schedule) -> None:
        try:
            plan = await self._planned(due)
        except (Exhausted, Unavailable) as error:
            _log.error("a schedule waits", repo=due.repo_name, workflow=due.path, reason=error.sentence)
            return
        except VoleError as error:
            _log.error("a schedule started nothing", repo=due.repo_name, workflow=due.path, reason=error.sentence)
            await self._parts.db.write(pass_schedule, due, error.lines[0])
            return
        run = await self._parts.db.write(start_by_clock, self._parts.index, due, plan)
        if run is not None:
            await self._parts.hold(due.repo_name, plan.commit)
            self._parts.tell(run)

    async def _planned(self, due: Schedule) -> RunPlan:
        """The workflow at the tip of the default branch, by the same check as a push, its commit held."""
        known_labels = await self._parts.db.read(runners.known_labels)
        place = await self._parts.place(due.repo_name, None)
        found = await self._parts.workflows(place, known_labels)
        workflow = next((one for one in found if one.path == due.path and one.schedule), None)
        if workflow is None:
            raise NotFound(f"{place.ref.short} has no workflow {due.path} with a schedule")
        event = place.event("schedule", ACTOR, {})
        plan = expand.plan(workflow, due.repo_name, place.tip.commit, place.ref, event, protected=place.protected)
        await self._parts.hold(due.repo_name, plan.commit)
        return plan


def start_by_clock(tx: Tx, index: QueueIndex, due: Schedule, plan: RunPlan) -> QueuedRun | None:
    """The change: the minute is taken, and its run is queued, both or neither. None when it was taken before."""
    start = repos.start_by_clock(tx, due)
    if start is None:
        return None
    return jobs.enqueue_run(tx, index, RunSource(due.repo, start), plan, plan.labels)


def follow_schedules(tx: Tx, unread: UnreadSchedules, times: dict[str, tuple[str, ...]]) -> None:
    """The change after the default branch moved."""
    repos.set_schedules(tx, unread, times)


def pass_schedule(tx: Tx, due: Schedule, problem: str) -> None:
    """The change where a time starts nothing."""
    repos.pass_time(tx, due, problem)


def put_back_schedule(tx: Tx, schedule: Schedule) -> None:
    """The change after the clock went back."""
    repos.put_back(tx, schedule)
