"""Random labels, grants, filters, caps and slots: leasing, explaining and set inclusion say the same."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queueing import Queue
from vole.jobs import reads
from vole.jobs.match import Ask, Why
from vole.wire import runner

LABELS = st.sets(st.sampled_from(["linux", "macos", "arm64", "fast", "gpu"]), max_size=3)
REPOS = ["app", "lib", "web"]


@dataclasses.dataclass(frozen=True)
class Machine:
    labels: set[str]
    grant: set[str]
    narrowed: set[str]
    slots: int
    only: bool
    draining: bool


MACHINES = st.builds(
    Machine,
    LABELS,
    st.sets(st.sampled_from(REPOS), min_size=1),
    st.sets(st.sampled_from(REPOS), max_size=2),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)
JOBS = st.lists(st.tuples(st.sampled_from(REPOS), LABELS), min_size=1, max_size=6)


def a_queue(machines: list[Machine], jobs: list[tuple[str, set[str]]], cap: int | None) -> Queue:
    queue = Queue(checked=False).with_policy(cap=cap)
    for number, machine in enumerate(machines):
        name = f"runner-{number}"
        ask = queue.runner(
            name,
            sorted(machine.labels),
            grant=sorted(machine.grant),
            repos=tuple(sorted(machine.narrowed)),
            slots=machine.slots,
            only=machine.only,
        )
        queue.asks[name] = dataclasses.replace(ask, draining=machine.draining)
    for repo, labels in jobs:
        queue.job(*sorted(labels), repo=repo)
    return queue


def refusals(queue: Queue) -> dict[tuple[int, str], Why | None]:
    """For each queued job and each runner the one reason, None for none."""
    found = {}
    asks = list(queue.asks.values())
    for row in queue.all("SELECT id FROM jobs WHERE state = 'queued'"):
        explained = queue.read(reads.explain_job, row["id"], asks, queue.policy.cap)
        for verdict in explained.verdicts:
            found[row["id"], verdict.runner] = None if verdict.reason is None else verdict.reason.code
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MACHINES, min_size=1, max_size=3), JOBS, st.sampled_from([None, 1, 2]))
@pytest.mark.proves("SR-24", "I-08", "I-24")
def test_explain_is_empty_exactly_when_lease_would_succeed(machines, jobs, cap):
    queue = a_queue(machines, jobs, cap)

    for _ in range(len(jobs) * len(machines) + 1):
        for name in queue.asks:
            free = {job for (job, runner_name), why in refusals(queue).items() if runner_name == name and why is None}
            (got,) = queue.look(name)
            assert isinstance(got, runner.Job) == bool(free)
            assert not isinstance(got, runner.Job) or got.lease.job in free
    assert None not in refusals(queue).values()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MACHINES, min_size=1, max_size=3), JOBS)
@pytest.mark.proves("SR-24", "SR-25", "I-08")
def test_a_lease_is_always_within_labels_grant_and_filter(machines, jobs):
    queue = a_queue(machines, jobs, None)
    everything = frozenset(queue.repos.values())
    forged: list[Ask] = [dataclasses.replace(ask, serves=everything) for ask in queue.asks.values()]

    for machine, ask in zip(machines, forged, strict=True):
        for got in queue.look(ask, ask, ask):
            if isinstance(got, runner.Job):
                repo, labels = jobs[_number(queue, got)]
                assert labels <= machine.labels
                assert repo in machine.grant
                assert not machine.narrowed or repo in machine.narrowed
                assert labels or not machine.only
                assert not machine.draining


def _number(queue: Queue, got: runner.Job) -> int:
    ids = [row["id"] for row in queue.all("SELECT id FROM jobs ORDER BY id")]
    return ids.index(got.lease.job)
