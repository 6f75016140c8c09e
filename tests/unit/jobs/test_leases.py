from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tests.queueing import Queue, a_job, a_result, a_run
from vole.base import limits
from vole.base.clock import after, seconds
from vole.base.errors import Conflict, Exhausted, Fenced
from vole.base.ids import Epoch
from vole.jobs import ledger, reads
from vole.jobs.model import EndCause
from vole.wire import runner
from vole.wire.plan import StepPlan


@pytest.fixture
def queue() -> Queue:
    queue = Queue()
    queue.runner("a", slots=4)
    queue.runner("b", slots=4)
    return queue


def rows_of(queue: Queue) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for table in ("jobs", "attempts", "events", "runs")
        for row in queue.all(f"SELECT * FROM {table} ORDER BY 1")
    ]


@pytest.mark.proves("I-05", "SR-26")
@pytest.mark.parametrize("word", ["start", "finish", "hand_back"])
@pytest.mark.parametrize("wrong", ["epoch", "holder", "job"])
def test_a_word_with_a_wrong_job_epoch_or_holder_is_fenced_and_changes_nothing(queue, word, wrong):
    queue.job()
    job = queue.run("a")
    lease = dataclasses.replace(job.lease, epoch=Epoch(7)) if wrong == "epoch" else job.lease
    lease = dataclasses.replace(lease, job=lease.job + 1) if wrong == "job" else lease
    named = dataclasses.replace(job, lease=lease)
    before = rows_of(queue)

    with pytest.raises(Fenced):
        getattr(queue, word)(named, "b" if wrong == "holder" else "a")

    assert rows_of(queue) == before


@pytest.mark.proves("I-05", "SR-26")
def test_a_renewal_of_what_others_hold_is_fenced_and_moves_nothing(queue):
    queue.job()
    job = queue.run("a")
    before = rows_of(queue)

    done = queue.renew(job, "b")

    assert (done.alive, len(done.fenced)) == ((), 1)
    assert rows_of(queue) == before


def test_one_fenced_lease_in_a_renewal_does_not_cost_the_others(queue):
    queue.job()
    queue.job()
    mine, other = queue.run("a"), queue.run("b")
    named = tuple(runner.Renewal(job.lease.job, job.lease.epoch) for job in (other, mine))

    done = queue.write(ledger.renew_many, queue.session("a"), named, limits.lease_times(60.0))

    assert [ref.job for ref in done.alive] == [mine.lease.job]
    assert [ref.job for ref in done.fenced] == [other.lease.job]


def test_a_finish_with_a_stale_epoch_changes_nothing(queue):
    queue.job()
    old = queue.run("a")
    queue.pass_time(61)
    new = queue.run("b")
    assert new.lease.epoch == 2

    with pytest.raises(Fenced):
        queue.finish(old, "a", "failure")

    assert queue.state(new.lease.job) == ("running", None)


@pytest.mark.proves("I-06")
def test_the_same_result_said_again_is_answered_like_the_first(queue):
    job_id = queue.job()
    job = queue.run("a")
    first = queue.finish(job, "a", "failure", reason="exit 1")
    before = rows_of(queue)

    again = queue.finish(job, "a", "failure", reason="exit 1")

    assert again.answer == first.answer
    assert rows_of(queue) == before
    assert queue.state(job_id) == ("finished", "failure")


@pytest.mark.proves("I-06", "I-02")
@pytest.mark.proves("I-06")
def test_results_that_come_together_are_answered_each_and_the_same_one_twice_alike(queue):
    first, second = (queue.job() for _ in range(2))
    jobs = [queue.run("a"), queue.run("b")]
    results = [
        ledger.Result(queue.session(name), a_result(job.lease.job, job.lease.epoch, end), ledger.StoredLog(0, ""))
        for name, job, end in (("a", jobs[0], "success"), ("b", jobs[1], "failure"), ("a", jobs[0], "success"))
    ]

    answers = queue.write(ledger.finish_all, results, queue.index, queue.policy)

    assert [answer.answer.job for answer in answers] == [first, second, first]
    assert answers[2].answer == answers[0].answer
    assert [answer.attempt is None for answer in answers] == [False, False, True]
    assert (queue.state(first), queue.state(second)) == (("finished", "success"), ("finished", "failure"))


