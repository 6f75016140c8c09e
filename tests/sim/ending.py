"""What is asked once a history is over: pushes and their runs, logs, and who ran what at the same time."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.sim.forge import MAIN
from vole.base.ids import Epoch, JobKey, RepoName, RunNumber
from vole.evidence.logs import LogKey
from vole.jobs.model import EndCause
from vole.wire.runner import LeaseRef

if TYPE_CHECKING:
    from tests.sim.checker import Checker


class Moved:
    """The refs that git moved for one push, each with its place in the order of all moves."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.at: dict[str, int] = {}

    def add(self, ref: str) -> None:
        self._checker.moved_count += 1
        self.at[ref] = self._checker.moved_count


def check(checker: Checker) -> None:
    _pushes(checker)
    _order_of_runs(checker)
    _commits_are_kept(checker)
    _logs(checker)
    _overlaps(checker)


def _pushes(checker: Checker) -> None:
    """I-27, I-29, I-30, I-31: one set of runs for each ref that moved, as it was judged; none for any other."""
    runs, again = _runs_of_pushes(checker)
    there = {row["id"]: row for row in checker.db.execute("SELECT * FROM pushes")}
    for push in runs.keys() - checker.told.keys() - _starts(checker, runs):
        checker.breaks("I-27", f"push {push} has runs, and no verdict let it in")
    for push, told in checker.told.items():
        row = there.get(push)
        if row is None:
            continue  # it went with its repository
        if row["state"] == "intended":
            if not checker.world.life.store.dead:
                checker.breaks("I-29", f"push {push} was not settled")
            continue
        wanted = {at for at, plan in enumerate(told.plans) if plan.ref in told.moved.at}
        if runs[push].keys() != wanted:
            checker.breaks("I-27", f"push {push} has the runs {sorted(runs[push])}, its refs want {sorted(wanted)}")
        for at in wanted & runs[push].keys():
            _as_judged(checker, told.plans[at], runs[push][at])
    _reruns(checker, again)


def _runs_of_pushes(checker: Checker) -> tuple[dict[int, dict[int, Any]], list[Any]]:
    """The first runs by push and plan; the reruns."""
    runs: defaultdict[int, dict[int, Any]] = defaultdict(dict)
    again = []
    for row in checker.db.execute("SELECT * FROM runs ORDER BY id"):
        if row["rerun_of"] is not None:
            again.append(row)
            continue
        if row["push_ordinal"] in runs[row["push_id"]]:
            checker.breaks("I-27", f"push {row['push_id']} has two runs of plan {row['push_ordinal']}")
        runs[row["push_id"]][row["push_ordinal"]] = row
    return runs, again


def _starts(checker: Checker, runs: dict[int, dict[int, Any]]) -> set[int]:
    """Each start by a person or the clock has one run, each minute of a schedule one start; who was told has theirs."""
    starts = checker.db.execute("SELECT * FROM starts").fetchall()
    for one in starts:
        (run,) = runs.get(one["id"], {}).values() or (None,)
        event = None if run is None else json.loads(run["event"])
        if event is None or event["name"] != ("manual" if one["due_at"] is None else "schedule"):
            checker.breaks("a start", f"{tuple(one)} has the run {event}")
        elif one["due_at"] is not None and (one["due_at"] % 60_000_000 or one["started_at"] < one["due_at"]):
            checker.breaks("a start", f"{tuple(one)} is not at its minute")
        elif one["due_at"] is not None and run["ref"] != MAIN:
            checker.breaks("a start", f"{tuple(one)} started {run['ref']}")
    there = {run["id"]: run["ref"] for found in runs.values() for run in found.values()}
    for ident, ref in checker.begun:
        if there.get(ident) != ref:
            checker.breaks("a start", f"run {ident} of {ref} was begun, its row says {there.get(ident)}")
    return _started(checker, runs, {one["id"] for one in starts})


def _started(checker: Checker, runs: dict[int, dict[int, Any]], starts: set[int]) -> set[int]:
    """What started the runs that no push did. It goes with its repository, its runs stay."""
    repos = {row["id"] for row in checker.db.execute("SELECT id FROM repos")}
    began = set()
    for run in [run for found in runs.values() for run in found.values()]:
        if json.loads(run["event"])["name"] != "push":
            began.add(run["push_id"])
            if run["push_id"] not in starts and run["repo_id"] in repos:
                checker.breaks("a start", f"run {run['id']} was started by nobody")
    return began


_SAME_OF_RERUNS = ("repo_id", "push_id", "push_ordinal", "ref", "commit_id", "concurrency")


