"""The SQL that `ledger` and `reads` share, and rows as values. Decides nothing.

Grants, keys and repository names belong to other rooms; they are read here, in the transaction that leases, and
never written.
"""

from __future__ import annotations

import json

from vole.base.clock import Moment
from vole.base.errors import Invalid
from vole.base.ids import Epoch, JobId, JobKey, RepoId, RepoName, RunId, RunNumber, SessionId
from vole.jobs.index import SetId
from vole.jobs.lease import JobLease
from vole.jobs.match import Demand, Reason, Why
from vole.jobs.model import Conclusion, Held, Job, State, Told
from vole.store.database import Row

# Somebody holds the job: the words of the partial indexes of held jobs, which SQLite uses for these words only.
HELD = "deadline_at IS NOT NULL"

_JOB = """j.id, j.run_id, j.repo_id, j.job, j.key, j.state, j.epoch, j.losses, j.on_lost, j.continue_on_error,
  j.conclusion, j.ending_as, j.timeout_us, j.enqueued_at, j.deadline_at"""

JOB = f"SELECT {_JOB} FROM jobs j WHERE j.id = :job"  # noqa: S608
JOBS_OF_RUN = f"SELECT {_JOB} FROM jobs j WHERE j.run_id = :run ORDER BY j.ordinal"  # noqa: S608
JOBS_OF_REPO = f"SELECT {_JOB} FROM jobs j WHERE j.repo_id = :repo AND j.state <> 'finished' ORDER BY j.id"  # noqa: S608

# A job with its live attempt, if it has one.
HELD_JOB = f"""
SELECT {_JOB}, a.session_id
FROM jobs j
LEFT JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
WHERE j.id = :job"""  # noqa: S608
HELD_BY_SESSION = f"""
SELECT {_JOB}, a.session_id
FROM attempts a
JOIN jobs j ON j.id = a.job_id
WHERE a.session_id = :session AND a.ended_at IS NULL AND j.set_aside IS NULL"""  # noqa: S608

DUE = f"""
SELECT j.id
FROM jobs j
WHERE j.{HELD} AND j.deadline_at <= :now AND j.set_aside IS NULL
ORDER BY j.deadline_at
LIMIT :most"""  # noqa: S608
OVERTIME = f"""
SELECT j.id
FROM jobs j
WHERE j.{HELD} AND j.state = 'running' AND (j.timeout_at <= :now OR j.step_timeout_at <= :now)
  AND j.set_aside IS NULL
LIMIT :most"""  # noqa: S608
STEP_OVERTIME = """
SELECT a.step
FROM jobs j
JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
WHERE j.id = :job AND j.step_timeout_at <= :now AND j.timeout_at > :now"""
OVERDUE = """
SELECT j.id
FROM jobs j
WHERE j.state = 'queued' AND j.enqueued_at <= :since AND j.queued_at <= :since AND j.set_aside IS NULL
ORDER BY j.enqueued_at, j.id
LIMIT :most"""

# What a lease needs of a job, whole: the row decides, whatever the index says.
LEASABLE = f"""
SELECT {_JOB}, j.digest, j.set_aside, d.document, r.number, r.attempt, r.state AS run_state, p.name AS repo_name,
  EXISTS (SELECT 1 FROM job_needs n WHERE n.job_id = j.id) AS has_needs
FROM jobs j
JOIN job_documents d ON d.job_id = j.id
JOIN runs r ON r.id = j.run_id
JOIN repos p ON p.id = j.repo_id
WHERE j.id = ?"""  # noqa: S608

# Of a place `g` in the line of a concurrency group: what stands there has ended, or is worked on no more and by nobody:
# a runner that cannot renew a lease has let go of it at its deadline.
PLACE_IS_OVER = """NOT EXISTS (
  SELECT 1 FROM jobs j
  WHERE j.run_id = g.run_id AND (g.job_id IS NULL OR j.id = g.job_id) AND j.state <> 'finished'
    AND (j.set_aside IS NULL OR j.deadline_at > :now))"""
ADDRESS = """
SELECT p.name || '/' || r.number || coalesce('/' || j.key, '') AS address
FROM runs r
JOIN repos p ON p.id = r.repo_id
LEFT JOIN jobs j ON j.id = :job
WHERE r.id = :run"""
# Who has the group that a blocked job `j`, or its whole run, waits for.
GROUP_HOLDER = """CASE j.state WHEN 'blocked' THEN (
  SELECT p.name || '/' || r.number || coalesce('/' || k.key, '')
  FROM group_places g
  JOIN group_places h ON h.repo_id = g.repo_id AND h.name = g.name AND h.within = g.within AND h.held_at IS NOT NULL
  JOIN runs r ON r.id = h.run_id
  JOIN repos p ON p.id = r.repo_id
  LEFT JOIN jobs k ON k.id = h.job_id
  WHERE g.run_id = j.run_id AND (g.job_id IS NULL OR g.job_id = j.id) AND g.held_at IS NULL) END AS group_holder"""

