"""A queue to play with: the real ledgers on SQLite in memory, one change after the other, checked as it goes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests import invariants
from vole.base.clock import ManualClock, Moment, seconds
from vole.base.entropy import SeededEntropy
from vole.base.ids import AccountName, CommitId, Epoch, JobId, JobKey, PushId, RefName, RepoId, RepoName, SessionId
from vole.jobs import ledger
from vole.jobs.index import QueueIndex
from vole.jobs.match import Ask
from vole.jobs.model import Holder, Policy, QueuedRun, RunSource
from vole.people import ledger as people
from vole.people.model import PublicKey
from vole.repos import ledger as repos
from vole.runners import ledger as runners
from vole.store.database import Tx, open_writer
from vole.wire import runner
from vole.wire.plan import EventFacts, JobPlan, RunPlan, StepPlan

COMMIT = CommitId("1" * 40)
BLOB = CommitId("2" * 40)
EVENT = EventFacts("push", "refs/heads/main", "main", "branch", None, COMMIT, "ada")
POLICY = Policy(ttl_s=60.0, cap=None, queue_timeout_s=86_400.0, url="http://forge", version="0")
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def a_job(key: str = "test", *, repo: str = "app", **more: Any) -> JobPlan:
    """A valid job; `more` names what matters. The id is the key up to its dot."""
    given: dict[str, Any] = {
        "repository": RepoName(repo),
        "commit": COMMIT,
        "workflow": "ci",
        "workflow_path": ".vole/workflows/ci.yml",
        "workflow_blob": BLOB,
        "job": key.partition(".")[0],
        "key": JobKey(key),
        "name": key,
        "event": EVENT,
        "steps": (StepPlan("true", 1),),
    }
    return JobPlan(**(given | more))


def a_run(*jobs: JobPlan, skipped: Any = None) -> RunPlan:
    """A valid run of these jobs, or of one."""
    jobs = jobs or (() if skipped else (a_job(),))
    return RunPlan(RefName("refs/heads/main"), COMMIT, "ci", ".vole/workflows/ci.yml", BLOB, EVENT, jobs, skipped)


def a_result(job: JobId, epoch: Epoch, conclusion: Any = "success", **more: Any) -> runner.Finish:
    """A result with an empty log."""
    return runner.Finish(job, epoch, conclusion, runner.LogSeal(0, EMPTY_SHA256), **more)


def a_hello(name: str, labels: Iterable[str] = (), **more: Any) -> runner.Hello:
    """A valid hello; the incarnation is made of the name."""
    given: dict[str, Any] = {
        "version": "0",
        "wire": runner.Wire(1, 1),
        "platform": "linux",
        "machine": "x64",
        "python": "3.11",
        "name": name,
        "incarnation": f"{name}-1",
        "slots": 1,
        "labels": tuple(labels),
    }
    return runner.Hello(**(given | more))


def a_key(name: str) -> PublicKey:
    return PublicKey("ssh-ed25519", f"ssh-ed25519 {name}", f"SHA256:{name}", "")


@dataclass(frozen=True)
class _View:
    """store.View over the connection in memory."""

    connection: Any
    now: Moment

    async def one(self, sql: str, /, **values: Any) -> Any:
        return self.connection.execute(sql, values).fetchone()

    async def all(self, sql: str, /, **values: Any) -> list[Any]:
        return list(self.connection.execute(sql, values))


@dataclass
class Queue:
    """A server's queue without doors, loop or thread. Every change is checked against the invariants."""

    policy: Policy = POLICY
    clock: ManualClock = field(default_factory=ManualClock)
    checked: bool = True

    def __post_init__(self) -> None:
        self.connection = open_writer(":memory:")
        self.entropy = SeededEntropy()
        self.index = QueueIndex()
        self.repos: dict[str, RepoId] = {}
        self.asks: dict[str, Ask] = {}
        self.last: Any = None
        self._pushes = 0
        self._tokens = 0

    def write(self, change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As Database.write does: whole or not at all, then what waits for the commit."""
        tx = Tx(self.connection, self.clock.now(), self.entropy)
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            result = change(tx, *args, **kwargs)
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        for step in tx._after:
            step()
        if self.checked:
            self.check()
        return result

    def check(self) -> None:
        invariants.check(self.connection, cap=self.policy.cap)
        invariants.all_owed(self.connection)

    def read(self, query: Callable[..., Any], *args: Any) -> Any:
        """As Database.read does, on the one connection there is."""
        return asyncio.run(query(_View(self.connection, self.clock.now()), *args))

    def one(self, sql: str, **values: Any) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def all(self, sql: str, **values: Any) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    # ---- who is there

    def repo(self, name: str) -> RepoId:
        if name not in self.repos:
            self.repos[name] = self.write(repos.create_repo, RepoName(name), public=False).id
        return self.repos[name]

    def runner(self, name: str, labels: Iterable[str] = (), *, grant: Iterable[str] = ("app",), **more: Any) -> Ask:
        """A connected runner with a key of its own, granted these repositories."""
        hello = a_hello(name, labels, **more)
        account = self.write(people.add_account, AccountName(name), admin=False)
        self.write(people.add_key, account, a_key(name), "runner")
        for repo in grant:
            self.write(people.grant, account, self.repo(repo), "run")
        serves = frozenset(self.repo(repo) for repo in grant if not hello.repos or repo in hello.repos)
        session = self.write(runners.connect, runners.Claim(AccountName(name), f"SHA256:{name}", hello, serves))
        ask = Ask(
            holder=Holder(session, name, f"SHA256:{name}", name, "0", "linux", "x64"),
            labels=frozenset(labels),
            filter=frozenset(hello.repos),
            serves=serves,
            slots=hello.slots,
            only=hello.only,
        )
        self.asks[name] = ask
        return ask

    # ---- what happens

    def enqueue(
        self, plan: RunPlan, *, repo: str = "app", labels: dict[str, tuple[str, ...]] | None = None
    ) -> QueuedRun:
        self._pushes += 1
        source = RunSource(self.repo(repo), PushId(self._pushes), 0)
        wanted = labels if labels is not None else plan.labels
        run: QueuedRun = self.write(ledger.enqueue_run, self.index, source, plan, wanted)
        return run

    def job(self, *labels: str, repo: str = "app", **more: Any) -> JobId:
        """One queued job that asks for these labels."""
        plan = a_run(a_job(repo=repo, runs_on=labels, **more))
        return self.enqueue(plan, repo=repo, labels={"test": labels}).jobs[0]

    def look(self, *asks: Ask | str) -> list[Any]:
        """One look for all of these; what each got."""
        wanted = [self._tokened(self.asks[ask] if isinstance(ask, str) else ask) for ask in asks]
        return list(self.write(ledger.lease_many, self.index, wanted, self.policy).answers)

    def _tokened(self, ask: Ask) -> Ask:
        self._tokens += 1
        return ask if ask.token else dataclasses.replace(ask, token=f"token-{self._tokens}")

    def lease(self, ask: Ask | str) -> runner.Job:
        (job,) = self.look(ask)
        assert isinstance(job, runner.Job), job
        return job

    def start(self, job: runner.Job, ask: Ask | str) -> None:
        self.write(ledger.start, self.index, job.lease.job, self.session(ask), job.lease.epoch, self.policy)

    def run(self, ask: Ask | str) -> runner.Job:
        """Lease and start."""
        job = self.lease(ask)
        self.start(job, ask)
        return job

    def renew(self, job: runner.Job, ask: Ask | str, step: int = 0) -> ledger.Renewals:
        from vole.base.limits import lease_times  # noqa: PLC0415

        named = (runner.Renewal(job.lease.job, job.lease.epoch, step),)
        done: ledger.Renewals = self.write(ledger.renew_many, self.session(ask), named, lease_times(self.policy.ttl_s))
        return done

    def finish(self, job: runner.Job, ask: Ask | str, conclusion: Any = "success", **more: Any) -> ledger.Accepted:
        result = a_result(job.lease.job, job.lease.epoch, conclusion, **more)
        return self.finish_with(result, ask)

    def finish_with(self, result: runner.Finish, ask: Ask | str, stored: Any = None) -> ledger.Accepted:
        stored = stored or ledger.StoredLog(0, EMPTY_SHA256)
        given = ledger.Result(self.session(ask), result, stored)
        accepted: ledger.Accepted = self.write(ledger.finish_all, [given], self.index, self.policy)[0]
        return accepted

    def hand_back(self, job: runner.Job, ask: Ask | str) -> None:
        self.write(ledger.hand_back, self.index, job.lease.job, self.session(ask), job.lease.epoch, "disk is low")

    def sweep(self, explained: dict[JobId, str] | None = None) -> Any:
        swept = self.write(ledger.sweep, self.index, self.policy, self.last, explained or {})
        self.last = swept.at
        return swept.touched

    def pass_time(self, span_s: float, *, sweeping: bool = True) -> None:
        """Let time pass with the sweep running each second of it, as the server does."""
        if not sweeping:
            self.clock.advance(seconds(span_s))
            return
        rest = span_s
        while rest > 0:
            self.clock.advance(seconds(min(1.0, rest)))
            rest -= 1.0
            self.sweep()

    def restart(self) -> None:
        """The server dies and begins again: memory is gone, rows stay."""
        self.index = QueueIndex()
        self.last = None
        self.write(ledger.restart, self.index, self.policy)

    # ---- what is true

    def session(self, ask: Ask | str) -> SessionId:
        return (self.asks[ask] if isinstance(ask, str) else ask).holder.session

    def state(self, job: JobId) -> tuple[str, str | None]:
        row = self.one("SELECT state, conclusion FROM jobs WHERE id = :job", job=job)
        return row["state"], row["conclusion"]

    def states(self, run: QueuedRun) -> dict[str, str]:
        """By key: the conclusion, or the state of a job that has none."""
        found = self.all("SELECT key, state, conclusion FROM jobs WHERE run_id = :run ORDER BY ordinal", run=run.id)
        return {row["key"]: row["conclusion"] or row["state"] for row in found}

    def run_of(self, run: QueuedRun) -> tuple[str, str | None]:
        row = self.one("SELECT state, conclusion FROM runs WHERE id = :run", run=run.id)
        return row["state"], row["conclusion"]

    def with_policy(self, **changes: Any) -> Queue:
        self.policy = dataclasses.replace(self.policy, **changes)
        return self
