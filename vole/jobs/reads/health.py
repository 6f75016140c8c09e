"""The queue's invariants as questions to a store: what each finds is broken. docs/invariants.md has them in words.

A store that is served may be asked too: each question is about what one transaction leaves.
"""

from __future__ import annotations

from vole.base import limits
from vole.jobs.model import Happening
from vole.store.database import View
from vole.wire.plan import job_digest

_SHOWN = 5  # of each kind; the rest is counted

_MOVES = ", ".join(f"'{kind}'" for kind in Happening)
_HELD = "j.state IN ('leased', 'running', 'cancelling')"
_ADDRESS = "p.name || '/' || r.number || '/' || j.key"
_JOBS = "jobs j JOIN runs r ON r.id = j.run_id LEFT JOIN repos p ON p.id = j.repo_id"

# Each gives one column, what it is about. Rows of removed repositories count too; they have no address.
QUESTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "I-03",
        "is held without one live attempt at its epoch, or is not held and has one",
        f"""
        SELECT {_ADDRESS} FROM {_JOBS}
        WHERE ({_HELD}) <> (SELECT count(*) = 1 AND max(a.epoch) = j.epoch FROM attempts a
          WHERE a.job_id = j.id AND a.ended_at IS NULL)""",
    ),
    (
        "I-04",
        "has attempts that do not count 1, 2, 3 up to its epoch",
        f"""
        SELECT {_ADDRESS} FROM {_JOBS}
        WHERE j.epoch <> (SELECT count(*) FROM attempts a WHERE a.job_id = j.id)
          OR j.epoch <> (SELECT coalesce(max(a.epoch), 0) FROM attempts a WHERE a.job_id = j.id)""",
    ),
    (
        "I-07",
        "took more than one result",
        f"""
        SELECT {_ADDRESS} FROM {_JOBS}
        WHERE (SELECT count(*) FROM attempts a WHERE a.job_id = j.id AND a.end_cause = 'finished') > 1""",
    ),
    (
        "I-11",
        "holds more jobs than it has slots",
        """
        SELECT 'runner ' || s.name FROM runners s
        WHERE s.slots < (SELECT count(*) FROM attempts a WHERE a.session_id = s.id AND a.ended_at IS NULL)""",
    ),
    (
        "I-12",
        "has its group, and nothing of it goes on",
        """
        SELECT 'run ' || p.name || '/' || r.number
        FROM group_places g
        JOIN runs r ON r.id = g.run_id
        JOIN repos p ON p.id = r.repo_id
        WHERE g.held_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jobs j
          WHERE j.run_id = g.run_id AND j.id = coalesce(g.job_id, j.id) AND j.state <> 'finished')""",
    ),
    (
        "I-19",
        f"lost more than {limits.ATTEMPTS_MAX} attempts",
        f"SELECT {_ADDRESS} FROM {_JOBS} WHERE j.losses > {limits.ATTEMPTS_MAX}",
    ),
    (
        "I-21",
        "is not where its last event left it",
        f"""
        SELECT {_ADDRESS} FROM {_JOBS}
        WHERE j.state IS NOT (SELECT json_extract(e.detail, '$.to') FROM events e
          WHERE e.job_id = j.id AND e.kind IN ({_MOVES}) ORDER BY e.id DESC LIMIT 1)""",
    ),
    (
        "I-21",
        "is finished with jobs that are not, or goes on without any",
        """
        SELECT 'run ' || p.name || '/' || r.number FROM runs r LEFT JOIN repos p ON p.id = r.repo_id
        WHERE (r.state = 'finished') <> NOT EXISTS (SELECT 1 FROM jobs j
          WHERE j.run_id = r.id AND j.state <> 'finished')""",
    ),
    (
        "I-22",
        "has other runs than the numbers it gave, those it passed over and those that were pruned",
        """
        SELECT 'repository ' || p.name FROM run_numbers n JOIN repos p ON p.id = n.repo_id
        WHERE n.next - 1 <> n.skipped + n.pruned + (SELECT count(*) FROM runs r WHERE r.repo_id = n.repo_id)
          OR n.next <= (SELECT max(r.number) FROM runs r WHERE r.repo_id = n.repo_id)""",
    ),
    (
        "I-34",
        "has a result and an open log",
        f"""
        SELECT {_ADDRESS} || '@' || a.epoch FROM {_JOBS} JOIN attempts a ON a.job_id = j.id
        WHERE a.result_digest IS NOT NULL AND a.log_state = 'open'""",
    ),
    (
        "I-36",
        "is owed a record that is not due, or more than one",
        """
        SELECT 'run ' || p.name || '/' || r.number
        FROM record_outbox b
        JOIN runs r ON r.id = b.run_id
        JOIN repos p ON p.id = b.repo_id
        LEFT JOIN attempts a ON a.job_id = b.job_id AND a.epoch = b.epoch
        GROUP BY b.run_id, b.job_id, b.epoch
        HAVING count(*) > 1 OR max(coalesce(a.ended_at, CASE WHEN b.job_id IS NULL THEN r.finished_at END)) IS NULL""",
    ),
)


async def broken(view: View) -> list[str]:
    """A line for each thing that should not be, with the invariant it breaks."""
    found = []
    for ident, sentence, sql in QUESTIONS:
        rows = await view.all(sql)
        found += [f"{ident}: {row[0] or 'a job of a removed repository'} {sentence}" for row in rows[:_SHOWN]]
        found += [f"{ident}: {len(rows) - _SHOWN} more like it"] if len(rows) > _SHOWN else []
    return found + await _changed_documents(view)


async def set_aside(view: View) -> list[str]:
    """Jobs that are worked on no more, and why."""
    rows = await view.all(f"SELECT {_ADDRESS} AS address, j.set_aside FROM {_JOBS} WHERE j.set_aside IS NOT NULL")
    return [f"{row['address']} is set aside: {row['set_aside']}" for row in rows[: limits.LIST_MAX]]


async def _changed_documents(view: View) -> list[str]:
    """Of jobs that may still run: what was pinned is what there is."""
    rows = await view.all(
        f"SELECT {_ADDRESS} AS address, j.digest, d.document "
        f"FROM {_JOBS} JOIN job_documents d ON d.job_id = j.id WHERE j.state <> 'finished'"
    )
    changed = [row["address"] for row in rows if job_digest(row["document"].encode()) != row["digest"]]
    return [f"I-09: {address} has another document than was pinned" for address in changed[:_SHOWN]]
