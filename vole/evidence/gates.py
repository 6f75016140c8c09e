"""What a branch demands of a commit before it moves there, and whether records show it. Pure: reads no git, no rows.

A requirement is `ci` (a workflow), `ci/test` (a job of it; of a matrix all of them, or `ci/test.2`) or
`status:CONTEXT`. Whatever is missing, unreadable or not vouched for is not green.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vole.base import globs, limits
from vole.base.clock import Moment
from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.base.ids import AccountName, CommitId, Epoch, JobKey, RefName, RepoName, RunNumber
from vole.base.labels import nearest
from vole.evidence import records
from vole.evidence.model import Status, check_context
from vole.evidence.records import Record
from vole.wire.records import AttemptRecord, RunRecord

_STATUS = "status:"
_RED = "it is red: "


@dataclass(frozen=True)
class Requirement:
    """One line of a gate: a workflow or a job of it, or (`context`) a status."""

    text: str
    workflow: str | None
    job: str | None
    context: str | None

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Raises Invalid with the forms there are."""
        if not text or len(text) > limits.NAME_CHARS_MAX or visible(text) != text:
            raise Invalid(f"'{visible(text, 80)}' is no requirement: write WORKFLOW, WORKFLOW/JOB or status:CONTEXT")
        if text.startswith(_STATUS):
            return cls(text, None, None, check_context(text.removeprefix(_STATUS)))
        workflow, slash, job = text.partition("/")
        if not workflow or (slash and not job):
            raise Invalid(f"'{text}' is no requirement: write WORKFLOW, WORKFLOW/JOB or status:CONTEXT")
        return cls(text, workflow, JobKey.parse(job) if slash else None, None)


@dataclass(frozen=True)
class Gate:
    """What the branches that `pattern` matches demand, since `set_at`."""

    pattern: str
    requires: tuple[Requirement, ...]
    set_by: AccountName
    set_at: Moment

    def guards(self, branch: RefName) -> bool:
        return globs.match((self.pattern,), branch.short)


@dataclass(frozen=True)
class Declared:
    """A workflow of the commit itself, with its jobs as (id, key)."""

    path: str
    blob: CommitId
    name: str
    jobs: tuple[tuple[str, JobKey], ...]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem


@dataclass(frozen=True)
class Move:
    """A branch on its way to a commit (None: to be deleted), with the workflows of that commit."""

    branch: RefName
    commit: CommitId | None
    forced: bool
    workflows: tuple[Declared, ...]


@dataclass(frozen=True)
class Demand:
    """A requirement, as this commit's own workflows spell it out. `key` None: the whole run."""

    requirement: Requirement
    path: str
    blob: CommitId
    key: JobKey | None


@dataclass(frozen=True)
class JobSeen:
    """A job as its row has it, and the attempt (`run`, `epoch`) that ran it: of another run where it was carried."""

    key: JobKey
    state: str
    conclusion: str | None
    run: RunNumber
    epoch: Epoch


@dataclass(frozen=True)
class RunSeen:
    """The run that decides, as its row has it. Rows say where to look; only records count."""

    number: RunNumber
    state: str
    conclusion: str | None
    reason: str
    jobs: tuple[JobSeen, ...]

    def place(self, key: JobKey | None) -> str | None:
        """Where the record that decides stands; None while there can be none."""
        if key is None or self.reason == "filter":
            return records.run_path(self.number) if self.state == "finished" else None
        job = self.job(key)
        return None if job is None or job.conclusion is None or not job.epoch else _place(job)

    def job(self, key: JobKey) -> JobSeen | None:
        return next((job for job in self.jobs if job.key == key), None)


@dataclass(frozen=True)
class Document:
    """What stands at a place: bytes that a signed record `commit` brought, or `why_not`; neither: nothing."""

    data: bytes | None = None
    commit: CommitId | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Judged:
    """One requirement, for one commit. Green with what shows it; else `why`; `soon`: its record is on the way."""

    requirement: str
    evidence: str = ""  # `app/12/test@1` without the repository: `12/test@1`; of a status its context
    record: CommitId | None = None
    why: str = ""
    remedy: str = ""
    soon: bool = field(default=False, compare=False)

    @property
    def green(self) -> bool:
        return not self.why


def demands(requirement: Requirement, declared: Sequence[Declared]) -> list[Demand]:
    """Every job that the requirement means at this commit (of a status: none). Raises Invalid where none has it."""
    if requirement.workflow is None:
        return []
    named = [one for one in declared if requirement.workflow in (one.stem, one.name)]
    if not named:
        raise Invalid(f"no workflow of this commit is called so{_nearest(requirement.text, _names(declared))}")
    if requirement.job is None:
        return [Demand(requirement, one.path, one.blob, None) for one in named]
    found = [
        Demand(requirement, one.path, one.blob, key)
        for one in named
        for job, key in one.jobs
        if requirement.job in (job, key)
    ]
    if {demand.path for demand in found} != {one.path for one in named}:
        raise Invalid(f"the workflow of this commit has no such job{_nearest(requirement.text, _jobs(named))}")
    return found


