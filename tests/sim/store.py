"""The real store's commits and reads on SQLite in memory, inline: no thread, each history on an empty template."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from vole.base.clock import Clock
from vole.base.entropy import Entropy
from vole.store.database import GROUP_MAX, Database, Tx, View, _Alike, _Waiting, driven, open_writer

# What a change touched, written down by triggers: the checker looks at these rows and no others.
_NOTED = {
    "jobs": ("id", "NULL"),
    "attempts": ("job_id", "epoch"),
    "runs": ("id", "NULL"),
    "job_documents": ("job_id", "NULL"),
    "run_labels": ("job_id", "NULL"),
    "events": ("id", "NULL"),
}


@cache
def template() -> bytes:
    """A migrated, empty database whose triggers note each touched row."""
    connection = open_writer(":memory:")
    connection.execute("CREATE TABLE touched (place TEXT, how TEXT, id INTEGER, epoch INTEGER)")
    for place, (key, epoch) in _NOTED.items():
        for how, row in (("insert", "new"), ("update", "new"), ("delete", "old")):
            at = epoch if epoch == "NULL" else f"{row}.{epoch}"
            connection.execute(
                f"CREATE TRIGGER noted_{place}_{how} AFTER {how} ON {place} BEGIN "
                f"INSERT INTO touched VALUES ('{place}', '{how}', {row}.{key}, {at}); END"
            )
    data = connection.serialize()
    connection.close()
    return data


_kept: list[sqlite3.Connection] = []  # empty again: their statements are prepared already


def copied() -> sqlite3.Connection:
    """The template, as good as new. Whoever has it gives it back with `given_back`."""
    if _kept:
        return _kept.pop()
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = sqlite3.Row
    connection.deserialize(template())
    connection.execute("PRAGMA foreign_keys = 1")
    return connection


def given_back(connection: sqlite3.Connection) -> None:
    """Empty it for the next history."""
    if connection.in_transaction:
        connection.close()
        return
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('migrations', 'touched')"
    connection.execute("PRAGMA foreign_keys = 0")
    connection.execute("BEGIN")
    for (table,) in connection.execute(tables).fetchall():
        connection.execute(f"DELETE FROM {table}")
    connection.execute("DELETE FROM touched")
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys = 1")
    _kept.append(connection)


def _heard(answer: asyncio.Future[Any]) -> None:
    """Its caller may be gone; what it was refused for is no fault then."""
    if not answer.cancelled():
        answer.exception()


class Store(Database):
    """`Database` with its own commit, on the loop's time. `seen` is told of each change before its commit."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        entropy: Entropy,
        rng: Random,
        seen: Callable[[str], None],
    ) -> None:
        self._connection = self._writer = connection
        self._clock, self._entropy = clock, entropy
        self._rng, self._seen = rng, seen
        self._group: list[_Waiting] = []
        self._named: dict[Any, Any] = {}
        self._closed = False
        self.dead = False  # the process is gone: nothing more becomes durable
        self.slow_s = 0.0  # what a commit takes; the disk decides
        self.commits = 0

    async def write(self, change: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise asyncio.CancelledError
        noted = self._noted(change)
        loop = asyncio.get_running_loop()
        return await self._soon(_Waiting(lambda tx: noted(tx, *args, **kwargs), loop, loop.create_future()))

    async def write_each(self, change: Any, one: Any, /, *args: Any, **_: Any) -> Any:
        if self.dead:
            raise asyncio.CancelledError
        alike = _Alike(one, self._noted(change), args)
        loop = asyncio.get_running_loop()
        return await self._soon(_Waiting(alike.alone, loop, loop.create_future(), alike))

    def _noted(self, change: Any) -> Any:
        """`change`, seen once it is made. The same one each time: it is asked whether two are alike."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            result = change(*args, **kwargs)
            self._seen(getattr(change, "__name__", ""))
            return result

        return self._named.setdefault(change, noted)

    async def _soon(self, waiting: _Waiting) -> Any:
        if not self._group:
            late = self._rng.random()
            waiting.loop.call_later(self.slow_s + (0.0 if late < 0.7 else late * 0.01), self._turn)
        waiting.answer.add_done_callback(_heard)
        self._group.append(waiting)
        return await asyncio.shield(waiting.answer)

    async def read(self, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise asyncio.CancelledError
        late = self._rng.random()
        if late < 0.1:
            await asyncio.sleep(self.slow_s + late * 0.1)
        if self.dead:
            raise asyncio.CancelledError
        return driven(query(View(self._connection, self._clock.now()), *args, **kwargs), query.__qualname__)

    def glance(self, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise asyncio.CancelledError
        return driven(query(View(self._connection, self._clock.now()), *args, **kwargs), query.__qualname__)

    def glimpse(self, query: Any, *args: Any) -> Any:
        """A read at this very moment, for whoever looks from outside."""
        return driven(query(View(self._connection, self._clock.now()), *args), query.__qualname__)

    def now(self, change: Any, *args: Any, **kwargs: Any) -> Any:
        """A change made at this very moment, outside every story: how a history begins."""
        self._connection.execute("BEGIN IMMEDIATE")
        tx = Tx(self._connection, self._clock.now(), self._entropy)
        result = change(tx, *args, **kwargs)
        self._connection.execute("COMMIT")
        for step in tx._after:
            step()
        return result

    async def close(self) -> None:
        self._closed = True

    def _turn(self) -> None:
        if self.dead:
            return
        group, self._group = self._group[:GROUP_MAX], self._group[GROUP_MAX:]
        self._commit(group)
        self._seen("")