@pytest.mark.proves("I-05")
def test_of_results_that_come_together_one_that_is_refused_changes_none(queue):
    job_id = queue.job()
    held, gone = queue.run("a"), a_result(99, 1)
    results = [
        ledger.Result(queue.session("a"), result, ledger.StoredLog(0, ""))
        for result in (a_result(held.lease.job, held.lease.epoch), gone)
    ]

    with pytest.raises(Fenced):
        queue.write(ledger.finish_all, results, queue.index, queue.policy)

    assert queue.state(job_id) == ("running", None)


def test_another_result_for_the_same_attempt_is_refused(queue):
    job_id = queue.job()
    job = queue.run("a")
    queue.finish(job, "a", "failure")

    with pytest.raises(Conflict):
        queue.finish(job, "a", "success")

    assert queue.state(job_id) == ("finished", "failure")


@pytest.mark.proves("I-06", "SR-26")
def test_a_repeat_by_another_process_is_fenced(queue):
    queue.job()
    job = queue.run("a")
    queue.finish(job, "a")

    with pytest.raises(Fenced):
        queue.finish(job, "b")


def test_a_result_whose_start_was_lost_is_accepted(queue):
    job_id = queue.job()
    job = queue.lease("a")

    queue.finish(job, "a")

    assert queue.state(job_id) == ("finished", "success")


@pytest.mark.proves("I-34")
@pytest.mark.parametrize(
    ("stored", "sha", "state", "note"),
    [
        (5, "aa", "complete", ""),
        (3, "aa", "incomplete", "log incomplete: 3 of 5 bytes"),
        (5, "bb", "incomplete", "log incomplete: 5 bytes are stored, with another digest than declared"),
    ],
)
def test_a_log_is_complete_or_marked_with_the_reason(queue, stored, sha, state, note):
    queue.job()
    job = queue.run("a")
    result = dataclasses.replace(a_result(job.lease.job, job.lease.epoch), log=runner.LogSeal(5, "aa"))

    done = queue.finish_with(result, "a", ledger.StoredLog(stored, sha))

    row = queue.one("SELECT * FROM attempts")
    assert (done.answer.log, done.answer.log_bytes) == (state, stored)
    assert (row["log_state"], row["end_detail"], row["log_bytes"], row["log_declared"]) == (state, note, stored, 5)


def test_outputs_over_the_bound_are_refused_by_its_name(queue):
    queue.job()
    job = queue.run("a")

    with pytest.raises(Exhausted, match="OUTPUT_BYTES_MAX"):
        queue.finish(job, "a", outputs={"x": "y" * limits.OUTPUT_BYTES_MAX})


def test_outputs_are_counted_as_the_job_wrote_them_not_as_they_are_stored(queue):
    queue.job()
    job = queue.run("a")

    queue.finish(job, "a", outputs={"x": "\n" * (limits.OUTPUT_BYTES_MAX - 1)})

    assert queue.state(job.lease.job)[0] == "finished"


@pytest.mark.proves("I-18")
def test_a_lease_that_is_not_started_in_its_window_goes_back_uncounted(queue):
    job_id = queue.job()
    job = queue.lease("a")

    queue.pass_time(14)
    assert queue.state(job_id) == ("leased", None)
    queue.pass_time(2)

    assert queue.state(job_id) == ("queued", None)
    assert queue.one("SELECT losses FROM jobs")["losses"] == 0
    assert queue.one("SELECT end_cause FROM attempts")["end_cause"] == "not_started"
    assert queue.lease("b").lease.epoch == job.lease.epoch + 1


@pytest.mark.proves("I-15")
def test_a_running_job_expires_a_ttl_after_its_last_renewal_and_not_before(queue):
    job_id = queue.job()
    job = queue.run("a")
    queue.pass_time(40)
    queue.renew(job, "a")

    queue.pass_time(59)
    assert queue.state(job_id) == ("running", None)
    queue.pass_time(2)

    assert queue.state(job_id) == ("queued", None)
    assert queue.one("SELECT end_cause FROM attempts")["end_cause"] == "expired"


