"""The pinned job document that goes to runners. Its canonical JSON has one SHA-256, the job digest.

Nothing of it changes after enqueue. What is known only later (run number, attempt, results of needs) is the
`JobContext` beside it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from vole.base.expressions import Value
from vole.base.ids import CommitId, JobKey, RefName, RepoName
from vole.wire import codec

Scalar = str | int | float | bool
JUNIT_REPORTS = "junit-reports"  # the artifact that `reports: {junit: …}` keeps; the dialect gives the name to no other


@dataclass(frozen=True)
class EventFacts:
    """What started the run, pinned."""

    name: Literal["push", "manual", "schedule"]
    ref: str
    ref_name: str
    ref_type: Literal["branch", "tag"]
    before: str | None  # the tip before, None for a new ref
    after: str
    actor: str
    forced: bool = False
    message: str = ""  # subject of the head commit, shown on pages
    variables: dict[str, str] = field(default_factory=dict)  # `-o ci.variable`
    inputs: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class StepPlan:
    """One step. Texts may hold `${{ … }}`, evaluated by the harness when the step begins."""

    run: str
    number: int  # from 1
    id: str | None = None
    name: str | None = None
    shell: Literal["bash", "sh", "python"] | None = None  # None: bash where the machine has it, else sh
    working_directory: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    if_: str | None = None
    timeout_s: int | None = None
    continue_on_error: bool = False


@dataclass(frozen=True)
class ArtifactPlan:
    """What to keep of the work folder when the job has ended."""

    name: str
    paths: tuple[str, ...]
    retention_days: int | None = None
    if_empty: Literal["warn", "error", "ignore"] = "warn"


@dataclass(frozen=True)
class NeededArtifact:
    """An artifact of a needed job, placed below `path` of the work folder before the first step."""

    name: str
    path: str = "."


@dataclass(frozen=True)
class Concurrency:
    """The concurrency group that a run or a job goes through, and what its coming means to those before it.

    In a template `group` is still the text of the file. `spared`: a newer one never cancels it; so are tags and the
    default branch, unless their file says `cancel-protected`.
    """

    group: str
    cancel_in_progress: bool = False
    queue: Literal["all", "latest"] = "all"
    spared: bool = False


@dataclass(frozen=True)
class JobPlan:
    """One job of one run, as it will run whatever happens to branch, file or settings afterwards."""

    repository: RepoName
    commit: CommitId
    workflow: str  # shown name
    workflow_path: str
    workflow_blob: CommitId  # object id of the file's blob
    job: str  # the id in the file
    key: JobKey  # `job`, or `job.N` in a matrix
    name: str  # shown name
    event: EventFacts
    steps: tuple[StepPlan, ...]
    runs_on: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # job ids, not keys
    if_: str | None = None
    matrix: dict[str, Scalar] = field(default_factory=dict)
    fail_fast: bool = True
    max_parallel: int | None = None
    env: dict[str, str] = field(default_factory=dict)  # workflow's and job's merged, inner wins
    timeout_s: int = 3_600
    timeout_from: Literal["default", "job"] = "default"
    continue_on_error: bool = False
    on_lost: Literal["rerun", "fail"] = "rerun"
    outputs: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[ArtifactPlan, ...] = ()
    needs_artifacts: tuple[NeededArtifact, ...] = ()
    checkout_depth: int = 1  # 0: the whole history
    concurrency: Concurrency | None = None  # of this job alone; documents from before there were groups have none
    v: Literal[1] = 1

    def document(self) -> bytes:
        """The canonical JSON that is pinned, digested and sent."""
        return codec.canonical(self)

    @classmethod
    def read(cls, document: bytes | str) -> JobPlan:
        """The plan in `document`. Raises Invalid for one that this version does not understand whole."""
        return codec.from_json(cls, codec.parse(document))


@dataclass(frozen=True)
class RunPlan:
    """What one workflow file means for one ref update: jobs, or the reason why it is skipped."""

    ref: RefName
    commit: CommitId
    workflow: str
    workflow_path: str
    workflow_blob: CommitId
    event: EventFacts
    jobs: tuple[JobPlan, ...]
    skipped: Literal["filter", "skip_ci"] | None = None  # `filter` satisfies a gate, `skip_ci` does not
    concurrency: Concurrency | None = None  # of the run as a whole

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """What each job asks of a runner, by its key."""
        return {job.key: job.runs_on for job in self.jobs}


@dataclass(frozen=True)
class NeedResult:
    """How a needed job ended, as `needs.<id>` shows it."""

    result: Literal["success", "failure", "cancelled", "skipped"]
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobContext:
    """What the runner needs beside the plan."""

    run_id: str
    run_number: int
    run_attempt: int
    server_url: str
    needs: dict[str, NeedResult] = field(default_factory=dict)


def job_values(plan: JobPlan, context: JobContext) -> dict[str, Value]:
    """The expression contexts that hold for a whole job: vole, matrix, needs, inputs (workflow.md 6)."""
    event = plan.event
    needs: dict[str, Value] = {
        job: {"result": need.result, "outputs": dict(need.outputs)} for job, need in context.needs.items()
    }
    return {
        "vole": {
            "sha": plan.commit,
            "ref": event.ref,
            "ref_name": event.ref_name,
            "ref_type": event.ref_type,
            "repository": plan.repository,
            "run_number": context.run_number,
            "run_attempt": context.run_attempt,
            "actor": event.actor,
            "event_name": event.name,
            "workflow": plan.workflow,
            "job": plan.job,
        },
        "matrix": dict(plan.matrix),
        "needs": needs,
        "inputs": dict(event.inputs),
    }


def job_digest(document: bytes) -> str:
    """SHA-256 hex of a pinned document."""
    return hashlib.sha256(document).hexdigest()
