"""The index against the statement it replaces: the same next job, whatever happened before."""

from __future__ import annotations

import random

import pytest

from tests.queueing import Queue
from vole.base.clock import seconds
from vole.base.ids import Epoch, JobId, RepoId
from vole.jobs.index import Avoid, QueueIndex
from vole.jobs.match import Ask
from vole.jobs.model import Held, Holder


def an_ask(labels: set[str], repos: set[int], *, only: bool = False) -> Ask:
    holder = Holder(1, "rui", "SHA256:x", "mac-1", "0", "linux", "x64")  # type: ignore[arg-type]
    serves = frozenset(RepoId(repo) for repo in repos)
    return Ask(holder, frozenset(labels), frozenset(), serves, slots=1, only=only)


def an_index(*jobs: tuple[int, int, str]) -> QueueIndex:
    """Jobs as (enqueued and id, repository, labels as letters)."""
    index = QueueIndex()
    for place, repo, letters in jobs:
        index.add((place, place), sum(ord(letter) for letter in letters), frozenset(letters), RepoId(repo))
    return index


def picks(index: QueueIndex, ask: Ask, count: int, cap: int | None = None) -> list[int]:
    """What looks in one change get, one after the other."""
    found = []
    with index.drafting() as draft:
        for _ in range(count):
            candidate = draft.pick(ask, Avoid(), cap)
            if candidate is None:
                break
            draft.take(candidate)
            found.append(candidate.job)
    return found


def test_the_oldest_of_all_matching_sets_comes_first():
    index = an_index((3, 1, "a"), (1, 1, "ab"), (2, 1, ""), (0, 1, "c"))

    assert picks(index, an_ask({"a", "b"}, {1}), 9) == [1, 2, 3]


@pytest.mark.parametrize("repositories", [3, 12], ids=["looked at one by one", "through the order of the set"])
def test_looks_of_one_change_count_what_the_change_took(repositories):
    index = an_index(*((n, n % repositories, "") for n in range(repositories * 2)))

    found = picks(index, an_ask(set(), set(range(repositories))), repositories * 2)

    assert found == list(range(repositories * 2))


@pytest.mark.parametrize("repositories", [3, 12])
def test_a_change_that_was_not_committed_leaves_everything_as_it_was(repositories):
    index = an_index(*((n, n % repositories, "") for n in range(40)))
    ask = an_ask(set(), set(range(repositories)))
    first = picks(index, ask, 17)

    assert picks(index, ask, 40)[:17] == first


def test_a_repository_at_its_cap_is_skipped():
    index = an_index((1, 1, ""), (2, 1, ""), (3, 2, ""))

    assert picks(index, an_ask(set(), {1, 2}), 9, cap=1) == [1, 3]


def test_what_an_ask_avoids_does_not_hide_the_next_job_of_its_repository():
    index = an_index(*((n, 1 + n % 12, "") for n in range(24)))
    ask = an_ask(set(), set(range(1, 13)))
    with index.drafting() as draft:
        found = draft.pick(ask, Avoid(jobs={JobId(0)}, repos={RepoId(r) for r in range(2, 13)}), None)

    assert found is not None
    assert found.job == 12


def test_a_job_that_left_the_queue_is_never_found_again():
    index = an_index((1, 1, ""), (2, 1, ""))
    index.remove(JobId(1))

    assert picks(index, an_ask(set(), {1}), 9) == [2]


def test_dead_entries_do_not_pile_up():
    index = an_index(*((n, 1, "") for n in range(2_000)))
    for n in range(1, 2_000):
        index.remove(JobId(n))
    line = next(iter(index._lines.values()))

    assert len(line.heap) < 200


