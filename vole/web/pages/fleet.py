"""What waits and who could take it: the queue, and the runners with what each of them takes.

Names of repositories that the person may not read do not show: neither in a grant, nor in a filter, nor as a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Invalid, NotFound
from vole.base.ids import RepoId, RepoName
from vole.jobs import reads as jobs
from vole.jobs.model import HELD
from vole.jobs.reads import listing
from vole.jobs.reads.listing import Wanted
from vole.jobs.rows.shown import Depth, WaitingRow
from vole.people.model import Person
from vole.runners.roster import Session
from vole.store.database import View
from vole.web.live import changes, mark_of
from vole.web.pages import links
from vole.web.pages.home import readable
from vole.web.pages.shown import Chip, of_state, started_by
from vole.web.pages.sifting import STATES, Sift
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class WaitingLine:
    row: WaitingRow
    address: str
    href: str
    chip: Chip

    @property
    def asks(self) -> str:
        return ", ".join(self.row.labels) or "any runner"

    @property
    def started_by(self) -> str:
        older = None if self.row.older is None else f"{self.row.repo_name}/{self.row.older}"
        return started_by(self.row.event, self.row.actor, older)


@dataclass(frozen=True)
class DepthLine:
    """The jobs of one label set that wait, and why the oldest of them does."""

    depth: Depth
    address: str
    href: str
    why: str

    @property
    def asks(self) -> str:
        return ", ".join(self.depth.labels) or "any runner"


@dataclass(frozen=True)
class AtWorkLine:
    """How many jobs of a repository run at once, beside the cap."""

    name: RepoName
    href: str
    count: int
    cap: int | None

    @property
    def words(self) -> str:
        if self.cap is None:
            return f"{self.count}, no cap"
        return f"{self.count} of {self.cap}" + (" (at the cap)" if self.count >= self.cap else "")


@dataclass(frozen=True)
class QueuePage:
    """`repositories`, `states` and `runners`: what the form offers. `fault`: why nothing fits what was asked for."""

    template: ClassVar[str] = "jobs/queue.html"
    title: ClassVar[str] = "Queue"
    sift: Sift
    repositories: tuple[str, ...]
    states: tuple[str, ...]
    runners: tuple[str, ...]
    fault: str
    waiting: tuple[WaitingLine, ...]
    running: tuple[WaitingLine, ...]
    depths: tuple[DepthLine, ...]
    at_work: tuple[AtWorkLine, ...]
    more: bool
    live_href: str

    @property
    def nothing(self) -> bool:
        """Whether something was asked for, and no job is that."""
        return bool(self.sift.query) and not (self.waiting or self.running or self.more or self.fault)


@dataclass(frozen=True)
class RunnerLine:
    """A connected runner. What is under `says` it says about itself."""

    name: str
    account: str
    key_fingerprint: str
    takes: str
    serves: str
    filtered: bool
    slots: int
    state: Chip
    version: str
    machine: str
    connected_at: Moment
    last_contact: Moment
    jobs: tuple[tuple[str, str], ...]  # address, href
    hidden: int  # jobs of repositories that are not this person's to see
    twins: bool  # another process uses the same key

    @property
    def busy(self) -> str:
        held = len(self.jobs) + self.hidden
        return f"{held} of {self.slots}" + (" (all busy)" if held >= self.slots else "")


@dataclass(frozen=True)
class RunnersPage:
    template: ClassVar[str] = "runners/runners.html"
    title: ClassVar[str] = "Runners"
    runners: tuple[RunnerLine, ...]
    depths: tuple[DepthLine, ...]
    at_work: tuple[AtWorkLine, ...]
    live_href: str
    ssh_url: str


@dataclass(frozen=True)
class Facts:
    """What one look finds. `rows` and `depths` are sifted, `held` is everybody's."""

    names: Mapping[RepoId, RepoName]
    wanted: Wanted
    rows: list[WaitingRow]
    more: bool
    depths: list[Depth]
    held: list[WaitingRow]

    @property
    def moving(self) -> object:
        return [(row.id, row.state, row.runner) for row in self.rows], [(one.labels, one.count) for one in self.depths]


async def queue(visit: Visit) -> Response:
    sift = Sift.read(visit.request.query_params)
    facts, fault = await _sifted(visit, sift)
    if "live" in visit.request.query_params:
        return changes(visit, ("queue", "jobs"), lambda: _moving(visit, sift))
    lines = [_waiting(row) for row in facts.rows]
    page = QueuePage(
        sift=sift,
        repositories=tuple(sorted(facts.names.values())),
        states=STATES,
        runners=tuple(sorted({session.hello.name for session in visit.house.parts.roster})),
        fault=fault,
        waiting=tuple(line for line in lines if line.row.state not in HELD),
        running=tuple(line for line in lines if line.row.state in HELD),
        depths=await depths(visit, facts),
        at_work=at_work(visit, facts),
        more=facts.more,
        live_href=links.queue(sift.query, live=mark_of((facts.moving, _roster(visit)))),
    )
    return visit.page(page)


