"""The queue's own log told again decides every grant as it was, whatever happened and shared a commit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queueing import Queue, a_job, a_run
from vole.base.clock import Moment, seconds
from vole.base.entropy import SeededEntropy
from vole.base.errors import VoleError
from vole.flows.replay import read_story
from vole.flows.replay.again import Replayed, replay
from vole.flows.replay.story import Story
from vole.flows.replay.whatif import forecast
from vole.jobs import ledger
from vole.jobs.match import Ask
from vole.people import ledger as people
from vole.repos import ledger as repos
from vole.runners import ledger as runners
from vole.store.scratch import Scratch
from vole.wire import runner

FOREVER = Moment(2**62)
BEGIN = Moment(0)
REPOS = ("app", "lib", "web")
LABELS = st.sets(st.sampled_from(["linux", "fast"]), max_size=2)
NAMES = ("a", "b", "c")


class SharedCommits(Queue):
    """A queue whose changes share a commit until `commit`: the index follows then, as the store's writer has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scratch = Scratch(SeededEntropy())
        self.connection = self.scratch._connection
        self.sharing = False
        self.leases: list[tuple[runner.Job, str]] = []

    def write(self, change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return self.scratch.change(self.clock.now(), change, *args, **kwargs)
        finally:
            if not self.sharing:
                self.scratch.settle()

    def commit(self) -> None:
        self.scratch.settle()
        self.sharing = False

    def come(self, name: str, labels: set[str], grant: set[str], slots: int) -> None:
        self.runner(name, sorted(labels), grant=sorted(grant), slots=slots)
        self.note(name, grant)

    def note(self, name: str, grant: set[str]) -> None:
        self.write(runners.note_rights, name, [f"SHA256:{name}"], [self.repo(repo) for repo in grant])

    def ask_all(self, names: list[str]) -> None:
        for got, name in zip(self.look(*names), names, strict=True):
            if isinstance(got, runner.Job):
                self.leases.append((got, name))

    def story(self, since: Moment = BEGIN) -> Story:
        return self.read(read_story, since, FOREVER)


DEEDS = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(REPOS), LABELS),
    st.tuples(st.just("push"), st.sampled_from(REPOS), LABELS),
    st.tuples(st.just("ask"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), st.none()),
    st.tuples(st.just("ask"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), st.none()),
    st.tuples(st.just("end"), st.integers(0, 30), st.sampled_from(["finish", "hand_back", "start"])),
    st.tuples(st.just("time"), st.sampled_from([0, 1, 16, 70]), st.none()),
    st.tuples(st.just("share"), st.booleans(), st.none()),
    st.tuples(st.just("cap"), st.sampled_from([None, 1, 2]), st.none()),
    st.tuples(st.just("rights"), st.sampled_from(NAMES), st.sets(st.sampled_from(REPOS), min_size=1)),
    st.tuples(st.just("recheck"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.none()),
    st.tuples(st.just("lose"), st.sampled_from(NAMES), st.none()),
)


