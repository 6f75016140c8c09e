"""The one way a job changes: along a row of `model.MOVES`, at its state and epoch, with its event, and the index after.

Nothing else updates `jobs.state`, and no attempt ends without its cause in the event log.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Fenced
from vole.base.ids import Epoch, JobId, RepoId, RunId, SessionId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import outbox
from vole.jobs.model import FORGIVEN, HELD, MOVES, Conclusion, EndCause, Ended, Happening, Held, Job, State
from vole.store.database import Tx

Fields = Mapping[str, object]
_NOTHING: Fields = {}
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each event

_INSERT_EVENT = """
INSERT INTO events (id, at, repo_id, run_id, job_id, epoch, kind, detail, batch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(frozen=True)
class Move:
    """One job along one row of the table. `fields` are further columns, `detail` goes into the event."""

    job: Job
    what: Happening
    to: State
    fields: Fields = field(default_factory=dict)
    detail: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Happened:
    """A row for the event log."""

    repo: RepoId
    run: RunId
    kind: str
    detail: Fields
    job: JobId | None = None
    epoch: Epoch | None = None


def move(
    tx: Tx, index: QueueIndex, job: Job, what: Happening, to: State, *, fields: Fields = _NOTHING, **detail: object
) -> Job:
    """The job after `what` took it to `to`. Raises Fenced as `move_all` does."""
    return move_all(tx, index, [Move(job, what, to, fields, detail)])[0]


def move_all(tx: Tx, index: QueueIndex, moves: Sequence[Move]) -> list[Job]:
    """The jobs after their moves, in order. Each job moves once; rows that change alike go with one statement.

    Raises Fenced, with nothing changed, when a row is no longer at its job's state and epoch.
    """
    alike: defaultdict[tuple[str, ...], list[tuple[object, ...]]] = defaultdict(list)
    moved, told = [], []
    for one in moves:
        job = one.job
        assert one.to in MOVES.get((job.state, one.what), ()), (
            f"{job.state} -{one.what}-> {one.to} is no row of the table"
        )
        values = {**_held_until(job, one.to), **one.fields}
        alike[tuple(values)].append((one.to, *values.values(), job.id, job.state, job.epoch))
        moved.append(after := _moved(job, one.to, values))
        told.append(Happened(job.repo, job.run, one.what, {"to": one.to, **one.detail}, job.id, after.epoch))
    for columns, rows_ in alike.items():
        if tx.connection.executemany(_update(columns), rows_).rowcount != len(rows_):
            which = f"job {moves[0].job.id}" if len(moves) == 1 else f"one of {len(moves)} jobs"
            raise Fenced(f"{which} is no longer at its state and epoch. Nothing was changed.")
    event_all(tx, told)
    tx.after_commit(lambda: _follow(index, moves))
    return moved


def _follow(index: QueueIndex, moves: Sequence[Move]) -> None:
    for one in moves:
        job = one.job
        if job.state is State.QUEUED:
            index.remove(job.id)
        if job.state in HELD and one.to not in HELD:
            index.release(job.id, job.epoch)


def conclude(tx: Tx, index: QueueIndex, job: Job, what: Happening, conclusion: Conclusion, **more: Any) -> Job:
    """The job, finished; `more` as of `concluding`."""
    return move_all(tx, index, [concluding(tx.now, job, what, conclusion, **more)])[0]


def concluding(now: Moment, job: Job, what: Happening, conclusion: Conclusion, **more: Any) -> Move:
    """The end of a job. `more` may hold `reason` and `marked`, both shown on pages, `outputs`, and the `cause`."""
    fields: dict[str, object] = {"conclusion": conclusion, "finished_at": now}
    fields |= {key: more[key] for key in ("reason", "marked", "outputs") if key in more}
    detail: dict[str, object] = {"conclusion": conclusion}
    detail |= {key: more[key] for key in ("reason", "marked", "cause") if key in more}
    return Move(job, what, State.FINISHED, fields, detail)


def queue(tx: Tx, index: QueueIndex, job: Job, what: Happening, *, fields: Fields = _NOTHING, **detail: object) -> Job:
    """The job, leasable. It keeps its place: the order is by when it was enqueued."""
    queued = move(tx, index, job, what, State.QUEUED, fields={"queued_at": tx.now, "reason": "", **fields}, **detail)
    row = tx.one(rows.LABELS_OF_JOB, job=job.id)
    assert row is not None, f"job {job.id} has no labels"
    labels, names = rows.label_set(row)
    tx.after_commit(lambda: index.add((job.enqueued_at, job.id), labels, names, job.repo))
    return queued


def forgiven(job: Job, conclusion: Conclusion) -> tuple[Conclusion, int]:
    """The job's conclusion and its mark: with `continue-on-error` what failed is a success with a mark."""
    if job.continue_on_error and conclusion in FORGIVEN:
        return Conclusion.SUCCESS, 1
    return conclusion, 0


def end_cancelling(tx: Tx, index: QueueIndex, job: Job, cause: EndCause) -> Job:
    """Cancelling is over: acknowledged, or at its deadline."""
    return move_all(tx, index, [cancelled(tx.now, job, cause)])[0]


def cancelled(now: Moment, job: Job, cause: EndCause) -> Move:
    """The end of a job that is being cancelled, whatever it came to meanwhile."""
    ending, marked = forgiven(job, job.ending_as or Conclusion.CANCELLED)
    return concluding(now, job, Happening.CONCLUDED, ending, marked=marked, cause=cause)


def stop(tx: Tx, index: QueueIndex, job: Job, reason: str, order: str) -> tuple[Ended, ...]:
    """Cancel one job that has not finished: at once when nobody holds it, else its holder is to be told `order`.

    The deadline stays what it was. A job that is being cancelled already is left alone.
    """
    if job.state in (State.BLOCKED, State.QUEUED):
        conclude(tx, index, job, Happening.CANCELLED, Conclusion.CANCELLED, reason=reason)
        return ()
    if job.state not in (State.LEASED, State.RUNNING):
        return ()
    fields: Fields = {"ending_as": Conclusion.CANCELLED, "reason": reason}
    move(tx, index, job, Happening.CANCELLING, State.CANCELLING, fields=fields, reason=reason)
    return (Ended(holder(tx, job), job.id, job.epoch, order),)


def holder(tx: Tx, job: Job) -> SessionId:
    """Who has the live lease of `job`."""
    row = tx.one("SELECT session_id FROM attempts WHERE job_id = :job AND ended_at IS NULL", job=job.id)
    assert row is not None, f"job {job.id} is {job.state}, so somebody holds it"
    return SessionId(row["session_id"])


def end_attempt(tx: Tx, job: Job, cause: EndCause, detail: str = "") -> None:
    """The live attempt of `job` is over without a result, its log cut short.

    Raises Fenced when there is none at the job's epoch.
    """
    end_attempts(tx, [job], [{"end_cause": cause, "end_detail": detail, "log_state": "incomplete"}])


def end_attempts(tx: Tx, jobs: Sequence[Job], fields: Sequence[Fields]) -> None:
    """The live attempts of `jobs` are over; `fields` are columns of each, the same for all of them. Raises Fenced."""
    values = [(tx.now, *one.values(), job.id, job.epoch) for job, one in zip(jobs, fields, strict=True)]
    if tx.connection.executemany(_end(tuple(fields[0])), values).rowcount != len(values):
        which = f"job {jobs[0].id}" if len(jobs) == 1 else f"one of {len(jobs)} jobs"
        raise Fenced(f"{which} has no live attempt at its epoch. Nothing was changed.")
    outbox.owe_attempts(tx, jobs)


def event(  # noqa: PLR0913  # one column each
    tx: Tx,
    repo: RepoId,
    run: RunId,
    kind: str,
    detail: Fields,
    *,
    job: JobId | None = None,
    epoch: Epoch | None = None,
) -> None:
    """Append to the event log."""
    event_all(tx, [Happened(repo, run, kind, detail, job, epoch)])


def event_all(tx: Tx, happened: Sequence[Happened]) -> None:
    """Append to the event log, in order."""
    values = []
    for one in happened:
        ident = tx.ident()
        if tx.batch.first is None:
            tx.batch.first = ident
        values.append(
            (ident, tx.now, one.repo, one.run, one.job, one.epoch, one.kind, _text(one.detail), tx.batch.first)
        )
    tx.connection.executemany(_INSERT_EVENT, values)


def set_aside(tx: Tx, index: QueueIndex, job: JobId, reason: str) -> None:
    """Work on this row no more: it cannot be read. It is counted and named, and stops no other row."""
    row = tx.one(
        "UPDATE jobs SET set_aside = :reason WHERE id = :job AND set_aside IS NULL RETURNING repo_id, run_id",
        reason=reason[: limits.PROBLEM_CHARS_MAX],
        job=job,
    )
    if row is None:
        return
    event(tx, row["repo_id"], row["run_id"], "set_aside", {"reason": reason[: limits.PROBLEM_CHARS_MAX]}, job=job)
    tx.after_commit(lambda: index.remove(job))


def take(tx: Tx, index: QueueIndex, job: Job, held: Held) -> None:
    """Tell the index of a lease once it is durable."""
    tx.after_commit(lambda: index.take(job.id, job.epoch, held))


def _text(detail: Fields) -> str:
    """Most events say what others said before, and JSON costs more than the row; of lists it is made each time."""
    try:
        return _known(tuple(detail.items()))
    except TypeError:
        return _encode(dict(detail))


@lru_cache(maxsize=1024)
def _known(items: tuple[tuple[str, object], ...]) -> str:
    # No event holds a bool or a float, which would be one key with the number that they equal.
    return _encode(dict(items))


def _held_until(job: Job, to: State) -> dict[str, object]:
    """What leaves the row with a lease: its deadlines."""
    if job.state in HELD and to not in HELD:
        return {"deadline_at": None, "timeout_at": None, "step_timeout_at": None, "ending_as": None}
    return {}


def _moved(job: Job, to: State, values: Fields) -> Job:
    """Columns are named as the fields are."""
    return job._replace(state=to, **{key: value for key, value in values.items() if key in Job._fields})  # type: ignore[arg-type]


@cache
def _update(columns: tuple[str, ...]) -> str:
    changes = "".join(f", {column} = ?" for column in columns)
    return f"UPDATE jobs SET state = ?{changes} WHERE id = ? AND state = ? AND epoch = ?"


@cache
def _end(columns: tuple[str, ...]) -> str:
    changes = "".join(f", {column} = ?" for column in columns)
    return f"UPDATE attempts SET ended_at = ?{changes} WHERE job_id = ? AND epoch = ? AND ended_at IS NULL"
