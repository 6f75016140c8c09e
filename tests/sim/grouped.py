"""Concurrency groups as the pinned documents name them: who of a group goes on. No row of a line is asked."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from vole.jobs.model import HELD, State

if TYPE_CHECKING:
    from tests.sim.checker import Checker
    from tests.sim.standing import Seen

Key = tuple[int, str, int]  # repository, group, the run inside of which it is or 0
GOING = HELD | {State.QUEUED}


class Groups:
    """At most one member of a group goes on: a run with all of its jobs, or one job."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._of: dict[int, list[tuple[Key, str]]] = {}  # job → the groups that it goes on in, and as whom
        self._going: defaultdict[Key, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def pinned(self, job: Seen) -> None:
        """A new job."""
        row = self._checker.db.execute(
            "SELECT json_extract(d.document, '$.concurrency.group') AS mine, "
            "json_extract(r.concurrency, '$.group') AS of_run "
            "FROM job_documents d JOIN runs r ON r.id = ? WHERE d.job_id = ?",
            (job.run, job.id),
        ).fetchone()
        found = []
        if row["of_run"] is not None:
            found.append(((job.repo, row["of_run"], 0), f"run {job.run}"))
        if row["mine"] is not None:
            within = job.run if row["mine"] == row["of_run"] else 0
            found.append(((job.repo, row["mine"], within), f"job {job.id}"))
        if found:
            self._of[job.id] = found

    def moved(self, job: Seen, to: State) -> None:
        """`job` is about to be `to`."""
        for key, member in self._of.get(job.id, ()):
            going = self._going[key]
            if to not in GOING:
                going[member].discard(job.id)
                if not going[member]:
                    del going[member]
                continue
            going[member].add(job.id)
            if others := [other for other in going if other != member and self._goes_on(going[other])]:
                self._checker.breaks("strict groups", f"group {key}: {member} goes on beside {others}")

    def _goes_on(self, jobs: set[int]) -> bool:
        """A job that was set aside is worked on no more: its group goes to the next."""
        seen, damaged = self._checker.jobs, self._checker.damaged
        return any(not seen[job].set_aside and job not in damaged for job in jobs)
