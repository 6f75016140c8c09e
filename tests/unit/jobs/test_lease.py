from __future__ import annotations

import pytest

from vole.base.clock import Moment, after, seconds
from vole.base.errors import Fenced
from vole.base.ids import Epoch, JobId, SessionId
from vole.base.limits import lease_times
from vole.jobs import lease
from vole.jobs.model import State

TIMES = lease_times(60.0)
NOW = Moment(1_000_000_000)
LEASE = lease.granted(JobId(41), SessionId(7), Epoch(5), NOW, TIMES)
RUNNING = lease.started(LEASE, NOW, TIMES)


def test_a_grant_is_the_next_epoch_and_lasts_for_the_start_window():
    assert (LEASE.epoch, LEASE.state, LEASE.deadline) == (6, State.LEASED, after(NOW, seconds(15)))


def test_a_start_counts_as_the_first_renewal():
    assert (RUNNING.state, RUNNING.deadline) == (State.RUNNING, after(NOW, seconds(60)))


def test_a_second_start_changes_nothing():
    assert lease.started(RUNNING, after(NOW, seconds(9)), TIMES) == RUNNING


def test_a_renewal_moves_the_deadline_of_a_running_lease():
    assert lease.renewed(RUNNING, after(NOW, seconds(20)), TIMES).deadline == after(NOW, seconds(80))


@pytest.mark.proves("I-17")
@pytest.mark.parametrize("state", [State.LEASED, State.CANCELLING])
def test_a_renewal_never_moves_the_deadline_of_another_state(state):
    held = LEASE._replace(state=state)

    assert lease.renewed(held, after(NOW, seconds(10)), TIMES) == held


@pytest.mark.parametrize(("state", "span_s"), [(State.LEASED, 15), (State.RUNNING, 60), (State.CANCELLING, 60)])
def test_a_restart_gives_one_fresh_span_whatever_the_old_deadline_was(state, span_s):
    held = LEASE._replace(state=state, deadline=after(NOW, seconds(999_999)))

    assert lease.refreshed(held, NOW, TIMES).deadline == after(NOW, seconds(span_s))


@pytest.mark.parametrize(
    ("found", "holder", "epoch"),
    [(None, 7, 6), (LEASE, 7, 5), (LEASE, 7, 7), (LEASE, 8, 6)],
    ids=["no lease", "older epoch", "newer epoch", "another holder"],
)
def test_a_word_that_names_another_lease_is_fenced(found, holder, epoch):
    with pytest.raises(Fenced):
        lease.check(found, JobId(41), SessionId(holder), Epoch(epoch))


@pytest.mark.proves("SR-37", "I-19")
@pytest.mark.parametrize(
    ("losses", "on_lost", "state"),
    [(1, "rerun", State.QUEUED), (2, "rerun", State.QUEUED), (3, "rerun", State.FINISHED), (1, "fail", State.FINISHED)],
)
def test_a_lost_job_is_run_again_until_it_was_lost_three_times(losses, on_lost, state):
    assert lease.after_loss(losses, on_lost) is state
