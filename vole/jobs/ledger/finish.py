"""The result of an attempt: accepted once, from its holder, at its epoch. Never touches logs or artifacts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from vole.base import limits
from vole.base.errors import Conflict, Exhausted, Fenced
from vole.base.ids import Epoch, JobId, RepoId, RunId, SessionId
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import moves
from vole.jobs.ledger.leases import hold, start_unsaid
from vole.jobs.ledger.settle import plan_of, settle
from vole.jobs.model import Conclusion, EndCause, Happening, Job, Policy, State, Touched, times_of
from vole.store.database import Tx
from vole.wire import codec, runner


@dataclass(frozen=True)
class StoredLog:
    """What lies on disk of an attempt's log."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Accepted:
    """The answer to a result, and whose it is; `attempt` is None for a repeat, which changes nothing."""

    answer: runner.Finished
    touched: Touched
    attempt: tuple[RepoId, RunId, JobId, Epoch] | None


def finish(
    tx: Tx, index: QueueIndex, session: SessionId, result: runner.Finish, stored: StoredLog, policy: Policy
) -> Accepted:
    """Accept the result of the attempt that `session` holds, or answer a repeat like the first.

    Raises Fenced for an attempt that is over, Conflict for a second, different result, Exhausted for outputs over
    OUTPUT_BYTES_MAX; nothing is changed then.
    """
    digest = hashlib.sha256(codec.canonical(result)).hexdigest()
    try:
        job, held = hold(tx, result.job, session, result.epoch)
    except Fenced:
        repeat = _repeated(tx, session, result, digest)
        if repeat is None:
            raise
        return Accepted(repeat, Touched(), None)
    # Counted as the harness counts them: escapes of the stored form are not the job's.
    size = sum(len(name.encode()) + len(value.encode()) for name, value in result.outputs.items())
    if size > limits.OUTPUT_BYTES_MAX:
        raise Exhausted(f"outputs of {size} bytes; at most {limits.OUTPUT_BYTES_MAX} (OUTPUT_BYTES_MAX)")
    outputs = json.dumps(result.outputs, separators=(",", ":"), ensure_ascii=False)
    job = start_unsaid(tx, index, job, held, times_of(policy))
    _end(tx, job, result, digest, stored)
    _conclude(tx, index, job, result, outputs)
    touched = Touched(runs=frozenset((job.run,)), leasable=True) | settle(tx, index, job.run)
    answer = _answer(result, stored.bytes, _log_state(result, stored))
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
    return _answer(result, row["log_bytes"], row["log_state"])


def _answer(result: runner.Finish, stored_bytes: int, state: str) -> runner.Finished:
    whole = "complete" if state == "complete" else "incomplete"
    return runner.Finished(result.job, result.epoch, log=whole, log_bytes=stored_bytes)  # type: ignore[arg-type]


def _log_state(result: runner.Finish, stored: StoredLog) -> str:
    agrees = (stored.bytes, stored.sha256) == (result.log.bytes, result.log.sha256)
    return "complete" if agrees else "incomplete"


def _log_note(result: runner.Finish, stored: StoredLog) -> str:
    """Why the log is not whole; empty when it is."""
    if _log_state(result, stored) == "complete":
        return ""
    if stored.bytes == result.log.bytes:
        return f"log incomplete: {stored.bytes} bytes are stored, with another digest than declared"
    return f"log incomplete: {stored.bytes} of {result.log.bytes} bytes"


def _end(tx: Tx, job: Job, result: runner.Finish, digest: str, stored: StoredLog) -> None:
    cause = EndCause.FINISHED
    if job.state is State.CANCELLING:
        cause = EndCause.TIMED_OUT if job.ending_as is Conclusion.TIMED_OUT else EndCause.CANCELLED
    fields = {
        "log_bytes": stored.bytes,
        "log_declared": result.log.bytes,
        "log_sha256": result.log.sha256,
        "log_state": _log_state(result, stored),
        "log_truncated": int(result.log.truncated),
        "result_digest": digest,
        "steps": codec.canonical(result.steps).decode(),
    }
    moves.end_attempt(tx, job, cause, _log_note(result, stored), Conclusion(result.conclusion), fields)


def _conclude(tx: Tx, index: QueueIndex, job: Job, result: runner.Finish, outputs: str) -> None:
    if job.state is State.CANCELLING:  # the acknowledgement, whatever the job came to meanwhile
        cause = EndCause.TIMED_OUT if job.ending_as is Conclusion.TIMED_OUT else EndCause.CANCELLED
        moves.end_cancelling(tx, index, job, cause)
        return
    conclusion, marked = moves.forgiven(job, Conclusion(result.conclusion))
    more = {"reason": result.reason[: limits.PROBLEM_CHARS_MAX], "marked": marked, "cause": EndCause.FINISHED}
    moves.conclude(tx, index, job, Happening.CONCLUDED, conclusion, outputs=outputs, **more)
