"""Changes and reads. `await db.write(change, …)` runs `change(tx, …)` whole in one transaction on one thread.

Changes waiting at the same moment share one commit, each in a savepoint, each answered only after the commit is
durable. Every change has a name, its function, which is what fault tests die at. A read runs whole on one of a few
threads: one hop, however many statements it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from vole.base import log
from vole.base.clock import Clock, Moment
from vole.base.entropy import Entropy
from vole.base.errors import Unavailable
from vole.store import migrate

_log = log.get("vole.store")

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")
Row = sqlite3.Row

GROUP_MAX = 256  # changes in one commit
READERS = 4  # threads, each read has one to itself
READ_WAIT_S = 10.0  # a read waits at most this long for its turn
# `temp_store` in memory: a savepoint of more than 64 KiB would go through a file of its own.
_PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "temp_store": 2}


@dataclass(eq=False)
class Batch:
    """The changes of one commit; `first` names it: an id that the first of them drew."""

    first: int | None = None


@dataclass
class Tx:
    """One change's transaction: its moment, its ids, its statements. Never commits by itself."""

    connection: sqlite3.Connection
    now: Moment
    entropy: Entropy
    batch: Batch = field(default_factory=Batch)
    _after: list[Callable[[], None]] = field(default_factory=list)

    def ident(self) -> int:
        """A new id, larger than every one before."""
        return self.entropy.ident(self.now)

    def run(self, sql: str, /, **values: Any) -> int:
        """Run one statement; how many rows it changed."""
        return self.connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[dict[str, Any]], /) -> None:
        """Run one statement for each of `rows`."""
        self.connection.executemany(sql, rows)

    def one(self, sql: str, /, **values: Any) -> Row | None:
        """The first row, or None."""
        row: Row | None = self.connection.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, /, **values: Any) -> list[Row]:
        """Every row."""
        return self.connection.execute(sql, values).fetchall()

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part that can fail by itself: what it raises undoes its statements and steps, and no others."""
        steps = len(self._after)
        self.connection.execute("SAVEPOINT part")
        try:
            yield
        except Exception:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO part")
                self.connection.execute("RELEASE part")
            del self._after[steps:]
            raise
        self.connection.execute("RELEASE part")

    def after_commit(self, step: Callable[[], None]) -> None:
        """Run `step` on the writer's thread once this change is durable; never if it is not."""
        self._after.append(step)


@dataclass(frozen=True)
class View:
    """One read transaction: every query of it sees one snapshot. A read awaits these two and nothing else."""

    connection: sqlite3.Connection
    now: Moment

    async def one(self, sql: str, /, **values: Any) -> Row | None:
        """The first row, or None."""
        row: Row | None = self.connection.execute(sql, values).fetchone()
        return row

    async def all(self, sql: str, /, **values: Any) -> list[Row]:
        """Every row."""
        return self.connection.execute(sql, values).fetchall()


@dataclass(frozen=True)
class _Alike:
    """One of several that the same change makes: `change(tx, [one, …], *args)` gives an answer for each."""

    one: Any
    change: Callable[..., Sequence[Any]]
    args: tuple[Any, ...]

    def goes_with(self, other: _Alike | None) -> bool:
        return other is not None and self.change is other.change and self.args == other.args

    def alone(self, tx: Tx) -> Any:
        (result,) = self.change(tx, [self.one], *self.args)
        return result


