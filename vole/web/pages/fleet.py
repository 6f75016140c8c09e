"""What waits and who could take it: the queue, and the runners with what each of them takes.

Names of repositories that the person may not read do not show: neither in a grant, nor in a filter, nor as a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from vole.base import limits
from vole.base.clock import Moment
from vole.base.ids import RepoId, RepoName
from vole.jobs import reads as jobs
from vole.jobs.model import HELD
from vole.jobs.rows import Depth, WaitingRow
from vole.people.model import Person
from vole.runners.roster import Session
from vole.store.database import View
from vole.web.live import changes, mark_of
from vole.web.pages import links
from vole.web.pages.home import readable
from vole.web.pages.shown import Chip, of_state
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
    words: str


@dataclass(frozen=True)
class QueuePage:
    template: ClassVar[str] = "jobs/queue.html"
    title: ClassVar[str] = "Queue"
    waiting: tuple[WaitingLine, ...]
    running: tuple[WaitingLine, ...]
    depths: tuple[DepthLine, ...]
    at_work: tuple[AtWorkLine, ...]
    more: bool
    live_href: str


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
class _Facts:
    names: Mapping[RepoId, RepoName]
    rows: list[WaitingRow]
    depths: list[Depth]
    held: list[WaitingRow]

    @property
    def moving(self) -> object:
        return [(row.id, row.state, row.runner) for row in self.rows], [(one.labels, one.count) for one in self.depths]


async def queue(visit: Visit) -> Response:
    facts = await visit.read(_facts, visit.person)
    if "live" in visit.request.query_params:
        return changes(visit, ("queue", "jobs"), lambda: _moving(visit))
    lines = [_waiting(row) for row in facts.rows]
    page = QueuePage(
        waiting=tuple(line for line in lines if line.row.state not in HELD),
        running=tuple(line for line in lines if line.row.state in HELD),
        depths=await _depths(visit, facts),
        at_work=_at_work(visit, facts),
        more=len(lines) == limits.QUEUE_SHOWN_MAX,
        live_href=f"/queue?live={mark_of((facts.moving, _roster(visit)))}",
    )
    return visit.page(page)


async def runners(visit: Visit) -> Response:
    facts = await visit.read(_facts, visit.person)
    if "live" in visit.request.query_params:
        return changes(visit, ("runners", "queue", "jobs"), lambda: _moving(visit))
    sessions = list(visit.house.parts.roster)
    page = RunnersPage(
        runners=tuple(_runner(session, sessions, facts) for session in sessions),
        depths=await _depths(visit, facts),
        at_work=_at_work(visit, facts),
        live_href=f"/runners?live={mark_of((facts.moving, _roster(visit)))}",
        ssh_url=visit.house.parts.ssh_url,
    )
    return visit.page(page)


async def _facts(view: View, person: Person | None) -> _Facts:
    names = {repo.id: repo.name for repo in await readable(view, person)}
    return _Facts(
        names=names,
        rows=await jobs.waiting_rows(view, names, limits.QUEUE_SHOWN_MAX),
        depths=await jobs.depths(view, names),
        held=await jobs.held_rows(view),
    )


async def _moving(visit: Visit) -> tuple[object, bool]:
    facts = await visit.read(_facts, visit.person)
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


async def _depths(visit: Visit, facts: _Facts) -> tuple[DepthLine, ...]:
    lines = []
    for depth in facts.depths[: limits.EXPLAINED_MAX]:
        address = f"{depth.repo_name}/{depth.run}/{depth.key}"
        why = await visit.house.parts.leasing.waits(depth.job)
        lines.append(DepthLine(depth, address, links.job(depth.repo_name, depth.run, depth.key), why))
    return tuple(lines)


def _at_work(visit: Visit, facts: _Facts) -> tuple[AtWorkLine, ...]:
    cap = visit.house.parts.leasing.policy.cap

    def words(count: int) -> str:
        if cap is None:
            return f"{count}, no cap"
        return f"{count} of {cap}" + (" (at the cap)" if count >= cap else "")

    running = Counter(facts.names[row.repo] for row in facts.held if row.repo in facts.names)
    return tuple(AtWorkLine(name, links.runs(name), words(count)) for name, count in sorted(running.items()))


def _runner(session: Session, sessions: list[Session], facts: _Facts) -> RunnerLine:
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
