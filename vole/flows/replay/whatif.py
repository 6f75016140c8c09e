"""What one more runner would have changed: the same arrivals, the same lengths of jobs, the same rule, another fleet.

What is kept: when jobs came, how long each was with its runner, when runners came and went, what people cancelled.
What is not: losses, hand-backs and the moments that a runner took to ask; a free slot asks at once.
"""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from vole.base.clock import Moment
from vole.base.errors import Fenced
from vole.base.ids import JobId, SessionId
from vole.flows.replay.again import policy
from vole.flows.replay.story import Book, Runner, Story
from vole.jobs import ledger
from vole.jobs.ledger import replaying
from vole.jobs.model import Happening, State, Told
from vole.runners.reads import FleetTold
from vole.wire import runner as wire

ADDED = SessionId(-1)
_NAME = "the added runner"
_LATER = frozenset((Happening.LEASED, Happening.STARTED, Happening.RETURNED, Happening.LOST, Happening.CONCLUDED))


@dataclass(frozen=True)
class Waits:
    """How long the jobs of one label set waited to be leased, in seconds: as it was, and as it would have been."""

    labels: tuple[str, ...]
    jobs: int
    before: tuple[float, float]  # p50, p95
    after: tuple[float, float]


@dataclass(frozen=True)
class Forecast:
    """What would have changed. `moved` would have run elsewhere, `added` on the new runner; `guessed` had no length."""

    since: Moment
    until: Moment
    waits: tuple[Waits, ...]
    jobs: int
    moved: int
    added: int
    guessed: int


@dataclass
class _Life:
    """A job as the log tells it."""

    labels: tuple[str, ...]
    told: Told  # its beginning
    queued_at: Moment | None = None
    leased_at: Moment | None = None  # first
    last_leased_at: Moment | None = None
    session: SessionId | None = None
    ended_at: Moment | None = None
    cap: int | None = None

    def length(self) -> int | None:
        """Microseconds with its last runner; None for one that never had one, or has one still."""
        if self.last_leased_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.last_leased_at


@dataclass
class _Would:
    """A job as it would have been."""

    queued_at: Moment | None = None
    leased_at: Moment | None = None
    session: SessionId | None = None
    ended_at: Moment | None = None


def forecast(story: Story, labels: frozenset[str]) -> Forecast:
    """The span again with one more runner of `labels`, one slot, granted every repository."""
    lives = _lives(story.jobs)
    course = _Course(story, lives, labels)
    course.run()
    mine = [job for job, life in lives.items() if _within(life, story)]
    ran = {job: (lives[job].session, course.would[job].session) for job in mine}
    return Forecast(
        since=story.since,
        until=story.until,
        waits=_waits(story, {job: lives[job] for job in mine}, course.would),
        jobs=len(mine),
        moved=sum(1 for was, then in ran.values() if None not in (was, then) and was != then),
        added=sum(1 for _, then in ran.values() if then == ADDED),
        guessed=course.guessed,
    )


def _lives(told_of_jobs: Iterable[Told]) -> dict[JobId, _Life]:
    lives: dict[JobId, _Life] = {}
    for told in told_of_jobs:
        if told.kind == Happening.ENQUEUED:
            lives[told.job] = _Life(tuple(told.detail["labels"]), told)
        life = lives.get(told.job)
        if life is None:
            continue
        to = told.detail.get("to")
        if to == State.QUEUED and life.queued_at is None:
            life.queued_at = told.at
        if told.kind == Happening.LEASED:
            life.leased_at = life.leased_at or told.at
            life.last_leased_at, life.session = told.at, SessionId(told.detail["session"])
            life.cap = told.detail.get("cap")
        if to == State.FINISHED:
            life.ended_at = told.at
    return lives


def _within(life: _Life, story: Story) -> bool:
    """Did it wait in the span?"""
    return life.queued_at is not None and (life.leased_at is None or life.leased_at >= story.since)


