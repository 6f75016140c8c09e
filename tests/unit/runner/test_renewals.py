"""When a keeper renews, what it may believe, and when it lets go by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from vole.base.clock import ManualClock, Moment, after, seconds
from vole.base.ids import Epoch, JobId
from vole.base.limits import LEASE_TTL_MAX_S, LEASE_TTL_MIN_S, LEASE_TTL_S, lease_times
from vole.wire.runner import LeaseRef, Renew, Renewal, Renewed, Started
from vole_runner.renewals import Hold, Renewals

LEASE = LeaseRef(JobId(1), Epoch(1))
OTHER = LeaseRef(JobId(2), Epoch(1))
TTL_S = 60.0


@dataclass
class Bench:
    """Renewals on a clock that moves when told, over a link that can be cut."""

    clock: ManualClock = field(default_factory=ManualClock)
    sent: list[object] = field(default_factory=list)
    up: bool = True
    let_go: list[LeaseRef] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.renewals = Renewals(self.clock, self.send)

    def send(self, message: object) -> bool:
        if self.up:
            self.sent.append(message)
        return self.up

    def take(self, lease: LeaseRef = LEASE) -> None:
        self.renewals.take(lease, TTL_S, lambda: Renewal(lease.job, lease.epoch), lambda: self.let_go.append(lease))

    def pass_(self, seconds_: float) -> None:
        self.clock.advance(seconds(seconds_))
        self.renewals.look()


def started(bench: Bench, *leases: LeaseRef) -> None:
    for lease in leases:
        bench.take(lease)
        bench.renewals.answered(Renewed((lease,)))


def test_a_lease_is_renewed_each_third_of_its_ttl() -> None:
    bench = Bench()
    started(bench, LEASE)

    for _ in range(3):
        bench.pass_(TTL_S / 3 - 0.1)
        bench.pass_(0.2)
        bench.renewals.answered(Renewed((LEASE,)))

    assert [type(word) for word in bench.sent] == [Started, Renew, Renew, Renew]


@pytest.mark.proves("I-25", "SR-35")
@pytest.mark.parametrize("ttl_s", [LEASE_TTL_MIN_S, LEASE_TTL_S, LEASE_TTL_MAX_S])
def test_ending_by_itself_begins_at_three_quarters_and_is_over_before_the_ttl(ttl_s: float) -> None:
    times = lease_times(ttl_s)
    sent_at = Moment(1_000_000)

    hold = Hold(times, Moment(0)).renewed(sent_at)

    assert hold.ends_at == after(sent_at, seconds(ttl_s * 3 / 4))
    assert after(hold.ends_at, seconds(times.grace_s)) < after(sent_at, seconds(ttl_s))


@pytest.mark.proves("I-25", "SR-35")
def test_without_accepted_renewals_the_lease_is_let_go_at_three_quarters_of_the_ttl() -> None:
    bench = Bench()
    started(bench, LEASE)
    bench.up = False

    bench.pass_(TTL_S * 3 / 4 - 0.001)
    held = list(bench.let_go)
    bench.pass_(0.001)

    assert held == []
    assert bench.let_go == [LEASE]


@pytest.mark.proves("I-25")
def test_the_time_counts_from_the_sending_of_a_renewal_not_from_its_answer() -> None:
    bench = Bench()
    started(bench, LEASE)
    bench.pass_(20)
    bench.clock.advance(seconds(15))
    bench.renewals.answered(Renewed((LEASE,)))

    bench.pass_(TTL_S * 3 / 4 - 15)

    assert bench.let_go == [LEASE]


@pytest.mark.proves("I-25")
def test_an_unanswered_renewal_keeps_nothing_alive() -> None:
    bench = Bench()
    started(bench, LEASE)

    bench.pass_(20)
    bench.pass_(20)
    bench.pass_(5)

    assert [type(word) for word in bench.sent] == [Started, Renew, Renew]
    assert bench.let_go == [LEASE]


def test_an_answer_belongs_to_the_oldest_question_of_its_connection() -> None:
    bench = Bench()
    started(bench, LEASE)
    bench.pass_(20)
    bench.pass_(20)
    bench.renewals.answered(Renewed((LEASE,)))  # of the first of the two

    bench.pass_(25)

    assert bench.let_go == [LEASE]


def test_an_answer_after_a_new_connection_is_not_taken_for_one_of_the_old() -> None:
    bench = Bench()
    started(bench, LEASE)
    bench.pass_(20)
    bench.clock.advance(seconds(10))
    bench.renewals.connected()  # renews at 30 s
    bench.renewals.answered(Renewed((LEASE,)))

    bench.pass_(44)

    assert bench.let_go == []


def test_a_renewal_that_names_a_lease_no_more_keeps_only_the_others() -> None:
    bench = Bench()
    started(bench, LEASE, OTHER)
    bench.pass_(20)
    bench.renewals.answered(Renewed((OTHER,)))

    bench.pass_(25)

    assert bench.let_go == [LEASE]


def test_a_start_that_is_not_answered_is_given_up_with_the_start_window() -> None:
    bench = Bench()
    bench.take()

    bench.pass_(TTL_S / 4)

    assert bench.let_go == [LEASE]


def test_an_unanswered_start_is_said_again_on_the_next_connection() -> None:
    bench = Bench()
    bench.take()
    bench.sent.clear()

    bench.renewals.connected()

    assert bench.sent == [Started(LEASE.job, LEASE.epoch), Renew((Renewal(LEASE.job, LEASE.epoch),))]


def test_a_lease_that_was_dropped_is_neither_renewed_nor_let_go() -> None:
    bench = Bench()
    started(bench, LEASE)
    bench.renewals.drop(LEASE)
    bench.sent.clear()

    bench.pass_(TTL_S)

    assert (bench.sent, bench.let_go) == ([], [])
