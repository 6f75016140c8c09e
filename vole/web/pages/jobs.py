"""A job: its attempts, its steps, and its log, tail first, live while it grows. And what it left, as downloads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from starlette.responses import FileResponse, Response, StreamingResponse

from vole.base import limits
from vole.base.clock import iso
from vole.base.errors import Gone, NotFound
from vole.base.ids import Epoch, JobId
from vole.evidence import reads as evidence
from vole.evidence.logs import LogKey
from vole.jobs import reads as jobs
from vole.jobs.model import State
from vole.jobs.rows.shown import AttemptRow, JobRow
from vole.store.database import View
from vole.web.live import Event, Stream
from vole.web.pages import links
from vole.web.pages.code import attachment
from vole.web.pages.repo import RepoHead, head
from vole.web.pages.runs import (
    AttemptLine,
    JobLine,
    RunFacts,
    TestsLine,
    attempt_line,
    facts_of,
    job_lines,
    log_note,
    tests_line,
)
from vole.web.pages.shown import Chip
from vole.web.pages.terminal import Painter, Piece, together
from vole.web.pages.visit import Visit
from vole.wire.runner import Mark

_RAW_HEADERS = {"content-security-policy": "default-src 'none'; sandbox"}


@dataclass(frozen=True)
class StepLine:
    """A step: how it went, how long it took, and where in the log it begins."""

    number: int
    title: str
    chip: Chip
    took: int | None  # microseconds
    href: str | None


@dataclass(frozen=True)
class LogPart:
    """The part of the log that is on the page, in bytes, and the parts before and after it."""

    start: int
    end: int
    total: int
    html: Markup
    earlier_href: str | None
    later_href: str | None
    raw_href: str
    live_href: str | None
    first_href: str

    @property
    def partial(self) -> bool:
        return self.end - self.start < self.total


@dataclass(frozen=True)
class JobPage:
    template: ClassVar[str] = "jobs/job.html"
    repo: RepoHead
    address: str
    run_href: str
    run_address: str
    line: JobLine
    attempt: AttemptLine | None
    attempts: tuple[AttemptLine, ...]
    steps: tuple[StepLine, ...]
    tests: tuple[TestsLine, ...]
    log: LogPart | None
    log_note: str
    waiting_href: str | None  # the stream that says when there is a log
    cancel_href: str | None  # for who may write, while it is not over

    @property
    def title(self) -> str:
        return f"{self.address} {self.line.chip.words}"

    @property
    def live_href(self) -> str | None:
        return self.log.live_href if self.log is not None else self.waiting_href


@dataclass(frozen=True)
class _Seen:
    """An attempt with its log, as one look finds it."""

    facts: RunFacts
    job: JobRow
    attempt: AttemptRow | None
    marks: tuple[Mark, ...]
    key: LogKey
    total: int

    @property
    def growing(self) -> bool:
        return self.attempt is not None and self.attempt.ended_at is None


async def job(visit: Visit) -> Response:
    seen = await _look(visit)
    query = visit.request.query_params
    if "raw" in query:
        if (removed := seen.facts.removed.get((seen.job.id, seen.key.epoch))) is not None:
            raise Gone(f"the log was removed {removed.why}, on {iso(removed.at)[:10]}")
        return _raw(visit, seen)
    if "live" in query:
        return _live(visit, seen)
    attempts = [attempt_line(visit, seen.facts, seen.job, one) for one in seen.facts.attempts_of(seen.job)]
    shown = next((one for one in attempts if one.attempt is seen.attempt), None)
    steps = _steps(visit, seen)
    page = JobPage(
        repo=head(visit, "runs"),
        address=f"{visit.repo.name}/{seen.facts.run.number}/{seen.job.key}",
        run_href=links.run(visit.repo.name, seen.facts.run.number),
        run_address=f"{visit.repo.name}/{seen.facts.run.number}",
        line=next(line for line in await job_lines(visit, seen.facts) if line.job is seen.job),
        attempt=shown,
        attempts=tuple(attempts),
        steps=steps,
        tests=tuple(
            tests_line(visit, seen.facts, one)
            for one in seen.facts.tests
            if (one.job, one.epoch) == (seen.job.id, seen.key.epoch)
        ),
        log=None if seen.attempt is None else await _log(visit, seen, steps),
        log_note="" if seen.attempt is None else log_note(visit, seen.facts, seen.job, seen.attempt),
        waiting_href=_href(visit, seen, live=1)
        if seen.attempt is None and seen.job.state is not State.FINISHED
        else None,
        cancel_href=links.cancel(visit.repo.name, seen.facts.run.number, seen.job.key)
        if visit.may_write and seen.job.state not in (State.CANCELLING, State.FINISHED)
        else None,
    )
    return visit.page(page)


async def artifact(visit: Visit) -> Response:
    """A file that an attempt left, as a download."""
    facts = await facts_of(visit)
    found = next((row for row in facts.jobs if row.key == visit.request.path_params["job"]), None)
    epoch, _, rest = visit.request.path_params["place"].partition("/")
    sha256 = rest.partition("/")[0]
    if found is None or not (epoch.isascii() and epoch.isdigit()) or len(epoch) > 9:
        raise NotFound("there is no such artifact")
    stored = await visit.read(evidence.artifact, visit.repo.id, found.id, Epoch(int(epoch)), sha256)
    if stored is None:
        raise NotFound("there is no such artifact")
    if stored.removed_at is not None:
        raise Gone(f"the artifact was removed {stored.removed_why}, on {iso(stored.removed_at)[:10]}")
    path = await asyncio.to_thread(visit.house.parts.artifacts.path, visit.repo.id, stored.sha256)
    headers = _RAW_HEADERS | {"content-disposition": attachment(stored.path.rpartition("/")[2])}
    return FileResponse(path, media_type="application/octet-stream", headers=headers)


async def _look(visit: Visit) -> _Seen:
    """The job and the attempt that the address names (the newest where it names none). Raises NotFound."""
    facts = await facts_of(visit)
    found = next((row for row in facts.jobs if row.key == visit.request.path_params["job"]), None)
    if found is None:
        raise NotFound("there is no such job")
    attempts = facts.attempts_of(found)
    wanted = visit.number("attempt", 0, 10**9)
    attempt = next((one for one in attempts if wanted in (None, one.epoch)), None)
    if attempt is None and wanted is not None:
        raise NotFound("there is no such attempt")
    epoch = Epoch(0) if attempt is None else attempt.epoch
    marks = await visit.read(evidence.marks, found.id, epoch)
    key = LogKey(visit.repo.name, facts.run.number, found.key, epoch)
    return _Seen(facts, found, attempt, marks, key, visit.house.parts.logs.length(key))


def _steps(visit: Visit, seen: _Seen) -> tuple[StepLine, ...]:
    """Steps as far as marks and result tell of them."""
    outcomes = {one.number: one for one in seen.attempt.steps} if seen.attempt is not None else {}
    begun = {mark.step: mark for mark in seen.marks if mark.kind == "begin"}
    ended = {mark.step: mark for mark in seen.marks if mark.kind == "end"}
    skipped = {mark.step: mark for mark in seen.marks if mark.kind == "skipped"}
    lines = []
    for number in sorted(begun.keys() | skipped.keys() | outcomes.keys()):
        outcome, mark = outcomes.get(number), begun.get(number) or skipped.get(number)
        title = (mark.title if mark else "") or (outcome.name if outcome else "") or f"step {number}"
        end = ended[number].time_us if number in ended else None
        now = visit.house.parts.clock.now() if seen.growing else None
        until = end or now
        lines.append(
            StepLine(
                number,
                title,
                _step_chip(outcome.conclusion if outcome else None, skipped=number in skipped, ended=number in ended,
                           continued=bool(outcome and outcome.continued)),
                until - begun[number].time_us if number in begun and until is not None else None,
                _log_href(visit, seen, begun[number].offset) + f"#s{number}" if number in begun else None,
            )
        )  # fmt: skip
    return tuple(lines)


def _step_chip(conclusion: str | None, *, skipped: bool, ended: bool, continued: bool) -> Chip:
    if continued:
        return Chip("marked", "failed, allowed")
    if conclusion is not None:
        look = "failure" if conclusion in ("failure", "timed_out") else conclusion
        return Chip(look, conclusion.replace("_", " "))
    if skipped:
        return Chip("skipped", "skipped")
    return Chip("queued", "ended") if ended else Chip("running", "running")


async def _log(visit: Visit, seen: _Seen, steps: Sequence[StepLine]) -> LogPart:
    start, end = _range(visit, seen)
    data = await asyncio.to_thread(visit.house.parts.logs.read, seen.key, max(0, start - 1), end - max(0, start - 1))
    data, start = _whole_lines(data, start)
    folded = frozenset(step.number for step in steps[:-1] if step.chip.look in ("success", "skipped"))
    pieces = await visit.work(lambda _: _painted(Painter(start, seen.marks, folded), data))
    at_end = end == seen.total
    return LogPart(
        start=start,
        end=end,
        total=seen.total,
        html=Markup(together(pieces)),  # noqa: S704  the painter escapes
        earlier_href=_log_href(visit, seen, max(0, start - limits.LOG_TAIL_BYTES), start) if start else None,
        later_href=None if at_end else _log_href(visit, seen, end),
        raw_href=_href(visit, seen, raw=1),
        live_href=_href(visit, seen, live=1, **{"from": end}) if at_end and seen.growing else None,
        first_href=_log_href(visit, seen, 0),
    )


def _painted(painter: Painter, data: bytes) -> list[Piece]:
    return [*painter.feed(data), *painter.end()]


def _range(visit: Visit, seen: _Seen) -> tuple[int, int]:
    """The bytes to show: those asked for within bounds, else the tail."""
    start = visit.number("from", 0, seen.total)
    if start is None:
        return max(0, seen.total - limits.LOG_TAIL_BYTES), seen.total
    end = visit.number("to", 0, seen.total) or start + 2 * limits.LOG_TAIL_BYTES
    return start, min(max(start, end), start + limits.LOG_RANGE_BYTES_MAX, seen.total)


def _whole_lines(data: bytes, start: int) -> tuple[bytes, int]:
    """Without the rest of a line that began before. `data` has the byte before `start` too, unless that is 0."""
    if start == 0:
        return data, 0
    cut = data.find(b"\n") + 1
    return (data[cut:], start - 1 + cut) if cut else (data[1:], start)


def _log_href(visit: Visit, seen: _Seen, start: int, end: int | None = None) -> str:
    return _href(visit, seen, **{"from": start}, **({} if end is None else {"to": end}))


def _href(visit: Visit, seen: _Seen, **more: int) -> str:
    epoch = None if seen.attempt is None else seen.attempt.epoch
    return links.job(visit.repo.name, seen.facts.run.number, seen.job.key, epoch, **more)


def _raw(visit: Visit, seen: _Seen) -> Response:
    """The bytes as they are stored, as text."""
    start = visit.number("from", 0, seen.total) or 0
    end = max(start, visit.number("to", 0, seen.total) or seen.total)
    logs = visit.house.parts.logs

    async def pieces() -> AsyncIterator[bytes]:
        at = start
        while at < end:
            piece = await asyncio.to_thread(logs.read, seen.key, at, min(limits.PUMP_READ_BYTES, end - at))
            if not piece:
                return
            at += len(piece)
            yield piece

    headers = _RAW_HEADERS | {"content-length": str(end - start)}
    return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8", headers=headers)


def _live(visit: Visit, seen: _Seen) -> Response:
    """The log from where the page, or the stream before, ended; before there is one, the news that there is."""
    topics = (f"log:{seen.job.id}", f"run:{seen.facts.run.id}")
    if seen.attempt is None:
        return Stream(visit, topics, lambda: _until_it_starts(visit))
    last = visit.request.headers.get("last-event-id", "")
    at = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else visit.number("from", 0, seen.total) or 0
    return Stream(visit, topics, _Follower(visit, min(at, seen.total), seen).look)


async def _until_it_starts(visit: Visit) -> tuple[list[Event], bool]:
    seen = await _look(visit)
    begun = seen.attempt is not None or seen.job.state is State.FINISHED
    return ([Event("reload"), Event("end")] if begun else []), False


class _Follower:
    """What a live log has sent: each look sends what came since."""

    def __init__(self, visit: Visit, at: int, seen: _Seen) -> None:
        self._visit = visit
        self._seen = seen
        self._read_to = at
        self._painter = Painter(at, seen.marks)
        self._partial = ""
        self._borders = len(seen.marks)

    async def look(self) -> tuple[list[Event], bool]:
        ended, marks = await self._visit.read(_pulse, self._seen.job.id, self._seen.key.epoch)
        if not self._painter.more_marks(marks):
            return [Event("reload"), Event("end")], False
        logs = self._visit.house.parts.logs
        data = await asyncio.to_thread(logs.read, self._seen.key, self._read_to, limits.LOG_TAIL_BYTES)
        self._read_to += len(data)
        events = self._log_events(data)
        if len(marks) != self._borders:
            self._borders = len(marks)
            events.append(Event("changed"))
        if ended and not data:
            events.append(Event("end"))
        return events, bool(data)

    def _log_events(self, data: bytes) -> list[Event]:
        pieces = self._painter.feed(data)
        partial = self._painter.partial()
        if not pieces and partial == self._partial:
            return []
        self._partial = partial
        sent = [{"into": piece.into, "html": piece.head + piece.tail, "id": piece.id} for piece in pieces]
        body = {"pieces": sent, "partial": partial, "into": self._painter.into}
        return [Event("log", body, id=self._painter.painted_to)]


async def _pulse(view: View, job: JobId, epoch: Epoch) -> tuple[bool, tuple[Mark, ...]]:
    """Whether the attempt has ended, and its marks: all that a live log asks the store, ten times a second."""
    return await jobs.attempt_ended(view, job, epoch), await evidence.marks(view, job, epoch)
