"""Other queues: raw commits of SQLite, SqliteHuey, rows of PostgreSQL under SKIP LOCKED, and procrastinate on it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import pypi
from tests.bench.clients import run
from tests.bench.machine import BrokenError, Children, MissingError, need, wait_until

PACKAGES = ("huey==3.5.4", "procrastinate==3.10.0", "psycopg[binary]==3.3.9")
CONNECTIONS = 16

# A job is taken, run and noted as done; neither leases nor labels nor a log are part of it.
HUEY = """\
import sys, time
from huey import SqliteHuey
huey = SqliteHuey(filename=sys.argv[1], fsync=True, results=True)
@huey.task()
def nothing():
    return True
for _ in range(int(sys.argv[2])):
    nothing()
begin = time.perf_counter()
count = 0
while (task := huey.dequeue()) is not None:
    huey.execute(task)
    count += 1
print(count / (time.perf_counter() - begin))
"""
PROCRASTINATE = """\
import asyncio, sys, time
from procrastinate import App, PsycopgConnector
app = App(connector=PsycopgConnector(conninfo=sys.argv[1], min_size=16, max_size=16))
@app.task
async def nothing():
    return None
async def main(count):
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        await nothing.batch_defer_async(*({} for _ in range(count)))
        begin = time.perf_counter()
        await app.run_worker_async(concurrency=16, wait=False, install_signal_handlers=False, listen_notify=False)
        print(count / (time.perf_counter() - begin))
asyncio.run(main(int(sys.argv[2])))
"""
TABLE = """\
DROP TABLE IF EXISTS q;
CREATE TABLE q (id bigint PRIMARY KEY, state text NOT NULL, lease bigint);
INSERT INTO q SELECT i, 'queued' FROM generate_series(1, {count}) i;
CREATE INDEX q_queued ON q (id) WHERE state = 'queued';
ANALYZE q;
"""
CYCLE = """\
UPDATE q SET state = 'leased', lease = 1 WHERE id = (
  SELECT id FROM q WHERE state = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id AS job \\gset
UPDATE q SET state = 'finished' WHERE id = :job;
"""


def raw_commits_per_s(folder: Path, count: int) -> float:
    """One row changed in each commit, durable as the product's are."""
    folder.mkdir(exist_ok=True)
    path = folder / "raw.db"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = 2")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?, 0)", ((number,) for number in range(1_000)))
    begin = time.perf_counter()
    for number in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE t SET v = v + 1 WHERE id = ?", (number % 1_000,))
        connection.execute("COMMIT")
    per_s = count / (time.perf_counter() - begin)
    connection.close()
    return per_s


def huey_per_s(python: Path, folder: Path, count: int) -> float:
    folder.mkdir(exist_ok=True)
    (folder / "huey.db").unlink(missing_ok=True)
    return float(run([python, "-c", HUEY, folder / "huey.db", count]).split()[-1])


def python_of_peers(cache: Path) -> Path:
    return pypi.programs(cache, "queues", PACKAGES) / "python"


@dataclass(frozen=True)
class Postgres:
    """A server on a unix socket in `folder`, with its own defaults."""

    bin: Path
    folder: Path

    def skip_locked_per_s(self, count: int) -> float:
        """pgbench, so that no Python is in the way: each client takes a row in one commit and ends it in another."""
        self.sql(TABLE.format(count=2 * count))
        script = self.folder / "cycle.sql"
        script.write_text(CYCLE)
        each = str(count // CONNECTIONS)
        at = ["-h", self.folder, "-U", "postgres", "-n", "-M", "prepared", "-c", str(CONNECTIONS), "-j", "2"]
        said = run([self.bin / "pgbench", *at, "-t", each, "-f", script, "postgres"])
        found = re.search(r"tps = ([\d.]+)", said)
        if found is None:
            raise BrokenError(f"pgbench said no rate: {said[-300:]}")
        return float(found[1])

    def procrastinate_per_s(self, python: Path, count: int) -> float:
        words = f"host={self.folder} user=postgres dbname=postgres"
        return float(run([python, "-c", PROCRASTINATE, words, count]).split()[-1])

    def sql(self, text: str) -> None:
        run([self.bin / "psql", "-h", self.folder, "-U", "postgres", "-q", "-v", "ON_ERROR_STOP=1", "-c", text])


@contextmanager
def a_postgres(children: Children) -> Iterator[Postgres]:
    """It does not run as root; the folder is its own, since ours may not be entered by others."""
    bin_folder = _bin_folder()
    folder = Path(tempfile.mkdtemp(prefix="vb-pg-"))
    child = None
    try:
        run_as = _run_as(folder)
        run([*run_as, bin_folder / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "--no-sync"])
        server = Postgres(bin_folder, folder)
        words = [*run_as, bin_folder / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses="]
        child = children.start("postgres", words)
        wait_until(lambda: _ready(bin_folder, folder), 30, "PostgreSQL serves")
        yield server
    finally:
        if child is not None:
            children.end(child)
        shutil.rmtree(folder, ignore_errors=True)


def _bin_folder() -> Path:
    def found() -> list[Path]:
        return sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), key=lambda path: int(path.parts[-3]))

    if not found() and not shutil.which("pgbench"):
        need("pgbench", "postgresql")
    here = found()
    if here:
        return here[-1].parent
    program = shutil.which("initdb")
    if program is None:
        raise MissingError("initdb is missing: apt-get install postgresql")
    return Path(program).parent


def _run_as(folder: Path) -> Sequence[str]:
    if os.getuid() != 0:
        return ()
    for name in ("postgres", "nobody"):
        try:
            who = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, who.pw_uid, who.pw_gid)
        return (need("setpriv", "util-linux"), f"--reuid={name}", f"--regid={who.pw_gid}", "--clear-groups")
    raise MissingError("there is no user that PostgreSQL could run as")


def _ready(bin_folder: Path, folder: Path) -> bool:
    words = [str(bin_folder / "pg_isready"), "-q", "-h", str(folder)]
    return subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0
