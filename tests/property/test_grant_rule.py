"""Random labels, grants, filters, caps and slots: leasing, explaining and set inclusion say the same."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queueing import Queue
from vole.base.clock import seconds
from vole.jobs import reads
from vole.jobs.match import Ask, Why
from vole.store.database import Tx
from vole.wire import runner

NAMES = ["linux", "macos", "arm64", "fast", "gpu"]
LABELS = st.sets(st.sampled_from(NAMES), max_size=3)
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


def agreement(queue: Queue, looks: int) -> int:
    """Look for each runner in turn, `looks` times: a job is leased exactly where explain has no reason against it.

    How many pairs of a job and a runner that was.
    """
    pairs = 0
    for _ in range(looks):
        for name in queue.asks:
            verdicts = {job: why for (job, runner_name), why in refusals(queue).items() if runner_name == name}
            free = {job for job, why in verdicts.items() if why is None}
            (got,) = queue.look(name)
            assert isinstance(got, runner.Job) == bool(free)
            assert not isinstance(got, runner.Job) or got.lease.job in free
            pairs += len(verdicts)
    return pairs


@settings(max_examples=50)
@given(st.lists(MACHINES, min_size=1, max_size=3), JOBS, st.sampled_from([None, 1, 2]))
@pytest.mark.proves("SR-24", "I-08", "I-24")
def test_explain_is_empty_exactly_when_lease_would_succeed(machines, jobs, cap):
    queue = a_queue(machines, jobs, cap)

    agreement(queue, len(jobs) * len(machines) + 1)

    assert None not in refusals(queue).values()


def drawn(rng: random.Random) -> Queue:
    """A queue with anything in it that decides a grant: also rests, revoked grants, busy slots, low disks."""
    machines = [
        Machine(
            labels=set(rng.sample(NAMES, rng.randrange(4))),
            grant=set(rng.sample(REPOS, rng.randrange(1, 4))),
            narrowed=set(rng.sample(REPOS, rng.choice((0, 0, 1, 2)))),
            slots=rng.randrange(1, 4),
            only=rng.random() < 0.2,
            draining=rng.random() < 0.1,
        )
        for _ in range(rng.randrange(1, 5))
    ]
    jobs = [(rng.choice(REPOS), set(rng.sample(NAMES, rng.choice((0, 0, 1, 2))))) for _ in range(rng.randrange(1, 9))]
    queue = a_queue(machines, jobs, rng.choice((None, 1, 2)))
    for name, ask in queue.asks.items():
        queue.asks[name] = dataclasses.replace(ask, disk_low=rng.random() < 0.1)
        (got,) = queue.look(name) if rng.random() < 0.4 else (None,)
        if isinstance(got, runner.Job) and rng.random() < 0.7:
            queue.hand_back(got, name)
        if rng.random() < 0.2:
            queue.write(_revoke, name, queue.repos.get(rng.choice(REPOS), 0))
    queue.clock.advance(seconds(rng.choice((1, 59, 60, 61))))
    return queue


def _revoke(tx: Tx, name: str, repo: int) -> None:
    tx.run(
        "DELETE FROM grants WHERE repo_id = :repo AND account_id = (SELECT id FROM accounts WHERE name = :name)",
        repo=repo,
        name=name,
    )


@pytest.mark.parametrize("least", [400, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])])
@pytest.mark.proves("SR-24", "I-08", "I-24")
def test_explain_and_lease_agree_on_every_one_of_many_pairs(least):
    seed = pairs = 0
    while pairs < least:
        seed += 1
        pairs += agreement(drawn(random.Random(seed)), 2)

    assert pairs >= least


@settings(max_examples=50)
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
