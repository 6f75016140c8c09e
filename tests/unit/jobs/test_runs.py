"""Runs: pinning, needs, conditions, matrices, cancelling, removal."""

from __future__ import annotations

import json

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import NotFound
from vole.base.ids import JobKey, PushId
from vole.jobs import ledger
from vole.jobs.model import QueuedRun, RunSource


@pytest.fixture
def queue() -> Queue:
    queue = Queue()
    queue.runner("a", slots=9)
    return queue


def end(queue: Queue, key: str, conclusion: str = "success", **more: object) -> None:
    """Run the queued job of that key to its end."""
    job = queue.run("a")
    assert job.key == key
    queue.finish(job, "a", conclusion, **more)


# ---- Pinning


@pytest.mark.proves("I-09")
def test_what_is_pinned_is_the_document_its_digest_and_its_labels(queue):
    plan = a_job(runs_on=("linux", "fast"))

    queue.enqueue(a_run(plan), labels={"test": ("linux", "fast", "linux")})

    row = queue.one("SELECT j.digest, d.document FROM jobs j JOIN job_documents d ON d.job_id = j.id")
    assert row["document"].encode() == plan.document()
    assert json.loads(queue.one("SELECT labels FROM label_sets")["labels"]) == ["fast", "linux"]


def test_labels_come_from_beside_the_run_and_not_from_its_document(queue):
    queue.enqueue(a_run(a_job(runs_on=("fast",))), labels={"test": ()})

    assert queue.lease("a").key == "test"


def test_the_same_labels_in_another_order_are_one_interned_set(queue):
    queue.job("linux", "fast")
    queue.job("fast", "linux")

    assert len(queue.all("SELECT * FROM label_sets")) == 1


@pytest.mark.proves("I-27")
def test_a_source_makes_its_run_once(queue):
    source = RunSource(queue.repo("app"), PushId(77), 3)
    first = queue.write(ledger.enqueue_run, queue.index, source, a_run(a_job("x"), a_job("y")), {})

    again = queue.write(ledger.enqueue_run, queue.index, source, a_run(a_job("z")), {})

    assert again == first
    assert len(queue.all("SELECT * FROM jobs")) == 2
    assert queue.index.queued == 2


def test_numbers_count_up_for_each_repository_alone(queue):
    numbers = [queue.enqueue(a_run(a_job(repo=repo)), repo=repo).number for repo in ("app", "app", "lib", "app")]

    assert numbers == [1, 2, 1, 3]


@pytest.mark.parametrize("why", ["filter", "skip_ci"])
def test_a_skipped_plan_is_a_finished_run_without_jobs_and_says_why(queue, why):
    run = queue.enqueue(a_run(skipped=why))

    assert (run.jobs, run.skipped) == ((), why)
    assert queue.run_of(run) == ("finished", "skipped")


# ---- Needs and conditions


def test_a_job_waits_for_what_it_needs_and_is_then_queued(queue):
    run = queue.enqueue(a_run(a_job("build"), a_job("lint"), a_job("test", needs=("build", "lint"))))
    assert queue.states(run)["test"] == "blocked"
    assert queue.one("SELECT reason FROM jobs WHERE key = 'test'")["reason"] == "waits for build, lint"

    end(queue, "build")
    assert queue.states(run)["test"] == "blocked"
    end(queue, "lint")

    assert queue.states(run)["test"] == "queued"


@pytest.mark.parametrize(
    ("ended", "condition", "expected"),
    [
        ("success", None, "queued"),
        ("failure", None, "skipped"),
        ("errored", None, "skipped"),
        ("failure", "failure()", "queued"),
        ("timed_out", "failure()", "queued"),
        ("success", "failure()", "skipped"),
        ("failure", "always()", "queued"),
        ("cancelled", "cancelled()", "queued"),
        ("failure", "needs.build.result == 'failure'", "skipped"),
        ("failure", "always() && needs.build.result == 'failure'", "queued"),
        ("success", "needs.build.outputs.go == 'yes'", "queued"),
        ("success", "vole.ref_name == 'main'", "queued"),
        ("success", "vole.ref_name == 'other'", "skipped"),
    ],
)
def test_a_condition_is_judged_when_the_needs_are_done(queue, ended, condition, expected):
    run = queue.enqueue(a_run(a_job("build"), a_job("test", needs=("build",), if_=condition)))

    end(queue, "build", ended, outputs={"go": "yes"})

    assert queue.states(run)["test"] == expected


def test_a_condition_without_needs_is_judged_at_once(queue):
    run = queue.enqueue(a_run(a_job("one", if_="vole.run_number == 1"), a_job("two", if_="vole.run_number == 2")))

    assert queue.states(run) == {"one": "queued", "two": "skipped"}


def test_what_a_skipped_job_was_needed_for_is_skipped_too(queue):
    run = queue.enqueue(a_run(a_job("a"), a_job("b", needs=("a",)), a_job("c", needs=("b",))))

    end(queue, "a", "failure")

    assert queue.states(run) == {"a": "failure", "b": "skipped", "c": "skipped"}
    assert queue.run_of(run) == ("finished", "failure")


