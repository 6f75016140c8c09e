"""Rows 5, 5b: the time of a lease and of a start with a million jobs queued, in three shapes of queue.

The rows are made by SQL, since a million pushes would take an hour; the leases are the product's own.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.figures import Measured, Outcome, Sample
from tests.bench.leasing import Place, a_place
from tests.queueing import EMPTY_SHA256, POLICY, a_job
from vole.jobs import ledger, rows
from vole.jobs.ledger import StoredLog
from vole.jobs.match import Ask
from vole.jobs.model import Holder
from vole.store.database import open_writer
from vole.wire import runner
from vole.wire.plan import job_digest

TARGETS = (*targets.LEASES.values(), targets.START_UP)
FEW, MANY, RECOVERY = 10_000, 1_000_000, 100_000
LEASES = 40  # of a round
ROUNDS = 5
SETS = 3_000
# The label set of job i of :count: a third of all; only the last tenth; one of sixty of 3,000 sets.
SHAPES = {
    "mix": 'CASE i % 3 WHEN 0 THEN \'["linux"]\' WHEN 1 THEN \'["macos"]\' ELSE \'["arm64","linux"]\' END',
    "starved": "CASE WHEN i < :count - :count / 10 THEN '[\"gpu\"]' ELSE '[\"linux\"]' END",
    "3000 sets": f"'[\"s-' || (i % {SETS}) || '\"]'",
}
CARRIED = frozenset(("linux", *(f"s-{number}" for number in range(60))))
FIRST = 1_000_000  # ids of jobs and runs: not those of anything else

QUEUED = """
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1)
"""
RUNS = f"""{QUEUED}
INSERT INTO runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path, workflow_blob,
  event, actor, state, created_at)
SELECT {FIRST} + i, r.id, 1 + i / :repos, i, 0, 'refs/heads/main', '{"1" * 40}', 'ci', '.vole/workflows/ci.yml',
  '{"2" * 40}', '{{}}', 'ada', 'queued', 1000000 + i
FROM n
JOIN numbered r ON r.n = i % :repos"""
JOBS = f"""{QUEUED}
INSERT INTO jobs (id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost, continue_on_error, state,
  enqueued_at, queued_at)
SELECT {FIRST} + i, {FIRST} + i, r.id, 0, 'test', 'test', 'test', :digest, 3600000000, 'rerun', 0, 'queued',
  1000000 + i, 1000000 + i
