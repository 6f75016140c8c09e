"""A queue that comes from a backup: all of it has ended, and its numbers lie ahead."""

from __future__ import annotations

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.jobs import ledger, reads
from vole.wire.plan import Concurrency


def restored(queue: Queue, used: int = 0) -> int:
    """The next run's number, once every job that had not ended is lost."""
    left = [job for job, _ in queue.read(reads.unfinished)]
    queue.write(ledger.end_unfinished, queue.index, left)
    number: int = queue.write(ledger.pass_over, queue.repo("app"), used)
    return number


@pytest.mark.proves("SR-80", "I-04")
def test_whatever_had_not_ended_is_lost_wherever_it_was():
    queue = Queue()
    queue.runner("one")
    queue.runner("two")
    queue.runner("three")
    held = [queue.job() for _ in range(3)]
    leased, running, cancelling = (queue.lease(name) for name in ("one", "two", "three"))
    queue.start(running, "two")
    queue.start(cancelling, "three")
    run = queue.one("SELECT run_id FROM jobs WHERE id = :job", job=cancelling.lease.job)["run_id"]
    queue.write(ledger.cancel_run, queue.index, run, "by ada")
    rest = queue.enqueue(a_run(a_job("first"), a_job("then", needs=("first",)), a_job("always", needs=("then",))))

    restored(queue)

    jobs = [*held, *rest.jobs]
    assert [queue.state(job) for job in jobs] == [("finished", "lost")] * len(jobs)
    assert queue.run_of(rest) == ("finished", "failure")
    assert {job.lease.job for job in (leased, running, cancelling)} == set(held)
    causes = [row["end_cause"] for row in queue.all("SELECT end_cause FROM attempts")]
    assert causes == ["operator"] * 3


def test_groups_are_free_after_a_restore():
    queue = Queue()
    group = Concurrency("deploy")
    for _ in range(2):
        queue.enqueue(a_run(a_job(concurrency=group)))

    restored(queue)

    assert queue.all("SELECT * FROM group_places") == []


@pytest.mark.proves("SR-80")
@pytest.mark.parametrize(
    ("last", "used", "following"),
    [(0, 0, 1000), (12, 0, 1000), (750, 0, 1000), (751, 0, 2000), (12, 2345, 3000), (1000, 12, 2000)],
)
def test_the_next_run_is_a_full_thousand_beyond_every_known_number(last, used, following):
    queue = Queue(checked=False)
    repo = queue.repo("app")
    queue.write(lambda tx: tx.run("INSERT INTO run_numbers (repo_id, next) VALUES (:r, :n)", r=repo, n=last + 1))

    assert restored(queue, used) == following

    run = queue.enqueue(a_run())
    assert run.number == following


def test_a_number_that_was_passed_over_is_counted():
    queue = Queue()
    for _ in range(3):
        queue.enqueue(a_run())
        restored(queue)

    assert [row["number"] for row in queue.all("SELECT number FROM runs ORDER BY id")] == [1, 1000, 2000]
    queue.check()