# A job with its run, repository, labels and whoever holds it now.
# What a job asks for. Labels are queue state: of a job that came back from its record, only that says it.
LABELS = "coalesce(s.labels, (SELECT labels FROM rebuilt_jobs WHERE job_id = j.id)) AS labels"
_JOB_WHOLE = """FROM jobs j
JOIN runs r ON r.id = j.run_id
JOIN repos p ON p.id = j.repo_id
LEFT JOIN run_labels l ON l.job_id = j.id
LEFT JOIN label_sets s ON s.id = l.label_set_id
LEFT JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL"""
DEMAND = f"""
SELECT j.id, j.repo_id, j.state, j.conclusion, j.set_aside, j.reason, j.run_id, j.key, j.epoch, r.number,
  p.name AS repo_name, {LABELS}, a.runner, {GROUP_HOLDER}
{_JOB_WHOLE}
WHERE {{}}"""

# The facts of the grant rule (match.Counted). One statement each, asked by lease and by explain alike.
GRANTED = """
SELECT 1
FROM keys k
JOIN grants g ON g.account_id = k.account_id
WHERE k.fingerprint = :fingerprint AND k.kind = 'runner' AND g.repo_id = :repo AND g.level = 'run'"""
LIVE_HERE = "SELECT token, job_id, epoch FROM attempts WHERE session_id = ? AND ended_at IS NULL"
RUNNING_IN_REPO = f"SELECT COUNT(*) AS count FROM jobs WHERE repo_id = :repo AND {HELD}"  # noqa: S608
_GAVE_BACK = "IN ('handed_back', 'not_started')"  # model.RESTING
RESTING = f"""
SELECT 1
FROM attempts
WHERE job_id = :job AND key_fingerprint = :fingerprint AND runner = :runner
  AND end_cause {_GAVE_BACK} AND ended_at > :since"""  # noqa: S608

# The same facts for every runner at once, as explain asks them.
GRANTED_KEYS = """
SELECT k.fingerprint
FROM keys k
JOIN grants g ON g.account_id = k.account_id
WHERE k.kind = 'runner' AND g.repo_id = :repo AND g.level = 'run'"""
LIVE_BY_SESSION = "SELECT session_id, COUNT(*) AS count FROM attempts WHERE ended_at IS NULL GROUP BY session_id"
RESTED = f"""
SELECT key_fingerprint, runner
FROM attempts
WHERE job_id = :job AND end_cause {_GAVE_BACK} AND ended_at > :since"""  # noqa: S608

ENDED_WITH_REPO = """
SELECT a.session_id, a.job_id, a.epoch
FROM jobs j
JOIN attempts a ON a.job_id = j.id
WHERE j.repo_id = :repo AND a.end_cause = 'repository_removed'"""
RUN_PROGRESS = """
SELECT j.key, j.conclusion, a.runner
FROM jobs j
LEFT JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
WHERE j.run_id = :run
ORDER BY j.ordinal"""

# What the index is made of.
QUEUED = """
SELECT j.enqueued_at, j.id, l.label_set_id, j.repo_id
FROM jobs j
JOIN run_labels l ON l.job_id = j.id
WHERE j.state = 'queued' AND j.set_aside IS NULL
ORDER BY j.enqueued_at, j.id"""
LABEL_SETS = "SELECT id, labels FROM label_sets"
HELD_LEASES = """
SELECT a.job_id, a.epoch, a.session_id, j.repo_id, p.name AS repo_name, j.run_id, r.number, j.key
FROM attempts a
JOIN jobs j ON j.id = a.job_id
JOIN runs r ON r.id = j.run_id
JOIN repos p ON p.id = j.repo_id
WHERE a.ended_at IS NULL"""
# When jobs came back whose runners rest. `:first`: the least id of an event since then.
GIVEN_BACK = f"""
SELECT at
FROM events
WHERE id >= :first AND kind IN ('returned', 'lost') AND json_extract(detail, '$.cause') {_GAVE_BACK}
ORDER BY id"""  # noqa: S608
LABELS_OF_JOB = """
SELECT l.label_set_id, s.labels
FROM run_labels l
JOIN label_sets s ON s.id = l.label_set_id
WHERE l.job_id = :job"""


def job(row: Row) -> Job:
    """A row that begins with the columns of _JOB. Raises Invalid for one that this version cannot read."""
    # By place: a name is looked for in all of a row's columns, and this runs several times for each lease.
    ident, run, repo, name, key, state, epoch, losses, on_lost, forgiving, end, ending, timeout, at, until = row[:15]
    try:
        return Job(
            ident, run, repo, name, key, _STATES[state], epoch, losses, on_lost, bool(forgiving),
            _ENDS[end], _ENDS[ending], timeout, at, until,
        )  # fmt: skip
    except KeyError as error:
        raise Invalid(f"job {row['id']} cannot be read: {error} is not a word of this version") from None