def _reruns(checker: Checker, again: list[Any]) -> None:
    """Each is the next of its chain, one for each run, and of the same pinned documents."""
    chains = set()
    for run in again:
        old = checker.db.execute("SELECT * FROM runs WHERE id = ?", (run["rerun_of"],)).fetchone()
        same = [key for key in _SAME_OF_RERUNS if old[key] != run[key]]
        if same or run["attempt"] != old["attempt"] + 1 or old["state"] != "finished":
            checker.breaks("a rerun", f"run {run['id']} is not the next of {old['id']}: {same}")
        if old["id"] in chains:
            checker.breaks("a rerun", f"run {old['id']} was run again twice")
        chains.add(old["id"])
        if (told := checker.told.get(run["push_id"])) is not None:
            _as_judged(checker, told.plans[run["push_ordinal"]], run)


def _as_judged(checker: Checker, plan: Any, run: Any) -> None:
    jobs = [] if plan.skipped else [(job.key, job.document().decode()) for job in plan.jobs]
    found = checker.db.execute(
        "SELECT j.id, j.key, d.document FROM jobs j JOIN job_documents d ON d.job_id = j.id "
        "WHERE j.run_id = ? ORDER BY j.ordinal",
        (run["id"],),
    ).fetchall()
    stored = [(row["key"], row["document"]) for row in found if row["id"] not in checker.damaged]
    wanted = [one for row, one in zip(found, jobs, strict=False) if row["id"] not in checker.damaged]
    if stored != wanted or len(found) != len(jobs) or run["commit_id"] != plan.commit:
        checker.breaks("I-30", f"run {run['id']} is not what was judged at its push")


def _order_of_runs(checker: Checker) -> None:
    """I-32: runs of a branch come in the order in which its ref moved."""
    last: dict[tuple[int, str], int] = {}
    for row in checker.db.execute(
        "SELECT repo_id, ref, push_id, number FROM runs WHERE rerun_of IS NULL ORDER BY repo_id, number"
    ):
        told = checker.told.get(row["push_id"])
        if told is None or row["ref"] not in told.moved.at:
            continue
        at, key = told.moved.at[row["ref"]], (row["repo_id"], row["ref"])
        if at < last.get(key, 0):
            checker.breaks("I-32", f"run {row['number']} of {row['ref']} comes after a run of a later move")
        last[key] = at


def _commits_are_kept(checker: Checker) -> None:
    """I-28: what a job needs is held in its repository."""
    for row in checker.db.execute(
        "SELECT r.commit_id, p.name FROM runs r JOIN repos p ON p.id = r.repo_id WHERE r.reason = '' "
        "AND EXISTS (SELECT 1 FROM jobs j WHERE j.run_id = r.id)"
    ):
        repo = row["name"]
        if repo in checker.world.git.refs and row["commit_id"] not in checker.world.git.kept[repo]:
            checker.breaks("I-28", f"commit {row['commit_id']} of {repo} has jobs and is not kept")


def _logs(checker: Checker) -> None:
    """I-33 to I-35: what is stored is a prefix of what its runner sent, and whole where it says so."""
    logs = checker.world.life.logs
    for row in checker.db.execute(
        "SELECT a.job_id, a.epoch, a.log_state, a.log_declared, j.key, r.number, p.name FROM attempts a "
        "JOIN jobs j ON j.id = a.job_id JOIN runs r ON r.id = j.run_id JOIN repos p ON p.id = j.repo_id "
    ):
        key = LogKey(RepoName(row["name"]), RunNumber(row["number"]), JobKey(row["key"]), Epoch(row["epoch"]))
        spooled = checker.spooled.get(LeaseRef(row["job_id"], row["epoch"]), b"")
        if not spooled and row["log_state"] != "complete":
            continue
        stored = logs.read(key, 0, 1_000)
        if not spooled.startswith(stored):
            checker.breaks("I-33", f"the log of {row['job_id']}@{row['epoch']} is not what its runner sent")
        if row["log_state"] == "complete" and len(stored) != row["log_declared"]:
            checker.breaks("I-34", f"the log of {row['job_id']}@{row['epoch']} is complete without its end")


def _overlaps(checker: Checker) -> None:
    """I-25: where a lease expired, its steps had ended before those of the next attempt began."""
    if checker.world.wild:
        return  # a keeper whose answers come doubled counts them wrongly, which no SSH connection does to it
    expired = {
        (row["job_id"], row["epoch"])
        for row in checker.db.execute("SELECT job_id, epoch FROM attempts WHERE end_cause = ?", (EndCause.EXPIRED,))
    }
    spans = {(lease.job, lease.epoch): (begun, ended) for lease, begun, ended in checker.executions}
    for (job, epoch), (_, ended) in spans.items():
        following = spans.get((job, epoch + 1))  # type: ignore[arg-type]
        if (job, epoch) in expired and following is not None and following[0] < ended:
            checker.breaks("I-25", f"{job}@{epoch} still ran when {job}@{epoch + 1} had begun")