def unmet(gate: Gate, declared: Sequence[Declared]) -> list[str]:
    """What the gate demands and these workflows do not have, a line each."""
    lines = []
    for requirement in gate.requires:
        try:
            demands(requirement, declared)
        except Invalid as error:
            lines.append(f"{requirement.text}: {error.sentence}")
    return lines


@dataclass(frozen=True)
class Subject:
    """What is judged: a commit of a repository."""

    repository: RepoName
    commit: CommitId


def judge(demand: Demand, subject: Subject, run: RunSeen | None, document: Document) -> Judged:
    """Whether `document`, from the place that `run` points to, is a record of success of this job at this commit."""
    text = demand.requirement.text
    if run is None:
        return Judged(text, why="it has no run of this commit", remedy="start")
    if run.reason == "skip_ci":
        return Judged(text, f"{run.number}", why="it was skipped as asked, which opens no gate", remedy="start")
    address = _address(run, demand.key)
    if why := _unfinished(run, demand.key):
        return Judged(text, address, why=why, remedy="wait")
    if document.commit is None or document.data is None:
        if document.why_not:
            return Judged(text, address, why=f"its record does not count: {document.why_not}", remedy="again")
        red = _red(run, demand.key)
        if red:
            return Judged(text, address, why=f"{_RED}{red}", remedy="rerun")
        return Judged(text, address, why="its record is not written yet", remedy="wait", soon=True)
    try:
        why = _against(demand, subject, run, records.read(document.data))
    except Invalid as error:
        why = f"its record cannot be read: {error.sentence}"
    if why:
        return Judged(text, address, why=why, remedy="rerun" if why.startswith(_RED) else "again")
    return Judged(text, address, document.commit)


def judge_status(requirement: Requirement, status: Status | None) -> Judged:
    """Whether the newest status of the context that the gate names is `success`."""
    assert requirement.context is not None
    if status is None:
        return Judged(requirement.text, why="nobody has set this status of this commit", remedy="status")
    if status.state != "success":
        return Judged(requirement.text, status.context, why=f"it is {status.state}", remedy="status")
    return Judged(requirement.text, status.context)


def _against(demand: Demand, subject: Subject, run: RunSeen, record: Record) -> str:
    """What of the record is not what is demanded; empty where all of it is."""
    said = (record.repository, record.commit, record.workflow_path, record.workflow_blob)
    if said != (subject.repository, subject.commit, demand.path, demand.blob):
        return "its record is of another repository, commit or workflow"
    if isinstance(record, RunRecord):
        if record.run != run.number:
            return "its record is of another run"
        skipped = record.conclusion == "skipped" and record.reason == "filter"
        if demand.key is not None and not skipped:
            return "its record is of another kind"
        return "" if skipped or record.conclusion == "success" else f"{_RED}{record.conclusion}"
    return _attempt_against(demand.key, run, record)


def _attempt_against(key: JobKey | None, run: RunSeen, record: AttemptRecord) -> str:
    job = None if key is None else run.job(key)
    if job is None or (record.run, record.job, record.attempt) != (job.run, job.key, job.epoch):
        return "its record is of another attempt"
    if record.outcome is None or record.outcome.conclusion != "success":
        return f"{_RED}{record.outcome.conclusion if record.outcome else record.conclusion}"
    return ""


def _unfinished(run: RunSeen, key: JobKey | None) -> str:
    if key is None or run.reason == "filter":
        return "" if run.state == "finished" else f"it is {run.state}"
    job = run.job(key)
    if job is None:
        return "the run has no such job"
    return f"it is {job.state}" if job.conclusion is None else ""


def _red(run: RunSeen, key: JobKey | None) -> str:
    """How it ended, where that is not green. A job without a record never ran."""
    if run.reason == "filter":
        return ""
    job = None if key is None else run.job(key)
    ended = run.conclusion if job is None else job.conclusion
    return "" if ended == "success" else str(ended)


def _place(job: JobSeen) -> str:
    return records.attempt_path(job.run, job.key, job.epoch)


def _address(run: RunSeen, key: JobKey | None) -> str:
    job = None if key is None else run.job(key)
    if job is None:
        return f"{run.number}"
    return f"{job.run}/{job.key}" + (f"@{job.epoch}" if job.epoch else "")


def _names(declared: Iterable[Declared]) -> list[str]:
    return [one.stem for one in declared]


def _jobs(declared: Iterable[Declared]) -> list[str]:
    return list(dict.fromkeys(f"{one.stem}/{job}" for one in declared for job, _ in one.jobs))


def _nearest(said: str, known: list[str]) -> str:
    close = nearest(said, known)
    if close:
        return f"; did you mean '{close}'?"
    return f"; there are: {', '.join(known[:20])}" if known else "; it has none"
