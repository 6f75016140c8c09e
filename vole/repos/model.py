"""What is hosted, and what a push means to do before git moves a ref. Never reads git objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vole.base.clock import Moment
from vole.base.ids import AccountName, PushId, RefName, RepoId, RepoName, RunNumber
from vole.wire.documents import GateDocument
from vole.wire.hook import RefUpdate
from vole.wire.plan import RunPlan


@dataclass(frozen=True)
class Repo:
    id: RepoId
    name: RepoName
    public: bool
    description: str
    created_at: Moment


@dataclass(frozen=True)
class Intent:
    """What a push means to do: ref updates in the pusher's order, and the runs they start, pinned."""

    repo: RepoId
    account: AccountName
    key_fingerprint: str
    options: tuple[str, ...]
    updates: tuple[RefUpdate, ...]
    runs: tuple[RunDocument, ...]


@dataclass(frozen=True)
class RunDocument:
    """A run to be, written down: `text` is the canonical JSON of its plan."""

    ref: RefName
    text: str


@dataclass(frozen=True)
class PinnedRun:
    """A run of an intent. `ordinal` is its place in the push: with the push's id it makes the run once."""

    ordinal: int
    plan: RunPlan


@dataclass(frozen=True)
class OpenIntent:
    """An intent that is neither confirmed nor dropped."""

    push: PushId
    repo: RepoId
    repo_name: RepoName
    account: AccountName
    received_at: Moment
    updates: tuple[RefUpdate, ...]
    runs: tuple[PinnedRun, ...]


@dataclass(frozen=True)
class Schedule:
    """When a workflow of the default branch starts by itself. `problem`: why its last time started nothing."""

    repo: RepoId
    repo_name: RepoName
    path: str
    times: tuple[str, ...]  # cron lines
    next_at: Moment
    problem: str


@dataclass(frozen=True)
class UnreadSchedules:
    """A repository whose schedules may be other ones now. `marked`: how often that was said."""

    repo: RepoId
    repo_name: RepoName
    marked: int


@dataclass(frozen=True)
class SeenRef:
    """Where a ref was after the last push that moved it. `None`: deleted."""

    ref: RefName
    at: str | None


@dataclass(frozen=True)
class RepositoryDocument:
    """A repository and its settings as `vole-admin.git` has them. A setting that comes later has a default here."""

    id: str
    name: RepoName
    public: bool
    description: str
    created_at: Moment
    next_run: RunNumber  # as of the writing: every hundredth is written
    gates: tuple[GateDocument, ...] = ()


@dataclass(frozen=True)
class Origin:
    """What a run came from: a push, a person who started it, or (`due_at`) a minute of its schedule."""

    id: int  # of the push or the start
    repo: RepoId
    workflow_path: str
    account: AccountName | None
    at: Moment
    due_at: Moment | None
    pushed: bool


@dataclass(frozen=True)
class OwedDocument:
    """A row of the outbox of `vole-admin.git`: the document that is owed."""

    row: int
    kind: Literal["account", "repository", "labels"]
    name: str
