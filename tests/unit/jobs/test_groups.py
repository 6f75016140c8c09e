"""Concurrency groups: one at a time, first come first served, and what a newer one does to those before it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.queueing import BLOB, COMMIT, EVENT, Queue, a_job, a_run
from vole.base.clock import seconds
from vole.jobs import explain, ledger, reads
from vole.jobs.ledger import moves
from vole.jobs.model import QueuedRun
from vole.jobs.reads import listing
from vole.repos import ledger as repos
from vole.wire import runner
from vole.wire.plan import Concurrency, JobPlan, RunPlan


@pytest.fixture
def queue() -> Queue:
    queue = Queue()
    queue.runner("a", slots=9, grant=["app", "lib"])
    return queue


def grouped(*jobs: JobPlan, group: str = "deploy", **more: object) -> RunPlan:
    """A run that goes through a group as a whole."""
    return dataclasses.replace(a_run(*jobs), concurrency=Concurrency(group, **more))  # type: ignore[arg-type]


def single(key: str = "test", group: str = "deploy", needs: tuple[str, ...] = (), **more: object) -> JobPlan:
    """A job that goes through a group alone."""
    return a_job(key, needs=needs, concurrency=Concurrency(group, **more))  # type: ignore[arg-type]


def end(queue: Queue, key: str, conclusion: str = "success") -> runner.Job:
    job = queue.run("a")
    assert job.key == key
    queue.finish(job, "a", conclusion)
    return job


def says(queue: Queue, run: QueuedRun, key: str = "test") -> str:
    """What every place that shows a job says of it: all of them the same."""
    asks = list(queue.asks.values())
    (explained,) = [one for one in queue.read(reads.explain_run, run.id, asks, None) if one.key == key]
    (line,) = [one for one in queue.read(reads.jobs_of_run, run.id) if one.key == key]
    (row,) = [one for one in queue.read(reads.job_rows, run.id) if one.key == key]
    wanted = listing.Wanted(frozenset(queue.repos.values()))
    waiting = [one for one in queue.read(listing.unfinished, wanted, 99).rows if one.id == row.id]
    text = explain.prospect(explained, lambda _: None)
    assert {line.reason, row.reason, *(one.reason for one in waiting)} == {text}
    codes = {verdict.reason.text for verdict in explained.verdicts if verdict.reason is not None}
    assert codes <= {"concurrency_group " + text.partition(", ")[2]}
    return text


# ---- One at a time


def test_a_second_run_of_a_group_waits_until_the_first_is_over(queue):
    first, second = queue.enqueue(grouped(a_job("x"), a_job("y", needs=("x",)))), queue.enqueue(grouped())
    assert (queue.states(first)["x"], queue.states(second)) == ("queued", {"test": "blocked"})
    assert says(queue, second) == "waits for its concurrency group, held by app/1"

    end(queue, "x")
    assert queue.states(second) == {"test": "blocked"}
    end(queue, "y")

    assert queue.states(second) == {"test": "queued"}


def test_of_jobs_of_a_group_one_goes_on_and_the_rest_of_their_runs_does_not_wait(queue):
    first = queue.enqueue(a_run(single("ship"), a_job("other")))
    second = queue.enqueue(a_run(single("ship"), a_job("other")))

    assert queue.states(first) == {"ship": "queued", "other": "queued"}
    assert queue.states(second) == {"ship": "blocked", "other": "queued"}
    assert says(queue, second, "ship") == "waits for its concurrency group, held by app/1/ship"


def test_a_run_and_a_job_exclude_each_other_in_a_group(queue):
    first, second, third = queue.enqueue(grouped()), queue.enqueue(a_run(single())), queue.enqueue(grouped())
    assert [queue.states(run)["test"] for run in (first, second, third)] == ["queued", "blocked", "blocked"]

    end(queue, "test")
    assert [queue.states(run)["test"] for run in (second, third)] == ["queued", "blocked"]
    assert says(queue, third) == "waits for its concurrency group, held by app/2/test"
    end(queue, "test")

    assert queue.states(third)["test"] == "queued"


def test_groups_are_of_one_repository_and_compared_letter_by_letter(queue):
    runs = [queue.enqueue(grouped(a_job(repo=repo), group=group), repo=repo)
            for repo, group in (("app", "x"), ("lib", "x"), ("app", "X"))]  # fmt: skip

    assert [queue.states(run)["test"] for run in runs] == ["queued"] * 3


def test_whoever_waits_comes_in_turn(queue):
    runs = [queue.enqueue(grouped()) for _ in range(4)]

    for number in range(4):
        assert [queue.states(run)["test"] for run in runs[number:]] == ["queued", "blocked", "blocked", "blocked"][
            : 4 - number
        ]
        end(queue, "test")

    assert queue.all("SELECT * FROM group_places") == []


@pytest.mark.parametrize("how", ["lost", "handed back", "restarted"])
def test_a_job_that_goes_back_to_the_queue_keeps_its_group(queue, how):
    queue.enqueue(grouped())
    second = queue.enqueue(grouped())
    job = queue.run("a") if how == "lost" else queue.lease("a")

    if how == "lost":
        queue.pass_time(61)
    elif how == "handed back":
        queue.hand_back(job, "a")
    queue.restart()

    assert queue.states(second) == {"test": "blocked"}


@pytest.mark.parametrize("conclusion", ["failure", "errored", "timed_out", "success"])
def test_however_one_ends_the_next_comes(queue, conclusion):
    queue.enqueue(grouped())
    second = queue.enqueue(grouped())

    end(queue, "test", conclusion)

    assert queue.states(second) == {"test": "queued"}


def test_a_freed_group_makes_work_leasable_in_the_change_that_freed_it(queue):
    queue.enqueue(grouped())
    second = queue.enqueue(grouped())

    touched = queue.finish(queue.run("a"), "a").touched

    assert touched.leasable
    assert second.id in touched.runs
    assert queue.lease("a").lease.job == second.jobs[0]


def test_a_run_that_waits_can_be_cancelled_and_leaves_the_line(queue):
    queue.enqueue(grouped())
    second, third = queue.enqueue(grouped()), queue.enqueue(grouped())

    queue.write(ledger.cancel_run, queue.index, second.id, "by ada")
    end(queue, "test")

    assert queue.run_of(second) == ("finished", "cancelled")
    assert queue.states(third) == {"test": "queued"}


def test_a_cancelled_one_holds_its_group_until_it_is_over(queue):
    first, second = queue.enqueue(grouped()), queue.enqueue(grouped())
    job = queue.run("a")

    queue.write(ledger.cancel_run, queue.index, first.id, "by ada")
    assert queue.states(second) == {"test": "blocked"}
    queue.finish(job, "a", "cancelled")

    assert queue.states(second) == {"test": "queued"}


def test_a_removed_repository_frees_its_groups(queue):
    for _ in range(3):
        queue.enqueue(grouped())
    queue.enqueue(a_run(single(), a_job("other")))

    queue.write(ledger.drop_repo, queue.index, queue.repo("app"))

    assert queue.all("SELECT * FROM group_places") == []
    assert {row["state"] for row in queue.all("SELECT state FROM runs")} == {"finished"}


@pytest.mark.proves("I-20")
@pytest.mark.parametrize("whole_run", [True, False])
def test_a_row_that_is_set_aside_keeps_nobody_waiting(queue, whole_run):
    make = grouped if whole_run else (lambda: a_run(single()))
    first, second = queue.enqueue(make()), queue.enqueue(make())
    queue.checked = False
    queue.connection.execute("UPDATE job_documents SET document = '{}' WHERE job_id = ?", (first.jobs[0],))
    queue.look("a")
    assert queue.one("SELECT set_aside FROM jobs WHERE id = :job", job=first.jobs[0])[0]

    assert queue.sweep().leasable
    assert queue.states(second) == {"test": "queued"}


def test_a_row_that_is_set_aside_while_it_runs_keeps_its_group_until_its_runner_has_let_go(queue):
    first, second = queue.enqueue(grouped()), queue.enqueue(grouped())
    queue.run("a")
    queue.checked = False
    queue.write(moves.set_aside, queue.index, first.jobs[0], "odd")

    queue.pass_time(59)
    assert queue.states(second) == {"test": "blocked"}
    queue.pass_time(2)

    assert queue.states(second) == {"test": "queued"}


def test_one_that_expires_in_the_queue_frees_its_group(queue):
    queue.with_policy(queue_timeout_s=100.0)
    first, second = queue.enqueue(grouped()), queue.enqueue(grouped())
    queue.pass_time(99)

    queue.clock.advance(seconds(1))
    touched = queue.sweep()

    assert queue.run_of(first) == ("finished", "failure")
    assert queue.states(second) == {"test": "queued"}
    assert touched.leasable


@pytest.mark.proves("I-20")
@pytest.mark.parametrize("wish", [{}, {"queue": "latest"}, {"cancel_in_progress": True}])
def test_a_row_that_cannot_be_read_keeps_no_newer_one_from_coming(queue, wish):
    first, second = queue.enqueue(grouped()), queue.enqueue(grouped())
    queue.checked = False
    queue.connection.execute("PRAGMA ignore_check_constraints = 1")
    for run in (first, second):
        queue.connection.execute("UPDATE jobs SET on_lost = '?', state = 'odd' WHERE id = ?", (run.jobs[0],))

    third = queue.enqueue(grouped(**wish))
    queue.write(moves.set_aside, queue.index, first.jobs[0], "odd")
    queue.write(moves.set_aside, queue.index, second.jobs[0], "odd")
    queue.sweep()

    assert queue.states(third) == {"test": "queued"}


# ---- When a job comes into line


def test_a_job_comes_into_line_when_nothing_else_keeps_it_back(queue):
    first = queue.enqueue(a_run(a_job("build"), single("ship", needs=("build",))))
    second = queue.enqueue(a_run(single("ship")))
    assert (queue.states(first)["ship"], queue.states(second)["ship"]) == ("blocked", "queued")

    end(queue, "build")

    assert says(queue, first, "ship") == "waits for its concurrency group, held by app/2/ship"


def test_one_of_a_group_may_need_another_of_it(queue):
    run = queue.enqueue(a_run(single("b", needs=("a",)), single("a")))

    end(queue, "a")
    end(queue, "b")

    assert queue.run_of(run) == ("finished", "success")


def test_a_skipped_job_never_comes_into_line(queue):
    queue.enqueue(a_run(single()))
    plan = dataclasses.replace(single(queue="latest", cancel_in_progress=True), if_="vole.ref_name == 'other'")

    run = queue.enqueue(a_run(plan))

    assert queue.states(run) == {"test": "skipped"}
    assert queue.one("SELECT count(*) FROM group_places")[0] == 1


@pytest.mark.parametrize("more", [{}, {"queue": "latest"}, {"cancel_in_progress": True}])
def test_combinations_of_one_group_go_one_after_the_other_and_cancel_none_of_their_own(queue, more):
    matrix = [dataclasses.replace(single(f"m.{n}", **more), max_parallel=2) for n in (1, 2, 3)]
    run = queue.enqueue(a_run(*matrix))
    assert list(queue.states(run).values()) == ["queued", "blocked", "blocked"]

    for key in ("m.1", "m.2", "m.3"):
        end(queue, key)

    assert queue.run_of(run) == ("finished", "success")


def test_a_failed_combination_takes_those_that_wait_out_of_line(queue):
    queue.enqueue(a_run(single("m.1"), single("m.2")))
    after = queue.enqueue(a_run(single()))

    end(queue, "m.1", "failure")

    assert queue.states(after) == {"test": "queued"}


# ---- What a newer one does


def test_latest_cancels_what_waits_and_says_for_whom(queue):
    runs = [queue.enqueue(grouped(queue="latest")) for _ in range(3)]

    assert [queue.states(run)["test"] for run in runs] == ["queued", "cancelled", "blocked"]
    reason = queue.one("SELECT reason FROM jobs WHERE run_id = :run", run=runs[1].id)["reason"]
    assert reason == "app/3 came later to concurrency group 'deploy' (queue: latest)"


def test_a_displaced_job_takes_along_what_needs_it(queue):
    runs = [queue.enqueue(a_run(single(queue="latest"), a_job("after", needs=("test",)))) for _ in range(3)]

    assert queue.states(runs[1]) == {"test": "cancelled", "after": "skipped"}
    assert queue.run_of(runs[1]) == ("finished", "cancelled")


def test_cancel_in_progress_ends_what_runs_and_the_newer_one_waits_until_it_is_over(queue):
    first = queue.enqueue(grouped(cancel_in_progress=True))
    job = queue.run("a")

    second = queue.enqueue(grouped(cancel_in_progress=True))

    assert [(ended.job, ended.reason) for ended in second.touched.ended] == [(first.jobs[0], "cancelled")]
    assert (queue.states(first), queue.states(second)) == ({"test": "cancelling"}, {"test": "blocked"})
    assert says(queue, second) == "waits for its concurrency group, held by app/1"
    queue.finish(job, "a", "success")
    assert (queue.states(first), queue.states(second)) == ({"test": "cancelled"}, {"test": "queued"})


def test_a_cancelled_one_that_says_nothing_is_over_at_its_deadline_and_not_before(queue):
    queue.enqueue(grouped(cancel_in_progress=True))
    queue.run("a")
    second = queue.enqueue(grouped(cancel_in_progress=True))

    queue.pass_time(58)
    assert queue.states(second) == {"test": "blocked"}
    queue.pass_time(3)

    assert queue.states(second) == {"test": "queued"}


def test_cancel_in_progress_ends_at_once_what_no_runner_has(queue):
    first = queue.enqueue(grouped(cancel_in_progress=True))

    second, third = (queue.enqueue(grouped(cancel_in_progress=True)) for _ in range(2))

    assert [queue.states(run)["test"] for run in (first, second, third)] == ["cancelled", "cancelled", "queued"]


def test_what_comes_of_a_push_that_comes_while_the_old_one_ends_does_not_hang_on_the_moment(queue):
    queue.enqueue(grouped(cancel_in_progress=True))
    job = queue.run("a")
    second, third = (queue.enqueue(grouped(cancel_in_progress=True)) for _ in range(2))
    assert queue.states(second) == {"test": "cancelled"}

    queue.finish(job, "a", "cancelled")

    assert queue.states(third) == {"test": "queued"}


@pytest.mark.parametrize("wish", [{"queue": "latest"}, {"cancel_in_progress": True}])
def test_what_is_spared_is_never_cancelled_for_a_newer_one(queue, wish):
    first, second = (queue.enqueue(grouped(spared=True)) for _ in range(2))
    queue.run("a")

    third = queue.enqueue(grouped(**wish))

    assert third.touched.ended == ()
    assert [queue.states(run)["test"] for run in (first, second, third)] == ["running", "blocked", "blocked"]


def test_it_is_the_older_ones_file_that_spares_it(queue):
    first = queue.enqueue(grouped())

    queue.enqueue(grouped(spared=True, cancel_in_progress=True))

    assert queue.states(first) == {"test": "cancelled"}


# ---- Runs and jobs that could wait for each other


def test_a_job_in_the_group_of_its_own_run_waits_for_that_runs_jobs_alone(queue):
    first, second = (queue.enqueue(grouped(single("x"), single("y"))) for _ in range(2))
    assert queue.states(first) == {"x": "queued", "y": "blocked"}
    assert says(queue, first, "y") == "waits for its concurrency group, held by app/1/x"

    for key in ("x", "y", "x", "y"):
        end(queue, key)

    assert (queue.run_of(first), queue.run_of(second)) == (("finished", "success"),) * 2


def test_who_would_close_a_circle_of_waiting_ends_and_says_so(queue):
    first = queue.enqueue(grouped(a_job("x"), single("late", "right", needs=("x",)), group="left"))
    second = queue.enqueue(grouped(a_job("y"), single("late", "left", needs=("y",)), group="right"))
    end(queue, "x")
    assert says(queue, first, "late") == "waits for its concurrency group, held by app/2"

    end(queue, "y")

    assert queue.states(second) == {"y": "success", "late": "errored"}
    assert queue.one("SELECT reason FROM jobs WHERE conclusion = 'errored'")["reason"] == (
        "app/1 has concurrency group 'left' and waits for a group that this run has"
    )
    assert queue.states(first) == {"x": "success", "late": "queued"}


def test_a_circle_over_three_runs_is_seen_too(queue):
    names = ["one", "two", "three"]
    runs = [
        queue.enqueue(grouped(a_job("x"), single("late", names[(at + 1) % 3], needs=("x",)), group=names[at]))
        for at in range(3)
    ]
    for _ in range(3):
        end(queue, "x")

    assert [queue.states(run)["late"] for run in runs] == ["blocked", "queued", "errored"]


def test_waiting_behind_a_run_that_is_cancelled_is_no_circle(queue):
    second = queue.enqueue(
        grouped(a_job("y"), single("late", "left", needs=("y",), cancel_in_progress=True), group="right")
    )
    first = queue.enqueue(grouped(single("late", "right"), group="left"))
    assert says(queue, first, "late") == "waits for its concurrency group, held by app/1"

    end(queue, "y")

    assert queue.states(first) == {"late": "cancelled"}
    assert queue.states(second) == {"y": "success", "late": "queued"}


# ---- What is pinned, and what a replay of the events says


def test_the_group_of_a_run_is_pinned_with_it(queue):
    run = queue.enqueue(grouped(queue="latest", spared=True))

    assert queue.write(ledger.concurrency_of, run.id) == Concurrency("deploy", queue="latest", spared=True)
    assert queue.write(ledger.concurrency_of, queue.enqueue(a_run()).id) is None


def test_an_old_document_reads_without_a_group(queue):
    old = RunPlan(EVENT.ref, COMMIT, "ci", ".vole/workflows/ci.yml", BLOB, EVENT, (a_job(),))  # type: ignore[arg-type]

    assert queue.states(queue.enqueue(old)) == {"test": "queued"}


def test_each_change_of_a_line_is_an_event(queue):
    queue.enqueue(grouped())
    queue.enqueue(grouped())
    end(queue, "test")

    kinds = [row["kind"] for row in queue.all("SELECT kind FROM events WHERE kind LIKE 'group%' ORDER BY id")]

    assert kinds == ["group_entered", "group_taken", "group_entered", "group_left", "group_taken"]


def test_the_unique_index_alone_keeps_a_group_strict(queue):
    queue.enqueue(grouped())
    queue.enqueue(grouped())

    with pytest.raises(Exception, match="UNIQUE"):
        queue.connection.execute("UPDATE group_places SET held_at = 1")


def test_a_repository_made_again_begins_with_free_groups(queue):
    queue.enqueue(grouped())
    queue.write(ledger.drop_repo, queue.index, queue.repo("app"))
    queue.write(repos.remove_repo, queue.repo("app"))
    del queue.repos["app"]

    assert queue.states(queue.enqueue(grouped()))["test"] == "queued"
