"""The runs of a repository, and one run: its jobs in stages, why they wait, who ran them, what they left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from starlette.responses import Response

from vole.base import limits
from vole.base.clock import Moment, iso
from vole.base.errors import Gone, NotFound
from vole.base.expressions import to_text
from vole.base.ids import Epoch, JobId, JobKey, RepoName, RunNumber
from vole.base.quantities import size
from vole.evidence import reads as evidence
from vole.evidence.logs import LogKey
from vole.evidence.model import Status
from vole.evidence.reads import AttemptTests, Border, Note, StoredArtifact, Summary, stored
from vole.evidence.reads.gates import statuses_of
from vole.evidence.reads.stored import RemovedLog
from vole.jobs import reads as jobs
from vole.jobs.model import FAILURES, Conclusion, State
from vole.jobs.reads import history
from vole.jobs.reads.groups import GroupRow, groups_of
from vole.jobs.reads.history import EventRow
from vole.jobs.rows.shown import AttemptRow, JobRow, RunRow
from vole.store.database import View
from vole.web.live import changes, mark_of
from vole.web.pages import links
from vole.web.pages.code import markdown
from vole.web.pages.recorded import RecordShown, record_of
from vole.web.pages.repo import RepoHead, head
from vole.web.pages.shown import Chip, RunLine, StatusLine, of_job, run_line, started_by, status_lines
from vole.web.pages.timeline import Timeline, run_number, story, timeline
from vole.web.pages.visit import Visit
from vole.wire.records import ReportedTests


@dataclass(frozen=True)
class RunsPage:
    template: ClassVar[str] = "jobs/runs.html"
    repo: RepoHead
    runs: tuple[RunLine, ...]
    older_href: str | None
    atom_href: str
    badge_href: str

    @property
    def title(self) -> str:
        return f"Runs · {self.repo.name}"


@dataclass(frozen=True)
class AttemptLine:
    """One lease of a job, with its log."""

    attempt: AttemptRow
    href: str
    ended: str  # how its lease ended, in words; empty while it lives

    @property
    def machine(self) -> str:
        return f"{self.attempt.os} {self.attempt.arch}"


@dataclass(frozen=True)
class JobLine:
    """A job on its run's page. `why` says what it waits for, runner by runner."""

    job: JobRow
    href: str
    chip: Chip
    attempts: tuple[AttemptLine, ...]
    why: tuple[str, ...]
    took: int | None  # microseconds
    log_note: str
    carried_href: str | None  # the job that ran, where this run did not run it again

    @property
    def timeout(self) -> str:
        """The limit and where it came from."""
        origin = "set by the job" if self.job.timeout_from == "job" else "the default"
        return f"{self.job.timeout_us // 60_000_000} min, {origin}"

    @property
    def asks(self) -> str:
        return ", ".join(self.job.labels) or "any runner"


@dataclass(frozen=True)
class ArtifactLine:
    artifact: StoredArtifact
    key: JobKey
    href: str

    @property
    def removed(self) -> str:
        """Why its bytes are gone; empty while they are there."""
        gone = self.artifact.removed_at
        return "" if gone is None else f"removed {self.artifact.removed_why}, on {iso(gone)[:10]}"


@dataclass(frozen=True)
class NoteLine:
    note: Note
    key: JobKey
    file_href: str | None


@dataclass(frozen=True)
class TestsLine:
    """What the test reports of an attempt say."""

    key: JobKey
    href: str
    told: ReportedTests

    @property
    def chip(self) -> Chip:
        told = self.told
        if bad := told.failed + told.errors:
            return Chip("failure", f"{bad} failed")
        return Chip("success", "none failed") if told.passed or told.skipped else Chip("skipped", "no tests")

    @property
    def counts(self) -> str:
        told = self.told
        kinds = {"passed": told.passed, "failed": told.failed, "with an error": told.errors}
        return ", ".join(f"{number} {kind}" for kind, number in (*kinds.items(), ("skipped", told.skipped)) if number)

    @property
    def left_out(self) -> int:
        return self.told.failed + self.told.errors - len(self.told.failures)


