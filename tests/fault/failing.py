"""A store whose SQLite fails at each statement of each change in turn: busy, disk full, I/O error.

Every change is tried again by its caller, one statement further each time, until it passes: one telling of a story
fails at every statement of every change in it, and each failure must have left the database as it was.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Literal

from vole.base.errors import Unavailable
from vole.store.database import Database

Kind = Literal["busy", "full", "ioerr"]

_WORDS = {
    "busy": ("database is locked", sqlite3.SQLITE_BUSY),
    "full": ("database or disk is full", sqlite3.SQLITE_FULL),
    "ioerr": ("disk I/O error", sqlite3.SQLITE_IOERR),
}


class Failing(sqlite3.Connection):
    """Real SQLite, but for the `at`th statement of the writer's thread.

    busy: the transaction stays. full: SQLite has rolled all back. ioerr: nothing more succeeds on this connection.
    """

    kind: ClassVar[Kind] = "busy"
    at: ClassVar[int | None] = None
    fired: ClassVar[bool] = False
    _broken = False

    def execute(self, *given: Any) -> sqlite3.Cursor:
        self._pass()
        return super().execute(*given)

    def executemany(self, *given: Any) -> sqlite3.Cursor:
        self._pass()
        return super().executemany(*given)

    def _pass(self) -> None:
        if threading.current_thread().name != "store-writer":
            return
        if self._broken:
            raise _error("ioerr")
        if Failing.at is None:
            return
        Failing.at -= 1
        if Failing.at > 0:
            return
        Failing.at, Failing.fired = None, True
        self._broken = self.kind == "ioerr"
        if self.kind == "full" and self.in_transaction:
            super().execute("ROLLBACK")
        raise _error(self.kind)


def _error(kind: Kind) -> sqlite3.OperationalError:
    words, code = _WORDS[kind]
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


class Stubborn(Database):
    """Fails each change at its first statement, then at its second …, until one try gets through."""

    armed: ClassVar[bool] = False
    spared: ClassVar[frozenset[str]] = frozenset({"_repo", "_account"})  # how a test sets its scene
    tries: ClassVar[Counter[str]] = Counter()  # since the change of this name last got through
    failures: ClassVar[Counter[str]] = Counter()
    before: list[str] | None = None  # what stands there, as long as nothing changed it

    async def write_each(self, change, one, /, *args):  # type: ignore[no-untyped-def, override]
        return (await self.write(change, [one], *args))[0]

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        name = change.__name__
        if not self.armed or name in self.spared:
            self.before = None
            return await super().write(change, *args, **kwargs)
        before = self.before = self.before or told(self._path)
        Failing.at, Failing.fired = self.tries[name] + 1, False
        try:
            result = await super().write(change, *args, **kwargs)
        except Unavailable:
            assert Failing.fired
            self.tries[name] += 1
            self.failures[name] += 1
            assert told(self._path) == before, f"{name} failed at statement {self.tries[name]} and left something"
            raise
        finally:
            Failing.at = None
        assert not Failing.fired, f"{name} succeeded, though its statement {self.tries[name] + 1} failed"
        self.tries[name], self.before = 0, None
        return result


def told(path: Path) -> list[str]:
    """Everything that stands in the database, as another process reads it."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()
