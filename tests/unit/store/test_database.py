"""The store: one writer, group commit, reads from one snapshot, migrations, the lock."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.aio import run
from vole.base.clock import ManualClock
from vole.base.entropy import SeededEntropy
from vole.base.errors import Conflict, Denied, Invalid, Unavailable
from vole.store import migrate
from vole.store.database import READERS, Database, Tx, View, open_writer
from vole.store.lock import StateLock


def _declare(tx: Tx, label: str) -> int:
    tx.run("INSERT INTO labels (label, created_at) VALUES (:label, :now)", label=label, now=tx.now)
    return tx.ident()


def _declare_then_refuse(tx: Tx, label: str) -> None:
    _declare(tx, label)
    raise Denied("no")


async def _labels(view: View) -> list[str]:
    return [row["label"] for row in await view.all("SELECT label FROM labels ORDER BY label")]


async def _open(tmp_path) -> Database:
    return await Database.open(tmp_path / "vole.db", ManualClock(), SeededEntropy())


def test_a_change_is_seen_by_the_next_read(tmp_path):
    async def story():
        db = await _open(tmp_path)
        await db.write(_declare, "linux")
        found = await db.read(_labels)
        await db.close()
        return found

    assert run(story()) == ["linux"]


def test_a_change_that_raises_leaves_nothing_and_its_neighbours_in_the_commit_stay(tmp_path):
    async def story():
        db = await _open(tmp_path)
        answers = await asyncio.gather(
            db.write(_declare, "a"),
            db.write(_declare_then_refuse, "b"),
            db.write(_declare, "c"),
            return_exceptions=True,
        )
        found = await db.read(_labels)
        await db.close()
        return answers, found

    answers, found = run(story())

    assert isinstance(answers[1], Denied)
    assert found == ["a", "c"]


def test_what_follows_a_commit_runs_once_and_only_when_the_change_is_durable(tmp_path):
    ran = []

    def change(tx: Tx, *, fail: bool) -> None:
        tx.after_commit(lambda: ran.append(fail))
        if fail:
            raise Denied("no")

    async def story():
        db = await _open(tmp_path)
        await db.write(change, fail=False)
        with pytest.raises(Denied):
            await db.write(change, fail=True)
        await db.close()

    run(story())

    assert ran == [False]


def test_a_cancelled_caller_does_not_undo_a_change(tmp_path):
    async def story():
        db = await _open(tmp_path)
        writing = asyncio.create_task(db.write(_declare, "linux"))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await db.write(_declare, "after")
        found = await db.read(_labels)
        await db.close()
        return found

    assert "after" in run(story())


def test_a_read_cannot_write(tmp_path):
    async def sneak(view: View) -> None:
        await view.all("INSERT INTO labels (label, created_at) VALUES ('x', 1) RETURNING label")

    async def story():
        db = await _open(tmp_path)
        with pytest.raises(sqlite3.OperationalError):
            await db.read(sneak)
        found = await db.read(_labels)
        await db.close()
        return found

    assert run(story()) == []


def test_a_closed_store_says_so(tmp_path):
    async def story():
        db = await _open(tmp_path)
        await db.close()
        await db.write(_declare, "linux")

    with pytest.raises(Unavailable, match="closed"):
        run(story())


def test_the_writer_is_durable_at_every_commit(tmp_path):
    connection = open_writer(tmp_path / "vole.db")

    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    connection.close()


def test_a_newer_schema_is_refused(tmp_path):
    connection = open_writer(tmp_path / "vole.db")
    connection.execute("INSERT INTO migrations VALUES (9999, '9999_future.sql', 'x')")
    connection.close()

    with pytest.raises(Invalid, match="9999_future"):
        open_writer(tmp_path / "vole.db")


def test_a_migration_that_changed_after_it_was_applied_is_refused(tmp_path):
    connection = open_writer(tmp_path / "vole.db")
    connection.execute("UPDATE migrations SET digest = 'x' WHERE number = 1")
    connection.close()

    with pytest.raises(Invalid, match=migrate.known()[0].name):
        open_writer(tmp_path / "vole.db")


def test_every_table_is_strict():
    connection = open_writer(":memory:")
    tables = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
    ).fetchall()

    assert [name for name, sql in tables if "STRICT" not in sql and not name.startswith("sqlite_")] == []
    connection.close()


@pytest.mark.proves("SR-76")
def test_a_second_server_on_one_store_is_told_who_holds_it(tmp_path):
    (tmp_path / "run").mkdir()
    lock = StateLock(tmp_path / "run" / "lock")

    with pytest.raises(Conflict, match=f"process {os.getpid()}"):
        StateLock(tmp_path / "run" / "lock")
    lock.release()


@pytest.mark.proves("SR-76")
def test_the_lock_of_a_killed_server_is_free(tmp_path):
    (tmp_path / "run").mkdir()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from pathlib import Path; from vole.store.lock import StateLock\n"
            f"lock = StateLock(Path({str(tmp_path / 'run' / 'lock')!r})); print('held', flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Conflict):
        StateLock(tmp_path / "run" / "lock")

    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()

    StateLock(tmp_path / "run" / "lock").release()


def test_many_writers_from_many_tasks_share_commits_and_lose_nothing(tmp_path):
    async def story():
        db = await _open(tmp_path)
        await asyncio.gather(*(db.write(_declare, f"l{n:03d}") for n in range(500)))
        found = await db.read(_labels)
        await db.close()
        return found

    assert len(run(story())) == 500


def test_ids_of_changes_only_grow():
    clock, entropy = ManualClock(), SeededEntropy()
    with ThreadPoolExecutor(1) as pool:
        ids = [pool.submit(entropy.ident, clock.now()).result() for _ in range(100)]

    assert ids == sorted(set(ids))


def test_a_reader_that_is_cancelled_at_every_wait_comes_back(tmp_path):
    async def slow(view, began):
        began.set()
        while True:
            await view.all("SELECT 1")

    async def story():
        database = await Database.open(tmp_path / "vole.db", ManualClock(), SeededEntropy())
        for _ in range(2 * READERS):
            began = asyncio.Event()
            reading = asyncio.ensure_future(database.read(slow, began))
            await began.wait()
            while not reading.done():  # as a cancel scope does, again and again until the task has ended
                reading.cancel()
                await asyncio.sleep(0)
        found = [await database.read(one) for _ in range(READERS)]
        await database.close()
        return found

    async def one(view):
        return (await view.one("SELECT 1"))[0]

    assert run(story()) == [1] * READERS
