"""Lists of runs and unfinished jobs, sifted and in pages. A page goes on behind a key: inserts never shift it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from vole.base import limits
from vole.base.ids import RepoId
from vole.jobs import rows
from vole.jobs.match import serves_labels
from vole.jobs.model import HELD, State
from vole.jobs.rows import Depth, RunRow, WaitingRow
from vole.store.database import Row, View

# What runs first, then what waits; each in the words of the partial index that holds just those.
_GROUPS = ((HELD, rows.HELD), ({State.QUEUED}, "state = 'queued'"), ({State.BLOCKED}, "state = 'blocked'"))
Place = tuple[int, int, int]  # group, enqueued_at, id: where a job stands in the list


@dataclass(frozen=True)
class Taker:
    """A runner that could take a job: what it carries, and whether it takes labelled jobs only."""

    labels: frozenset[str]
    only: bool


@dataclass(frozen=True)
class Wanted:
    """Which unfinished jobs: of `repos`, in `state` (None: any), asking for all of `labels`, for `taker` to take."""

    repos: frozenset[RepoId]
    state: State | None = None
    labels: frozenset[str] = frozenset()
    taker: Taker | None = None

    def fits(self, asked: frozenset[str]) -> bool:
        """Whether a job that asks for `asked` is among them."""
        takes = self.taker is None or serves_labels(asked, self.taker.labels, only=self.taker.only)
        return takes and self.labels <= asked


async def unfinished(view: View, wanted: Wanted, most: int, after: Place | None = None) -> list[WaitingRow]:
    """At most `most` of them, in the order of their places, from behind `after` on."""
    sets = await _sets(view, wanted)
    found: list[Row] = []
    for group, (states, words) in enumerate(_GROUPS):
        if (wanted.state is not None and wanted.state not in states) or (after is not None and after[0] > group):
            continue
        behind = after[1:] if after is not None and after[0] == group else (-1, -1)
        chosen = f"""SELECT * FROM jobs WHERE {words} AND repo_id IN (SELECT value FROM json_each(:repos))
          AND (:state IS NULL OR state = :state) AND (enqueued_at, id) > (:at, :id)
          AND (:sets IS NULL OR (SELECT label_set_id FROM run_labels WHERE job_id = jobs.id)
            IN (SELECT value FROM json_each(:sets)))
          ORDER BY enqueued_at, id LIMIT :most"""
        found += await view.all(
            f"""
            SELECT j.id, j.repo_id, p.name AS repo_name, r.number, j.key, s.labels, j.state, j.reason, a.runner,
              a.session_id, coalesce(j.started_at, j.queued_at, j.enqueued_at) AS since, j.enqueued_at
            FROM ({chosen}) j
            JOIN runs r ON r.id = j.run_id
            JOIN repos p ON p.id = j.repo_id
            LEFT JOIN run_labels l ON l.job_id = j.id
            LEFT JOIN label_sets s ON s.id = l.label_set_id
            LEFT JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
            ORDER BY j.enqueued_at, j.id""",
            repos=json.dumps(list(wanted.repos)),
            state=wanted.state,
            at=behind[0],
            id=behind[1],
            sets=sets,
            most=most - len(found),
        )
    return [rows.waiting_row(row) for row in found]


def place(row: WaitingRow) -> Place:
    """Where `row` stands."""
    group = next(at for at, (states, _) in enumerate(_GROUPS) if row.state in states)
    return group, row.enqueued_at, row.id


async def depths(view: View, wanted: Wanted) -> list[Depth]:
    """How many jobs wait for a runner, per label set, the longest queue first."""
    if wanted.state not in (None, State.QUEUED):
        return []
    found = await view.all(
        """
        SELECT s.labels, count(*) AS count, min(j.queued_at) AS since, j.id, p.name AS repo_name, r.number, j.key
        FROM jobs j
        JOIN run_labels l ON l.job_id = j.id
        JOIN label_sets s ON s.id = l.label_set_id
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        WHERE j.state = 'queued' AND j.repo_id IN (SELECT value FROM json_each(:repos))
          AND (:sets IS NULL OR s.id IN (SELECT value FROM json_each(:sets)))
        GROUP BY s.id
        ORDER BY count DESC, s.labels
        LIMIT :most""",
        repos=json.dumps(list(wanted.repos)),
        sets=await _sets(view, wanted),
        most=limits.LIST_MAX,
    )
    return [rows.depth(row) for row in found]


async def runs(view: View, repos: Iterable[RepoId], before: int | None, most: int) -> list[RunRow]:
    """At most `most` runs of `repos` together, newest first, with ids under `before`."""
    found = await view.all(
        f"""{rows.RUN}
        WHERE r.repo_id IN (SELECT value FROM json_each(:repos)) AND (:before IS NULL OR r.id < :before)
        ORDER BY r.id DESC
        LIMIT :most""",
        repos=json.dumps(list(repos)),
        before=before,
        most=most,
    )
    return [rows.run_row(row) for row in found]


async def counts(view: View) -> dict[str, int]:
    """Unfinished jobs by state. Each number comes from the partial index that holds just those."""
    found: dict[str, int] = dict.fromkeys((str(state) for state in State if state is not State.FINISHED), 0)
    for _, words in _GROUPS:
        for row in await view.all(f"SELECT state, count(*) AS count FROM jobs WHERE {words} GROUP BY state"):
            found[row["state"]] = row["count"]
    return found


async def _sets(view: View, wanted: Wanted) -> str | None:
    """The label sets that fit, as JSON; None where every one does."""
    if not wanted.labels and wanted.taker is None:
        return None
    found = await view.all(rows.LABEL_SETS)
    return json.dumps([row["id"] for row in found if wanted.fits(rows.labels(row["labels"]))])