@dataclass(frozen=True)
class GroupLine:
    """A concurrency group of the run, or of one job of it; `holder`, address and link, has it while this one waits."""

    group: GroupRow
    holder: tuple[str, str] | None


@dataclass(frozen=True)
class Buttons:
    """What who may write can do with the run as it is now."""

    cancel_href: str | None
    rerun_href: str | None
    failed: bool  # some of it failed or was cancelled


@dataclass(frozen=True)
class RunPage:
    template: ClassVar[str] = "jobs/run.html"
    repo: RepoHead
    line: RunLine
    workflow_href: str
    groups: tuple[GroupLine, ...]
    stages: tuple[tuple[JobLine, ...], ...]
    artifacts: tuple[ArtifactLine, ...]
    notes: tuple[NoteLine, ...]
    tests: tuple[TestsLine, ...]
    summaries: tuple[tuple[JobKey, Markup], ...]
    timeline: Timeline
    record: RecordShown | None
    took: int | None
    mark: str
    buttons: Buttons | None
    older: tuple[str, str] | None  # address and link of the run that this one repeats
    newer: tuple[str, str] | None
    statuses: tuple[StatusLine, ...]

    @property
    def title(self) -> str:
        return f"{self.line.address} {self.line.chip.words}"

    @property
    def started_by(self) -> str:
        return started_by(self.run.event.name, self.run.actor, self.older[0] if self.older else None)

    @property
    def inputs(self) -> str:
        """What was said when it was started, or the defaults."""
        return ", ".join(f"{name}: {to_text(value)}" for name, value in self.run.event.inputs.items())

    @property
    def run(self) -> RunRow:
        return self.line.run

    @property
    def live_href(self) -> str | None:
        return None if self.run.state == "finished" else f"{self.line.href}?live={self.mark}"


@dataclass(frozen=True)
class RunFacts:
    """Everything of one run, from one snapshot."""

    run: RunRow
    jobs: list[JobRow]
    groups: list[GroupRow]
    attempts: list[AttemptRow]
    artifacts: list[StoredArtifact]
    notes: list[Note]
    tests: list[AttemptTests]
    summaries: list[Summary]
    removed: dict[tuple[JobId, Epoch], RemovedLog]
    story: list[EventRow | Border]
    statuses: list[Status]

    @property
    def moving(self) -> object:
        """What makes the page another one."""
        rows = [(job.state, job.conclusion, job.reason, job.epoch) for job in self.jobs]
        state = self.run.state, self.run.newer
        said = [(one.context, one.updated_at) for one in self.statuses]
        leases = [(one.epoch, one.ended_at) for one in self.attempts]
        return state, rows, self.groups, said, leases, len(self.story)

    def attempts_of(self, job: JobRow) -> list[AttemptRow]:
        return [one for one in self.attempts if one.job == job.id]


async def runs(visit: Visit) -> Response:
    before = visit.number("before", 1, 10**15)
    found = await visit.read(jobs.runs_of, visit.repo.id, before, limits.LIST_MAX + 1)
    page, more = found[: limits.LIST_MAX], len(found) > limits.LIST_MAX
    lines = tuple(run_line(visit.repo.name, run) for run in page)
    older = links.runs(visit.repo.name, page[-1].number) if more else None
    return visit.page(
        RunsPage(head(visit, "runs"), lines, older, links.atom(visit.repo.name), links.badge(visit.repo.name))
    )


