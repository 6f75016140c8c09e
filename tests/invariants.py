"""The queue's invariants, asked of the event log and the tables alone. `check` raises with every one that is broken."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from vole.jobs.model import HELD, MOVES, Conclusion, EndCause, Happening, State, run_state
from vole.wire.plan import job_digest


@dataclass
class Replayed:
    """A job as its events alone tell it."""

    state: State | None = None
    epoch: int = 0
    conclusion: str | None = None
    results: Counter[int] = field(default_factory=Counter)  # accepted results by epoch
    ended: dict[int, str] = field(default_factory=dict)  # epoch → cause
    leased: list[int] = field(default_factory=list)


def check(connection: sqlite3.Connection, *, cap: int | None = None, spared: frozenset[int] = frozenset()) -> None:
    """Raise AssertionError naming each invariant that does not hold (docs/invariants.md).

    `spared`: jobs whose rows a test has damaged on purpose.
    """
    connection.row_factory = sqlite3.Row
    broken: list[str] = []
    jobs = {row["id"]: row for row in connection.execute("SELECT * FROM jobs")}
    replayed = _replay(connection, broken)
    _compare(connection, jobs, replayed, broken)
    _pinned(connection, spared, broken)
    _leases(connection, jobs, replayed, broken)
    _runs(connection, jobs, broken)
    _bounds(connection, cap, broken)
    _strict_groups(connection, broken)
    _lines_of_groups(connection, broken)
    _outbox(connection, broken)
    assert not broken, "\n".join(broken)


def all_owed(connection: sqlite3.Connection) -> None:
    """Of a store whose records nobody writes: each attempt that ran and is over, and each run that is, is owed one."""
    missing = connection.execute(f"{_RECORDED} EXCEPT SELECT run_id, job_id, epoch FROM record_outbox").fetchall()
    assert not missing, f"I-36: no record is owed of (run, job, epoch) {[tuple(row) for row in missing]}"


# A repository that is removed forgets its labels in the same change: nothing of it is owed any more.
_RECORDED = """
SELECT j.run_id, a.job_id, a.epoch
FROM attempts a
JOIN jobs j ON j.id = a.job_id
JOIN run_labels l ON l.job_id = j.id
WHERE a.ended_at IS NOT NULL AND a.started_at IS NOT NULL
UNION ALL
SELECT r.id, NULL, NULL
FROM runs r
WHERE r.state = 'finished'
  AND (
    (r.reason <> '' AND r.repo_id IN (SELECT id FROM repos))
    OR EXISTS (SELECT 1 FROM jobs j JOIN run_labels l ON l.job_id = j.id WHERE j.run_id = r.id)
  )"""


def _outbox(connection: sqlite3.Connection, broken: list[str]) -> None:
    owed = [tuple(row) for row in connection.execute("SELECT run_id, job_id, epoch FROM record_outbox")]
    over = {tuple(row) for row in connection.execute(_RECORDED)} if owed else set()
    broken += [f"I-36: {row} is owed {n} records" for row, n in Counter(owed).items() if n > 1 or row not in over]


def _replay(connection: sqlite3.Connection, broken: list[str]) -> dict[int, Replayed]:
    jobs: defaultdict[int, Replayed] = defaultdict(Replayed)
    for row in connection.execute("SELECT * FROM events WHERE job_id IS NOT NULL ORDER BY id"):
        if row["kind"] not in set(Happening):
            continue
        job, detail = jobs[row["job_id"]], json.loads(row["detail"])
        happening, to = Happening(row["kind"]), State(detail["to"])
        if to not in MOVES.get((job.state, happening), ()):
            broken.append(f"I-01: job {row['job_id']} went {job.state} -{happening}-> {to}")
        if job.state in HELD and to not in HELD:
            _end(job, row, detail, broken)
        if happening is Happening.LEASED:
            job.leased.append(row["epoch"])
        job.state, job.epoch = to, row["epoch"]
        job.conclusion = detail.get("conclusion")
    return jobs


def _end(job: Replayed, row: sqlite3.Row, detail: dict[str, str], broken: list[str]) -> None:
    if detail.get("cause") not in set(EndCause):
        broken.append(f"I-14: the lease {row['epoch']} of job {row['job_id']} ended without a cause")
    if job.epoch in job.ended:
        broken.append(f"I-03: the lease {row['epoch']} of job {row['job_id']} ended twice")
    job.ended[job.epoch] = str(detail.get("cause"))
    if detail.get("cause") == EndCause.FINISHED:
        job.results[job.epoch] += 1


def _compare(
    connection: sqlite3.Connection, jobs: dict[int, sqlite3.Row], replayed: dict[int, Replayed], broken: list[str]
) -> None:
    if jobs.keys() != replayed.keys():
        broken.append(f"I-22: jobs of rows and of events differ by {sorted(jobs.keys() ^ replayed.keys())}")
    for key in jobs.keys() & replayed.keys():
        row, told = jobs[key], replayed[key]
        if (row["state"], row["epoch"], row["conclusion"]) != (told.state, told.epoch, told.conclusion):
            broken.append(
                f"I-21: job {key} is {row['state']}@{row['epoch']} {row['conclusion']}, its events say {told}"
            )
        if told.leased != list(range(1, len(told.leased) + 1)):
            broken.append(f"I-04: job {key} had the epochs {told.leased}")
        if sum(told.results.values()) > 1:
            broken.append(f"I-06/I-07: job {key} took results at {dict(told.results)}")
        if row["losses"] > 3:
            broken.append(f"I-19: job {key} lost {row['losses']} attempts")


def _pinned(connection: sqlite3.Connection, spared: frozenset[int], broken: list[str]) -> None:
    for row in connection.execute(
        "SELECT d.job_id, d.document, j.digest FROM job_documents d JOIN jobs j ON j.id = d.job_id"
    ):
        if row["job_id"] not in spared and job_digest(row["document"].encode()) != row["digest"]:
            broken.append(f"I-09: the document of job {row['job_id']} is not the one that was pinned")


def _leases(
    connection: sqlite3.Connection, jobs: dict[int, sqlite3.Row], replayed: dict[int, Replayed], broken: list[str]
) -> None:
    attempts: defaultdict[int, list[sqlite3.Row]] = defaultdict(list)
    for row in connection.execute("SELECT * FROM attempts ORDER BY job_id, epoch"):
        attempts[row["job_id"]].append(row)
    for key, row in jobs.items():
        mine = attempts[key]
        live = [attempt for attempt in mine if attempt["ended_at"] is None]
        if bool(live) != (row["state"] in HELD) or len(live) > 1:
            broken.append(f"I-03: job {key} is {row['state']} with {len(live)} live attempts")
        if live and live[0]["epoch"] != row["epoch"]:
            broken.append(f"I-04: job {key} is at epoch {row['epoch']}, its live attempt at {live[0]['epoch']}")
        if [attempt["epoch"] for attempt in mine] != replayed[key].leased:
            broken.append(f"I-21: job {key} has attempts that its events do not tell")
        for attempt in mine:
            if attempt["ended_at"] is not None and replayed[key].ended.get(attempt["epoch"]) != attempt["end_cause"]:
                broken.append(
                    f"I-14: attempt {key}@{attempt['epoch']} ended by {attempt['end_cause']}, not so in its events"
                )
            if attempt["result_digest"] is not None and attempt["log_state"] == "open":
                broken.append(f"I-34: attempt {key}@{attempt['epoch']} has a result and an open log")


def _runs(connection: sqlite3.Connection, jobs: dict[int, sqlite3.Row], broken: list[str]) -> None:
    of_run: defaultdict[int, list[sqlite3.Row]] = defaultdict(list)
    for row in jobs.values():
        of_run[row["run_id"]].append(row)
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for run in connection.execute("SELECT * FROM runs ORDER BY id"):
        numbers[run["repo_id"]].append(run["number"])
        if run["reason"]:
            continue
        pairs = [
            (State(row["state"]), None if row["conclusion"] is None else Conclusion(row["conclusion"]))
            for row in of_run[run["id"]]
        ]
        if (run["state"], run["conclusion"]) != run_state(pairs):
            broken.append(f"the run {run['id']} is {run['state']} {run['conclusion']}, its jobs say {run_state(pairs)}")
    given = {row["repo_id"]: row for row in connection.execute("SELECT * FROM run_numbers")}
    for repo, found in numbers.items():
        row = given[repo]
        if found != sorted(set(found)) or found[-1] >= row["next"]:
            broken.append(f"the runs of repository {repo} are numbered {found}, the next is {row['next']}")
        if row["next"] - 1 != len(found) + row["pruned"] + row["skipped"]:
            broken.append(f"I-22: {len(found)} runs of repository {repo}, {dict(row)}")
    for run_id in of_run:
        _waits(of_run[run_id], connection, broken)


def _waits(jobs: list[sqlite3.Row], connection: sqlite3.Connection, broken: list[str]) -> None:
    """Nobody waits for what is done: a blocked job has an unfinished need, a full matrix or a group that is taken."""
    for row in jobs:
        if row["state"] != State.BLOCKED or row["set_aside"] is not None:
            continue
        needs = {
            need["needs"] for need in connection.execute("SELECT needs FROM job_needs WHERE job_id = ?", (row["id"],))
        }
        open_needs = [other for other in jobs if other["job"] in needs and other["state"] != State.FINISHED]
        beside = [other for other in jobs if other["job"] == row["job"] and other["state"] in HELD | {State.QUEUED}]
        in_line = connection.execute(
            "SELECT 1 FROM group_places WHERE run_id = ? AND coalesce(job_id, ?) = ? AND held_at IS NULL",
            (row["run_id"], row["id"], row["id"]),
        ).fetchone()
        if not open_needs and not beside and not in_line:
            broken.append(f"I-12: job {row['id']} is blocked by nothing")


def _bounds(connection: sqlite3.Connection, cap: int | None, broken: list[str]) -> None:
    held = "('leased', 'running', 'cancelling')"
    for row in connection.execute(f"SELECT repo_id, COUNT(*) AS n FROM jobs WHERE state IN {held} GROUP BY repo_id"):
        if cap is not None and row["n"] > cap:
            broken.append(f"I-10: repository {row['repo_id']} has {row['n']} leases, its cap is {cap}")
    for row in connection.execute(
        "SELECT a.session_id, COUNT(*) AS n, r.slots FROM attempts a JOIN runners r ON r.id = a.session_id "
        "WHERE a.ended_at IS NULL GROUP BY a.session_id"
    ):
        if row["n"] > row["slots"]:
            broken.append(f"I-11: session {row['session_id']} has {row['n']} leases in {row['slots']} slots")


def _strict_groups(connection: sqlite3.Connection, broken: list[str]) -> None:
    """At most one of a group goes on, as the pinned documents name groups: no row of a line is asked.

    What was set aside is worked on no more, and its group goes to the next once its runner has let go.
    """
    going = "('queued', 'leased', 'running', 'cancelling')"
    active: defaultdict[tuple[int, str, int], set[str]] = defaultdict(set)
    for row in connection.execute(
        f"""
        SELECT j.id, j.run_id, j.repo_id, json_extract(d.document, '$.concurrency.group') AS mine,
          json_extract(r.concurrency, '$.group') AS of_run
        FROM jobs j
        JOIN runs r ON r.id = j.run_id
        JOIN job_documents d ON d.job_id = j.id
        WHERE j.state IN {going} AND j.set_aside IS NULL"""
    ):
        if row["of_run"] is not None:
            active[row["repo_id"], row["of_run"], 0].add(f"run {row['run_id']}")
        if row["mine"] is not None:
            within = row["run_id"] if row["mine"] == row["of_run"] else 0
            active[row["repo_id"], row["mine"], within].add(f"job {row['id']}")
    broken += [f"group {key}: {sorted(names)} go on together" for key, names in active.items() if len(names) > 1]


@dataclass
class Queued:
    """A line as its events alone tell it: (run, job) of whoever has the group, and of those that wait."""

    holder: tuple[int, int | None] | None = None
    waiting: list[tuple[int, int | None]] = field(default_factory=list)


def _lines_of_groups(connection: sqlite3.Connection, broken: list[str]) -> None:
    """First come, first served; nobody waits for nobody; and the rows say what the events say."""
    told, stored = _told_lines(connection, broken), _stored_lines(connection)
    if told != stored:
        broken.append(f"I-21: the lines of groups are {stored}, their events say {told}")
    for key, line in stored.items():
        goes_on = (
            line.holder
            and connection.execute(
                "SELECT 1 FROM jobs WHERE run_id = ? AND id = coalesce(?, id) AND state <> 'finished'", line.holder
            ).fetchone()
        )
        if not goes_on:
            broken.append(f"I-12: group {key} is held by nobody that goes on, {line}")


def _told_lines(connection: sqlite3.Connection, broken: list[str]) -> dict[tuple[int, str, int], Queued]:
    lines: defaultdict[tuple[int, str, int], Queued] = defaultdict(Queued)
    for row in connection.execute("SELECT * FROM events WHERE kind LIKE 'group\\_%' ESCAPE '\\' ORDER BY id"):
        detail, who = json.loads(row["detail"]), (row["run_id"], row["job_id"])
        line = lines[row["repo_id"], detail["group"], detail["within"]]
        if row["kind"] == "group_entered":
            line.waiting.append(who)
        elif row["kind"] == "group_taken":
            if line.holder is not None or line.waiting[:1] != [who]:
                broken.append(f"group {detail}: {who} took it out of turn, {line}")
            line.waiting.remove(who)
            line.holder = who
        elif line.holder == who:
            line.holder = None
        else:
            line.waiting.remove(who)
    return {key: line for key, line in lines.items() if line.holder or line.waiting}


def _stored_lines(connection: sqlite3.Connection) -> dict[tuple[int, str, int], Queued]:
    lines: defaultdict[tuple[int, str, int], Queued] = defaultdict(Queued)
    for row in connection.execute("SELECT * FROM group_places ORDER BY place"):
        line, who = lines[row["repo_id"], row["name"], row["within"]], (row["run_id"], row["job_id"])
        if row["held_at"] is None:
            line.waiting.append(who)
        else:
            line.holder = who
    return dict(lines)