def test_the_holder_of_what_expired_is_to_be_told(queue):
    queue.job()
    job = queue.run("a")
    queue.clock.advance(seconds(60))

    (ended,) = queue.sweep().ended

    assert (ended.session, ended.job, ended.epoch, ended.reason) == (
        queue.session("a"), job.lease.job, job.lease.epoch, "fenced",
    )  # fmt: skip


@pytest.mark.proves("I-19", "SR-37")
def test_a_job_that_lost_its_runner_three_times_is_lost_with_that_reason(queue):
    job_id = queue.job()
    for _ in range(3):
        queue.run("a")
        queue.pass_time(61)

    assert queue.state(job_id) == ("finished", "lost")
    assert "lost its runner 3 times" in queue.one("SELECT reason FROM jobs")["reason"]


@pytest.mark.proves("I-04")
def test_epochs_count_on_across_losses_hand_backs_and_restarts(queue):
    queue.job()
    epochs = [queue.run("a").lease.epoch]
    queue.pass_time(61)
    handed = queue.lease("a")
    epochs.append(handed.lease.epoch)
    queue.hand_back(handed, "a")
    queue.restart()
    epochs.append(queue.lease("b").lease.epoch)

    assert epochs == [1, 2, 3]


def test_a_job_with_effects_outside_is_lost_at_once_when_its_runner_is(queue):
    job_id = queue.job(on_lost="fail")
    queue.run("a")

    queue.pass_time(61)

    assert queue.state(job_id) == ("finished", "lost")
    assert "on-lost: fail" in queue.one("SELECT reason FROM jobs")["reason"]


def test_a_job_with_effects_outside_that_was_not_started_is_offered_again(queue):
    job_id = queue.job(on_lost="fail")
    queue.lease("a")

    queue.pass_time(16)

    assert queue.state(job_id) == ("queued", None)


def test_a_hand_back_before_the_start_counts_nothing_and_after_it_counts_a_loss(queue):
    queue.job()
    queue.hand_back(queue.lease("a"), "a")
    before = queue.one("SELECT losses FROM jobs")["losses"]

    queue.hand_back(queue.run("b"), "b")

    assert (before, queue.one("SELECT losses FROM jobs")["losses"]) == (0, 1)


def test_a_connection_that_is_gone_gives_back_what_was_not_started_at_once(queue):
    started, waiting = queue.job(), queue.job()
    queue.run("a")
    queue.lease("a")

    queue.write(ledger.disconnect, queue.index, queue.session("a"), "lost")

    assert (queue.state(started), queue.state(waiting)) == (("running", None), ("queued", None))
    assert queue.lease("b").lease.job == waiting


@pytest.mark.proves("I-14")
def test_a_removed_key_ends_every_lease_with_that_cause(queue):
    running, leased = queue.job(), queue.job()
    queue.run("a")
    queue.lease("a")

    queue.write(ledger.end_session, queue.index, queue.session("a"), EndCause.KEY_REMOVED, "removed")

    assert (queue.state(running), queue.state(leased)) == (("queued", None), ("queued", None))
    assert {row["end_cause"] for row in queue.all("SELECT end_cause FROM attempts")} == {"key_removed"}
    causes = [json.loads(row["detail"]).get("cause") for row in queue.all("SELECT detail FROM events ORDER BY id")]
    assert causes.count("key_removed") == 2


@pytest.mark.proves("I-16", "I-15")
def test_a_restart_expires_nothing_and_gives_each_live_lease_one_fresh_ttl(queue):
    job_id = queue.job()
    job = queue.run("a")
    queue.clock.advance(seconds(3_000))

    queue.restart()
    queue.sweep()
    queue.pass_time(59)

    assert queue.state(job_id) == ("running", None)
    assert queue.renew(job, "a").alive


@pytest.mark.proves("I-16")
def test_a_wall_clock_that_jumped_back_before_a_restart_does_not_keep_a_dead_lease(queue):
    job_id = queue.job()
    queue.run("a")
    queue.clock.advance(seconds(-86_400))

    queue.restart()
    queue.pass_time(61)

    assert queue.state(job_id) == ("queued", None)


