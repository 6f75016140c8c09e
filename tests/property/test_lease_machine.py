"""Anything that runners, people and time may do, in any order: the invariants hold after every step."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests import invariants
from tests.queueing import Queue, a_job, a_run
from vole.base.clock import seconds
from vole.base.errors import Conflict, Fenced
from vole.jobs import ledger
from vole.jobs.model import EndCause, QueuedRun
from vole.wire import runner
from vole.wire.plan import Concurrency

RUNNERS = st.sampled_from(["a", "b", "c"])
CONCLUSIONS = st.sampled_from(["success", "failure", "cancelled", "timed_out", "errored"])
SHAPES = {
    "one": lambda: a_run(a_job("one")),
    "needs": lambda: a_run(a_job("x"), a_job("y", needs=("x",)), a_job("z", needs=("y",), if_="always()")),
    "matrix": lambda: a_run(*[a_job(f"m.{n}", max_parallel=2) for n in (1, 2, 3)], a_job("after", needs=("m",))),
    "gentle": lambda: a_run(a_job("x", continue_on_error=True, on_lost="fail"), a_job("y", needs=("x",))),
    "labelled": lambda: a_run(a_job("one", runs_on=("linux",))),
    # Runs and jobs in each other's groups, every wish: who waits for whom is the order in which they come.
    "run in g": lambda: _grouped("g", a_job("x"), a_job("y", needs=("x",))),
    "run in g, latest": lambda: _grouped("g", a_job("x"), queue="latest"),
    "run in g, spared": lambda: _grouped("g", a_job("x"), spared=True),
    "run in g, job in h": lambda: _grouped("g", a_job("x"), _single("y", "h", needs=("x",)), cancel_in_progress=True),
    "run in h, job in g": lambda: _grouped("h", a_job("x"), _single("y", "g", needs=("x",))),
    "run and its jobs in h": lambda: _grouped("h", _single("x", "h"), _single("y", "h")),
    "matrix in g": lambda: a_run(*[_single(f"m.{n}", "g", max_parallel=2, queue="latest") for n in (1, 2, 3)]),
    "job in h": lambda: a_run(_single("x", "h", cancel_in_progress=True), a_job("after", needs=("x",))),
}


def _grouped(group, *jobs, **wish):
    return dataclasses.replace(a_run(*jobs), concurrency=Concurrency(group, **wish))


def _single(key, group, *, needs=(), max_parallel=None, **wish):
    return a_job(key, needs=needs, max_parallel=max_parallel, concurrency=Concurrency(group, **wish))


class LeaseMachine(RuleBasedStateMachine):
    """A model of what was promised, beside the real ledgers."""

    @initialize(cap=st.sampled_from([None, 1, 3]))
    def begin(self, cap):
        self.queue = Queue(checked=False).with_policy(cap=cap, queue_timeout_s=500.0)
        self.queue.runner("a", ["linux"], grant=["app", "lib"], slots=2)
        self.queue.runner("b", grant=["app"], slots=1)
        self.queue.runner("c", ["linux"], grant=["lib"], slots=1)
        self.runs: list[QueuedRun] = []
        self.leases: list[tuple[runner.Job, str]] = []  # every lease that was ever given
        self.results: dict[tuple[int, int], tuple[runner.Finish, runner.Finished]] = {}

    @rule(shape=st.sampled_from(sorted(SHAPES)), repo=st.sampled_from(["app", "lib"]))
    def push(self, shape, repo):
        self.runs.append(self.queue.enqueue(SHAPES[shape](), repo=repo))

    @rule(names=st.lists(RUNNERS, min_size=1, max_size=3))
    def ask(self, names):
        for got, name in zip(self.queue.look(*names), names, strict=True):
            if isinstance(got, runner.Job):
                self.leases.append((got, name))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), speaker=st.one_of(st.none(), RUNNERS), word=st.sampled_from(["start", "renew", "hand_back"]))
    def say(self, data, speaker, word):
        job, holder = data.draw(st.sampled_from(self.leases))
        live = self._live(job) and speaker in (None, holder)
        try:
            done = getattr(self.queue, word)(job, speaker or holder)
        except Fenced:
            assert not live, f"{word} by the holder of a live lease was fenced"
        else:
            assert live or (word == "renew" and not done.alive), f"{word} on a lease that is over was taken"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), conclusion=CONCLUSIONS)
    def finish(self, data, conclusion):
        job, holder = data.draw(st.sampled_from(self.leases))
        key = (job.lease.job, job.lease.epoch)
        live, before = self._live(job), self.results.get(key)
        try:
            done = self.queue.finish(job, holder, conclusion)
        except Fenced:
            assert not live
            assert before is None
        except Conflict:
            assert before is not None
            assert before[0].conclusion != conclusion
        else:
            assert live or (before is not None and before[1] == done.answer)
            result = runner.Finish(*key, conclusion, runner.LogSeal(0, ""))
            self.results.setdefault(key, (result, done.answer))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def cancel(self, data):
        run = data.draw(st.sampled_from(self.runs))
        self.queue.write(ledger.cancel_run, self.queue.index, run.id, "by ada")

    @rule(span_s=st.sampled_from([1, 10, 16, 61, 200]), sweeping=st.booleans())
    def time(self, span_s, sweeping):
        if sweeping:
            self.queue.pass_time(span_s)
        else:
            self.queue.clock.advance(seconds(span_s))
            self.queue.sweep()

    @rule(name=RUNNERS, removed=st.booleans())
    def lose_connection(self, name, removed):
        queue = self.queue
        if removed:
            queue.write(ledger.end_session, queue.index, queue.session(name), EndCause.KEY_REMOVED, "removed")
        else:
            queue.write(ledger.disconnect, queue.index, queue.session(name), "lost")

    @rule()
    def restart(self):
        self.queue.restart()

    @rule(cap=st.sampled_from([None, 3]))
    def raise_cap(self, cap):
        before = self.queue.policy.cap
        if before is not None and (cap is None or cap > before):
            self.queue.policy = dataclasses.replace(self.queue.policy, cap=cap)

    @rule(repo=st.sampled_from(["app", "lib"]))
    def remove_repository(self, repo):
        """Its jobs end; the row stays, so that the machine can go on with it."""
        self.queue.write(ledger.drop_repo, self.queue.index, self.queue.repo(repo))

    @invariant()
    def everything_holds(self):
        if hasattr(self, "queue"):
            invariants.check(self.queue.connection, cap=self.queue.policy.cap)
            invariants.all_owed(self.queue.connection)

    @invariant()
    def memory_says_what_the_rows_say(self):
        if not hasattr(self, "queue"):
            return
        queue = self.queue
        held = {(row[0], row[1]) for row in queue.all("SELECT job_id, epoch FROM attempts WHERE ended_at IS NULL")}
        queued = {row[0] for row in queue.all("SELECT id FROM jobs WHERE state = 'queued'")}
        assert set(queue.index.held) == held
        assert set(queue.index._lines) == queued

    def _live(self, job: runner.Job) -> bool:
        row = self.queue.one(
            "SELECT 1 FROM attempts WHERE job_id = :job AND epoch = :epoch AND ended_at IS NULL",
            job=job.lease.job,
            epoch=job.lease.epoch,
        )
        return row is not None


LeaseMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)


@pytest.mark.proves("I-01", "I-02", "I-03", "I-04", "I-05", "I-06", "I-07", "I-10", "I-11", "I-14", "I-21", "I-22")
class TestLeaseMachine(LeaseMachine.TestCase):
    pass
