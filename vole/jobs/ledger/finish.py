"""The results of attempts: each accepted once, from its holder, at its epoch. Never touches logs or artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Conflict, Exhausted, Fenced
from vole.base.ids import Epoch, JobId, RepoId, RunId, SessionId
from vole.base.limits import LeaseTimes
from vole.jobs.index import QueueIndex
from vole.jobs.lease import JobLease
from vole.jobs.ledger import moves
from vole.jobs.ledger.leases import hold, start_unsaid
from vole.jobs.ledger.settle import plan_of, settle_all
from vole.jobs.model import Conclusion, EndCause, Happening, Job, Policy, State, Touched, times_of
from vole.store.database import Tx
from vole.wire import codec, runner


@dataclass(frozen=True)
class StoredLog:
    """What lies on disk of an attempt's log."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Result:
    """What a runner process says that an attempt came to, and what is stored of its log."""

    session: SessionId
    finish: runner.Finish
    stored: StoredLog


@dataclass(frozen=True)
class Accepted:
    """The answer to a result, and whose it is; `attempt` is None for a repeat, which changes nothing."""

    answer: runner.Finished
    touched: Touched
    attempt: tuple[RepoId, RunId, JobId, Epoch] | None


@dataclass(frozen=True)
class _Taken:
    """A result that is accepted in this change."""

    result: Result
    digest: str
    job: Job
    lease: JobLease

    @property
    def complete(self) -> bool:
        """True when what is stored of the log is what was declared."""
        declared, stored = self.result.finish.log, self.result.stored
        return (stored.bytes, stored.sha256) == (declared.bytes, declared.sha256)


def finish_all(tx: Tx, results: Sequence[Result], index: QueueIndex, policy: Policy) -> list[Accepted]:
    """Accept each result of an attempt that its session holds, or answer a repeat like the first; in their order.

    Raises Fenced for an attempt that is over, Conflict for a second, different result, Exhausted for outputs over
    OUTPUT_BYTES_MAX; nothing of any of them is changed then.
    """
    answers, taken, again = dict[int, Accepted](), dict[JobId, tuple[int, _Taken]](), list[int]()
    for place, result in enumerate(results):
        if result.finish.job in taken:  # said twice in one moment: the second meets what the first left
            again.append(place)
        elif isinstance(found := _take(tx, result), Accepted):
            answers[place] = found
        else:
            taken[result.finish.job] = place, found
    if taken:
        places, found_all = zip(*taken.values(), strict=True)
        answers |= zip(places, _end_all(tx, index, found_all, times_of(policy)), strict=True)
    if again:
        answers |= zip(again, finish_all(tx, [results[place] for place in again], index, policy), strict=True)
    return [answers[place] for place in range(len(results))]


def _take(tx: Tx, result: Result) -> _Taken | Accepted:
    finish = result.finish
    digest = hashlib.sha256(codec.canonical(finish)).hexdigest()
    try:
        job, held = hold(tx, finish.job, result.session, finish.epoch)
    except Fenced:
        repeat = _repeated(tx, result.session, finish, digest)
        if repeat is None:
            raise
        return Accepted(repeat, Touched(), None)
    # Counted as the harness counts them: escapes of the stored form are not the job's.
    size = sum(len(name.encode()) + len(value.encode()) for name, value in finish.outputs.items())
    if size > limits.OUTPUT_BYTES_MAX:
        raise Exhausted(f"outputs of {size} bytes; at most {limits.OUTPUT_BYTES_MAX} (OUTPUT_BYTES_MAX)")
    return _Taken(result, digest, job, held)


def _end_all(tx: Tx, index: QueueIndex, taken: Sequence[_Taken], times: LeaseTimes) -> list[Accepted]:
    jobs = start_unsaid(tx, index, [(one.job, one.lease) for one in taken], times)
    moves.end_attempts(tx, jobs, [_ending(one) for one in taken])
    ends = [_concluding(tx.now, job, one.result.finish) for job, one in zip(jobs, taken, strict=True)]
    moves.move_all(tx, index, ends)
    touched = settle_all(tx, index, dict.fromkeys(job.run for job in jobs))
    return [_accepted(job, one, touched.pop(job.run, Touched())) for job, one in zip(jobs, taken, strict=True)]


def _accepted(job: Job, one: _Taken, settled: Touched) -> Accepted:
    answer = _answer(one.result.finish, one.result.stored.bytes, complete=one.complete)
    touched = Touched(frozenset((job.run,)), leasable=True) | settled
    return Accepted(answer, touched, (job.repo, job.run, job.id, job.epoch))


def artifact_names(tx: Tx, job: JobId) -> dict[str, int | None]:
    """The artifacts that the job was pinned with, each with its days of retention (None: the server's default)."""
    return {artifact.name: artifact.retention_days for artifact in plan_of(tx, job).artifacts}


def _repeated(tx: Tx, session: SessionId, result: runner.Finish, digest: str) -> runner.Finished | None:
    row = tx.one(
        """
        SELECT result_digest, log_state, log_bytes
        FROM attempts
        WHERE job_id = :job AND epoch = :epoch AND session_id = :session AND ended_at IS NOT NULL""",
        job=result.job,
        epoch=result.epoch,
        session=session,
    )
    if row is None or row["result_digest"] is None:
        return None
    if row["result_digest"] != digest:
        raise Conflict(f"attempt {result.epoch} of job {result.job} has a result already, and it is another one")
    return _answer(result, row["log_bytes"], complete=row["log_state"] == "complete")


def _answer(finish: runner.Finish, stored_bytes: int, *, complete: bool) -> runner.Finished:
    return runner.Finished(finish.job, finish.epoch, "complete" if complete else "incomplete", stored_bytes)


def _log_note(one: _Taken) -> str:
    """Why the log is not whole; empty when it is."""
    stored, declared = one.result.stored.bytes, one.result.finish.log.bytes
    if one.complete:
        return ""
    if stored == declared:
        return f"log incomplete: {stored} bytes are stored, with another digest than declared"
    return f"log incomplete: {stored} of {declared} bytes"


def _cause(job: Job) -> EndCause:
    if job.state is not State.CANCELLING:
        return EndCause.FINISHED
    return EndCause.TIMED_OUT if job.ending_as is Conclusion.TIMED_OUT else EndCause.CANCELLED


def _ending(one: _Taken) -> dict[str, object]:
    finish = one.result.finish
    return {
        "end_cause": _cause(one.job),
        "end_detail": _log_note(one),
        "conclusion": finish.conclusion,
        "log_bytes": one.result.stored.bytes,
        "log_declared": finish.log.bytes,
        "log_sha256": finish.log.sha256,
        "log_state": "complete" if one.complete else "incomplete",
        "log_truncated": int(finish.log.truncated),
        "result_digest": one.digest,
        "steps": codec.canonical(finish.steps).decode(),
    }


def _concluding(now: Moment, job: Job, finish: runner.Finish) -> moves.Move:
    if job.state is State.CANCELLING:  # the acknowledgement, whatever the job came to meanwhile
        return moves.cancelled(now, job, _cause(job))
    conclusion, marked = moves.forgiven(job, Conclusion(finish.conclusion))
    outputs = json.dumps(finish.outputs, separators=(",", ":"), ensure_ascii=False)
    more = {"reason": finish.reason[: limits.PROBLEM_CHARS_MAX], "marked": marked, "cause": EndCause.FINISHED}
    return moves.concluding(now, job, Happening.CONCLUDED, conclusion, outputs=outputs, **more)