@pytest.mark.proves("I-16", "I-15")
def test_a_stalled_server_expires_nothing_by_its_stall(queue):
    job_id = queue.job()
    job = queue.run("a")
    queue.sweep()

    queue.clock.advance(seconds(600))
    queue.sweep()
    queue.pass_time(50)
    assert queue.state(job_id) == ("running", None)
    queue.renew(job, "a")

    queue.pass_time(59)
    assert queue.state(job_id) == ("running", None)


def test_a_short_pause_of_the_sweep_moves_no_deadline(queue):
    queue.job()
    queue.run("a")
    queue.sweep()
    deadline = queue.one("SELECT deadline_at FROM jobs")["deadline_at"]

    queue.clock.advance(seconds(5))
    queue.sweep()

    assert queue.one("SELECT deadline_at FROM jobs")["deadline_at"] == deadline


@pytest.mark.proves("SR-34")
def test_a_job_over_its_time_is_told_to_end_and_ends_as_timed_out_at_its_old_deadline(queue):
    job_id = queue.job(timeout_s=60)
    job = queue.run("a")
    for _ in range(3):
        queue.pass_time(20)
        queue.renew(job, "a")
    deadline = queue.one("SELECT deadline_at FROM jobs")["deadline_at"]
    assert queue.state(job_id) == ("cancelling", None)

    queue.renew(job, "a")
    assert queue.one("SELECT deadline_at FROM jobs")["deadline_at"] == deadline
    queue.pass_time(61)

    assert queue.state(job_id) == ("finished", "timed_out")