class History:
    """Deeds on a queue, by name."""

    def __init__(self) -> None:
        self.queue = SharedCommits(checked=False)
        self.queue.come("a", {"linux"}, {"app", "lib"}, 2)
        self.queue.come("b", set(), {"app", "lib", "web"}, 1)
        self.queue.come("c", {"linux", "fast"}, {"web", "lib"}, 3)
        self.runs: list[Any] = []

    def do(self, deed: tuple[str, Any, Any]) -> None:
        with contextlib.suppress(VoleError):  # refused, with nothing changed: that is an answer too
            getattr(self, deed[0])(*deed[1:])

    def push(self, repo: str, labels: set[str]) -> None:
        words = tuple(sorted(labels))
        plan = a_run(a_job("x", runs_on=words), a_job("y", needs=("x",), runs_on=words))
        self.runs.append(self.queue.enqueue(plan, repo=repo))

    def ask(self, names: list[str], _: None) -> None:
        self.queue.ask_all(names)

    def end(self, number: int, how: str) -> None:
        if self.queue.leases:
            job, holder = self.queue.leases[number % len(self.queue.leases)]
            getattr(self.queue, how)(job, holder)

    def time(self, span_s: int, _: None) -> None:
        self.queue.clock.advance(seconds(span_s))
        self.queue.sweep()

    def share(self, on: bool, _: None) -> None:
        self.queue.commit()
        self.queue.sharing = on

    def cap(self, cap: int | None, _: None) -> None:
        self.queue.with_policy(cap=cap)

    def rights(self, name: str, granted: set[str]) -> None:
        def change(tx: Any) -> None:
            account = people.account_named(tx, name).id
            had = people.run_grant(tx, account)
            wanted = {repos.named(tx, repo).id for repo in granted}
            for repo in had - wanted:
                people.revoke_grant(tx, account, repo, "run")
            for repo in wanted - had:
                people.grant(tx, account, repo, "run")
            runners.note_rights(tx, name, people.runner_keys(tx, account), wanted)

        self.queue.write(change)

    def recheck(self, name: str, _: None) -> None:
        queue, ask = self.queue, self.queue.asks[name]

        def change(tx: Any) -> Ask:
            serves = people.run_grant(tx, people.account_named(tx, name).id)
            noted = runners.note_serves(tx, ask.holder.session, serves)
            return dataclasses.replace(ask, serves=serves, serves_as=noted)

        queue.asks[name] = queue.write(change)

    def cancel(self, number: int, _: None) -> None:
        if self.runs:
            run = self.runs[number % len(self.runs)]
            self.queue.write(ledger.cancel_run, self.queue.index, run.id, "by ada")

    def lose(self, name: str, _: None) -> None:
        self.queue.write(ledger.disconnect, self.queue.index, self.queue.session(name), "lost")


def a_history(deeds: list[tuple[str, Any, Any]]) -> SharedCommits:
    history = History()
    for deed in deeds:
        history.do(deed)
    history.queue.commit()
    return history.queue


def grants(queue: Queue, since: Moment = BEGIN) -> int:
    count: int = queue.one("SELECT COUNT(*) FROM events WHERE kind = 'leased' AND at >= :since", since=since)[0]
    return count


@settings(max_examples=150)
@given(st.lists(DEEDS, max_size=40), st.integers(0, 200))
def test_told_again_every_grant_is_decided_as_it_was(deeds, since_s):
    queue = a_history(deeds)

    for since in (BEGIN, Moment(1_800_000_000_000_000 + seconds(since_s))):
        if not grants(queue, since):
            continue
        done = replay(queue.story(since))
        assert (done.decisions, done.unknown, done.different) == (grants(queue, since), 0, [])


def replayed(queue: SharedCommits, story: Story | None = None) -> Replayed:
    queue.commit()
    return replay(story or queue.story())


def test_a_grant_that_the_rule_would_not_give_is_named_and_the_rest_goes_on():
    queue = a_history([("push", "app", set()), ("push", "app", set()), ("ask", ["b"], None)])
    first, second = [row["id"] for row in queue.all("SELECT id FROM jobs WHERE job = 'x' ORDER BY id")]
    story = queue.story()
    forged = [
        dataclasses.replace(told, job=second, detail=told.detail) if told.kind == "leased" else told
        for told in story.jobs
    ]

    done = replayed(queue, dataclasses.replace(story, jobs=tuple(forged)))

    assert [(one.runner, one.was, one.job) for one in done.different] == [("b", second, first)]
    assert done.decisions == 1


def test_a_look_that_shared_its_commit_saw_the_index_from_before_it():
    queue = a_history([("push", "app", set()), ("push", "lib", set()), ("ask", ["b"], None)])
    job, holder = queue.leases[0]
    queue.sharing = True
    queue.finish(job, holder)  # app is idle again, by its rows; the index hears it after the commit
    queue.job(repo="app")  # nor does it know of this
    queue.ask_all(["b"])

    done = replayed(queue)

    assert (done.decisions, done.different) == (2, [])


