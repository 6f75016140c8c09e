from __future__ import annotations

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.base import labels
from vole.jobs import explain, reads


@pytest.fixture
def queue():
    return Queue()


def words(queue, job, *, known=frozenset(), asking=()):
    """The prospect of a job as a push would print it."""
    asks = [queue.asks[name] for name in asking or queue.asks]
    explained = queue.read(reads.explain_job, job, asks, queue.policy.cap)
    return explain.prospect(explained, lambda label: labels.alike(label, known))


def test_a_job_that_a_free_runner_may_take_starts_now_on_it(queue):
    queue.runner("mac-1", ["linux"])

    assert words(queue, queue.job("linux")) == "starts now on mac-1"


def test_a_label_that_nobody_carries_is_named_with_the_nearest_that_is_known(queue):
    queue.runner("linux-1", ["linux"])

    found = words(queue, queue.job("linux", "fast"), known=frozenset({"fasta", "linux"}))

    assert found == "waits: no connected runner carries 'fast' (linux-1 lacks fast; nearest label: 'fasta')"


def test_a_label_that_is_known_has_no_nearest(queue):
    queue.runner("linux-1", ["linux"])

    assert words(queue, queue.job("fast"), known=frozenset({"fast"})) == (
        "waits: no connected runner carries 'fast' (linux-1 lacks fast)"
    )


def test_without_runners_that_is_the_reason(queue):
    assert words(queue, queue.job()) == "waits: no runner is connected"


@pytest.mark.proves("I-24")
def test_a_busy_runner_and_a_wrong_one_each_have_their_reason(queue):
    queue.runner("linux-1", ["linux"])
    queue.runner("mac-1", ["macos"])
    queue.job("linux")
    queue.run("linux-1")

    assert words(queue, queue.job("linux")) == "waits: linux-1 is busy (1 of 1); mac-1 lacks linux"


def test_a_full_repository_says_its_cap(queue):
    queue.with_policy(cap=1)
    queue.runner("linux-1", slots=2)
    queue.job()
    queue.run("linux-1")

    assert words(queue, queue.job()) == "waits: linux-1 would pass the cap of the repository (1 of 1)"


def test_a_job_that_runs_names_its_runner_and_one_that_waits_what_for(queue):
    queue.runner("linux-1")
    run = queue.enqueue(a_run(a_job("build"), a_job("test", needs=("build",))))
    leased = queue.lease("linux-1")
    assert words(queue, run.jobs[0]) == "starts now on linux-1"
    queue.start(leased, "linux-1")

    assert words(queue, run.jobs[0]) == "runs on linux-1"
    assert words(queue, run.jobs[1]) == "waits for build"
    queue.finish(leased, "linux-1", "failure")
    assert words(queue, run.jobs[1]) == "ended: skipped"


def test_why_has_a_line_for_each_runner(queue):
    queue.runner("a", ["linux"])
    queue.runner("b", grant=["lib"])
    explained = queue.read(reads.explain_job, queue.job("linux", "fast"), list(queue.asks.values()), None)

    assert explain.why(explained, lambda _: None) == [
        "app/1/test: waits: no connected runner carries 'fast' (a lacks fast, b lacks fast)",
        "  a: lacks fast",
        "  b: lacks fast",
    ]


def test_jobs_that_fare_alike_share_a_line():
    lines = [("a.1", "starts now on x"), ("a.2", "starts now on x")]

    assert explain.together(lines) == ["starts now on x"]
    assert explain.together([*lines, ("b", "waits: …")]) == ["a.1, a.2: starts now on x", "b: waits: …"]


def test_many_runners_are_a_count(queue):
    for number in range(5):
        queue.runner(f"r{number}")

    assert words(queue, queue.job("fast")).startswith(
        "waits: no connected runner carries 'fast' (r0 lacks fast, r1 lacks fast, r2 lacks fast and 2 more"
    )


def test_a_waiting_push_reads_how_far_its_runs_are(queue):
    queue.runner("a", slots=2)
    run = queue.enqueue(a_run(a_job("build"), a_job("test")))
    texts = []
    for conclusion in ("success", "failure"):
        texts.append(queue.read(reads.run_states, (run.id,))[run.id].text)
        queue.finish(queue.run("a"), "a", conclusion)
    last = queue.read(reads.run_states, (run.id,))[run.id]

    assert texts == ["queued", "running"]
    assert (last.text, last.finished) == ("failure: test", True)
