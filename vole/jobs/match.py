"""The grant rule: the one reason why a job cannot go to a runner now, or none. Leasing and explaining both ask here.

Pure. What it is told about rows (counts, grants) was read in the transaction that leases.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from vole.base.ids import RepoId, RepoName
from vole.jobs.model import Holder, State


class Why(StrEnum):
    """Stable codes of reasons. Floors, breakers and nodes add theirs when they are built."""

    SET_ASIDE = "set_aside"
    NOT_QUEUED = "not_queued"
    WAITS_FOR = "waits_for"
    CONCURRENCY_GROUP = "concurrency_group"
    LACKS_LABEL = "lacks_label"
    ONLY_LABELLED = "only_labelled"
    NOT_GRANTED = "not_granted"
    FILTERED_OUT = "filtered_out"
    DRAINING = "draining"
    DISK_LOW = "disk_low"
    RESTING = "resting"
    REPO_AT_CAP = "repo_at_cap"
    BUSY = "busy"
    NOT_ASKING = "not_asking"


_SENTENCES = {
    Why.SET_ASIDE: "the job's row was set aside: {}",
    Why.NOT_QUEUED: "the job is {}",
    Why.WAITS_FOR: "waits for {}",
    Why.CONCURRENCY_GROUP: "waits for its concurrency group, {}",
    Why.LACKS_LABEL: "lacks {}",
    Why.ONLY_LABELLED: "takes only jobs that ask for one of its labels",
    Why.NOT_GRANTED: "its account has no run grant for {}",
    Why.FILTERED_OUT: "its filter leaves out {}",
    Why.DRAINING: "is draining",
    Why.DISK_LOW: "is low on disk",
    Why.RESTING: "gave this job back less than {} s ago",
    Why.REPO_AT_CAP: "would pass the cap of the repository ({})",
    Why.BUSY: "is busy ({})",
    Why.NOT_ASKING: "asks for no work just now",
}


@dataclass(frozen=True)
class Reason:
    """Why not: a code for machines, a detail (label, repository, count), a sentence for people."""

    code: Why
    detail: str = ""

    @property
    def text(self) -> str:
        """Code and detail, as `--json` and the API say it: `lacks_label fast`."""
        return f"{self.code} {self.detail}".rstrip()

    @property
    def sentence(self) -> str:
        """For people, after the runner's name: `lacks fast`."""
        return _SENTENCES[self.code].format(self.detail)


@dataclass(frozen=True)
class Demand:
    """The job's side of the rule."""

    labels: frozenset[str]
    repo: RepoId
    repo_name: RepoName
    state: State = State.QUEUED
    waits_for: str = ""  # of a blocked job
    group: str | None = None  # of one that waits for its concurrency group: `held by app/11`
    set_aside: str | None = None


def always() -> bool:
    """A request that nobody can take back."""
    return True


@dataclass(frozen=True)
class Ask:
    """One lease request, whole: labels and repositories are both lists of names, so each has its own."""

    holder: Holder
    labels: frozenset[str]
    filter: frozenset[str]  # repository names; empty: no narrowing
    serves: frozenset[RepoId]  # grant and filter as last read: where to look. The rows decide
    slots: int
    only: bool = False
    draining: bool = False
    disk_low: bool = False
    asking: bool = True
    slot: int = 0
    token: str = ""
    first_look: bool = True  # the token may have a lease already
    serves_as: int = 0  # the fleet event that said what it serves; 0: its hello
    live: Callable[[], bool] = always  # is the request still there, on a connection proven alive?


@dataclass(frozen=True)
class Counted:
    """What the rows said about this pair, in the transaction that asks."""

    granted: bool
    running_here: int  # leases of this runner process
    running_repo: int  # leases of this repository
    cap: int | None
    rest_s: int | None = None  # HANDBACK_REST_S when this runner gave this job back within it


def missing_label(wanted: AbstractSet[str], carried: AbstractSet[str]) -> str | None:
    """The first label that the job asks for and the runner does not carry. Extra labels are no mismatch."""
    gap = wanted - carried
    return min(gap) if gap else None


def serves_labels(wanted: AbstractSet[str], carried: AbstractSet[str], *, only: bool) -> bool:
    """The part of the rule that hangs on labels alone; the index sorts label sets by it."""
    return wanted <= carried and not (only and not wanted)


def reason(demand: Demand, ask: Ask, counted: Counted) -> Reason | None:
    """The one reason why this job cannot go to this runner now; None when `lease` would give it.

    What only people can change comes before what passes by itself.
    """
    return _of_job(demand) or _of_pair(demand, ask, counted) or _of_moment(ask, counted)


def _of_job(demand: Demand) -> Reason | None:
    if demand.set_aside is not None:
        return Reason(Why.SET_ASIDE, demand.set_aside)
    if demand.state is State.BLOCKED and demand.group is not None:
        return Reason(Why.CONCURRENCY_GROUP, demand.group)
    if demand.state is State.BLOCKED:
        return Reason(Why.WAITS_FOR, demand.waits_for)
    if demand.state is not State.QUEUED:
        return Reason(Why.NOT_QUEUED, demand.state)
    return None


def _of_pair(demand: Demand, ask: Ask, counted: Counted) -> Reason | None:
    if not serves_labels(demand.labels, ask.labels, only=ask.only):
        lacking = missing_label(demand.labels, ask.labels)
        return Reason(Why.ONLY_LABELLED) if lacking is None else Reason(Why.LACKS_LABEL, lacking)
    if not counted.granted:
        return Reason(Why.NOT_GRANTED, demand.repo_name)
    if ask.filter and demand.repo_name not in ask.filter:
        return Reason(Why.FILTERED_OUT, demand.repo_name)
    return None


def _of_moment(ask: Ask, counted: Counted) -> Reason | None:
    if ask.draining:
        return Reason(Why.DRAINING)
    if ask.disk_low:
        return Reason(Why.DISK_LOW)
    if counted.rest_s is not None:
        return Reason(Why.RESTING, str(counted.rest_s))
    if counted.cap is not None and counted.running_repo >= counted.cap:
        return Reason(Why.REPO_AT_CAP, f"{counted.running_repo} of {counted.cap}")
    if counted.running_here >= ask.slots:
        return Reason(Why.BUSY, f"{counted.running_here} of {ask.slots}")
    return None if ask.asking else Reason(Why.NOT_ASKING)
