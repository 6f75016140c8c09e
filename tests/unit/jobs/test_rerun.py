"""Rerun: the same pinned documents as a new run; what is not run again counts with its old result."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.base.errors import Conflict, Invalid, NotFound
from vole.base.ids import RunId
from vole.evidence import ledger as evidence
from vole.evidence import reads as evidence_reads
from vole.jobs import ledger
from vole.wire import runner
from vole.wire.plan import ArtifactPlan, Concurrency, NeededArtifact


@pytest.fixture
def queue() -> Queue:
    queue = Queue()
    queue.runner("a", ["linux"], slots=9)
    return queue


def end(queue: Queue, conclusion: str = "success", **more: object) -> str:
    """Run the next job to its end; its key."""
    job = queue.run("a")
    queue.finish(job, "a", conclusion, **more)
    return job.key


def rerun(queue: Queue, run, *, failed: bool = False):
    return queue.write(ledger.rerun_run, queue.index, run.id, "bob", failed=failed)


def keys(queue: Queue, run) -> dict[str, str]:
    return queue.states(run)


@pytest.mark.proves("I-02")
def test_a_rerun_is_a_new_run_of_the_same_documents_and_the_old_one_stays(queue):
    old = queue.enqueue(a_run(a_job("build", runs_on=("linux",)), a_job("test", needs=("build",))))
    end(queue)
    end(queue, "failure")
    before = [tuple(row) for row in queue.all("SELECT * FROM jobs WHERE run_id = :run", run=old.id)]

    new = rerun(queue, old)

    assert (new.number, keys(queue, new)) == (2, {"build": "queued", "test": "blocked"})
    assert [tuple(row) for row in queue.all("SELECT * FROM jobs WHERE run_id = :run", run=old.id)] == before
    documents = "SELECT j.key, j.digest, d.document FROM jobs j JOIN job_documents d ON d.job_id = j.id "
    found = [
        [tuple(row) for row in queue.all(documents + "WHERE j.run_id = :run ORDER BY j.ordinal", run=run.id)]
        for run in (old, new)
    ]
    assert found[0] == found[1]
    row = queue.one("SELECT * FROM runs WHERE id = :run", run=new.id)
    assert (row["rerun_of"], row["attempt"], row["actor"]) == (old.id, 2, "bob")
    assert json.loads(row["event"])["actor"] == "ada"
    assert end(queue) == "build"
    assert end(queue) == "test"
    assert queue.run_of(new) == ("finished", "success")
    assert queue.run_of(old) == ("finished", "failure")


def test_what_failed_is_run_again_with_what_needs_it_and_the_rest_keeps_its_result(queue):
    plan = a_run(
        a_job("build", outputs={"v": "x"}),
        a_job("lint"),
        a_job("test.1", max_parallel=9, fail_fast=False, needs=("build",)),
        a_job("test.2", max_parallel=9, fail_fast=False, needs=("build",)),
        a_job("ship", needs=("test",)),
        a_job("tell", needs=("lint",)),
    )
    old = queue.enqueue(plan)
    ended = [queue.run("a") for _ in range(2)]
    for job in ended:
        queue.finish(job, "a", "success", outputs={"v": "7"} if job.key == "build" else {})
    for job in [queue.run("a") for _ in range(3)]:
        queue.finish(job, "a", "failure" if job.key == "test.2" else "success")
    assert keys(queue, old)["ship"] == "skipped"

    new = rerun(queue, old, failed=True)

    assert keys(queue, new) == {
        "build": "success",
        "lint": "success",
        "test.1": "success",
        "test.2": "queued",
        "ship": "blocked",
        "tell": "success",
    }
    assert queue.run_of(new) == ("running", None)
    job = queue.run("a")
    assert (job.key, job.context.run_attempt, job.context.run_number) == ("test.2", 2, 2)
    assert (job.context.needs["build"].result, job.context.needs["build"].outputs) == ("success", {"v": "7"})
    queue.finish(job, "a")
    assert end(queue) == "ship"
    assert queue.run_of(new) == ("finished", "success")
    reason = queue.one("SELECT reason FROM jobs WHERE run_id = :run AND key = 'build'", run=new.id)["reason"]
    assert reason == "not run again: this is the result of app/1/build"


def test_what_was_skipped_and_is_not_run_again_is_still_skipped(queue):
    old = queue.enqueue(a_run(a_job("never", if_="false"), a_job("test")))
    end(queue, "failure")

    assert keys(queue, rerun(queue, old, failed=True)) == {"never": "skipped", "test": "queued"}


def test_a_cancelled_job_counts_as_not_done(queue):
    old = queue.enqueue(a_run(a_job("test.1"), a_job("test.2")))
    end(queue, "failure")
    assert keys(queue, old) == {"test.1": "failure", "test.2": "cancelled"}

    assert keys(queue, rerun(queue, old, failed=True)) == {"test.1": "queued", "test.2": "queued"}


def test_a_chain_of_reruns_counts_its_attempts_and_what_is_carried_twice_is_still_the_first_ones(queue):
    old = queue.enqueue(a_run(a_job("build"), a_job("test")))
    for job in [queue.run("a") for _ in range(2)]:
        queue.finish(job, "a", "failure" if job.key == "test" else "success")
    second = rerun(queue, old, failed=True)
    end(queue, "failure")

    third = rerun(queue, second, failed=True)

    assert queue.one("SELECT attempt FROM runs WHERE id = :run", run=third.id)["attempt"] == 3
    origin = queue.one("SELECT id FROM jobs WHERE run_id = :run AND key = 'build'", run=old.id)["id"]
    carried = queue.all("SELECT carried_of FROM jobs WHERE key = 'build' AND run_id <> :run", run=old.id)
    assert [row["carried_of"] for row in carried] == [origin, origin]
    end(queue)
    everything = rerun(queue, third)
    assert keys(queue, everything) == {"build": "queued", "test": "queued"}


def test_a_needed_artifact_of_a_job_that_is_not_run_again_is_the_one_it_left(queue):
    build = a_job("build", artifacts=(ArtifactPlan("dist", ("*",)),))
    old = queue.enqueue(a_run(build, a_job("test", needs=("build",), needs_artifacts=(NeededArtifact("dist"),))))
    job = queue.run("a")
    file = runner.ArtifactFile("dist", "a.txt", 1, "a" * 64)
    accepted = queue.finish(job, "a", artifacts=(file,))
    result = runner.Finish(job.lease.job, 1, "success", runner.LogSeal(0, "0" * 64), artifacts=(file,))
    queue.write(evidence.add_result, evidence.Attempt(*accepted.attempt), result, {"dist": None})
    end(queue, "failure")

    new = rerun(queue, old, failed=True)

    test = queue.one("SELECT id FROM jobs WHERE run_id = :run AND key = 'test'", run=new.id)["id"]
    assert queue.read(evidence_reads.needed_files, test, "dist") == (file,)


def test_a_run_that_goes_on_is_not_run_again(queue):
    old = queue.enqueue(a_run(a_job("test")))

    with pytest.raises(Conflict, match="app/1 is not finished"):
        rerun(queue, old)


def test_a_run_is_run_again_once_and_the_refusal_names_the_newer_one(queue):
    old = queue.enqueue(a_run(a_job("test")))
    end(queue, "failure")
    rerun(queue, old)

    with pytest.raises(Conflict, match="already, as app/2") as refused:
        rerun(queue, old)

    assert refused.value.next_step == "run that again: rerun app/2"
    assert len(queue.all("SELECT * FROM runs")) == 2


def test_where_nothing_failed_there_is_nothing_to_run_again(queue):
    old = queue.enqueue(a_run(a_job("test")))
    end(queue)

    with pytest.raises(Invalid, match="no job of app/1 failed"):
        rerun(queue, old, failed=True)
    with pytest.raises(NotFound):
        queue.write(ledger.rerun_run, queue.index, RunId(7), "bob", failed=False)
    with pytest.raises(Invalid, match="was skipped"):
        rerun(queue, queue.enqueue(a_run(skipped="filter")))


@pytest.mark.proves("I-09")
def test_a_document_that_is_not_the_pinned_one_is_not_run(queue):
    old = queue.enqueue(a_run(a_job("test")))
    end(queue, "failure")
    queue.checked = False
    queue.write(lambda tx: tx.run("UPDATE job_documents SET document = replace(document, 'true', 'rm -rf /')"))

    with pytest.raises(Invalid, match="is not the one that was pinned"):
        rerun(queue, old)


def test_labels_of_a_rerun_are_those_that_were_pinned_beside_the_run(queue):
    old = queue.enqueue(a_run(a_job("test", runs_on=("linux",))), labels={"test": ("fast",)})
    queue.runner("b", ["fast"])
    queue.finish(queue.run("b"), "b", "failure")

    rerun(queue, old)

    assert queue.run("b").key == "test"


def test_a_rerun_goes_through_the_concurrency_group_of_its_documents(queue):
    plan = replace(a_run(a_job(runs_on=("linux",))), concurrency=Concurrency("deploy"))
    old = queue.enqueue(plan)
    end(queue)
    other = queue.enqueue(plan)

    new = rerun(queue, old)

    assert (keys(queue, other), keys(queue, new)) == ({"test": "queued"}, {"test": "blocked"})
