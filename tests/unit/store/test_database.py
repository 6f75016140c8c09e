"""The store: one writer, group commit, reads from one snapshot, migrations, the lock."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.aio import run
from vole.base.clock import ManualClock
from vole.base.entropy import SeededEntropy
from vole.base.errors import Conflict, Denied, Invalid, Unavailable
from vole.store import database, migrate
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


def test_a_store_that_cannot_be_opened_says_so_and_ends_its_thread(tmp_path):
    (tmp_path / "vole.db").mkdir()
    before = set(threading.enumerate())

    with pytest.raises(Unavailable, match="the store cannot write just now: unable to open database file"):
        run(_open(tmp_path))

    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


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


def test_a_closed_store_is_one_file(tmp_path):
    async def story():
        db = await _open(tmp_path)
        await db.write(_declare, "linux")
        await asyncio.gather(*(db.read(_labels) for _ in range(READERS)))
        await db.close()

    run(story())

    assert [path.name for path in tmp_path.iterdir()] == ["vole.db"]


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


async def _one(view: View) -> int:
    return (await view.one("SELECT 1"))[0]


async def _counted_twice(view: View, began: threading.Event, go_on: threading.Event) -> tuple[list[str], list[str]]:
    first = await _labels(view)
    began.set()
    assert go_on.wait(10)
    return first, await _labels(view)


def test_every_statement_of_a_read_sees_one_snapshot(tmp_path):
    began, go_on = threading.Event(), threading.Event()

    async def story():
        db = await _open(tmp_path)
        await db.write(_declare, "before")
        reading = asyncio.ensure_future(db.read(_counted_twice, began, go_on))
        await asyncio.to_thread(began.wait, 10)
        await db.write(_declare, "meanwhile")
        go_on.set()
        found = await reading
        await db.close()
        return found

    assert run(story()) == (["before"], ["before"])


def test_a_reader_that_is_cancelled_at_every_wait_comes_back(tmp_path):
    async def story():
        database = await _open(tmp_path)
        for _ in range(2 * READERS):
            began, go_on = threading.Event(), threading.Event()
            reading = asyncio.ensure_future(database.read(_counted_twice, began, go_on))
            await asyncio.to_thread(began.wait, 10)
            while not reading.done():  # as a cancel scope does, again and again until the task has ended
                reading.cancel()
                await asyncio.sleep(0)
            go_on.set()
        found = [await database.read(_one) for _ in range(READERS)]
        await database.close()
        return found

    assert run(story()) == [1] * READERS


def test_a_read_that_raises_gives_its_connection_back(tmp_path):
    async def refuse(view: View) -> None:
        await _labels(view)
        raise Denied("no")

    async def story():
        db = await _open(tmp_path)
        for _ in range(2 * READERS):
            with pytest.raises(Denied):
                await db.read(refuse)
        await db.write(_declare, "linux")
        found = await db.read(_labels)
        await db.close()
        return found

    assert run(story()) == ["linux"]


def test_a_read_that_awaits_something_else_is_named(tmp_path):
    async def dawdle(_: View) -> None:
        await asyncio.sleep(0)

    async def story():
        db = await _open(tmp_path)
        try:
            await db.read(dawdle)
        finally:
            await db.close()

    with pytest.raises(AssertionError, match="dawdle awaited something other than its view"):
        run(story())


def test_a_glance_sees_what_is_durable_and_ends_with_the_store(tmp_path):
    async def story():
        db = await _open(tmp_path)
        before = db.glance(_labels)
        await db.write(_declare, "linux")
        after = db.glance(_labels)
        await db.close()
        with pytest.raises(Unavailable, match="closed"):
            db.glance(_labels)
        return before, after

    assert run(story()) == ([], ["linux"])


def test_a_read_that_gets_no_turn_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "READ_WAIT_S", 0.05)
    go_on = threading.Event()

    async def story():
        db = await _open(tmp_path)
        began = [threading.Event() for _ in range(READERS)]
        busy = [asyncio.ensure_future(db.read(_counted_twice, one, go_on)) for one in began]
        for one in began:
            await asyncio.to_thread(one.wait, 10)
        with pytest.raises(Unavailable, match="busy"):
            await db.read(_one)
        go_on.set()
        await asyncio.gather(*busy)
        found = await db.read(_one)
        await db.close()
        return found

    assert run(story()) == 1


def test_close_waits_for_reads(tmp_path):
    began, go_on = threading.Event(), threading.Event()

    async def story():
        db = await _open(tmp_path)
        reading = asyncio.ensure_future(db.read(_counted_twice, began, go_on))
        await asyncio.to_thread(began.wait, 10)
        closing = asyncio.ensure_future(db.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="closed"):
            await db.read(_one)
        closed_early, _ = await asyncio.wait((closing,), timeout=0.2)
        go_on.set()
        await closing
        return closed_early, await reading

    assert run(story()) == (set(), ([], []))


def test_changes_that_wait_at_the_same_moment_share_one_commit(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(30)
        _declare(tx, "first")

    async def story():
        db = await _open(tmp_path)
        first = asyncio.create_task(db.write(slow))
        await asyncio.to_thread(begun.wait, 30)
        rest = [asyncio.create_task(db.write(_declare, f"label-{number}")) for number in range(100)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *rest)
        await db.close()
        return db.commits

    assert run(story()) == 2


def _declare_all(tx: Tx, labels: Sequence[str], calls: list[list[str]]) -> list[str]:
    calls.append(list(labels))
    for label in labels:
        _declare(tx, label)
        if label.startswith("bad"):
            raise Denied(f"no {label}")
    return [f"declared {label}" for label in labels]


@pytest.mark.parametrize(
    ("asked", "calls", "declared"),
    [
        (["a", "b", "c"], [["a", "b", "c"]], ["a", "b", "c"]),
        (["a", "bad", "c"], [["a", "bad", "c"], ["a"], ["bad"], ["c"]], ["a", "c"]),
        (["bad 1", "bad 2"], [["bad 1", "bad 2"], ["bad 1"], ["bad 2"]], []),
    ],
)
def test_what_is_alike_and_waits_for_one_commit_is_one_change_and_refused_one_by_one(tmp_path, asked, calls, declared):
    begun, go_on, made = threading.Event(), threading.Event(), []

    def slow(_: Tx) -> None:
        begun.set()
        assert go_on.wait(30)

    async def story():
        db = await _open(tmp_path)
        first = asyncio.create_task(db.write(slow))
        await asyncio.to_thread(begun.wait, 30)
        ones = [asyncio.create_task(db.write_each(_declare_all, label, made)) for label in asked]
        others = asyncio.create_task(db.write_each(_declare_all, "other", [["other args"]]))
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(*ones, return_exceptions=True)
        await asyncio.gather(first, others)
        found = await db.read(_labels)
        await db.close()
        return answers, found, db.commits

    answers, found, commits = run(story())

    assert made == calls
    assert [str(answer) for answer in answers] == [
        f"no {label}" if label.startswith("bad") else f"declared {label}" for label in asked
    ]
    assert (found, commits) == ([*declared, "other"], 1)


def test_a_change_that_changes_nothing_is_no_commit(tmp_path):
    async def story():
        db = await _open(tmp_path)
        await db.probe()
        await db.close()
        return db.commits

    assert run(story()) == 0


def test_no_check_of_a_hot_table_builds_a_table_of_its_own():
    """`IN` with three words or more does, for each row that is written (0005)."""
    connection = open_writer(":memory:")
    texts = [
        row["sql"]
        for row in connection.execute("SELECT sql FROM sqlite_schema WHERE name IN ('jobs', 'runs', 'attempts')")
    ]

    assert len(texts) == 3
    assert [found for text in texts for found in re.findall(r"IN\s*\([^()]*,[^()]*,[^()]*\)", text)] == []
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute(
            "INSERT INTO runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path,"
            " workflow_blob, event, actor, state, created_at)"
            " VALUES (1, 1, 1, 1, 0, '', '', '', '', '', '', '', 'odd', 0)"
        )


def test_a_step_after_a_commit_that_fails_fails_its_caller_and_no_other(tmp_path):
    def change(tx: Tx) -> None:
        tx.after_commit(lambda: 1 // 0)

    async def story():
        db = await _open(tmp_path)
        answers = await asyncio.gather(db.write(change), db.write(_declare, "a"), return_exceptions=True)
        await db.write(_declare, "b")
        found = await db.read(_labels)
        await db.close()
        return answers, found

    answers, found = run(story())

    assert isinstance(answers[0], ZeroDivisionError)
    assert found == ["a", "b"]


def test_a_full_disk_is_said_as_one_with_what_helps(tmp_path):
    def fill(tx: Tx) -> None:
        (pages,) = tx.connection.execute("PRAGMA page_count").fetchone()
        tx.connection.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(2_000):
            _declare(tx, f"label-{number}")

    def empty(tx: Tx) -> None:
        tx.connection.execute("PRAGMA max_page_count = 100000")

    async def story():
        db = await _open(tmp_path)
        with pytest.raises(Unavailable, match="disk is full") as refused:
            await db.write(fill)
        await db.write(empty)
        await db.write(_declare, "a")
        found = await db.read(_labels)
        await db.close()
        return refused.value, found

    refused, found = run(story())

    assert "free space" in refused.next_step
    assert found == ["a"]