@dataclass
class _Course:
    """The span as it goes, moment by moment."""

    story: Story
    lives: Mapping[JobId, _Life]
    labels: frozenset[str]
    guessed: int = 0
    would: defaultdict[JobId, _Would] = field(default_factory=lambda: defaultdict(_Would))

    def __post_init__(self) -> None:
        self._book = Book()
        self._order = count()
        self._due: list[tuple[Moment, int, str, Told | FleetTold]] = []
        self._cap: int | None = None
        self._lengths = self._known_lengths()
        self._needed_by: defaultdict[JobId, set[JobId]] = defaultdict(set)
        self._readied = {told.job: told for told in self.story.jobs if told.kind == Happening.READIED}
        for job in self._readied:
            for need in self.story.needs.get(job, ()):
                self._needed_by[need].add(job)

    def run(self) -> None:
        for told in self.story:
            if told.at < self.story.since:
                self._as_it_was(told)
            elif isinstance(told, FleetTold) or self._is_input(told):
                self._at(told.at, "told", told)
        self._book.scratch.settle()
        self._enter_added()
        self._look(self.story.since)
        while self._due and self._due[0][0] <= self.story.until:
            now = self._due[0][0]
            while self._due and self._due[0][0] == now:
                _, _, what, told = heapq.heappop(self._due)
                self._happen(now, what, told)
            self._book.scratch.settle()
            self._look(now)
        self._book.scratch.close()

    def _as_it_was(self, told: Told | FleetTold) -> None:
        """Before the span: everything as the log has it. What is held then ends when it did."""
        if isinstance(told, FleetTold):
            self._book.tell_fleet(told)
            return
        if told.kind != Happening.LEASED:
            self._note(told)
            self._book.tell(told)
            return
        self._book.tell_lease(told)
        would, life = self.would[told.job], self.lives[told.job]
        would.leased_at, would.session = would.leased_at or told.at, SessionId(told.detail["session"])
        if life.last_leased_at == told.at and life.ended_at is not None and life.ended_at >= self.story.since:
            self._at(life.ended_at, "end", told)

    def _is_input(self, told: Told) -> bool:
        """Not what follows from a grant: that is what is asked."""
        if told.kind in _LATER or told.kind in (Happening.CANCELLING, Happening.TIMED_OUT):
            return False
        return told.kind != Happening.READIED or not self.story.needs.get(told.job)

    def _at(self, moment: Moment, what: str, told: Told | FleetTold) -> None:
        heapq.heappush(self._due, (moment, next(self._order), what, told))

    def _happen(self, now: Moment, what: str, told: Told | FleetTold) -> None:
        if isinstance(told, FleetTold):
            self._book.tell_fleet(told)
            self._enter_added()  # it is granted what there is by now
        elif what == "end":
            self._end(now, told)
        elif self._book.tell(_moved(told, now)):
            self._note(_moved(told, now))

    def _note(self, told: Told) -> None:
        would = self.would[told.job]
        to = told.detail.get("to")
        if to == State.QUEUED and would.queued_at is None:
            would.queued_at = told.at
        if to == State.FINISHED:
            would.ended_at = told.at
            self._ready_after(told.job, told.at)

    def _end(self, now: Moment, told: Told) -> None:
        try:
            self._book.scratch.change(now, replaying.end, self._book.index, told)
        except Fenced:
            return  # it ended by something that people did
        self.would[told.job].ended_at = now
        self._ready_after(told.job, now)

    def _ready_after(self, ended: JobId, now: Moment) -> None:
        """Jobs whose last need has ended come as long after it as they came."""
        for job in self._needed_by[ended]:
            needs = self.story.needs[job]
            if job in self._readied and all(self.would[need].ended_at is not None for need in needs):
                told = self._readied.pop(job)
                was = max(
                    (self.lives[need].ended_at or told.at for need in needs if need in self.lives), default=told.at
                )
                self._at(Moment(now + max(0, told.at - was)), "told", told)

    def _enter_added(self) -> None:
        """The added runner, granted every repository that there is."""
        book = self._book
        book.allow("-added-", frozenset(("-added-",)), book.every_repo())
        book.runners.pop(ADDED, None)  # it is asked last of all
        book.runners[ADDED] = Runner(
            ADDED, _NAME, "-added-", self.labels, 1, only=False, serves=None, hello_serves=None
        )

    def _look(self, now: Moment) -> None:
        """Every free slot asks; what was given ends after the job's own length."""
        book = self._book
        busy: defaultdict[SessionId, int] = defaultdict(int)
        for held in book.index.held.values():
            busy[held.session] += 1
        free = [
            book.ask(runner, f"{runner.session}-{slot}-{now}")
            for runner in book.runners.values()
            if runner.connected and not runner.draining
            for slot in range(runner.slots - busy[runner.session])
        ]
        if not free or not book.index.queued:
            return
        given = book.scratch.change(now, ledger.lease_many, book.index, free, policy(self._cap_at(now)))
        book.scratch.settle()
        for ask, answer in zip(free, given.answers, strict=True):
            if isinstance(answer, wire.Job):
                job = answer.lease.job
                would = self.would[job]
                would.leased_at, would.session = would.leased_at or now, ask.holder.session
                self._at(Moment(now + self._length(job)), "end", self.lives[job].told)

    def _cap_at(self, now: Moment) -> int | None:
        """The cap as the grants up to `now` knew it; before the first, as the first did."""
        while self._caps and self._caps[0][0] <= now:
            self._cap = self._caps.popleft()[1]
        return self._cap

    def _known_lengths(self) -> dict[tuple[str, ...], list[int]]:
        lengths: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for life in self.lives.values():
            if (length := life.length()) is not None:
                lengths[life.labels].append(length)
        leases = (told for told in self.story.jobs if told.kind == Happening.LEASED)
        self._caps = deque((told.at, told.detail.get("cap")) for told in leases)
        self._cap = self._caps[0][1] if self._caps else None
        return dict(lengths)

    def _length(self, job: JobId) -> int:
        """How long the job takes: as it took, to the end of the span where it runs still, or as jobs like it did."""
        life = self.lives[job]
        if (length := life.length()) is not None:
            return length
        if life.last_leased_at is not None:
            return self.story.until - self.story.since + 1
        self.guessed += 1
        alike = self._lengths.get(life.labels) or [one for some in self._lengths.values() for one in some]
        return round(statistics.median(alike)) if alike else 0


