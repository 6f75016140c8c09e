"""Each question of `vole doctor` finds what breaks it, and nothing in a queue that is well."""

from __future__ import annotations

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.jobs.reads import health
from vole.wire.plan import Concurrency

COPIED = (
    "session_id, token, account, key_fingerprint, runner, runner_version, os, arch, leased_at, started_at, ended_at, "
    "end_cause"
)


@pytest.fixture
def queue():
    """A finished run, one that is running, and one that waits for its group."""
    queue = Queue()
    queue.runner("one")
    queue.job()
    queue.finish(queue.run("one"), "one")
    group = Concurrency("deploy")
    for _ in range(2):
        queue.enqueue(a_run(a_job(concurrency=group)))
    queue.run("one")
    yield queue
    queue.connection.close()


def breaks(queue: Queue, sql: str) -> list[str]:
    queue.connection.execute(sql)
    return queue.read(health.broken)


def test_a_queue_that_is_well_has_nothing_broken(queue):
    assert queue.read(health.broken) == []
    assert queue.read(health.set_aside) == []


@pytest.mark.parametrize(
    ("ident", "sql"),
    [
        ("I-03", "UPDATE attempts SET ended_at = 1, end_cause = 'operator' WHERE ended_at IS NULL"),
        ("I-03", "UPDATE jobs SET epoch = 2 WHERE state = 'running'"),
        ("I-04", "UPDATE attempts SET epoch = 3 WHERE ended_at IS NOT NULL"),
        ("I-04", "DELETE FROM attempts WHERE ended_at IS NOT NULL"),
        (
            "I-07",
            f"INSERT INTO attempts (job_id, epoch, {COPIED}) SELECT job_id, 2, {COPIED} FROM attempts "
            "WHERE end_cause = 'finished'",
        ),
        ("I-09", "UPDATE job_documents SET document = '{}'"),
        ("I-11", "UPDATE runners SET slots = 0"),
        (
            "I-12",
            "UPDATE group_places SET run_id = (SELECT min(id) FROM runs), job_id = NULL WHERE held_at IS NOT NULL",
        ),
        ("I-19", "UPDATE jobs SET losses = 4 WHERE state = 'running'"),
        ("I-21", "DELETE FROM events WHERE kind = 'started'"),
        ("I-21", "UPDATE runs SET state = 'running', conclusion = NULL, finished_at = NULL WHERE state = 'finished'"),
        ("I-22", "UPDATE run_numbers SET pruned = 1"),
        ("I-22", "UPDATE run_numbers SET next = 3, skipped = 0"),
        ("I-34", "UPDATE attempts SET log_state = 'open' WHERE result_digest IS NOT NULL"),
        ("I-36", "INSERT INTO record_outbox (repo_id, run_id) SELECT repo_id, id FROM runs WHERE state = 'running'"),
        ("I-36", "INSERT INTO record_outbox (repo_id, run_id) SELECT repo_id, run_id FROM record_outbox"),
    ],
)
def test_what_is_broken_is_found_by_the_question_for_it(queue, ident, sql):
    found = breaks(queue, sql)

    assert ident in {line.partition(":")[0] for line in found}, found
    assert all("None" not in line for line in found)


def test_many_of_a_kind_are_counted(queue):
    for _ in range(7):
        queue.job()

    found = breaks(queue, "UPDATE jobs SET losses = 4 WHERE state = 'queued'")

    assert [line for line in found if "I-19" in line][-1] == "I-19: 2 more like it"


def test_a_job_that_is_set_aside_is_named(queue):
    queue.connection.execute("UPDATE jobs SET set_aside = 'no JSON' WHERE state = 'blocked'")

    assert queue.read(health.set_aside) == ["app/3/test is set aside: no JSON"]