async def run(visit: Visit) -> Response:
    facts = await facts_of(visit)
    if "live" in visit.request.query_params:
        return changes(visit, (f"run:{facts.run.id}", "runners"), lambda: _moving(visit))
    name, number = visit.repo.name, facts.run.number
    keys = {job.id: job.key for job in facts.jobs}
    commit = facts.run.commit
    page = RunPage(
        repo=head(visit, "runs"),
        line=run_line(name, facts.run),
        workflow_href=links.file(name, commit, facts.run.workflow_path.encode()),
        groups=tuple(GroupLine(one, holder_of(name, one)) for one in facts.groups),
        stages=_stages(await job_lines(visit, facts)),
        artifacts=tuple(
            ArtifactLine(
                one, keys[one.job], links.artifact(name, number, keys[one.job], one.epoch, one.sha256, one.path)
            )
            for one in facts.artifacts
        ),
        notes=tuple(
            NoteLine(
                one, keys[one.job], f"{links.file(name, commit, one.file.encode())}#L{one.line}" if one.file else None
            )
            for one in facts.notes
        ),
        tests=tuple(tests_line(visit, facts, one) for one in facts.tests),
        summaries=tuple(
            [
                (keys[one.job], await markdown(visit, one.markdown, prefix=f"{keys[one.job]}-"))
                for one in facts.summaries
            ]
        ),
        timeline=timeline(visit, facts.run.created_at, facts.story, keys),
        record=record_of(visit, facts.run),
        took=took(facts.run.created_at, facts.run.finished_at, visit),
        mark=mark_of(facts.moving),
        buttons=_buttons(visit, facts),
        older=_other(name, facts.run.older),
        newer=_other(name, facts.run.newer),
        statuses=status_lines(facts.statuses),
    )
    return visit.page(page)


def _other(repo: RepoName, number: RunNumber | None) -> tuple[str, str] | None:
    return None if number is None else (f"{repo}/{number}", links.run(repo, number))


def holder_of(repo: RepoName, group: GroupRow) -> tuple[str, str] | None:
    """Address and link of the run or job that has what this one waits for."""
    if group.holder is None:
        return None
    number, key = group.holder
    if key is None:
        return f"{repo}/{number}", links.run(repo, number)
    return f"{repo}/{number}/{key}", links.job(repo, number, key)


def _buttons(visit: Visit, facts: RunFacts) -> Buttons | None:
    if not visit.may_write:
        return None
    over, name, number = facts.run.state == "finished", visit.repo.name, facts.run.number
    again = over and bool(facts.jobs) and facts.run.newer is None
    undone = FAILURES | {Conclusion.CANCELLED}
    return Buttons(
        cancel_href=None if over else links.cancel(name, number),
        rerun_href=links.rerun(name, number) if again else None,
        failed=any(job.conclusion in undone for job in facts.jobs),
    )


async def facts_of(visit: Visit) -> RunFacts:
    """The run that the address names. Raises NotFound."""
    return await visit.read(_facts, visit, run_number(visit))


async def job_lines(visit: Visit, facts: RunFacts) -> list[JobLine]:
    """Every job of the run."""
    whys = await _whys(visit, facts)
    return [_job_line(visit, facts, job, whys.get(job.key, [])) for job in facts.jobs]


def _job_line(visit: Visit, facts: RunFacts, job: JobRow, why: Sequence[str]) -> JobLine:
    name, number = visit.repo.name, facts.run.number
    attempts = facts.attempts_of(job)
    return JobLine(
        job=job,
        href=links.job(name, number, job.key),
        chip=of_job(job),
        attempts=tuple(attempt_line(visit, facts, job, one) for one in attempts),
        why=tuple(why[: limits.EXPLAINED_MAX]),
        took=took(job.started_at, job.finished_at, visit) if job.started_at is not None else None,
        log_note=log_note(visit, facts, job, attempts[0]) if attempts else "",
        carried_href=None if job.carried_from is None else links.job(name, job.carried_from, job.key),
    )


def attempt_line(visit: Visit, facts: RunFacts, job: JobRow, attempt: AttemptRow) -> AttemptLine:
    cause = (attempt.end_cause or "").replace("_", " ")
    ended = attempt.conclusion or cause
    detail = f": {attempt.end_detail}" if attempt.end_detail else ""
    href = links.job(visit.repo.name, facts.run.number, job.key, attempt.epoch)
    return AttemptLine(attempt, href, ended.replace("_", " ") + detail if ended else "")


def tests_line(visit: Visit, facts: RunFacts, tests: AttemptTests) -> TestsLine:
    key = next(job.key for job in facts.jobs if job.id == tests.job)
    return TestsLine(key, links.job(visit.repo.name, facts.run.number, key, tests.epoch), tests.told)


