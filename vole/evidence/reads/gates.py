"""Which gates a repository has, where the evidence for a commit would stand, and statuses. Jobs, runs and pushes belong
to other rooms: reads only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import Moment
from vole.base.ids import AccountName, CommitId, Epoch, JobKey, RefName, RepoId, RunNumber
from vole.evidence.gates import Demand, Gate, JobSeen, Requirement, RunSeen
from vole.evidence.model import Status
from vole.store.database import Row, View

# The newest run that has jobs decides; without one, that its filter left it out; what was asked to be skipped is last.
_RUN = """
SELECT r.id, r.number, r.state, r.conclusion, r.reason
FROM runs r
WHERE r.repo_id = :repo AND r.commit_id = :commit AND r.workflow_path = :path AND r.workflow_blob = :blob
  AND (:before IS NULL OR r.created_at <= :before)
ORDER BY r.reason = 'skip_ci', r.reason = 'filter', +r.number DESC
LIMIT 1"""
_JOBS = """
SELECT j.key, j.state, j.conclusion, coalesce(ran.epoch, j.epoch) AS epoch, coalesce(o.number, :number) AS number
FROM jobs j
LEFT JOIN jobs ran ON ran.id = j.carried_of
LEFT JOIN runs o ON o.id = ran.run_id
WHERE j.run_id = :run"""
_STATUSES = """
SELECT commit_id, context, state, target_url, description, account, created_at, updated_at
FROM statuses
WHERE repo_id = :repo AND commit_id = :commit
ORDER BY context"""
_MOVES = """
SELECT u.old, u.new, p.received_at, p.account
FROM pushes p
JOIN push_updates u ON u.push_id = p.id
WHERE p.repo_id = :repo AND p.received_at >= :since AND u.ref = :ref AND u.moved = 1
ORDER BY p.received_at DESC, p.id DESC
LIMIT :most"""


@dataclass(frozen=True)
class Moved:
    """A push that moved a branch."""

    old: CommitId | None
    new: CommitId | None
    at: Moment
    by: AccountName


async def gates_of(view: View, repo: RepoId) -> list[Gate]:
    """The gates of a repository, by pattern."""
    found = await view.all(
        "SELECT pattern, requires, set_by, set_at FROM gates WHERE repo_id = :repo ORDER BY pattern", repo=repo
    )
    return [
        Gate(
            row["pattern"],
            tuple(map(Requirement.parse, json.loads(row["requires"]))),
            AccountName(row["set_by"]),
            Moment(row["set_at"]),
        )
        for row in found
    ]


async def runs_for(
    view: View, repo: RepoId, commit: CommitId, demands: Iterable[Demand], before: Moment | None
) -> dict[tuple[str, CommitId], RunSeen]:
    """The run that decides for each workflow that `demands` name, by its path and blob; `before`: as of that moment."""
    seen: dict[tuple[str, CommitId], RunSeen] = {}
    for path, blob in dict.fromkeys((demand.path, demand.blob) for demand in demands):
        row = await view.one(_RUN, repo=repo, commit=commit, path=path, blob=blob, before=before)
        if row is not None:
            jobs = await view.all(_JOBS, run=row["id"], number=row["number"])
            seen[path, blob] = RunSeen(
                RunNumber(row["number"]), row["state"], row["conclusion"], row["reason"], tuple(map(_job, jobs))
            )
    return seen


async def statuses_of(view: View, repo: RepoId, commit: CommitId) -> list[Status]:
    """What outside systems say of a commit, by context."""
    return [
        Status(
            CommitId(row["commit_id"]),
            row["context"],
            row["state"],
            row["target_url"],
            row["description"],
            AccountName(row["account"]),
            Moment(row["created_at"]),
            Moment(row["updated_at"]),
        )
        for row in await view.all(_STATUSES, repo=repo, commit=commit)
    ]


async def moves_of(view: View, repo: RepoId, ref: RefName, since: Moment) -> list[Moved]:
    """The pushes that moved a branch since a moment, newest first; at most GATE_AUDIT_COMMITS_MAX."""
    found = await view.all(_MOVES, repo=repo, ref=ref, since=since, most=limits.GATE_AUDIT_COMMITS_MAX)
    return [
        Moved(
            row["old"] and CommitId(row["old"]),
            row["new"] and CommitId(row["new"]),
            Moment(row["received_at"]),
            AccountName(row["account"]),
        )
        for row in found
    ]


def _job(row: Row) -> JobSeen:
    return JobSeen(JobKey(row["key"]), row["state"], row["conclusion"], RunNumber(row["number"]), Epoch(row["epoch"]))
