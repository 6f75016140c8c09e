"""A store read beside its server, or from a copy: snapshots, and reads that write nothing, not even a lock file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from vole.base.clock import Moment
from vole.base.errors import Conflict, Unavailable
from vole.store import migrate
from vole.store.database import View, driven

P = ParamSpec("P")
T = TypeVar("T")


class Copy:
    """One state of a store for as long as it is open."""

    def __init__(self, connection: sqlite3.Connection, now: Moment) -> None:
        self._view = View(connection, now)
        self.now = now

    def read(
        self, query: Callable[Concatenate[View, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `query(view, …)` returns."""
        return driven(query(self._view, *args, **kwargs), query.__name__)

    def problems(self) -> list[str]:
        """What is wrong with the file itself, as SQLite tells it: pages, indexes, rows that name a missing one."""
        found = [row[0] for row in self._view.connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        orphans = self._view.connection.execute("PRAGMA foreign_key_check").fetchmany(20)
        return found + [f"row {row[1]} of {row[0]} names a row of {row[2]} that is not there" for row in orphans]


def snapshot(path: Path, into: Path) -> None:
    """The store at `path` as it is now, in the new file `into`, while whoever serves it goes on writing."""
    try:
        with closing(_reader(path)) as source:
            source.execute("VACUUM INTO ?", (str(into),))
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be copied: {error}") from None
    into.chmod(0o600)


@contextmanager
def opened(path: Path, now: Moment) -> Iterator[Copy]:
    """Read the store at `path`, served or not. Raises Unavailable, Conflict for another schema than this version's."""
    try:
        with closing(_reader(path)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")
            names = [row["name"] for row in connection.execute("SELECT name FROM migrations ORDER BY number")]
            if names != [migration.name for migration in migrate.known()]:
                last = names[-1] if names else "none"
                raise Conflict(
                    f"{path} was left by another version of vole (its last migration: {last})",
                    next_step="read it with that version, or let this one serve it once",
                )
            yield Copy(connection, now)
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be read: {error}") from None


def _reader(path: Path) -> sqlite3.Connection:
    """Without a log beside it nobody has the file open, and SQLite need not make one to look."""
    alone = "" if os.path.exists(f"{path}-wal") else "&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{alone}", uri=True, isolation_level=None)
