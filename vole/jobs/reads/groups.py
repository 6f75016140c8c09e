"""The concurrency groups of one run, as it was pinned, and where it stands in their lines. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base.ids import JobKey, RunId, RunNumber
from vole.store.database import View

_GROUPS = """
WITH named AS (
  SELECT NULL AS job_id, NULL AS key, -1 AS ordinal, concurrency ->> '$.group' AS name
  FROM runs
  WHERE id = :run
  UNION ALL
  SELECT j.id, j.key, j.ordinal, d.document ->> '$.concurrency.group'
  FROM jobs j
  JOIN job_documents d ON d.job_id = j.id
  WHERE j.run_id = :run)
SELECT n.name, n.key, g.held_at, r.number, k.key AS holder
FROM named n
LEFT JOIN group_places g ON g.run_id = :run AND g.job_id IS n.job_id
LEFT JOIN group_places h ON g.held_at IS NULL AND h.held_at IS NOT NULL
  AND h.repo_id = g.repo_id AND h.name = g.name AND h.within = g.within
LEFT JOIN runs r ON r.id = h.run_id
LEFT JOIN jobs k ON k.id = h.job_id
WHERE n.name IS NOT NULL
ORDER BY n.ordinal"""


@dataclass(frozen=True)
class GroupRow:
    """A group that a run goes through, or one `job` of it.

    `held`: it has the group. `holder`: the run of the same repository, or its job, that has it while this one waits.
    Neither: it is not in the line yet, or not any more.
    """

    name: str
    job: JobKey | None
    held: bool
    holder: tuple[RunNumber, JobKey | None] | None


async def groups_of(view: View, run: RunId) -> list[GroupRow]:
    """The run's own first, then those of its jobs in the order of the file."""
    return [
        GroupRow(
            name=row["name"],
            job=None if row["key"] is None else JobKey(row["key"]),
            held=row["held_at"] is not None,
            holder=None if row["number"] is None else (RunNumber(row["number"]), row["holder"]),
        )
        for row in await view.all(_GROUPS, run=run)
    ]
