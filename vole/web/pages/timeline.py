"""What happened to a run, in words: its timeline, and its event log with every row of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.responses import Response

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import NotFound
from vole.base.ids import Epoch, JobId, JobKey, RunNumber
from vole.evidence import reads as evidence
from vole.evidence.reads import Border
from vole.evidence.records import TOLD
from vole.jobs import reads as jobs
from vole.jobs.reads import history
from vole.jobs.reads.history import EventRow
from vole.store.database import View
from vole.web.pages import links
from vole.web.pages.repo import RepoHead, head
from vole.web.pages.shown import RunLine, run_line
from vole.web.pages.visit import Visit

# One sentence for each kind of event; what stands in braces is of its detail, and empty where it has none.
WORDS: Mapping[str, str] = {
    "run_enqueued": "the run was made",
    "run_queued": "the run waits",
    "run_running": "the run began",
    "run_finished": "the run ended: {conclusion}",
    "enqueued": "was made, {to}",
    "readied": "may run now: what it waited for is there",
    "skipped": "was skipped: {reason}",
    "misjudged": "ended: its condition cannot be evaluated: {reason}",
    "leased": "was given to {runner}",
    "started": "was started by its runner",
    "returned": "went back to the queue, nothing lost: {cause}",
    "lost": "its attempt was lost: {cause}",
    "cancelled": "was cancelled: {reason}",
    "cancelling": "is being cancelled: {reason}",
    "timed_out": "ran out of its time: {reason}",
    "expired": "waited too long: {reason}",
    "concluded": "ended: {conclusion}",
    "carried": "counts as it ended before: {conclusion}",
    "entangled": "ended: {reason}",
    "forgotten": "went with its repository",
    "restored": "ended by a restore",
    "set_aside": "its row was set aside: {reason}",
}


@dataclass(frozen=True)
class EventLine:
    """Something that happened, `after` the run was made (microseconds), to a job or to the run as a whole."""

    at: Moment
    after: int
    key: JobKey | None
    href: str | None
    epoch: Epoch | None
    kind: str
    words: str
    look: str = ""  # `trouble` where a lease was lost or given back


@dataclass(frozen=True)
class Timeline:
    """`more`: there are lines that are not shown."""

    lines: tuple[EventLine, ...]
    more: bool
    events_href: str


@dataclass(frozen=True)
class EventsPage:
    template: ClassVar[str] = "jobs/events.html"
    repo: RepoHead
    line: RunLine
    lines: tuple[EventLine, ...]
    later_href: str | None

    @property
    def title(self) -> str:
        return f"Events of {self.line.address}"


async def events(visit: Visit) -> Response:
    """The event log of a run, a page of it."""
    after = visit.number("after", 0, 10**18) or 0
    number = run_number(visit)
    found = await visit.read(jobs.run_numbered, visit.repo.id, number)
    if found is None:
        raise NotFound("there is no such run")
    rows = await visit.read(history.events_of, found.id, after, limits.LIST_MAX + 1)
    shown = rows[: limits.LIST_MAX]
    page = EventsPage(
        repo=head(visit, "runs"),
        line=run_line(visit.repo.name, found),
        lines=tuple(_line(visit, number, found.created_at, row) for row in shown),
        later_href=links.events(visit.repo.name, number, shown[-1].id) if len(rows) > len(shown) else None,
    )
    return visit.page(page)


def run_number(visit: Visit) -> RunNumber:
    """The number in the address. Raises NotFound for what is none."""
    text = visit.request.path_params["run"]
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise NotFound("there is no such run")
    return RunNumber(int(text))


def words_of(event: EventRow) -> str:
    """What happened, as a sentence without its subject. A kind of a later version says its name."""
    detail = {name: str(event.detail.get(name) or "") for name in TOLD}
    detail["cause"] = ": ".join(filter(None, (detail["cause"].replace("_", " "), detail["why"])))
    detail["conclusion"] = detail["conclusion"].replace("_", " ")
    known = WORDS.get(event.kind, event.kind.replace("_", " "))
    return known.format_map(detail).rstrip(": ,")


async def story(view: View, rows: Sequence[EventRow], most: int) -> list[EventRow | Border]:
    """Events with the borders of steps between them, in the order of their times: at most `most` borders."""
    touched = {row.job for row in rows if row.job is not None}
    borders = await evidence.borders(view, list(touched), most)
    spans = _spans(rows)
    placed = [(row.at, place, row) for place, row in enumerate(rows)]
    # Behind the start of its attempt, and before whatever else happened at that moment.
    steps = [
        (spans[one.job, one.epoch].moment(one.at), spans[one.job, one.epoch].place, one)
        for one in borders
        if (one.job, one.epoch) in spans
    ]
    told: list[tuple[Moment, int, EventRow | Border]] = [*placed, *steps]
    told.sort(key=lambda one: one[:2])
    return [row if isinstance(row, EventRow) else replace(row, at=at) for at, _, row in told]


@dataclass(frozen=True)
class _Span:
    """An attempt that was started: by which event, and until when. A runner's clock is its own: steps lie within."""

    place: int
    start: Moment
    end: Moment | None = None

    def moment(self, said: Moment) -> Moment:
        at = max(said, self.start)
        return at if self.end is None else min(at, self.end)


def _spans(rows: Sequence[EventRow]) -> dict[tuple[JobId, Epoch], _Span]:
    spans: dict[tuple[JobId, Epoch], _Span] = {}
    running: dict[JobId, Epoch] = {}
    for place, row in enumerate(rows):
        if row.job is None or row.epoch is None:
            continue
        before = running.pop(row.job, None)
        if before is not None:
            spans[row.job, before] = replace(spans[row.job, before], end=row.at)
        if row.kind == "started":
            spans[row.job, row.epoch], running[row.job] = _Span(place, row.at), row.epoch
    return spans


def timeline(
    visit: Visit, made_at: Moment, found: Sequence[EventRow | Border], keys: Mapping[JobId, JobKey]
) -> Timeline:
    """The story of a run as lines; what only says that another line was written is left out."""
    number = run_number(visit)
    lines = [
        _step(visit, number, made_at, one, keys) if isinstance(one, Border) else _line(visit, number, made_at, one)
        for one in found
        if isinstance(one, Border) or one.kind not in ("run_running", "run_queued")
    ]
    return Timeline(
        tuple(lines[: limits.TIMELINE_MAX]),
        len(lines) > limits.TIMELINE_MAX,
        links.events(visit.repo.name, number),
    )


def _line(visit: Visit, number: RunNumber, made_at: Moment, row: EventRow) -> EventLine:
    href = None if row.key is None else links.job(visit.repo.name, number, row.key, row.epoch or None)
    look = "trouble" if row.kind in ("returned", "lost", "misjudged", "expired", "timed_out", "set_aside") else ""
    return EventLine(row.at, row.at - made_at, row.key, href, row.epoch or None, row.kind, words_of(row), look)


def _step(visit: Visit, number: RunNumber, made_at: Moment, row: Border, keys: Mapping[JobId, JobKey]) -> EventLine:
    title = row.title or f"step {row.step}"
    words = {"begin": f"began {title}", "end": f"step {row.step} ended", "skipped": f"skipped {title}"}[row.kind]
    key = keys.get(row.job)
    href = None if key is None else links.job(visit.repo.name, number, key, row.epoch)
    return EventLine(row.at, row.at - made_at, key, href, row.epoch, f"step_{row.kind}", words)
