"""Forgetting finished runs with their jobs, attempts and events. What was forgotten is counted; records stay in git."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from vole.base.ids import RepoId, RunId
from vole.store.database import Tx

_THESE = "SELECT value FROM json_each(:runs)"


def is_settled(tx: Tx, run: RunId) -> bool:
    """Whether the run is finished and all its records stand in git."""
    owed = "SELECT 1 FROM record_outbox b WHERE b.run_id = r.id"
    found = tx.one(f"SELECT 1 FROM runs r WHERE r.id = :run AND r.state = 'finished' AND NOT EXISTS ({owed})", run=run)
    return found is not None


def prunable(tx: Tx, runs: Iterable[RunId]) -> list[RunId]:
    """Those of `runs` that are finished, owe no record, and that no newer run repeats."""
    found = tx.all(
        f"""
        SELECT r.id
        FROM runs r
        WHERE r.id IN ({_THESE})
          AND r.state = 'finished'
          AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.rerun_of = r.id)
          AND NOT EXISTS (SELECT 1 FROM record_outbox b WHERE b.run_id = r.id)""",
        runs=json.dumps(list(runs)),
    )
    return [RunId(row["id"]) for row in found]


def prune(tx: Tx, runs: Iterable[RunId]) -> int:
    """Forget these runs, which are `prunable`; how many jobs they had. Other rooms drop theirs before."""
    these = {"runs": json.dumps(list(runs))}
    jobs = Counter(row["repo_id"] for row in tx.all(f"SELECT repo_id FROM jobs WHERE run_id IN ({_THESE})", **these))
    tx.run(f"DELETE FROM events WHERE run_id IN ({_THESE})", **these)
    gone = Counter(
        RepoId(row["repo_id"]) for row in tx.all(f"DELETE FROM runs WHERE id IN ({_THESE}) RETURNING repo_id", **these)
    )
    for repo, count in gone.items():
        tx.run(
            "UPDATE run_numbers SET pruned = pruned + :runs, pruned_jobs = pruned_jobs + :jobs WHERE repo_id = :repo",
            runs=count,
            jobs=jobs[repo],
            repo=repo,
        )
    return jobs.total()