def test_a_grant_to_a_runner_of_whom_the_log_knows_nothing_is_counted_and_taken_as_it_was():
    queue = a_history([("push", "app", set()), ("ask", ["b"], None)])
    story = dataclasses.replace(queue.story(), fleet=())

    done = replayed(queue, story)

    assert (done.decisions, done.unknown, done.different) == (0, 1, [])


def test_a_look_counts_what_its_ask_said_of_grants_also_when_they_were_read_again_meanwhile():
    queue = History().queue
    queue.note("a", {"app", "lib", "web"})
    older = queue.asks["c"]
    queue.job(repo="web")
    queue.job(repo="lib")
    narrowed = dataclasses.replace(older, serves=frozenset({queue.repo("lib")}))
    noted = queue.write(runners.note_serves, older.holder.session, narrowed.serves)
    queue.ask_all(["c"])  # on its way before its grants were read again: it still gets the older job, of web
    queue.asks["c"] = dataclasses.replace(narrowed, serves_as=noted)
    queue.job(repo="web")
    queue.ask_all(["c"])

    done = replayed(queue)

    assert [job.address.partition("/")[0] for job, _ in queue.leases] == ["web", "lib"]
    assert (done.decisions, done.different) == (2, [])


def test_a_grant_that_was_taken_back_counts_from_its_change_on():
    history = History()
    queue = history.queue
    queue.job(repo="web")
    queue.job(repo="lib")
    history.rights("c", {"lib"})
    queue.ask_all(["c"])  # its ask still names web; the rows refuse it

    done = replayed(queue)

    assert [job.address.partition("/")[0] for job, _ in queue.leases] == ["lib"]
    assert (done.decisions, done.different) == (1, [])


# ---- One more runner


def test_one_more_runner_takes_what_waited_and_says_whose_wait_it_ended():
    queue = History().queue
    for _ in range(4):
        queue.job("linux", repo="app")  # a alone may run them, two at a time
    for _ in range(2):
        queue.ask_all(["a", "a"])
        queue.clock.advance(seconds(100))
        for job, holder in queue.leases[-2:]:
            queue.finish(job, holder)

    told = forecast(queue.story(), frozenset({"linux"}))

    (waits,) = told.waits
    assert (waits.labels, waits.jobs, waits.before, waits.after) == (("linux",), 4, (100.0, 100.0), (0.0, 100.0))
    assert (told.jobs, told.added, told.guessed) == (4, 1, 0)


def test_one_more_runner_that_carries_nothing_asked_for_changes_nothing():
    queue = History().queue
    for _ in range(3):
        queue.job("linux", repo="app")
        queue.ask_all(["a"])
        queue.clock.advance(seconds(10))
    for job, holder in queue.leases:
        queue.finish(job, holder)

    told = forecast(queue.story(), frozenset({"gpu"}))

    assert [(waits.before, waits.after) for waits in told.waits] == [((0.0, 10.0), (0.0, 10.0))]
    assert (told.moved, told.added) == (0, 0)


def test_a_job_that_needed_another_comes_as_long_after_it_as_it_came():
    queue = History().queue
    queue.job("linux", repo="app")
    queue.job("linux", repo="app")
    queue.ask_all(["a", "a"])
    queue.enqueue(a_run(a_job("x", runs_on=("linux",)), a_job("y", needs=("x",), runs_on=("linux",))), repo="app")
    for _ in range(3):
        queue.clock.advance(seconds(50))
        for job, holder in queue.leases[-1:]:
            queue.finish(job, holder)
        queue.ask_all(["a"])

    told = forecast(queue.story(), frozenset({"linux"}))

    assert told.added > 0
    assert all(waits.after[1] <= waits.before[1] for waits in told.waits)
    assert max(waits.after[1] for waits in told.waits) == 0.0
