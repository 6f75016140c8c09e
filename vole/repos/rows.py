"""SQL text and row-to-value functions of repositories and pushes. Never runs a statement."""

from __future__ import annotations

import json
from collections.abc import Iterable

from vole.base.clock import Moment
from vole.base.ids import AccountName, CommitId, PushId, RefName, RepoId, RepoName
from vole.repos.model import OpenIntent, PinnedRun, Repo, Schedule, SeenRef
from vole.store.database import Row
from vole.wire import codec
from vole.wire.hook import RefUpdate
from vole.wire.plan import RunPlan

REPO = "SELECT id, name, public, description, created_at FROM repos"
OPEN = (
    "SELECT p.id, p.repo_id, r.name AS repo_name, p.account, p.received_at "
    "FROM pushes p JOIN repos r ON r.id = p.repo_id WHERE p.state = 'intended'"
)
UPDATES = "SELECT ordinal, ref, old, new FROM push_updates WHERE push_id = :push ORDER BY ordinal"
RUNS = "SELECT ordinal, ref, document FROM push_runs WHERE push_id = :push ORDER BY ordinal"
# The newest moved update of each ref: push ids sort by time.
SEEN = (
    "SELECT u.ref, u.new, max(u.push_id) FROM push_updates u JOIN pushes p ON p.id = u.push_id "
    "WHERE p.repo_id = :repo AND u.moved = 1 GROUP BY u.ref"
)

SCHEDULE = """
SELECT s.repo_id, r.name AS repo_name, s.workflow_path, s.times, s.next_at, s.problem
FROM schedules s
JOIN repos r ON r.id = s.repo_id"""
UNREAD = """
SELECT m.repo_id, r.name AS repo_name, m.marked
FROM schedule_reads m
JOIN repos r ON r.id = m.repo_id
WHERE m.marked > m.seen"""


def repo(row: Row) -> Repo:
    return Repo(
        RepoId(row["id"]),
        RepoName(row["name"]),
        bool(row["public"]),
        row["description"],
        Moment(row["created_at"]),
    )


def update(row: Row) -> RefUpdate:
    old, new = row["old"], row["new"]
    return RefUpdate(RefName(row["ref"]), old and CommitId(old), new and CommitId(new))


def pinned(row: Row) -> PinnedRun:
    """Raises Invalid for a document that this version does not understand whole."""
    return PinnedRun(row["ordinal"], codec.from_json(RunPlan, codec.parse(row["document"])))


def intent(row: Row, updates: Iterable[Row], runs: Iterable[Row]) -> OpenIntent:
    return OpenIntent(
        PushId(row["id"]),
        RepoId(row["repo_id"]),
        RepoName(row["repo_name"]),
        AccountName(row["account"]),
        Moment(row["received_at"]),
        tuple(update(found) for found in updates),
        tuple(pinned(found) for found in runs),
    )


def seen(row: Row) -> SeenRef:
    return SeenRef(RefName(row["ref"]), row["new"])


def schedule(row: Row) -> Schedule:
    return Schedule(
        RepoId(row["repo_id"]),
        RepoName(row["repo_name"]),
        row["workflow_path"],
        tuple(json.loads(row["times"])),
        Moment(row["next_at"]),
        row["problem"],
    )