def test_failure_looks_at_every_ancestor(queue):
    run = queue.enqueue(a_run(a_job("a"), a_job("b", needs=("a",)), a_job("c", needs=("b",), if_="failure()")))

    end(queue, "a", "failure")

    assert queue.states(run)["c"] == "queued"


def test_a_condition_that_cannot_be_evaluated_ends_its_job_as_errored_and_no_other(queue):
    run = queue.enqueue(a_run(a_job("bad", if_="fromJSON('{')"), a_job("good")))

    assert queue.states(run) == {"bad": "errored", "good": "queued"}
    assert "cannot be evaluated" in queue.one("SELECT reason FROM jobs WHERE key = 'bad'")["reason"]


def test_a_needed_matrix_is_the_worst_of_its_jobs_and_its_outputs_come_together(queue):
    matrix = [a_job(f"build.{n}", fail_fast=False) for n in (1, 2, 3)]
    queue.enqueue(a_run(*matrix, a_job("test", needs=("build",), if_="always()")))
    end(queue, "build.1", outputs={"x": "1", "y": "1"})
    end(queue, "build.2", "timed_out")
    end(queue, "build.3", outputs={"x": "3"})

    need = queue.lease("a").context.needs["build"]

    assert (need.result, need.outputs) == ("failure", {"x": "3", "y": "1"})


def test_a_document_that_cannot_be_read_sets_its_job_aside_and_the_result_before_it_counts(queue):
    run = queue.enqueue(a_run(a_job("build"), a_job("test", needs=("build",))))
    queue.connection.execute("UPDATE job_documents SET document = '{}' WHERE job_id = ?", (run.jobs[1],))
    queue.checked = False

    end(queue, "build")

    assert queue.states(run)["build"] == "success"
    assert queue.one("SELECT set_aside FROM jobs WHERE key = 'test'")["set_aside"] is not None


# ---- Matrices and continue-on-error


def test_max_parallel_holds_the_rest_of_a_matrix_back(queue):
    run = queue.enqueue(a_run(*[a_job(f"m.{n}", max_parallel=2) for n in (1, 2, 3, 4)]))
    assert list(queue.states(run).values()) == ["queued", "queued", "blocked", "blocked"]
    reasons = [row["reason"] for row in queue.all("SELECT reason FROM jobs ORDER BY ordinal")]
    assert reasons == ["", "", "waits for max-parallel 2", "waits for max-parallel 2"]

    end(queue, "m.1")

    assert list(queue.states(run).values()) == ["success", "queued", "queued", "blocked"]


@pytest.mark.parametrize(("fail_fast", "rest"), [(True, "cancelled"), (False, "queued")])
def test_the_first_failure_of_a_matrix_ends_the_rest_unless_the_file_says_no(queue, fail_fast, rest):
    run = queue.enqueue(a_run(*[a_job(f"m.{n}", fail_fast=fail_fast) for n in (1, 2)], a_job("other")))

    end(queue, "m.1", "failure")

    assert queue.states(run) == {"m.1": "failure", "m.2": rest, "other": "queued"}


def test_fail_fast_tells_the_holders_of_what_runs(queue):
    queue.enqueue(a_run(*[a_job(f"m.{n}") for n in (1, 2)]))
    first, second = queue.run("a"), queue.run("a")

    (ended,) = queue.finish(first, "a", "failure").touched.ended

    assert (ended.job, ended.reason) == (second.lease.job, "fail_fast")
    assert queue.state(second.lease.job) == ("cancelling", None)


def test_a_lost_job_of_a_matrix_ends_the_rest_too(queue):
    run = queue.enqueue(a_run(*[a_job(f"m.{n}", on_lost="fail") for n in (1, 2)]))
    queue.run("a")

    queue.pass_time(61)

    assert queue.states(run) == {"m.1": "lost", "m.2": "cancelled"}


@pytest.mark.parametrize("conclusion", ["failure", "timed_out", "errored"])
def test_continue_on_error_is_a_success_with_a_mark(queue, conclusion):
    run = queue.enqueue(a_run(a_job("m.1", continue_on_error=True), a_job("m.2"), a_job("after", needs=("m",))))
    end(queue, "m.1", conclusion)
    end(queue, "m.2")

    assert queue.states(run) == {"m.1": "success", "m.2": "success", "after": "queued"}
    assert queue.one("SELECT marked FROM jobs WHERE key = 'm.1'")["marked"] == 1
    assert queue.one("SELECT conclusion FROM attempts ORDER BY leased_at")["conclusion"] == conclusion


def test_continue_on_error_does_not_make_a_success_of_a_job_that_was_lost(queue):
    job = queue.job(continue_on_error=True, on_lost="fail")
    queue.run("a")

    queue.pass_time(61)

    assert queue.state(job) == ("finished", "lost")


# ---- Cancelling and removal


