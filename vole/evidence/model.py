"""What came of a job, as values: its log's place, its files, what may be stored of them. Touches no file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Conflict, Exhausted, Invalid
from vole.base.escape import visible
from vole.base.ids import AccountName, CommitId, Epoch, JobId, JobKey, RepoId, RepoName, RunNumber
from vole.wire.runner import ArtifactFile

_URL = re.compile(rf"https?://[!-~]{{1,{limits.STATUS_URL_CHARS_MAX - len('https://')}}}")
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


@dataclass(frozen=True)
class Reported:
    """A status on its way in."""

    state: StatusState
    context: str
    target_url: str
    description: str

    @classmethod
    def parse(cls, state: StatusState, context: str, target_url: str, description: str) -> Reported:
        """Raises Invalid, naming the field and what fits."""
        if target_url and not _URL.fullmatch(target_url):
            most = limits.STATUS_URL_CHARS_MAX
            raise Invalid(f"target_url: an http or https address of at most {most} characters (STATUS_URL_CHARS_MAX)")
        if len(description) > limits.TEXT_CHARS_MAX:
            most = limits.TEXT_CHARS_MAX
            raise Invalid(f"description: {len(description)} characters; at most {most} (TEXT_CHARS_MAX)")
        return cls(state, check_context(context), target_url, description)


def check_context(text: str) -> str:
    """The context of a status. Raises Invalid."""
    if not text or len(text) > limits.TEXT_CHARS_MAX or visible(text) != text:
        raise Invalid(f"context: 1 to {limits.TEXT_CHARS_MAX} printable characters, not '{visible(text, 80)}'")
    return text


def together(statuses: Iterable[Status]) -> StatusState:
    """What they come to: failure before pending before success; of none at all, pending."""
    states = {one.state for one in statuses}
    if states & {"failure", "error"}:
        return "failure"
    return "success" if states == {"success"} else "pending"


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