def run_on(queue: Queue, job: Any, span_s: float, step: int) -> None:
    """Let time pass in which the runner renews as it should, at one step."""
    for _ in range(int(span_s // 20)):
        queue.pass_time(20)
        queue.renew(job, "a", step)


@pytest.mark.proves("SR-34")
def test_a_step_over_its_limit_that_its_runner_does_not_end_ends_its_job(queue):
    steps = (StepPlan("a", 1), StepPlan("b", 2, timeout_s=120), StepPlan("c", 3))
    job_id = queue.job(steps=steps)
    job = queue.run("a")
    run_on(queue, job, 400, 1)
    queue.renew(job, "a", 2)

    run_on(queue, job, 180, 2)
    assert queue.state(job_id) == ("running", None)
    run_on(queue, job, 20, 2)

    assert queue.state(job_id) == ("cancelling", None)
    assert queue.one("SELECT reason FROM jobs")[0] == "step 2 ran longer than its limit, and its runner did not end it"


def test_the_limit_of_a_step_goes_with_the_step(queue):
    steps = (StepPlan("a", 1, timeout_s=60), StepPlan("b", 2))
    job_id = queue.job(steps=steps)
    job = queue.run("a")
    run_on(queue, job, 100, 1)

    run_on(queue, job, 400, 2)

    assert queue.state(job_id) == ("running", None)


@pytest.mark.proves("I-16")
@pytest.mark.parametrize("away_s", [600, 86_400, -86_400])
def test_neither_a_restart_nor_another_clock_uses_up_the_time_of_a_job_or_of_its_step(queue, away_s):
    job_id = queue.job(timeout_s=300, steps=(StepPlan("a", 1, timeout_s=180),))
    job = queue.run("a")
    run_on(queue, job, 100, 1)

    queue.clock.advance(seconds(away_s))
    queue.restart()
    run_on(queue, job, 140, 1)
    assert queue.state(job_id) == ("running", None)
    run_on(queue, job, 40, 1)

    assert queue.state(job_id) == ("cancelling", None)


def test_a_result_while_cancelling_is_the_acknowledgement(queue):
    job_id = queue.job(timeout_s=60)
    job = queue.run("a")
    queue.pass_time(59)
    queue.renew(job, "a")
    queue.pass_time(2)

    queue.finish(job, "a", "success")

    assert queue.state(job_id) == ("finished", "timed_out")
    assert queue.one("SELECT conclusion, end_cause FROM attempts")[:] == ("success", "timed_out")


def test_a_job_that_waits_longer_than_the_queue_allows_expires_with_the_last_word_on_why(queue):
    queue.with_policy(queue_timeout_s=100.0)
    job_id = queue.job("fast")
    queue.clock.advance(seconds(101))

    queue.sweep({job_id: "waits: no connected runner carries 'fast'"})

    assert queue.state(job_id) == ("finished", "expired")
    assert "no connected runner carries 'fast'" in queue.one("SELECT reason FROM jobs")["reason"]


@pytest.mark.proves("I-20")
def test_one_job_of_a_matrix_that_expires_ends_the_rest_of_it_and_the_sweep_goes_on(queue):
    queue.with_policy(queue_timeout_s=100.0)
    run = queue.enqueue(a_run(a_job("m.1"), a_job("m.2"), a_job("m.3")))
    other = queue.enqueue(a_run(a_job("other")))

    queue.pass_time(101)

    assert sorted(queue.states(run).values()) == ["cancelled", "cancelled", "expired"]
    assert queue.states(other) == {"other": "expired"}


def test_a_job_is_explained_before_it_is_given_up_and_given_up_no_sooner_than_it_is_due(queue):
    queue.with_policy(queue_timeout_s=100.0)
    job_id = queue.job("nobody")
    queue.clock.advance(seconds(99.5))

    assert queue.read(reads.overdue, 100.0) == [job_id]
    queue.sweep()

    assert queue.state(job_id) == ("queued", None)


def test_a_queue_timeout_of_zero_is_never(queue):
    queue.with_policy(queue_timeout_s=0.0)
    job_id = queue.job("fast")
    queue.clock.advance(seconds(10_000_000))

    queue.sweep()

    assert queue.state(job_id) == ("queued", None)


def test_the_queue_timeout_counts_from_when_a_job_became_leasable(queue):
    queue.with_policy(queue_timeout_s=100.0)
    run = queue.enqueue(a_run(a_job("build"), a_job("test", needs=("build",))))
    queue.pass_time(90)
    job = queue.run("a")
    queue.finish(job, "a")
    queue.pass_time(90)

    assert queue.states(run) == {"build": "success", "test": "queued"}
    queue.pass_time(11)
    assert queue.states(run)["test"] == "expired"


@pytest.mark.proves("I-20", "SR-38")
def test_an_unreadable_row_is_set_aside_by_the_sweep_and_the_next_one_expires(queue):
    bad, good = queue.job(), queue.job()
    queue.run("a")
    queue.run("a")
    queue.connection.execute("PRAGMA ignore_check_constraints = ON")
    queue.connection.execute("UPDATE jobs SET conclusion = 'nonsense' WHERE id = ?", (bad,))
    queue.checked = False

    queue.pass_time(61)

    assert queue.state(good) == ("queued", None)
    row = queue.one("SELECT * FROM jobs WHERE id = :job", job=bad)
    assert (row["state"], "cannot be read" in row["set_aside"]) == ("running", True)
    assert queue.one("SELECT COUNT(*) FROM events WHERE kind = 'set_aside'")[0] == 1


@pytest.mark.proves("I-09")
def test_nothing_that_happens_to_a_job_changes_what_was_pinned(queue):
    run = queue.enqueue(a_run(a_job(runs_on=("linux",), env={"A": "1"})), labels={"test": ()})
    pinned = queue.one("SELECT document FROM job_documents")["document"]
    labels = tuple(queue.one("SELECT * FROM run_labels"))
    queue.hand_back(queue.lease("a"), "a")
    queue.run("b")
    queue.pass_time(61)
    queue.finish(queue.run("b"), "b", outputs={"x": "1"})

    assert queue.states(run) == {"test": "success"}
    assert queue.one("SELECT document FROM job_documents")["document"] == pinned
    assert tuple(queue.one("SELECT * FROM run_labels")) == labels


def test_a_renewal_writes_no_event(queue):
    queue.job()
    job = queue.run("a")
    before = queue.one("SELECT COUNT(*) FROM events")[0]

    queue.renew(job, "a")

    assert queue.one("SELECT COUNT(*) FROM events")[0] == before
    assert queue.one("SELECT deadline_at FROM jobs")[0] == after(queue.clock.now(), seconds(60))