def test_cancelling_a_run_ends_what_waits_at_once_and_tells_whoever_runs(queue):
    run = queue.enqueue(a_run(a_job("a"), a_job("b"), a_job("c", needs=("a",))))
    running = queue.run("a")

    count, touched = queue.write(ledger.cancel_run, queue.index, run.id, "by ada")

    assert count == 3
    assert queue.states(run) == {"a": "cancelling", "b": "cancelled", "c": "cancelled"}
    assert [(ended.job, ended.reason) for ended in touched.ended] == [(running.lease.job, "cancelled")]


@pytest.mark.proves("I-17")
def test_a_cancel_never_moves_a_deadline_later(queue):
    run = queue.enqueue(a_run())
    job = queue.run("a")
    deadline = queue.one("SELECT deadline_at FROM jobs")[0]
    queue.clock.advance(seconds(30))

    queue.write(ledger.cancel_run, queue.index, run.id, "by ada")
    queue.renew(job, "a")

    assert queue.one("SELECT deadline_at FROM jobs")[0] == deadline


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_cancelled_job_ends_at_the_acknowledgement_or_at_its_old_deadline(queue, acknowledged):
    run = queue.enqueue(a_run())
    job = queue.run("a")
    queue.write(ledger.cancel_run, queue.index, run.id, "by ada")

    if acknowledged:
        queue.finish(job, "a", "cancelled")
    else:
        queue.pass_time(61)

    assert queue.run_of(run) == ("finished", "cancelled")
    assert queue.one("SELECT end_cause FROM attempts")[0] == "cancelled"
    assert queue.one("SELECT reason FROM jobs")[0] == "by ada"


def test_a_renewal_says_again_that_a_job_is_being_cancelled(queue):
    run = queue.enqueue(a_run())
    job = queue.run("a")
    queue.write(ledger.cancel_run, queue.index, run.id, "by ada")

    done = queue.renew(job, "a")

    assert [ended.reason for ended in done.cancelling] == ["cancelled"]
    assert len(done.alive) == 1


@pytest.mark.proves("I-02")
def test_cancelling_what_is_finished_changes_nothing(queue):
    run = queue.enqueue(a_run())
    end(queue, "test")
    before = [tuple(row) for row in queue.all("SELECT * FROM jobs")]

    assert queue.write(ledger.cancel_run, queue.index, run.id, "by ada")[0] == 0
    assert [tuple(row) for row in queue.all("SELECT * FROM jobs")] == before


def test_cancelling_one_job_leaves_the_others(queue):
    run = queue.enqueue(a_run(a_job("a"), a_job("b")))

    queue.write(ledger.cancel_job, queue.index, run.id, JobKey("a"), "by ada")

    assert queue.states(run) == {"a": "cancelled", "b": "queued"}
    with pytest.raises(NotFound):
        queue.write(ledger.cancel_job, queue.index, run.id, JobKey("zz"), "by ada")


def test_a_cancelled_job_is_never_leased(queue):
    run = queue.enqueue(a_run())
    queue.write(ledger.cancel_run, queue.index, run.id, "by ada")

    assert queue.look("a") == ["nothing_queued"]


@pytest.mark.proves("I-14", "I-22")
def test_removing_a_repository_ends_all_its_jobs_in_one_change_and_forgets_its_labels(queue):
    queue.runner("b", ["linux"], grant=["app", "lib"], slots=9)
    run = queue.enqueue(
        a_run(a_job("a"), a_job("b"), a_job("c", needs=("a",))), labels={"a": ("linux",), "b": ("gpu",)}
    )
    other = queue.job("linux", repo="lib")
    held = queue.run("b")
    assert held.address == "app/1/a"

    touched = queue.write(ledger.drop_repo, queue.index, queue.repo("app"))

    assert set(queue.states(run).values()) == {"cancelled"}
    assert queue.run_of(run) == ("finished", "cancelled")
    assert queue.one("SELECT end_cause FROM attempts")[0] == "repository_removed"
    assert [ended.reason for ended in touched.ended] == ["repository_removed"]
    assert [row["labels"] for row in queue.all("SELECT labels FROM label_sets")] == ['["linux"]']
    assert queue.lease("b").lease.job == other


def test_every_move_of_a_job_is_in_the_event_log_with_its_time(queue):
    run: QueuedRun = queue.enqueue(a_run())
    queue.clock.advance(seconds(5))
    end(queue, "test")

    found = queue.all("SELECT kind, at FROM events WHERE run_id = :run ORDER BY id", run=run.id)

    kinds = [row["kind"] for row in found]
    assert kinds == ["run_enqueued", "enqueued", "leased", "run_running", "started", "concluded", "run_finished"]
    assert found[-1]["at"] - found[0]["at"] == seconds(5)


def test_a_reason_is_bounded(queue):
    queue.job()
    queue.finish(queue.run("a"), "a", "failure", reason="x" * 10_000)

    assert len(queue.one("SELECT reason FROM jobs")[0]) == limits.PROBLEM_CHARS_MAX