async def runners(visit: Visit) -> Response:
    facts = await visit.read(facts_of, visit.person, Sift(), list(visit.house.parts.roster))
    if "live" in visit.request.query_params:
        return changes(visit, ("runners", "queue", "jobs"), lambda: _moving(visit, Sift()))
    sessions = list(visit.house.parts.roster)
    page = RunnersPage(
        runners=tuple(runner(session, sessions, facts) for session in sessions),
        depths=await depths(visit, facts),
        at_work=at_work(visit, facts),
        live_href=f"/runners?live={mark_of((facts.moving, _roster(visit)))}",
        ssh_url=visit.house.parts.ssh_url,
    )
    return visit.page(page)


async def facts_of(view: View, person: Person | None, sift: Sift, roster: Iterable[Session]) -> Facts:
    """The queue as far as `person` may see it and `sift` asks for it. Raises what `Sift.wanted` does."""
    names = {repo.id: repo.name for repo in await readable(view, person)}
    return await _facts(view, names, sift.wanted(names, roster))


async def _facts(view: View, names: Mapping[RepoId, RepoName], wanted: Wanted) -> Facts:
    found = await listing.unfinished(view, wanted, limits.QUEUE_SHOWN_MAX)
    return Facts(
        names=names,
        wanted=wanted,
        rows=found.rows,
        more=found.behind is not None,
        depths=await listing.depths(view, wanted),
        held=await jobs.held_rows(view),
    )


async def _sifted(visit: Visit, sift: Sift) -> tuple[Facts, str]:
    """The facts, and the reason where what was asked for cannot be: a form is shown again, not a refusal."""
    try:
        return await visit.read(facts_of, visit.person, sift, list(visit.house.parts.roster)), ""
    except (Invalid, NotFound) as error:
        return await visit.read(_nothing, visit.person), " ".join(error.lines)


async def _nothing(view: View, person: Person | None) -> Facts:
    names = {repo.id: repo.name for repo in await readable(view, person)}
    return await _facts(view, names, Wanted(frozenset()))


async def _moving(visit: Visit, sift: Sift) -> tuple[object, bool]:
    facts, _ = await _sifted(visit, sift)
    return (facts.moving, _roster(visit)), False


def _roster(visit: Visit) -> object:
    return [(one.id, one.draining, one.disk_low) for one in visit.house.parts.roster]


def _waiting(row: WaitingRow) -> WaitingLine:
    return WaitingLine(
        row,
        f"{row.repo_name}/{row.run}/{row.key}",
        links.job(row.repo_name, row.run, row.key),
        of_state(row.state, None, marked=False),
    )


async def depths(visit: Visit, facts: Facts) -> tuple[DepthLine, ...]:
    """What waits by label set."""
    return await explained(visit, facts.depths)


async def explained(visit: Visit, found: Sequence[Depth]) -> tuple[DepthLine, ...]:
    """The first EXPLAINED_MAX of them, each with why its oldest job waits."""
    lines = []
    for depth in found[: limits.EXPLAINED_MAX]:
        address = f"{depth.repo_name}/{depth.run}/{depth.key}"
        why = await visit.house.parts.leasing.waits(depth.job)
        lines.append(DepthLine(depth, address, links.job(depth.repo_name, depth.run, depth.key), why))
    return tuple(lines)


def at_work(visit: Visit, facts: Facts) -> tuple[AtWorkLine, ...]:
    """How busy each repository is that has jobs at work."""
    cap = visit.house.parts.leasing.policy.cap
    running = Counter(facts.names[row.repo] for row in facts.held if row.repo in facts.names)
    return tuple(AtWorkLine(name, links.runs(name), count, cap) for name, count in sorted(running.items()))


def runner(session: Session, sessions: Sequence[Session], facts: Facts) -> RunnerLine:
    """A runner as far as the person of `facts` may see it."""
    hello = session.hello
    held = [row for row in facts.held if row.session == session.id]
    mine = [_waiting(row) for row in held if row.repo in facts.names]
    serves = sorted(facts.names[repo] for repo in session.serves if repo in facts.names)
    return RunnerLine(
        name=hello.name,
        account=session.account_name,
        key_fingerprint=session.key_fingerprint,
        takes=_takes(session),
        serves=", ".join(serves) or "none that you may read",
        filtered=bool(hello.repos),
        slots=hello.slots,
        state=_state(session),
        version=hello.version,
        machine=f"{hello.platform} {hello.machine}",
        connected_at=session.connected_at,
        last_contact=session.last_contact,
        jobs=tuple((line.address, line.href) for line in mine),
        hidden=len(held) - len(mine),
        twins=sum(1 for other in sessions if other.key_fingerprint == session.key_fingerprint) > 1,
    )


def _takes(session: Session) -> str:
    labels = sorted(session.labels)
    if not labels:
        return "any job without labels"
    words = f"jobs that ask for nothing beyond {', '.join(labels)}"
    return f"{words}, and for at least one of them" if session.hello.only else words


def _state(session: Session) -> Chip:
    if session.draining:
        return Chip("cancelled", "draining")
    if session.disk_low:
        return Chip("failure", "low on disk")
    return Chip("success", "connected")
