"""What a run, a job and an attempt are, and along which rows a job moves. Values only; stores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from vole.base.clock import Moment
from vole.base.ids import Epoch, JobId, JobKey, PushId, RepoId, RepoName, RunId, RunNumber, SessionId, StartId
from vole.base.limits import LeaseTimes, lease_times


class State(StrEnum):
    """Where a job is. Terminal is final: nothing leaves `finished`."""

    BLOCKED = "blocked"
    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FINISHED = "finished"


HELD = frozenset({State.LEASED, State.RUNNING, State.CANCELLING})  # somebody has a lease of it


class Conclusion(StrEnum):
    """How a job ended; who is at fault is in the name."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    ERRORED = "errored"
    LOST = "lost"


FAILURES = frozenset(
    {Conclusion.FAILURE, Conclusion.TIMED_OUT, Conclusion.EXPIRED, Conclusion.ERRORED, Conclusion.LOST}
)
# What a job's own result may say and `continue-on-error` forgives. A job that was lost or never ran has no result.
FORGIVEN = frozenset({Conclusion.FAILURE, Conclusion.TIMED_OUT, Conclusion.ERRORED})


class EndCause(StrEnum):
    """Why a lease ended. Each end is one row of the event log."""

    FINISHED = "finished"
    HANDED_BACK = "handed_back"
    NOT_STARTED = "not_started"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    DISCONNECTED = "disconnected"
    KEY_REMOVED = "key_removed"
    REPOSITORY_REMOVED = "repository_removed"
    OPERATOR = "operator"


# Whoever had the lease is not offered the job for HANDBACK_REST_S.
RESTING = frozenset({EndCause.HANDED_BACK, EndCause.NOT_STARTED})


class Happening(StrEnum):
    """What moves a job; the `kind` of its row in the event log."""

    ENQUEUED = "enqueued"
    CARRIED = "carried"  # into a rerun that does not run it, with its result
    READIED = "readied"  # needs are done, `if` is true, there is room in the matrix
    SKIPPED = "skipped"
    MISJUDGED = "misjudged"  # its `if` cannot be evaluated
    ENTANGLED = "entangled"  # it and what holds its concurrency group wait for each other
    LEASED = "leased"
    STARTED = "started"
    RETURNED = "returned"  # to the queue, nothing lost
    LOST = "lost"  # an attempt was lost: to the queue, or the end
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    CONCLUDED = "concluded"  # a result, or the end of cancelling
    FORGOTTEN = "forgotten"  # its repository was removed
    RESTORED = "restored"  # the server went back to a backup that was made before it ended


_S = State
# Every row along which a job may move: (from, what happens) → where to. A test reads it beside the specification.
MOVES: Mapping[tuple[State | None, Happening], frozenset[State]] = {
    (None, Happening.ENQUEUED): frozenset({_S.BLOCKED, _S.QUEUED}),
    (None, Happening.CARRIED): frozenset({_S.FINISHED}),
    (_S.BLOCKED, Happening.READIED): frozenset({_S.QUEUED}),
    (_S.BLOCKED, Happening.SKIPPED): frozenset({_S.FINISHED}),
    (_S.BLOCKED, Happening.MISJUDGED): frozenset({_S.FINISHED}),
    (_S.BLOCKED, Happening.ENTANGLED): frozenset({_S.FINISHED}),
    (_S.QUEUED, Happening.LEASED): frozenset({_S.LEASED}),
    (_S.LEASED, Happening.STARTED): frozenset({_S.RUNNING}),
    (_S.LEASED, Happening.RETURNED): frozenset({_S.QUEUED}),
    (_S.RUNNING, Happening.LOST): frozenset({_S.QUEUED, _S.FINISHED}),
    (_S.RUNNING, Happening.CONCLUDED): frozenset({_S.FINISHED}),
    (_S.BLOCKED, Happening.CANCELLED): frozenset({_S.FINISHED}),
    (_S.QUEUED, Happening.CANCELLED): frozenset({_S.FINISHED}),
    (_S.LEASED, Happening.CANCELLING): frozenset({_S.CANCELLING}),
    (_S.RUNNING, Happening.CANCELLING): frozenset({_S.CANCELLING}),
    (_S.RUNNING, Happening.TIMED_OUT): frozenset({_S.CANCELLING}),
    (_S.CANCELLING, Happening.CONCLUDED): frozenset({_S.FINISHED}),
    (_S.QUEUED, Happening.EXPIRED): frozenset({_S.FINISHED}),
    **{
        (state, ended): frozenset({_S.FINISHED})
        for ended in (Happening.FORGOTTEN, Happening.RESTORED)
        for state in State
        if state is not _S.FINISHED
    },
}


