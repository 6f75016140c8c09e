"""What came of a job, as values: its log's place, its files, what may be stored of them. Touches no file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Conflict, Exhausted, Invalid
from vole.base.ids import AccountName, CommitId, Epoch, JobId, JobKey, RepoId, RepoName, RunNumber
from vole.wire.runner import ArtifactFile

_SHA256 = re.compile(r"[0-9a-f]{64}")


class WrongOffset(Conflict):
    """Bytes for another place than the end of what is stored; `offset` is the right one."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the next byte goes to offset {offset}", code="wrong_offset")
        self.offset = offset


@dataclass(frozen=True)
class LogKey:
    """An attempt's log: it lies at `<repository>/<run>/<job key>/<epoch>`."""

    repo: RepoName
    run: RunNumber
    job: JobKey
    epoch: Epoch


@dataclass(frozen=True)
class Upload:
    """A file on its way in: bytes of one attempt never mix with another's."""

    repo: RepoId
    job: JobId
    epoch: Epoch
    file: ArtifactFile


StatusState = Literal["pending", "success", "failure", "error"]


@dataclass(frozen=True)
class Status:
    """What an outside system says of a commit. Only data: pages show it, and a gate counts it only if it names it."""

    commit: CommitId
    context: str
    state: StatusState
    target_url: str
    description: str
    account: AccountName
    created_at: Moment
    updated_at: Moment


def check_file(file: ArtifactFile) -> None:
    """Raises Invalid for a file that may not be stored, Exhausted for one over its bound. Its path is only data."""
    if not _SHA256.fullmatch(file.sha256):
        raise Invalid(f"artifact {file.name!r}: {file.sha256[:80]!r} is no SHA-256")
    parts = file.path.split("/")
    bad_path = {"", ".", ".."} & set(parts) or len(file.path.encode()) > limits.ARTIFACT_PATH_BYTES_MAX
    if bad_path or "\0" in file.path or not file.name or len(file.name) > limits.TEXT_CHARS_MAX:
        raise Invalid(f"artifact {file.name[:80]!r}: {file.path[:80]!r} is no path below the work folder")
    if file.size < 0:
        raise Invalid(f"artifact {file.name!r}: a size of {file.size} bytes")
    if file.size > limits.ARTIFACT_BYTES_MAX:
        most = limits.ARTIFACT_BYTES_MAX
        raise Exhausted(f"artifact {file.name!r}: {file.size} bytes; at most {most} (ARTIFACT_BYTES_MAX)")