def log_note(visit: Visit, facts: RunFacts, job: JobRow, attempt: AttemptRow) -> str:
    """What is wrong with the log, or that it is gone; never green with an unmarked cut."""
    if (removed := facts.removed.get((job.id, attempt.epoch))) is not None:
        return f"the log was removed {removed.why}, on {iso(removed.at)[:10]}; it had {size(removed.bytes)}"
    if attempt.log_state == "incomplete":
        here = visit.house.parts.logs.length(LogKey(visit.repo.name, facts.run.number, job.key, attempt.epoch))
        return f"log incomplete: {here} of {attempt.log_declared} bytes"
    return f"log cut at {limits.LOG_BYTES_MAX} bytes (LOG_BYTES_MAX)" if attempt.log_truncated else ""


def took(since: Moment, until: Moment | None, visit: Visit) -> int:
    """Microseconds, up to now where it has not ended."""
    return (visit.house.parts.clock.now() if until is None else until) - since


async def _moving(visit: Visit) -> tuple[object, bool]:
    facts = await facts_of(visit)
    return facts.moving, facts.run.state == "finished"


async def _facts(view: View, visit: Visit, number: RunNumber) -> RunFacts:
    found = await jobs.run_numbered(view, visit.repo.id, number)
    if found is None and await jobs.was_pruned(view, visit.repo.id, number):
        padded = f"{number:06d}"
        raise Gone(
            f"run {number} was forgotten: runs are not kept for ever here",
            next_step=f"its record stays in the repository: refs/vole/runs:runs/{padded[:-3]}/{padded[-3:]}/run.json",
        )
    if found is None:
        raise NotFound("there is no such run")
    rows = await jobs.job_rows(view, found.id)
    log = await history.events_of(view, found.id, 0, limits.TIMELINE_MAX + 1)
    return RunFacts(
        run=found,
        jobs=rows,
        groups=await groups_of(view, found.id),
        attempts=await jobs.attempt_rows(view, found.id),
        artifacts=await evidence.artifacts_of(view, found.id, limits.ARTIFACT_FILES_MAX),
        notes=await evidence.notes_of(view, found.id, limits.LIST_MAX),
        tests=await evidence.tests_of(view, found.id),
        summaries=await evidence.summaries_of(view, found.id, [row.id for row in rows]),
        removed=await stored.removed_logs(view, [row.id for row in rows]),
        story=await story(view, log, limits.TIMELINE_MAX + 1),
        statuses=await statuses_of(view, visit.repo.id, found.commit),
    )


async def _whys(visit: Visit, facts: RunFacts) -> dict[JobKey, list[str]]:
    """Why each job waits, from the function that leases; nothing for those that do not."""
    waiting = [job for job in facts.jobs if job.state in (State.BLOCKED, State.QUEUED)]
    if not waiting:
        return {}
    lines: list[str] = []
    of_address: dict[str, list[str]] = {}
    for line in await visit.house.parts.leasing.why(visit.repo.id, facts.run.number, None):
        if not line.startswith(" "):  # the next job begins
            lines = of_address.setdefault(line.partition(": ")[0], [])
        lines.append(line.partition(": ")[2] if not lines else line.strip())
    return {job.key: of_address.get(f"{visit.repo.name}/{facts.run.number}/{job.key}", []) for job in waiting}


def _stages(lines: Sequence[JobLine]) -> tuple[tuple[JobLine, ...], ...]:
    """Jobs by how many needs stand before them, one behind the other."""
    needs = {line.job.job: line.job.needs for line in lines}
    depth: dict[str, int] = {}
    while len(depth) < len(needs):
        ready = [job for job in needs if job not in depth and all(need in depth for need in needs[job])]
        # A need that is not there, or a circle, cannot come from an accepted push; it must not hang a page.
        for job in ready or [job for job in needs if job not in depth]:
            depth[job] = 1 + max((depth.get(need, 0) for need in needs[job]), default=0)
    deepest = max(depth.values(), default=0)
    return tuple(tuple(line for line in lines if depth[line.job.job] == level) for level in range(1, deepest + 1))