@dataclass(eq=False)
class _Waiting:
    """A change and whoever awaits it. The writer fills in the answer, the caller's loop hands it over."""

    change: Callable[[Tx], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    alike: _Alike | None = None
    result: Any = None
    error: BaseException | None = None

    def hand_over(self) -> None:
        """On the caller's loop. A caller that was cancelled meanwhile hears nothing; its change stands."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)


_Done = list[tuple[list[_Waiting], Tx]]  # what was made in a commit, until it is durable


class Database:
    """The store of one server. Open it with `Database.open`, close it last."""

    def __init__(self, path: Path, clock: Clock, entropy: Entropy) -> None:
        self._path = path
        self._clock = clock
        self._entropy = entropy
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()  # of readers, as many as threads
        self._glancing: sqlite3.Connection | None = None  # the loop's
        self._writer: sqlite3.Connection | None = None  # the writer thread's
        self._thread = threading.Thread(target=self._write_all, name="store-writer", daemon=True)
        self._opened: Future[None] = Future()
        self._closed = False
        self.commits = 0
        """How many commits became durable: what was read while it stood still is still so."""

    @classmethod
    async def open(cls, path: Path, clock: Clock, entropy: Entropy) -> Database:
        """The database at `path`, made if absent, migrated, its pragmas verified. Raises Invalid for a newer schema."""
        database = cls(path, clock, entropy)
        database._thread.start()
        await asyncio.wrap_future(database._opened)
        for _ in range(READERS):
            database._idle.put(_open_reader(path))
        database._glancing = _open_reader(path)
        return database

    async def write(self, change: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `change(tx, …)` returns, once it is durable. Raises what it raises, with nothing changed."""
        if self._closed:
            raise Unavailable("the store is closed: the server is stopping")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(lambda tx: change(tx, *args, **kwargs), loop, loop.create_future())
        self._waiting.put(waiting)
        result: T = await waiting.answer
        return result

    async def write_each(
        self, change: Callable[Concatenate[Tx, Sequence[A], P], Sequence[T]], one: A, /, *args: P.args, **_: P.kwargs
    ) -> T:
        """As `write`, for what many ask for at once: what waits for one commit is made by one `change(tx, [one, …])`.

        It answers each in its place. Where it raises, nothing of them is changed, and each is made by itself.
        """
        if self._closed:
            raise Unavailable("the store is closed: the server is stopping")
        loop = asyncio.get_running_loop()
        alike = _Alike(one, change, args)
        waiting = _Waiting(alike.alone, loop, loop.create_future(), alike)
        self._waiting.put(waiting)
        result: T = await waiting.answer
        return result

    async def read(
        self, query: Callable[Concatenate[View, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `query(view, …)` returns, from one snapshot. It runs on a thread of its own, to its end."""
        if self._closed:
            raise Unavailable("the store is closed: the server is stopping")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[T] = loop.create_future()
        job = self._readers.submit(self._read, lambda view: query(view, *args, **kwargs), query.__qualname__)
        job.add_done_callback(lambda job: loop.call_soon_threadsafe(_found, job, found))
        late = loop.call_later(READ_WAIT_S, job.cancel)  # in vain once it has begun
        try:
            return await found
        finally:
            late.cancel()
            job.cancel()

    def glance(
        self, query: Callable[Concatenate[View, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `query(view, …)` returns, read at once on the thread of the loop: for a few rows found by an index."""
        if self._closed or self._glancing is None:
            raise Unavailable("the store is closed: the server is stopping")
        return self._read_on(self._glancing, lambda view: query(view, *args, **kwargs), query.__qualname__)

    async def probe(self) -> None:
        """Raises Unavailable when no change can be made just now: the writer answers and has the write lock."""
        await self.write(_nothing)

    async def close(self) -> None:
        """Answer what waits, then close. Later writes and reads raise Unavailable.

        The writer is last: it brings its log into the one file, which SQLite lets nobody do beside a reader.
        """
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._readers.shutdown)
        if self._glancing is not None:
            self._glancing.close()
        while not self._idle.empty():
            self._idle.get_nowait().close()
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    def _read(self, query: Callable[[View], Coroutine[Any, Any, T]], name: str) -> T:
        connection = self._idle.get_nowait()
        try:
            return self._read_on(connection, query, name)
        finally:
            self._idle.put(connection)

    def _read_on(self, connection: sqlite3.Connection, query: Callable[[View], Coroutine[Any, Any, T]], name: str) -> T:
        try:
            connection.execute("BEGIN")
            return driven(query(View(connection, self._clock.now())), name)
        finally:
            connection.rollback()

    def _write_all(self) -> None:
        try:
            self._writer = open_writer(self._path)
        except BaseException as error:
            self._opened.set_exception(_as_unavailable(error))
            return
        self._opened.set_result(None)
        going_on = True
        while going_on:
            group, going_on = self._next_group()
            if group:
                self._commit(group)
        if self._writer is not None:
            self._writer.close()

    def _next_group(self) -> tuple[list[_Waiting], bool]:
        group: list[_Waiting] = []
        item = self._waiting.get()
        while item is not None:
            group.append(item)
            if len(group) == GROUP_MAX:
                return group, True
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Waiting]) -> None:
        done: _Done = []
        batch = Batch()
        try:
            connection = self._writer = self._writer or open_writer(self._path)
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            for together in _together(group):
                self._apply_all(connection, batch, together, done)
            connection.execute("COMMIT")
            self.commits += connection.total_changes != before  # a sweep that found nothing to do wrote nothing
        except BaseException as error:
            self._roll_back(error)
            _log.error("the store cannot write", changes=len(group), why=str(error))
            for waiting in group:
                waiting.error = waiting.error or _as_unavailable(error)
        else:
            for together, tx in done:
                _follow(together, tx)
        _hand_over(group)

    def _roll_back(self, error: BaseException) -> None:
        """Nothing of a failed commit stays. A connection that cannot even do that, or whose file failed below it, is
        closed, and the next group opens another one."""
        if self._writer is None:
            return
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            if _code(error) != sqlite3.SQLITE_IOERR:
                return
        except sqlite3.Error:
            pass  # closing rolls back
        self._writer.close()
        self._writer = None

    def _apply_all(
        self,
        connection: sqlite3.Connection,
        batch: Batch,
        together: list[_Waiting],
        done: _Done,
    ) -> None:
        """What goes together in one change; where that is refused, each in its own."""
        tx = Tx(connection, self._clock.now(), self._entropy, batch)
        connection.execute("SAVEPOINT change")
        try:
            results = _results(tx, together)
        except Exception as error:
            if not connection.in_transaction:  # SQLite itself rolled all back: disk full, I/O error
                raise
            connection.execute("ROLLBACK TO change")
            connection.execute("RELEASE change")
            if len(together) == 1:
                together[0].error = _as_unavailable(error)
                return
            for waiting in together:
                self._apply_all(connection, batch, [waiting], done)
        else:
            connection.execute("RELEASE change")
            for waiting, result in zip(together, results, strict=True):
                waiting.result = result
            done.append((together, tx))


def _hand_over(group: list[_Waiting]) -> None:
    """Answer every caller: one wake-up for each loop, however many changes shared the commit."""
    of_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for waiting in group:
        of_loop.setdefault(waiting.loop, []).append(waiting)
    for loop, answered in of_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_hand_over_all, answered)


