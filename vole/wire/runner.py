"""The runner link: one SSH connection, several channels of the subsystem `vole-runner` (docs/architecture.md).

The first line of a channel says what it is (`Open`). Control frames are one JSON object a line; the server reads
them strictly, the runner leniently. Bulk never rides on control.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from vole.base.ids import CommitId, Epoch, JobId, JobKey, RepoName
from vole.wire import codec
from vole.wire.frames import Vocabulary
from vole.wire.plan import JobContext

SUBSYSTEM = "vole-runner"
WIRE_MIN = 1
WIRE_MAX = 1

Mode = Literal["daemon", "once", "ping"]
Conclusion = Literal["success", "failure", "cancelled", "timed_out", "errored"]


class Refusal(StrEnum):
    """Stable codes of `refused` and of a bulk channel's answer. The runner's exit code follows from it."""

    INVALID = "invalid"  # exit 2
    GRANT = "grant"  # 4: key, grant or filter
    SUPERSEDED = "superseded"  # 5
    WIRE_UNSUPPORTED = "wire_unsupported"  # 6
    VERSION_REFUSED = "version_refused"  # 7
    FENCED = "fenced"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"  # an append elsewhere (`offset` is the right one), or bytes that are not what was declared
    EXHAUSTED = "exhausted"
    UNAVAILABLE = "unavailable"  # 75
    INTERNAL = "internal"


EXIT_CODES: dict[Refusal, int] = {
    Refusal.INVALID: 2,
    Refusal.GRANT: 4,
    Refusal.SUPERSEDED: 5,
    Refusal.WIRE_UNSUPPORTED: 6,
    Refusal.VERSION_REFUSED: 7,
}
EXIT_NOTHING_LEASED = 8
EXIT_UNREACHABLE = 75


@dataclass(frozen=True)
class Open:
    """First line of every channel. `job` and `epoch` are the credential of log, artifact, fetch and source."""

    open: Literal["control", "log", "artifact", "fetch", "source"]
    job: JobId | None = None
    epoch: Epoch | None = None
    offset: int | None = None  # log, artifact: where the first byte goes
    name: str | None = None  # artifact, fetch: the artifact
    path: str | None = None  # artifact: the file below the work folder
    size: int | None = None  # artifact
    sha256: str | None = None  # artifact
    depth: int | None = None  # source: 1.. shallow, 0 all
    haves: tuple[CommitId, ...] = ()  # source: commits the cache holds


@dataclass(frozen=True)
class ArtifactFile:
    name: str  # the artifact
    path: str  # the file below the work folder
    size: int
    sha256: str


@dataclass(frozen=True)
class Accepted:
    """The server's one line on a bulk channel before bytes flow, and again after each read of log or artifact."""

    offset: int = 0  # bytes written so far (log, artifact)
    shallow: tuple[CommitId, ...] = ()  # source: what goes into the `shallow` file; a pack follows
    files: tuple[ArtifactFile, ...] = ()  # fetch: the artifact's files; their bytes follow in this order


@dataclass(frozen=True)
class Refused:
    """No: why, and what to do. On control it ends the link; `offset` is the right one for an append elsewhere."""

    code: Refusal
    message: str
    offset: int | None = None


@dataclass(frozen=True)
class Wire:
    min: int
    max: int


@dataclass(frozen=True)
class Hello:
    """Who the runner is. Everything in it is a claim by the runner about itself."""

    version: str
    wire: Wire
    platform: str  # linux, macos
    machine: str  # x64, arm64
    python: str
    name: str
    incarnation: str  # random per process
    slots: int
    mode: Mode = "daemon"
    build: str = ""
    source: str = ""
    tree_digest: str = ""
    labels: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()  # empty: no narrowing
    only: bool = False
    instance: str | None = None


@dataclass(frozen=True)
class LeaseRef:
    job: JobId
    epoch: Epoch


@dataclass(frozen=True)
class Want:
    """A free slot asks for work; parked until there is some. The same token asked again gives the same lease."""

    slot: int
    token: str
    disk_low: bool = False


@dataclass(frozen=True)
class Started:
    job: JobId
    epoch: Epoch


@dataclass(frozen=True)
class Renewal:
    job: JobId
    epoch: Epoch
    step: int = 0
    log_bytes: int = 0
    load: float = 0.0


@dataclass(frozen=True)
class Renew:
    leases: tuple[Renewal, ...]


@dataclass(frozen=True)
class Mark:
    """A border beside the log's bytes: at `offset`, at `time_us`, this step began or ended."""

    offset: int
    time_us: int
    step: int  # 0 before the first step
    kind: Literal["begin", "end", "skipped"]
    title: str = ""