FROM n
JOIN numbered r ON r.n = i % :repos"""
DOCUMENTS = f"{QUEUED} INSERT INTO job_documents (job_id, document) SELECT {FIRST} + i, :document FROM n"
SET_NAMES = f"{QUEUED} INSERT OR IGNORE INTO label_sets (id, labels) SELECT {FIRST} + i, {{}} FROM n"
LABELS = f"""{QUEUED}
INSERT INTO run_labels (job_id, repo_id, label_set_id)
SELECT {FIRST} + i, j.repo_id, s.id
FROM n
JOIN jobs j ON j.id = {FIRST} + i
JOIN label_sets s ON s.labels = {{}}"""


def measure(bench: Bench) -> Iterator[Outcome]:
    few, many = bench.work / "few", bench.work / "many"
    for repos, said in ((1, "1 repository"), (1_000, "1,000 repositories")):
        for folder, count in ((few, FEW), (many, MANY)):
            fill(folder, count, repos)
        for shape in SHAPES:
            for folder, count in ((few, FEW), (many, MANY)):
                shape_as(folder, count, shape)
            yield asyncio.run(_leases(targets.LEASES[shape, said], many, few, bench.rounds(ROUNDS)))
        if repos == 1:
            yield _start_up(bench, many)


def fill(folder: Path, count: int, repos: int) -> None:
    """A database with so many queued jobs, each a run of its own."""
    for old in folder.glob("vole.db*"):
        old.unlink()
    asyncio.run(_founded(folder))
    connection = open_writer(folder / "vole.db")
    document = a_job().document()
    connection.execute("BEGIN")
    for number in range(1, repos):
        values = (number + 1, f"app-{number}", 0)
        connection.execute("INSERT INTO repos (id, name, public, created_at) VALUES (?, ?, 0, ?)", values)
    connection.execute("CREATE TEMP TABLE numbered AS SELECT row_number() OVER (ORDER BY id) - 1 AS n, id FROM repos")
    connection.execute("CREATE UNIQUE INDEX temp.by_number ON numbered (n)")
    connection.execute(
        "INSERT OR IGNORE INTO grants (account_id, repo_id, level, created_at) "
        "SELECT a.id, r.id, 'run', 0 FROM accounts a, repos r"
    )
    values = {"count": count, "repos": repos, "digest": job_digest(document), "document": document.decode()}
    for statement in (RUNS, JOBS, DOCUMENTS):
        connection.execute(statement, values)
    connection.execute("COMMIT")
    connection.close()


async def _founded(folder: Path) -> None:
    async with a_place(folder):
        pass


def shape_as(folder: Path, count: int, shape: str) -> None:
    connection = open_writer(folder / "vole.db")
    connection.execute("BEGIN")
    connection.execute("DELETE FROM run_labels")
    names = SHAPES[shape]
    connection.execute(SET_NAMES.format(names), {"count": count})
    connection.execute(LABELS.format(names), {"count": count})
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def _leases(target: targets.Target, many: Path, few: Path, rounds: int) -> Measured:
    """Milliseconds of a lease with its commit, one ask at a time, the two queues in turn."""
    found: dict[Path, list[float]] = {many: [], few: []}
    async with a_place(many) as large, a_place(few) as small:
        for number in range(rounds + 1):
            for folder, place in ((many, large), (few, small)) if number % 2 else ((few, small), (many, large)):
                took = [await _lease_ms(place, f"{number}-{at}") for at in range(LEASES)]
                if number:  # the first round reads pages for the first time
                    found[folder] += took
    return Measured(target, Sample(tuple(found[many])), Sample(tuple(found[few])))


async def _lease_ms(place: Place, token: str) -> float:
    """One lease; the job is finished before the next, beside the clock."""
    repos = frozenset(repo for repo, levels in place.person.levels.items() if "run" in levels)
    holder = Holder(place.session, "rui", place.person.key_fingerprint, "runner", "0", "linux", "x64")
    ask = Ask(holder, CARRIED, frozenset(), repos, 1, token=token)
    begin = time.perf_counter()
    given = await place.db.write(ledger.lease_many, place.index, [ask], POLICY)
    took = time.perf_counter() - begin
    (job,) = given.answers
    assert isinstance(job, runner.Job), f"a lease was asked for, and there was {job}"
    result = runner.Finish(job.lease.job, job.lease.epoch, "success", runner.LogSeal(0, EMPTY_SHA256))
    stored = StoredLog(0, EMPTY_SHA256)
    given = ledger.Result(place.session, result, stored)
    await place.db.write(ledger.finish_all, [given], place.index, replace(POLICY, cap=None))
    return took * 1000


def _start_up(bench: Bench, folder: Path) -> Outcome:
    """Opened, every row of the queue in the index; against the same rows read and dropped."""
    ready, scans = [], []
    for _ in range(bench.rounds(3)):
        ready.append(_seconds(lambda: asyncio.run(_founded(folder))))
        scans.append(_seconds(lambda: _scan(folder)))
    fill(bench.work / "recovery", RECOVERY, 1)
    shape_as(bench.work / "recovery", RECOVERY, "mix")
    first = _seconds(lambda: asyncio.run(_first_lease(bench.work / "recovery")))
    note = f"{RECOVERY:,} queued: {first:.2f} s from the start to the first lease (at most 2)"
    return Measured(targets.START_UP, Sample(tuple(ready)), Sample(tuple(scans)), note)


async def _first_lease(folder: Path) -> None:
    async with a_place(folder) as place:
        await _lease_ms(place, "first")


def _scan(folder: Path) -> None:
    connection = sqlite3.connect(folder / "vole.db")
    for _ in connection.execute(rows.QUEUED):
        pass
    connection.close()


def _seconds(deed: Callable[[], object]) -> float:
    begin = time.perf_counter()
    deed()
    return time.perf_counter() - begin
