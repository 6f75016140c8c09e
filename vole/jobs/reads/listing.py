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
from vole.jobs.rows import shown
from vole.jobs.rows.shown import Depth, RunRow, WaitingRow
from vole.store.database import View


@dataclass(frozen=True)
class _Group:
    """Jobs of `states`, in the words of the partial index that holds just those, and in the order of that index."""

    states: frozenset[State]
    words: str
    order: str


# What runs first, then what waits. Who holds jobs are few; of the others each page looks at QUEUE_SCANNED_MAX.
_GROUPS = (
    _Group(HELD, rows.HELD, "enqueued_at"),
    _Group(frozenset({State.QUEUED}), "state = 'queued'", "enqueued_at"),
    _Group(frozenset({State.BLOCKED}), "state = 'blocked'", "run_id"),
)
Place = tuple[int, int, int]  # group, its order, id: where a job stands in the list


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


@dataclass(frozen=True)
class Found:
    """A page of them, and the place behind which the next one begins; None where there is nothing more."""

    rows: list[WaitingRow]
    behind: Place | None


async def unfinished(view: View, wanted: Wanted, most: int, after: Place | None = None) -> Found:
    """At most `most` of them, in the order of their places, from behind `after` on.

    It may be fewer, even none, with more behind: no page looks at more than QUEUE_SCANNED_MAX jobs of a group.
    """
    sets, found = await _sets(view, wanted), list[WaitingRow]()
    for at, group in enumerate(_GROUPS):
        if (wanted.state is not None and wanted.state not in group.states) or (after is not None and after[0] > at):
            continue
        start = after[1:] if after is not None and after[0] == at else (-1, -1)
        cut = await _cut(view, group, start)
        found += await _of_group(view, group, wanted, (start, cut, sets), most - len(found) + 1)
        if len(found) > most:
            return Found(found[:most], place(found[most - 1]))
        if cut is not None:
            return Found(found, (at, *cut))
    return Found(found, None)


def place(row: WaitingRow) -> Place:
    """Where `row` stands."""
    at = next(at for at, group in enumerate(_GROUPS) if row.state in group.states)
    return at, row.run_id if _GROUPS[at].order == "run_id" else row.enqueued_at, row.id


_Span = tuple[int, int]


async def _cut(view: View, group: _Group, start: _Span) -> _Span | None:
    """The last job to look at, where there are more behind it."""
    row = await view.one(
        f"""SELECT {group.order} AS at, id FROM jobs WHERE {group.words} AND ({group.order}, id) > (:at, :id)
        ORDER BY {group.order}, id LIMIT 1 OFFSET :most""",
        at=start[0],
        id=start[1],
        most=limits.QUEUE_SCANNED_MAX - 1,
    )
    return None if row is None else (row["at"], row["id"])


async def _of_group(
    view: View, group: _Group, wanted: Wanted, within: tuple[_Span, _Span | None, str | None], most: int
) -> list[WaitingRow]:
    start, cut, sets = within
    order = group.order
    chosen = f"""SELECT * FROM jobs WHERE {group.words} AND ({order}, id) > (:at, :id)
      AND (:cut IS NULL OR ({order}, id) <= (:cut, :cut_id))
      AND repo_id IN (SELECT value FROM json_each(:repos)) AND (:state IS NULL OR state = :state)
      AND (:sets IS NULL OR (SELECT label_set_id FROM run_labels WHERE job_id = jobs.id)
        IN (SELECT value FROM json_each(:sets)))
      ORDER BY {order}, id LIMIT :most"""
    found = await view.all(
        f"""
        SELECT j.id, j.repo_id, p.name AS repo_name, j.run_id, r.number, j.key, s.labels, j.state, j.reason, a.runner,
          {rows.GROUP_HOLDER}, {rows.STARTED},
          a.session_id, coalesce(j.started_at, j.queued_at, j.enqueued_at) AS since, j.enqueued_at
        FROM ({chosen}) j
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        LEFT JOIN run_labels l ON l.job_id = j.id
        LEFT JOIN label_sets s ON s.id = l.label_set_id
        LEFT JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
        ORDER BY j.{order}, j.id""",
        at=start[0],
        id=start[1],
        cut=None if cut is None else cut[0],
        cut_id=None if cut is None else cut[1],
        repos=json.dumps(list(wanted.repos)),
        state=wanted.state,
        sets=sets,
        most=most,
    )
    return [shown.waiting_row(row) for row in found]


async def depths(view: View, wanted: Wanted) -> list[Depth]:
    """How many jobs wait for a runner, per label set, the longest queue first."""
    if wanted.state not in (None, State.QUEUED):
        return []
    found = await view.all(
        """
        SELECT s.labels, d.count, d.since, d.id, p.name AS repo_name, r.number, d.key
        FROM (
          SELECT l.label_set_id, count(*) AS count, min(j.queued_at) AS since, j.id, j.key, j.run_id, j.repo_id
          FROM jobs j
          JOIN run_labels l ON l.job_id = j.id
          WHERE j.state = 'queued' AND j.repo_id IN (SELECT value FROM json_each(:repos))
            AND (:sets IS NULL OR l.label_set_id IN (SELECT value FROM json_each(:sets)))
          GROUP BY l.label_set_id
        ) d
        JOIN label_sets s ON s.id = d.label_set_id
        JOIN runs r ON r.id = d.run_id
        JOIN repos p ON p.id = d.repo_id
        ORDER BY d.count DESC, s.labels
        LIMIT :most""",
        repos=json.dumps(list(wanted.repos)),
        sets=await _sets(view, wanted),
        most=limits.LIST_MAX,
    )
    return [shown.depth(row) for row in found]


async def runs(view: View, repos: Iterable[RepoId], before: int | None, most: int) -> list[RunRow]:
    """At most `most` runs of `repos` together, newest first, with ids under `before`."""
    found = await view.all(
        f"""{shown.RUN}
        WHERE r.repo_id IN (SELECT value FROM json_each(:repos)) AND (:before IS NULL OR r.id < :before)
        ORDER BY r.id DESC
        LIMIT :most""",
        repos=json.dumps(list(repos)),
        before=before,
        most=most,
    )
    return [shown.run_row(row) for row in found]


async def counts(view: View) -> dict[str, int]:
    """Unfinished jobs by state. Each number comes from the partial index that holds just those."""
    found: dict[str, int] = dict.fromkeys((str(state) for state in State if state is not State.FINISHED), 0)
    for group in _GROUPS:
        for row in await view.all(f"SELECT state, count(*) AS count FROM jobs WHERE {group.words} GROUP BY state"):
            found[row["state"]] = row["count"]
    return found


async def _sets(view: View, wanted: Wanted) -> str | None:
    """The label sets that fit, as JSON; None where every one does."""
    if not wanted.labels and wanted.taker is None:
        return None
    found = await view.all(rows.LABEL_SETS)
    return json.dumps([row["id"] for row in found if wanted.fits(rows.labels(row["labels"]))])