@dataclass(frozen=True)
class Marks:
    job: JobId
    epoch: Epoch
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class StepOutcome:
    number: int
    conclusion: Literal["success", "failure", "cancelled", "skipped", "timed_out"]
    name: str = ""
    exit_code: int | None = None
    signal: str | None = None
    continued: bool = False  # failed, and the file says the job goes on
    started_us: int | None = None
    finished_us: int | None = None


@dataclass(frozen=True)
class Annotation:
    level: Literal["notice", "warning", "error"]
    message: str
    file: str = ""
    line: int = 0
    step: int = 0


@dataclass(frozen=True)
class LogSeal:
    """What the runner sent: the stored log is complete when length and digest agree."""

    bytes: int
    sha256: str
    truncated: bool = False  # the job printed more than LOG_BYTES_MAX


@dataclass(frozen=True)
class Finish:
    job: JobId
    epoch: Epoch
    conclusion: Conclusion
    log: LogSeal
    reason: str = ""
    steps: tuple[StepOutcome, ...] = ()
    artifacts: tuple[ArtifactFile, ...] = ()
    outputs: dict[str, str] = field(default_factory=dict)
    annotations: tuple[Annotation, ...] = ()
    summary: str = ""


@dataclass(frozen=True)
class Handback:
    """A lease given back. Before its start nothing was lost; after it the attempt counts as a lost one."""

    job: JobId
    epoch: Epoch
    reason: str


@dataclass(frozen=True)
class Drain:
    """Either side: no new work from here on."""


@dataclass(frozen=True)
class Bye:
    """The runner ends by itself and holds nothing."""


@dataclass(frozen=True)
class Welcome:
    session: str
    ttl_s: float
    start_window_s: float
    grant: tuple[RepoName, ...]  # what this account is granted
    serves: tuple[RepoName, ...]  # grant narrowed by the filter
    server_version: str
    server_time_us: int
    server_url: str
    warnings: tuple[str, ...] = ()  # for example names of the filter that the grant lacks
    floor: str | None = None
    newest: str | None = None
    next_floor: str | None = None


@dataclass(frozen=True)
class Lease:
    job: JobId
    epoch: Epoch
    ttl_s: float


@dataclass(frozen=True)
class Job:
    """A lease offered. `plan` is the pinned document's text, so that its digest can be checked byte by byte."""

    slot: int
    token: str
    lease: Lease
    address: str  # app/12/test, for people
    key: JobKey
    plan: str
    digest: str
    context: JobContext


@dataclass(frozen=True)
class Nothing:
    """The end of a look in `once` and `ping` mode. A daemon's want stays parked and hears nothing."""

    slot: int
    token: str
    why: Literal["nothing_queued", "nothing_for_you"]


@dataclass(frozen=True)
class Renewed:
    """The leases that live on. One that was named and is not here is fenced, and gets a frame of its own.

    It also answers `started`, which counts as the first renewal: no step begins before it.
    """

    leases: tuple[LeaseRef, ...]


@dataclass(frozen=True)
class Cancel:
    job: JobId
    epoch: Epoch
    reason: Literal["cancelled", "timed_out", "fail_fast", "repository_removed", "operator"]
    grace_s: float


@dataclass(frozen=True)
class FencedLease:
    job: JobId
    epoch: Epoch


@dataclass(frozen=True)
class Finished:
    """The result is durable; the same answer to a repeat. `log` says whether the stored log is whole."""

    job: JobId
    epoch: Epoch
    log: Literal["complete", "incomplete"] = "complete"
    log_bytes: int = 0  # what is stored


@dataclass(frozen=True)
class Wait:
    """Ask again after `seconds`: the server cannot answer just now."""

    seconds: float
    reason: str


FROM_RUNNER = Vocabulary(
    hello=Hello,
    want=Want,
    started=Started,
    renew=Renew,
    marks=Marks,
    finish=Finish,
    handback=Handback,
    drain=Drain,
    bye=Bye,
)
FROM_SERVER = Vocabulary(
    welcome=Welcome,
    refused=Refused,
    job=Job,
    nothing=Nothing,
    renewed=Renewed,
    cancel=Cancel,
    fenced=FencedLease,
    finished=Finished,
    drain=Drain,
    wait=Wait,
)
ANSWERS = Vocabulary(accepted=Accepted, refused=Refused)  # on bulk channels


def opening(channel: Open) -> bytes:
    """The first line of a channel."""
    return codec.canonical(channel) + b"\n"


def read_opening(line: bytes) -> Open:
    """Raises Invalid for anything but an opening."""
    return codec.from_json(Open, codec.parse(line), where="open")