def test_a_repository_whose_leases_ended_comes_first_again():
    index = an_index(*((n, n % 12, "") for n in range(48)))
    ask = an_ask(set(), set(range(12)))
    held = Held(1, RepoId(0), "r0", 1, 1, "test")  # type: ignore[arg-type]
    for job in (0, 12):
        index.take(JobId(job), Epoch(1), held)
    assert picks(index, ask, 12)[-1] == 13  # not of repository 0, which is the busiest

    for job in (0, 12):
        index.release(JobId(job), Epoch(1))

    assert picks(index, ask, 1) == [1]
    assert picks(index, ask, 12)[-1] == 24


def test_a_job_that_comes_back_takes_its_old_place():
    index = an_index(*((n, n % 12, "") for n in range(48)))
    ask = an_ask(set(), set(range(12)))
    index.remove(JobId(0))
    assert picks(index, ask, 1) == [1]

    index.add((0, 0), 0, frozenset(), RepoId(0))

    assert picks(index, ask, 1) == [0]


@pytest.mark.parametrize("seed", range(8))
def test_the_index_finds_what_the_rows_say(seed):
    """The oracle is one statement over the rows: slow, and plainly right."""
    chance = random.Random(seed)
    queue = Queue(checked=False)
    names = [f"r{n}" for n in range(chance.choice([2, 14]))]
    labels = ["a", "b", "c"]
    runners = [
        queue.runner(
            f"runner-{n}",
            chance.sample(labels, chance.randint(0, 3)),
            grant=chance.sample(names, chance.randint(1, len(names))),
            slots=64,
            only=chance.random() < 0.2,
        )
        for n in range(4)
    ]
    cap = queue.with_policy(cap=chance.choice([None, 3])).policy.cap
    held = []
    for _ in range(150):
        deed = chance.random()
        queue.clock.advance(seconds(chance.choice([0, 0, 1])))
        ask = chance.choice(runners)
        if deed < 0.45:
            queue.job(*chance.sample(labels, chance.randint(0, 2)), repo=chance.choice(names))
        elif deed < 0.8:
            expected = oracle(queue, ask, cap)
            (got,) = queue.look(ask)
            assert (None if isinstance(got, str) else got.lease.job) == expected
            if expected is not None:
                held.append((got, ask))
        elif held:
            job, holder = held.pop(chance.randrange(len(held)))
            if chance.random() < 0.5:
                queue.finish(job, holder)
            else:
                queue.start(job, holder)
                queue.hand_back(job, holder)
        if chance.random() < 0.03:
            queue.restart()
    queue.check()


def oracle(queue: Queue, ask: Ask, cap: int | None) -> int | None:
    rests = queue.clock.now() - 60_000_000
    found = queue.one(
        """
        WITH busy AS (
          SELECT repo_id, COUNT(*) AS n FROM jobs WHERE state IN ('leased', 'running', 'cancelling') GROUP BY repo_id)
        SELECT j.id
        FROM jobs j
        JOIN run_labels l ON l.job_id = j.id
        JOIN label_sets s ON s.id = l.label_set_id
        LEFT JOIN busy b ON b.repo_id = j.repo_id
        WHERE j.state = 'queued'
          AND j.repo_id IN (SELECT g.repo_id FROM grants g JOIN keys k ON k.account_id = g.account_id
                            WHERE k.fingerprint = :key AND g.level = 'run')
          AND NOT EXISTS (SELECT 1 FROM json_each(s.labels) w
                          WHERE w.value NOT IN (SELECT value FROM json_each(:labels)))
          AND (:only = 0 OR s.labels <> '[]')
          AND (:cap IS NULL OR COALESCE(b.n, 0) < :cap)
          AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.job_id = j.id AND a.runner = :runner
                          AND a.end_cause IN ('handed_back', 'not_started') AND a.ended_at > :rests)
        ORDER BY COALESCE(b.n, 0), j.enqueued_at, j.id
        LIMIT 1""",
        key=ask.holder.key_fingerprint,
        labels=str(sorted(ask.labels)).replace("'", '"'),
        only=int(ask.only),
        cap=cap,
        runner=ask.holder.name,
        rests=rests,
    )
    return None if found is None else found["id"]
