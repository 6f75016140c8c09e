"""Why a job waits and what comes next, by the rule that leases. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base import labels, limits
from vole.base.errors import NotFound
from vole.base.ids import JobId, JobKey, RepoId, RunId, RunNumber
from vole.flows.leasing.desk import Desk
from vole.jobs import explain, reads
from vole.jobs.explain import Explained
from vole.jobs.match import Ask, Demand
from vole.jobs.model import State
from vole.runners import reads as runners
from vole.store.database import View


@dataclass(frozen=True)
class _Look:
    """One snapshot: jobs with their verdicts, and the labels that are known."""

    jobs: list[Explained]
    known: frozenset[str]

    def nearest(self, label: str) -> str | None:
        return labels.alike(label, self.known)


@dataclass(frozen=True)
class Explaining:
    """The words of the grant rule."""

    desk: Desk

    async def prospects(self, run: RunId, jobs: int) -> list[str]:
        """What comes next for the run of so many `jobs`, a line for each group of them that fare alike.

        Jobs that wait for others are left out while there are any that do not. Raises NotFound.
        """
        asks, cap = self._side()
        few = jobs * (1 + len(asks)) <= limits.AT_ONCE_VERDICTS_MAX
        db = self.desk.parts.db
        look = db.glance(_run, run, asks, cap) if few else await db.read(_run, run, asks, cap)
        near = [one for one in look.jobs if _is_near(one.demand)] or look.jobs
        return explain.together([(one.key, explain.prospect(one, look.nearest)) for one in near])

    async def why(self, repo: RepoId, run: RunNumber, key: JobKey | None) -> list[str]:
        """Line by line why a job (or each job of a run) waits. Raises NotFound. The caller has asked `may`."""
        look = await self.desk.parts.db.read(_address, repo, run, *self._side())
        found = [one for one in look.jobs if key is None or one.key == key]
        if not found:
            raise NotFound(f"run {run} has no job {key}")
        return [line for one in found for line in explain.why(one, look.nearest)]

    async def told(self, repo: RepoId, run: RunNumber, key: JobKey | None) -> list[tuple[Explained, str]]:
        """What `why` says, as values: a job (or each of a run) and its prospect. Raises NotFound."""
        look = await self.desk.parts.db.read(_address, repo, run, *self._side())
        found = [one for one in look.jobs if key is None or one.key == key]
        if not found and key is not None:
            raise NotFound(f"run {run} has no job {key}")
        return [(one, explain.prospect(one, look.nearest)) for one in found]

    async def explained(self, run: RunId) -> list[Explained]:
        """Every job of the run with every connected runner's verdict: what pages show. Raises NotFound."""
        return (await self.desk.parts.db.read(_run, run, *self._side())).jobs

    async def waits(self, job: JobId) -> str:
        """One line: why this job waits now. Raises NotFound."""
        look = await self.desk.parts.db.read(_job, job, *self._side())
        return explain.prospect(look.jobs[0], look.nearest)

    def _side(self) -> tuple[list[Ask], int | None]:
        return self.desk.asks(), self.desk.policy.cap


def _is_near(demand: Demand) -> bool:
    """Whether nothing of its own run keeps a job back."""
    return demand.group is not None or demand.state not in (State.BLOCKED, State.FINISHED)


async def _run(view: View, run: RunId, asks: list[Ask], cap: int | None) -> _Look:
    return _Look(await reads.explain_run(view, run, asks, cap), await runners.known_labels(view))


async def _address(view: View, repo: RepoId, number: RunNumber, asks: list[Ask], cap: int | None) -> _Look:
    return await _run(view, await reads.find_run(view, repo, number), asks, cap)


async def _job(view: View, job: JobId, asks: list[Ask], cap: int | None) -> _Look:
    return _Look([await reads.explain_job(view, job, asks, cap)], await runners.known_labels(view))
