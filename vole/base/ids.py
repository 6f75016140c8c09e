"""Names and numbers of things. Each is parsed once, at a door; past it a RepoName is a valid name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType, Self

from vole.base import limits
from vole.base.errors import Invalid

RepoId = NewType("RepoId", int)
AccountId = NewType("AccountId", int)
KeyId = NewType("KeyId", int)
PushId = NewType("PushId", int)
StartId = NewType("StartId", int)  # what starts a run without a push: a person, or a minute of a schedule
RunId = NewType("RunId", int)
JobId = NewType("JobId", int)
SessionId = NewType("SessionId", int)  # one connected runner process
RunNumber = NewType("RunNumber", int)  # 1.. per repository, never reused
Epoch = NewType("Epoch", int)  # number of an attempt: 1.. per job, never reused

# First segments of routes. A repository of such a name would hide a page; a test compares this with the router.
RESERVED_SEGMENTS = frozenset(
    {"api", "atom", "badges", "favicon.ico", "git", "healthz", "keys", "login", "logout", "metrics", "nodes", "queue"}
    | {"readyz", "robots.txt", "runners", "settings", "static", "status", "vole-admin"}
)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ADDRESS = re.compile(r"([^/@]+)/([1-9][0-9]{0,8})(?:/([^/@]+)(?:@([1-9][0-9]{0,5}))?)?")
_JOB_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}(?:\.[1-9][0-9]{0,3})?")
_GRAMMAR = "1 to {most} of a-z 0-9 . _ -, beginning with a letter or digit"


class RepoName(str):
    """A repository's name: flat, lower case, never the first segment of a route."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid with the rule that `text` breaks."""
        shown = text[:80]
        if not _NAME.fullmatch(text):
            raise Invalid(f"{shown!r} is no repository name: use {_GRAMMAR.format(most=63)}")
        if ".." in text or text.endswith((".git", ".lock")):
            raise Invalid(f"{shown!r} is no repository name: no '..' inside, no '.git' or '.lock' at the end")
        if text in RESERVED_SEGMENTS:
            raise Invalid(f"{shown!r} is taken by a page of the server; choose another repository name")
        return cls(text)


class AccountName(str):
    """An account's name."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid with the rule that `text` breaks."""
        if len(text) > limits.ACCOUNT_NAME_MAX or not _NAME.fullmatch(text):
            raise Invalid(f"{text[:80]!r} is no account name: use {_GRAMMAR.format(most=limits.ACCOUNT_NAME_MAX)}")
        return cls(text)


class RefName(str):
    """A full ref name (`refs/heads/main`). git has checked its form; we ask for UTF-8 and a bounded length."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: bytes | str) -> Self:
        """Raises Invalid for a ref outside `refs/`, over the bound, or not UTF-8 (docs/decisions/0004)."""
        if isinstance(raw, str):
            raw = raw.encode("utf-8", "surrogateescape")
        if len(raw) > limits.REF_NAME_BYTES_MAX:
            raise Invalid(f"ref name of {len(raw)} bytes; at most {limits.REF_NAME_BYTES_MAX} (REF_NAME_BYTES_MAX)")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid(f"ref name {raw!r} is not UTF-8; rename the ref and push again") from None
        if not text.startswith("refs/") or "\n" in text or "\0" in text:
            raise Invalid(f"{text[:80]!r} is no full ref name")
        return cls(text)

    @property
    def kind(self) -> str:
        """`branch`, `tag` or `other`."""
        if self.startswith("refs/heads/"):
            return "branch"
        return "tag" if self.startswith("refs/tags/") else "other"

    @property
    def short(self) -> str:
        """The name without `refs/heads/` or `refs/tags/`."""
        return self.split("/", 2)[2] if self.kind != "other" else str(self)


class CommitId(str):
    """An object id: forty lower-case hex digits (SHA-1)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid for anything but forty lower-case hex digits."""
        if not _COMMIT.fullmatch(text):
            raise Invalid(f"{text[:80]!r} is no commit id: forty lower-case hex digits")
        return cls(text)


class JobKey(str):
    """A job's key within its run: its id, or `id.N` for the Nth of a matrix."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid for text that can be no job key."""
        if not _JOB_KEY.fullmatch(text):
            raise Invalid(f"{text[:80]!r} is no job key: a job's id, or id.N for a matrix job")
        return cls(text)


@dataclass(frozen=True)
class Address:
    """A run `app/12`, a job `app/12/test`, an attempt `app/12/test@2`: said the same way everywhere."""

    repo: RepoName
    run: RunNumber
    job: JobKey | None = None
    epoch: Epoch | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid for text that addresses nothing."""
        found = _ADDRESS.fullmatch(text)
        if not found:
            raise Invalid(f"{text[:80]!r} is no address; a run is app/12, a job app/12/test, an attempt app/12/test@2")
        repo, run, job, epoch = found.groups()
        return cls(
            RepoName.parse(repo),
            RunNumber(int(run)),
            None if job is None else JobKey.parse(job),
            None if epoch is None else Epoch(int(epoch)),
        )

    def __str__(self) -> str:
        job = "" if self.job is None else f"/{self.job}"
        return f"{self.repo}/{self.run}{job}" + ("" if self.epoch is None else f"@{self.epoch}")
