"""What a holder says of its lease, from the start to the result, and what a person says of it: cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from vole.base import limits
from vole.base.errors import Fenced, Invalid, NotFound
from vole.base.ids import JobKey, RepoName, RunId, RunNumber
from vole.base.supervise import carried_through
from vole.evidence import ledger as evidence
from vole.evidence.logs import EMPTY, LogKey
from vole.flows.leasing.desk import Desk, LeasingParts, log_key
from vole.flows.leasing.reporting import reported_tests
from vole.jobs import ledger, reads
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import Accepted, Result, StoredLog
from vole.jobs.model import Held, Policy, Touched
from vole.people.access import lacking, may
from vole.people.model import Person
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.runners.roster import Session
from vole.store.database import Tx, View
from vole.wire.records import ReportedTests
from vole.wire.runner import FencedLease, Finish, Finished, Handback, Marks, Renew, Renewed, Started

_NO_LOG = StoredLog(0, "")


@dataclass(frozen=True)
class _Result(Result):
    """A result, with what its test reports say."""

    tests: ReportedTests | None = None


@dataclass(frozen=True)
class Attempts:
    """The life of a lease after the grant."""

    desk: Desk

    async def started(self, session: Session, started: Started) -> None:
        """The holder has the job. Raises Fenced."""
        parts = self._heard(session)
        policy = self.desk.policy
        touched = await parts.db.write(ledger.start, parts.index, started.job, session.id, started.epoch, policy)
        self.desk.tell(touched)

    async def renew(self, session: Session, renew: Renew) -> tuple[Renewed, tuple[FencedLease, ...]]:
        """The leases that live on, and those that do not. One that is being cancelled is told so again."""
        parts = self._heard(session)
        times = limits.lease_times(self.desk.policy.ttl_s)
        done = await parts.db.write(ledger.renew_many, session.id, renew.leases, times)
        for ended in done.cancelling:
            session.order(self.desk.order_of(ended))
        return Renewed(done.alive), tuple(FencedLease(ref.job, ref.epoch) for ref in done.fenced)

    async def marks(self, session: Session, marks: Marks) -> None:
        """Keep step borders. Raises Fenced."""
        parts = self._heard(session)
        await parts.db.write(_mark, session, marks)
        parts.bells.ring(f"log:{marks.job}")

    async def finish(self, session: Session, result: Finish) -> Finished:
        """Accept a result once it is durable, its log before it; a repeat is answered like the first.

        Raises Fenced, Conflict for another result, Invalid for an artifact that is not stored or not of the job.
        """
        self._heard(session)
        try:
            held = self.desk.held(session, result.job, result.epoch)
        except Fenced:
            return await self._result(_Result(session.id, result, _NO_LOG))
        self._check_artifacts(held, result)
        parts = self.desk.parts
        tests = await reported_tests(held.repo, result.artifacts, parts.artifacts, parts.offload)
        return await self._accept(session, result, tests, log_key(held, result.epoch))

    async def handback(self, session: Session, handback: Handback) -> None:
        """The holder gives the lease back. Raises Fenced."""
        parts = self._heard(session)
        why = handback.reason[: limits.TEXT_CHARS_MAX]
        back = await parts.db.write(ledger.hand_back, parts.index, handback.job, session.id, handback.epoch, why)
        self.desk.tell(back)

    async def cancel(self, person: Person, repo: RepoName, run: RunNumber, key: JobKey | None, reason: str) -> int:
        """Cancel a job, or a run (`key` None); how many jobs were not finished. Raises Denied, NotFound."""
        target = await self.desk.parts.db.read(_target, person, repo, run)
        why = f"cancelled by {person.name}" + (f": {reason[: limits.TEXT_CHARS_MAX]}" if reason else "")
        return await carried_through(self._cancel(target, key, why))

    async def _cancel(self, run: RunId, key: JobKey | None, why: str) -> int:
        count, touched = await self.desk.parts.db.write(_cancel, self.desk.parts.index, run, key, why)
        self.desk.tell(touched | Touched(leasable=count > 0))
        return count

    async def _accept(self, session: Session, result: Finish, tests: ReportedTests | None, log: LogKey) -> Finished:
        parts = self.desk.parts
        parts.logs.close_for_good(log)
        try:
            seal = await asyncio.to_thread(parts.logs.seal, log) if parts.logs.length(log) else EMPTY
            answer = await self._result(_Result(session.id, result, StoredLog(seal.bytes, seal.sha256), tests))
        finally:
            parts.logs.reopen(log)
        parts.bells.ring(f"log:{result.job}")
        return answer

    async def _result(self, result: _Result) -> Finished:
        parts = self.desk.parts
        accepted = await parts.db.write_each(_finish_all, result, parts.index, self.desk.policy)
        self.desk.tell(accepted.touched)
        return accepted.answer

    def _check_artifacts(self, held: Held, result: Finish) -> None:
        for file in result.artifacts:
            if not self.desk.parts.artifacts.has(held.repo, file.sha256, file.size):
                raise Invalid(f"artifact {file.name!r}: {file.path!r} is not stored; send it before the result")

    def _heard(self, session: Session) -> LeasingParts:
        session.last_contact = self.desk.parts.clock.now()
        return self.desk.parts


def _mark(tx: Tx, session: Session, marks: Marks) -> None:
    ledger.hold(tx, marks.job, session.id, marks.epoch)
    evidence.add_marks(tx, marks.job, marks.epoch, marks.marks)


def _finish_all(tx: Tx, results: Sequence[_Result], index: QueueIndex, policy: Policy) -> list[Accepted]:
    accepted = ledger.finish_all(tx, results, index, policy)
    for one, result in zip(accepted, results, strict=True):
        if one.attempt is not None:
            _keep_evidence(tx, evidence.Attempt(*one.attempt), result)
    return accepted


def _keep_evidence(tx: Tx, attempt: evidence.Attempt, result: _Result) -> None:
    finish = result.finish
    if not (finish.annotations or finish.summary or finish.artifacts):
        return
    retention = ledger.artifact_names(tx, attempt.job) if finish.artifacts else {}
    if unknown := {file.name for file in finish.artifacts} - retention.keys():
        raise Invalid(f"artifact {min(unknown)!r} is none that the job was pinned with")
    evidence.add_result(tx, attempt, finish, retention)
    if result.tests is not None:
        evidence.add_tests(tx, attempt, result.tests)


async def _target(view: View, person: Person, repo: RepoName, run: RunNumber) -> RunId:
    found = await _visible(view, person, repo)
    if not may(person, "write", found):
        raise lacking(person, "write", found)
    return await reads.find_run(view, found.id, run)


async def _visible(view: View, person: Person, repo: RepoName) -> Repo:
    found = await repos.repo_named(view, repo)
    if found is None or not may(person, "read", found):
        raise NotFound(f"there is no repository {repo}")
    return found


def _cancel(tx: Tx, index: QueueIndex, run: RunId, key: JobKey | None, why: str) -> tuple[int, Touched]:
    if key is None:
        return ledger.cancel_run(tx, index, run, why)
    return ledger.cancel_job(tx, index, run, key, why)
