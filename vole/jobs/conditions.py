"""Whether a job runs once what it needs is done. Pure; the language itself is `base.expressions`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vole.base.expressions import Status, condition
from vole.base.ids import RunNumber
from vole.jobs.model import Conclusion, worst
from vole.wire.plan import JobContext, JobPlan, NeedResult, job_values


@dataclass(frozen=True)
class RunFacts:
    """What a condition may read of its run beside the plan."""

    number: RunNumber
    attempt: int


def status(direct: Iterable[Conclusion], ancestors: Iterable[Conclusion]) -> Status:
    """What came before. `failure()` and `cancelled()` look at every ancestor, `success()` asks for all direct needs."""
    before = worst(ancestors)
    if before is Conclusion.FAILURE:
        return "failure"
    if before is Conclusion.CANCELLED:
        return "cancelled"
    return "success" if all(worst([one]) is Conclusion.SUCCESS for one in direct) else "skipped"


def runs(plan: JobPlan, needs: dict[str, NeedResult], came_before: Status, facts: RunFacts) -> bool:
    """The verdict of the job's `if`. Raises Invalid for one that cannot be evaluated."""
    if plan.if_ is None:
        return came_before == "success"
    context = JobContext(run_id="", run_number=facts.number, run_attempt=facts.attempt, server_url="", needs=needs)
    return condition(plan.if_, job_values(plan, context), came_before)
