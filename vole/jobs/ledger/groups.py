"""Concurrency groups: who of a line goes on, who waits, whom a newer one cancels. Every fact is a row, none a counter.

A line is a repository's group of one name. A run has its place from its enqueue to its end, a job from the moment
when nothing else keeps it back. A job whose run holds the group of the same name lines up inside of that run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vole.base.errors import Invalid
from vole.base.ids import JobId, RepoId, RunId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import moves
from vole.jobs.model import Ended, Touched
from vole.store.database import Row, Tx
from vole.wire.plan import Concurrency

_NO_RUN = RunId(0)  # of a line that is the whole repository's
_IN_LINE = "repo_id = :repo AND name = :name AND within = :within"


@dataclass(frozen=True)
class Line:
    """Where places stand one behind the other. `within`: the run inside of which it is."""

    repo: RepoId
    name: str
    within: RunId

    @property
    def values(self) -> dict[str, object]:
        """For statements with _IN_LINE."""
        return {"repo": self.repo, "name": self.name, "within": self.within}


@dataclass(frozen=True)
class Member:
    """Who takes a place: a run, or a job of it."""

    repo: RepoId
    run: RunId
    job: JobId | None = None


def enter(tx: Tx, index: QueueIndex, member: Member, wish: Concurrency) -> tuple[Touched, set[RunId]]:
    """The last place of the line, or the group at once when it is free.

    A newer one may cancel those before it, unless they are spared or of its own run: what was told whom, and the runs
    that this moved.
    """
    line = _line_of(tx, member, wish.group)
    before = _older(tx, line, member, wish)
    tx.run(
        f"""
        INSERT INTO group_places (repo_id, name, within, place, run_id, job_id, spared)
        VALUES (:repo, :name, :within, (SELECT coalesce(max(place), 0) + 1 FROM group_places WHERE {_IN_LINE}),
          :run, :job, :spared)""",
        **line.values,
        run=member.run,
        job=member.job,
        spared=int(wish.spared),
    )
    _event(tx, line, member.run, member.job, "group_entered")
    ended: tuple[Ended, ...] = ()
    moved: set[RunId] = set()
    for place in before:
        ended += _cancel(tx, index, place, _cause(tx, member, wish))
        moved.add(RunId(place["run_id"]))
    _admit(tx, line)
    return Touched(ended=ended), moved


def leave(tx: Tx, run: RunId) -> set[RunId]:
    """Free what the run and its jobs held and are over with; the runs of those whose turn it is now."""
    over = f"SELECT * FROM group_places g WHERE run_id = :run AND {rows.PLACE_IS_OVER} ORDER BY name, within, place"
    # Told in one order: a set of lines has another one in each process.
    lines = dict.fromkeys(_drop(tx, place) for place in tx.all(over, run=run, now=tx.now))
    return {next_ for line in lines if (next_ := _admit(tx, line)) is not None}


def waits(tx: Tx, run: RunId) -> bool:
    """True while the run as a whole waits for its group: none of its jobs moves then."""
    sql = "SELECT 1 FROM group_places WHERE run_id = :run AND job_id IS NULL AND held_at IS NULL"
    return tx.one(sql, run=run) is not None


def place_of(tx: Tx, job: JobId, run: RunId) -> Row | None:
    """The place of one job: `held_at` says whether it is its turn."""
    return tx.one("SELECT * FROM group_places WHERE run_id = :run AND job_id = :job", run=run, job=job)


def circle(tx: Tx, job: JobId, run: RunId) -> str | None:
    """The run that has what `job` waits for and waits itself, over others or not, for what `job`'s run has.

    Nobody in such a circle could ever go on. Only runs wait while they hold: a job that holds a group is on its way.
    """
    place = place_of(tx, job, run)
    assert place is not None, "asked of one that waits"
    first: RunId | None = None
    seen: set[RunId] = set()
    todo = [_line(place)]
    while todo:
        holder = _holding_run(tx, todo.pop())
        if holder is None or holder in seen:
            continue
        first = first or holder
        if holder == run:
            return _address(tx, first)
        seen.add(holder)
        todo += [_line(row) for row in tx.all(_WAITING_JOBS_OF, run=holder)]
    return None


def runs_of_set_aside(tx: Tx) -> Collection[RunId]:
    """Runs with a place and a job that is worked on no more: they may keep others waiting for nothing."""
    found = tx.all(
        "SELECT DISTINCT g.run_id FROM jobs j JOIN group_places g ON g.run_id = j.run_id WHERE j.set_aside IS NOT NULL"
    )
    return [RunId(row["run_id"]) for row in found]


_WAITING_JOBS_OF = """
SELECT g.*
FROM group_places g
JOIN jobs j ON j.id = g.job_id
WHERE g.run_id = :run AND g.held_at IS NULL AND j.state = 'blocked'"""


def _line_of(tx: Tx, member: Member, name: str) -> Line:
    sql = "SELECT 1 FROM group_places WHERE run_id = :run AND job_id IS NULL AND name = :name"
    inside = member.job is not None and tx.one(sql, run=member.run, name=name) is not None
    return Line(member.repo, name, member.run if inside else _NO_RUN)


def _line(place: Row) -> Line:
    return Line(RepoId(place["repo_id"]), place["name"], RunId(place["within"]))


def _older(tx: Tx, line: Line, newer: Member, wish: Concurrency) -> list[Row]:
    """The places that a newer one cancels by its wish, first come first."""
    if not wish.cancel_in_progress and wish.queue != "latest":
        return []
    return tx.all(
        f"""
        SELECT * FROM group_places
        WHERE {_IN_LINE} AND spared = 0 AND run_id <> :run AND (:all OR held_at IS NULL)
        ORDER BY place""",
        **line.values,
        run=newer.run,
        all=wish.cancel_in_progress,
    )


def _holding_run(tx: Tx, line: Line) -> RunId | None:
    sql = f"SELECT run_id FROM group_places WHERE {_IN_LINE} AND held_at IS NOT NULL AND job_id IS NULL"
    row = tx.one(sql, **line.values)
    return None if row is None else RunId(row["run_id"])


def _admit(tx: Tx, line: Line) -> RunId | None:
    """Give the group to the first of the line, if that one waits; the run whose turn that makes it."""
    sql = f"SELECT g.*, {rows.PLACE_IS_OVER} AS over FROM group_places g WHERE {_IN_LINE} ORDER BY place LIMIT 1"
    while (first := tx.one(sql, **line.values, now=tx.now)) is not None:
        if first["held_at"] is not None:
            return None
        if not first["over"]:
            taken = f"UPDATE group_places SET held_at = :now WHERE {_IN_LINE} AND place = :place"
            tx.run(taken, **line.values, place=first["place"], now=tx.now)
            _event(tx, line, first["run_id"], first["job_id"], "group_taken")
            return RunId(first["run_id"])
        _drop(tx, first)  # it was cancelled in this change, or removed with its repository
    return None


def _drop(tx: Tx, place: Row) -> Line:
    line = _line(place)
    tx.run(f"DELETE FROM group_places WHERE {_IN_LINE} AND place = :place", **line.values, place=place["place"])
    _event(tx, line, place["run_id"], place["job_id"], "group_left")
    return line


def _cancel(tx: Tx, index: QueueIndex, place: Row, reason: str) -> tuple[Ended, ...]:
    """Stop what stands at `place` as a person would: at once what nobody runs, the rest with its grace."""
    ended: tuple[Ended, ...] = ()
    for row in tx.all(rows.JOBS_OF_RUN, run=place["run_id"]):
        if place["job_id"] not in (None, row["id"]):
            continue
        try:
            ended += moves.stop(tx, index, rows.job(row), reason, "cancelled")
        except Invalid as error:
            moves.set_aside(tx, index, JobId(row["id"]), error.sentence)
    return ended


def _cause(tx: Tx, newer: Member, wish: Concurrency) -> str:
    word = "cancel-in-progress" if wish.cancel_in_progress else "queue: latest"
    return f"{_address(tx, newer.run, newer.job)} came later to concurrency group {wish.group!r} ({word})"


def _address(tx: Tx, run: RunId, job: JobId | None = None) -> str:
    row = tx.one(rows.ADDRESS, run=run, job=job)
    assert row is not None, "runs stay"
    return str(row["address"])


def _event(tx: Tx, line: Line, run: RunId, job: JobId | None, kind: str) -> None:
    moves.event(tx, line.repo, run, kind, {"group": line.name, "within": line.within}, job=job)