def _moved(told: Told, now: Moment) -> Told:
    """The event at another moment."""
    return told if told.at == now else Told(
        told.id, now, told.batch, told.repo, told.run, told.job, told.epoch, told.kind, told.detail
    )  # fmt: skip


def _waits(story: Story, lives: Mapping[JobId, _Life], would: Mapping[JobId, _Would]) -> tuple[Waits, ...]:
    """By label set; whoever still waits at the end of the span has waited until then."""
    before: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    after: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for job, life in lives.items():
        before[life.labels].append(_wait_s(story, life.queued_at, life.leased_at, life.ended_at))
        then = would[job]
        after[life.labels].append(_wait_s(story, then.queued_at, then.leased_at, then.ended_at))
    return tuple(
        Waits(labels, len(before[labels]), _tails(before[labels]), _tails(after[labels])) for labels in sorted(before)
    )


def _wait_s(story: Story, queued: Moment | None, leased: Moment | None, ended: Moment | None) -> float:
    if queued is None:
        return 0.0
    return (min(leased or story.until, ended or story.until) - queued) / 1e6


def _tails(waits: list[float]) -> tuple[float, float]:
    """The wait that half of the jobs, and that 95 of 100, do not exceed."""
    ordered = sorted(waits)
    return tuple(ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95))  # type: ignore[return-value]  # two
