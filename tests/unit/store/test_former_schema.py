"""A database of a former version: it is brought up to date, and what waited in it goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.aio import run
from tests.leasing_server import Server
from tests.queueing import EVENT, a_job, a_result, a_run
from vole.base.clock import ManualClock
from vole.store import migrate
from vole.wire import codec
from vole.wire.plan import job_digest


def _before_groups(path, now):
    """A store as it was with the first schema alone: a repository with one queued job."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL) STRICT"
    )
    migrate._apply_one(connection, migrate.known()[0])
    document = a_job().document()
    rows = {
        "repos (id, name, public, created_at)": (1, "app", 0, now),
        "run_numbers": (1, 2),
        "runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path, workflow_blob,"
        " event, actor, state, created_at)": (
            2, 1, 1, 1, 0, EVENT.ref, EVENT.after, "ci", "x", "x", codec.canonical(EVENT).decode(), "ada", "queued", now
        ),
        "jobs (id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost, continue_on_error, state,"
        " enqueued_at, queued_at)": (
            3, 2, 1, 0, "test", "test", "test", job_digest(document), 60_000_000, "rerun", 0, "queued", now, now
        ),
        "job_documents": (3, document.decode()),
        "label_sets": (4, "[]"),
        "run_labels": (3, 1, 4),
        "events (id, at, repo_id, run_id, job_id, epoch, kind, detail)": (
            5, now, 1, 2, 3, 0, "enqueued", '{"to":"queued"}'
        ),
    }  # fmt: skip
    for table, values in rows.items():
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    connection.close()


@pytest.mark.proves("I-09")
def test_a_job_that_was_queued_before_there_were_groups_is_leased_and_ends(tmp_path):
    async def story():
        clock = ManualClock()
        _before_groups(tmp_path / "vole.db", clock.now())
        server = await Server.begin(tmp_path, clock=clock)
        try:
            await server.account("mac-1", "app")
            session = await server.connects("mac-1")
            job = await server.takes(session)
            await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))

            server.check()
            assert server.rows("SELECT conclusion, concurrency FROM runs")[0][:] == ("success", None)
        finally:
            await server.end()

    run(story())


@pytest.mark.proves("I-36")
def test_what_ended_before_there_were_records_gets_them(tmp_path):
    async def story():
        server = await Server.begin(tmp_path)
        try:
            await server.account("mac-1", "app")
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run(a_job("done"), a_job("left")), push=1)
            await server.enqueues(a_run(skipped="filter"), push=2)
            job = await server.takes(session, "a")
            await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
            await server.gets(session, "b")
        finally:
            await server.end()
        owing = "SELECT run_id, job_id, epoch FROM record_outbox ORDER BY job_id, run_id"
        with closing(sqlite3.connect(tmp_path / "vole.db", isolation_level=None)) as connection:
            owed = connection.execute(owing).fetchall()
            connection.executescript("DROP TABLE record_outbox; DELETE FROM migrations WHERE number = 10")
            for migration in migrate.known():
                if migration.number == 10:
                    migrate._apply_one(connection, migration)
            again = connection.execute(owing).fetchall()
            order = connection.execute("SELECT job_id IS NULL FROM record_outbox ORDER BY id").fetchall()
        assert len(owed) == 2
        assert again == owed
        assert order == [(0,), (1,)]

    run(story())