def _hand_over_all(answered: list[_Waiting]) -> None:
    for waiting in answered:
        waiting.hand_over()


def _follow(together: list[_Waiting], tx: Tx) -> None:
    """What comes after a durable change. A step that fails fails its callers, never the thread that all write on."""
    try:
        for step in tx._after:
            step()
    except Exception as error:
        for waiting in together:
            waiting.error = error


def _together(group: list[_Waiting]) -> list[list[_Waiting]]:
    """The changes of a commit in their order; what is alike stands with the first of its kind."""
    found: list[list[_Waiting]] = []
    kinds: list[list[_Waiting]] = []
    for waiting in group:
        kind = next((kind for kind in kinds if waiting.alike and waiting.alike.goes_with(kind[0].alike)), None)
        if kind is not None:
            kind.append(waiting)
            continue
        found.append([waiting])
        if waiting.alike:
            kinds.append(found[-1])
    return found


def _results(tx: Tx, together: list[_Waiting]) -> Sequence[Any]:
    first = together[0]
    if first.alike is None or len(together) == 1:
        return [first.change(tx)]
    return first.alike.change(tx, [waiting.alike.one for waiting in together if waiting.alike], *first.alike.args)


def _nothing(_: Tx) -> None:
    return None


def open_writer(path: Path | Literal[":memory:"]) -> sqlite3.Connection:
    """A migrated connection with its pragmas set and read back. `:memory:` is for tests and simulations."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    wanted = _PRAGMAS if path != ":memory:" else {"foreign_keys": 1}
    for name, value in wanted.items():
        connection.execute(f"PRAGMA {name} = {value}")
        (found,) = connection.execute(f"PRAGMA {name}").fetchone()
        if found != value:
            connection.close()
            raise Unavailable(
                f"SQLite did not take PRAGMA {name} = {value} (it says {found}): is {path} on a network disk?"
            )
    if path == ":memory:":
        connection.deserialize(_migrated())
    migrate.apply(connection)
    return connection


@cache
def _migrated() -> bytes:
    """An empty database with every migration: what is made in memory over and over begins as a copy."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate.apply(connection)
        return connection.serialize()


def _open_reader(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA query_only = 1")
    return connection


def _found(job: Future[T], found: asyncio.Future[T]) -> None:
    """What a reader's thread came to, on the loop. By hand: `wait` and `wrap_future` cost as much as a small read."""
    if found.done():  # its caller is gone
        return
    if job.cancelled():
        found.set_exception(Unavailable("every reader of the store is busy"))
    elif (error := job.exception()) is not None:
        found.set_exception(error)
    else:
        found.set_result(job.result())


def driven(reading: Coroutine[Any, Any, T], name: str) -> T:
    """What the read called `name` returns; its statements run as it awaits them."""
    try:
        reading.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        reading.close()
    raise AssertionError(f"the read {name} awaited something other than its view")


_FREE_SPACE = "free space on the disk of the server's folder, then try again"


def _as_unavailable(error: BaseException) -> BaseException:
    """A full disk or a busy file is no bug of ours: say it as what it is, and what helps."""
    if isinstance(error, sqlite3.OperationalError):
        next_step = _FREE_SPACE if _code(error) == sqlite3.SQLITE_FULL else None
        return Unavailable(f"the store cannot write just now: {error}", next_step=next_step)
    return error


def _code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for an error that is not its own."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