@dataclass(frozen=True)
class Policy:
    """What the machine decides about the queue. `cap`: jobs of one repository at once, None: no cap."""

    ttl_s: float
    cap: int | None
    queue_timeout_s: float  # 0: never
    url: str
    version: str


@dataclass(frozen=True)
class Carried:
    """A job that a rerun does not run: its result counts on, for `needs` and for the run."""

    job: JobId  # that ran
    conclusion: Conclusion
    marked: bool
    outputs: str  # JSON
    reason: str


@dataclass(frozen=True)
class Rerun:
    """What makes a run the next one of its chain. `carried`: what is not run again, by job key."""

    of: RunId
    attempt: int  # 1 + the length of the chain
    actor: str
    carried: Mapping[JobKey, Carried] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSource:
    """Where a run comes from: a run is made once for each."""

    repo: RepoId
    push: PushId | StartId
    ordinal: int = 0  # of the document within the push
    rerun: Rerun | None = None


class Job(NamedTuple):
    """A job as the queue sees it: no document, no labels. A tuple, since several are made for each lease."""

    id: JobId
    run: RunId
    repo: RepoId
    job: str  # the id in the file
    key: JobKey
    state: State
    epoch: Epoch  # of the newest attempt; 0: none
    losses: int
    on_lost: str
    continue_on_error: bool
    conclusion: Conclusion | None
    ending_as: Conclusion | None  # while cancelling
    timeout_us: int
    enqueued_at: Moment
    deadline_at: Moment | None


@dataclass(frozen=True)
class Holder:
    """The runner process that asks, as the attempt will name it."""

    session: SessionId
    account: str
    key_fingerprint: str
    name: str
    version: str
    os: str
    arch: str


@dataclass(frozen=True)
class Held:
    """A live lease as bulk channels need it: who holds it, and where its log lies."""

    session: SessionId
    repo: RepoId
    repo_name: RepoName
    run: RunId
    number: RunNumber
    key: JobKey


@dataclass(frozen=True)
class Ended:
    """A lease that the server ended or wants ended: what its holder is to be told."""

    session: SessionId
    job: JobId
    epoch: Epoch
    reason: str  # of wire.runner.Cancel, or "fenced"


@dataclass(frozen=True)
class Told:
    """One row of the event log that is about a job."""

    id: int
    at: Moment
    batch: int | None  # the first event of the same commit; None: from before that was noted
    repo: RepoId
    run: RunId
    job: JobId
    epoch: Epoch
    kind: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class RunState:
    """How far a run is, in one line of text."""

    text: str
    finished: bool


@dataclass(frozen=True)
class Touched:
    """What a change moved: whom to tell, which bells to ring."""

    runs: frozenset[RunId] = frozenset()
    ended: tuple[Ended, ...] = ()
    leasable: bool = False  # some job or some place may be free now

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.runs | other.runs, self.ended + other.ended, self.leasable or other.leasable)

    def __bool__(self) -> bool:
        return bool(self.runs or self.ended or self.leasable)


@dataclass(frozen=True)
class QueuedRun:
    """What `enqueue_run` made, or had made before."""

    id: RunId
    number: RunNumber
    jobs: tuple[JobId, ...]
    skipped: str | None  # `filter` or `skip_ci`
    touched: Touched = field(default_factory=Touched, compare=False)  # of others, cancelled for it


def worst(conclusions: Iterable[Conclusion]) -> Conclusion:
    """What jobs together came to: failure-like, then cancelled, then success, then skipped (also of none at all).

    It is what a run shows, and what `needs.<id>.result` and `failure()` read: every failure-like one as `failure`.
    """
    found = set(conclusions)
    if found & FAILURES:
        return Conclusion.FAILURE
    for conclusion in (Conclusion.CANCELLED, Conclusion.SUCCESS):
        if conclusion in found:
            return conclusion
    return Conclusion.SKIPPED


def run_state(jobs: Iterable[tuple[State, Conclusion | None]]) -> tuple[str, Conclusion | None]:
    """A run's state and conclusion: `queued` until a job has a lease or has ended, `finished` when all have."""
    pairs = list(jobs)
    if all(state is State.FINISHED for state, _ in pairs):
        return "finished", worst(conclusion for _, conclusion in pairs if conclusion is not None)
    if all(state in (State.BLOCKED, State.QUEUED) for state, _ in pairs):
        return "queued", None
    return "running", None


def times_of(policy: Policy) -> LeaseTimes:
    """Every span that hangs on the policy's TTL."""
    return lease_times(policy.ttl_s)
