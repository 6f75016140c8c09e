from __future__ import annotations

import pytest

from tests.queueing import Queue
from vole.base.errors import Fenced
from vole.base.ids import Epoch
from vole.jobs import rows
from vole.jobs.ledger import moves
from vole.jobs.model import Conclusion, EndCause, Happening, State


@pytest.fixture
def queue():
    queue = Queue()
    queue.runner("a")
    return queue


@pytest.mark.proves("I-05", "SR-26")
@pytest.mark.parametrize("stale", [{"state": State.QUEUED}, {"epoch": Epoch(7)}], ids=["state", "epoch"])
def test_a_move_from_where_the_row_no_longer_is_changes_nothing(queue, stale):
    job_id = queue.job()
    queue.run("a")
    seen = rows.job(queue.one(rows.JOB, job=job_id))._replace(**stale)
    what = Happening.CANCELLED if seen.state is State.QUEUED else Happening.CONCLUDED

    with pytest.raises(Fenced):
        queue.write(moves.conclude, queue.index, seen, what, Conclusion.CANCELLED, cause=EndCause.FINISHED)

    assert queue.state(job_id) == ("running", None)


@pytest.mark.proves("I-01")
def test_a_move_that_is_no_row_of_the_table_is_a_bug_and_changes_nothing(queue):
    job_id = queue.job()
    seen = rows.job(queue.one(rows.JOB, job=job_id))

    with pytest.raises(AssertionError, match="no row of the table"):
        queue.write(moves.move, queue.index, seen, Happening.STARTED, State.RUNNING)

    assert queue.state(job_id) == ("queued", None)


@pytest.mark.proves("I-14")
def test_an_attempt_that_is_over_cannot_end_again(queue):
    job_id = queue.job()
    queue.finish(queue.run("a"), "a")
    seen = rows.job(queue.one(rows.JOB, job=job_id))

    with pytest.raises(Fenced):
        queue.write(moves.end_attempt, seen, EndCause.EXPIRED)

    assert queue.one("SELECT end_cause FROM attempts")["end_cause"] == "finished"