_STATES = {state.value: state for state in State}
_ENDS: dict[str | None, Conclusion | None] = {None: None, **{end.value: end for end in Conclusion}}


def lease(row: Row) -> JobLease | None:
    """The live lease in a row of HELD_JOB; None when there is none."""
    if row["session_id"] is None or row["deadline_at"] is None:
        return None
    return JobLease(row["id"], row["session_id"], row["epoch"], _STATES[row["state"]], row["deadline_at"])


def told(row: Row) -> Told:
    """A row of the event log that is about a job."""
    return Told(
        id=row["id"],
        at=Moment(row["at"]),
        batch=row["batch"],
        repo=RepoId(row["repo_id"]),
        run=RunId(row["run_id"]),
        job=JobId(row["job_id"]),
        epoch=Epoch(row["epoch"] or 0),
        kind=row["kind"],
        detail=json.loads(row["detail"]),
    )


def held(row: Row) -> Held:
    return Held(
        session=SessionId(row["session_id"]),
        repo=RepoId(row["repo_id"]),
        repo_name=RepoName(row["repo_name"]),
        run=RunId(row["run_id"]),
        number=RunNumber(row["number"]),
        key=JobKey(row["key"]),
    )


def labels(text: str) -> frozenset[str]:
    """The labels of an interned set."""
    return frozenset(json.loads(text))


def label_text(names: tuple[str, ...]) -> str:
    """How a label set is written: sorted, so that the same labels are the same row."""
    return json.dumps(sorted(set(names)), separators=(",", ":"))


def label_set(row: Row) -> tuple[SetId, frozenset[str]]:
    return row["label_set_id"], labels(row["labels"])


def demand(row: Row) -> Demand:
    """The job's side of the grant rule, of a row of DEMAND. Labels that went with a repository are none."""
    return Demand(
        labels=labels(row["labels"] or "[]"),
        repo=RepoId(row["repo_id"]),
        repo_name=RepoName(row["repo_name"]),
        state=State(row["state"]),
        waits_for=row["reason"].removeprefix("waits for "),
        group=_group(row),
        set_aside=row["set_aside"],
    )


def reason(row: Row) -> str:
    """Why a job waits or how it ended: what its row says, or who has its concurrency group now."""
    group = _group(row)
    return row["reason"] if group is None else Reason(Why.CONCURRENCY_GROUP, group).sentence


def _group(row: Row) -> str | None:
    return None if row["group_holder"] is None else f"held by {row['group_holder']}"


# What a rerun is made of.
RERUNNABLE = """
SELECT r.repo_id, r.number, r.push_id, r.push_ordinal, r.ref, r.commit_id, r.workflow, r.workflow_path,
  r.workflow_blob, r.event, r.attempt, r.state, r.reason, p.name AS repo_name, n.number AS newer
FROM runs r
JOIN repos p ON p.id = r.repo_id
LEFT JOIN runs n ON n.rerun_of = r.id
WHERE r.id = :run"""
ENDED_JOBS = """
SELECT j.id, j.key, j.digest, j.conclusion, j.marked, j.outputs, j.carried_of, d.document, s.labels
FROM jobs j
JOIN job_documents d ON d.job_id = j.id
LEFT JOIN run_labels l ON l.job_id = j.id
LEFT JOIN label_sets s ON s.id = l.label_set_id
WHERE j.run_id = :run
ORDER BY j.ordinal"""


# What started a run `r`. An event that this version cannot read was a push's: no other was there before.
STARTED = """CASE WHEN json_valid(r.event) THEN r.event ->> '$.name' END AS event, r.actor,
  (SELECT o.number FROM runs o WHERE o.id = r.rerun_of) AS older"""

# What commands list. `:repos` is a JSON list of the repositories that the caller may read.
RECENT_RUNS = f"""
SELECT r.id, p.name AS repo_name, r.number, r.workflow, r.ref, r.commit_id, r.state, r.conclusion,
  r.created_at, r.finished_at, r.attempt, {STARTED}
FROM runs r
JOIN repos p ON p.id = r.repo_id
WHERE r.repo_id IN (SELECT value FROM json_each(:repos))
ORDER BY r.id DESC
LIMIT :most"""  # noqa: S608
JOB_LINES = f"""
SELECT j.id, p.name AS repo_name, r.number, j.key, j.state, j.conclusion, j.reason, j.epoch, j.enqueued_at,
  j.started_at, {LABELS}, a.runner, {GROUP_HOLDER}
{_JOB_WHOLE}
WHERE {{}}"""
