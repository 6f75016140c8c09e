"""A store in memory for one piece of reckoning: the schema of the real one, no thread, nothing durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from vole.base.clock import Moment
from vole.base.entropy import Entropy
from vole.store.database import Batch, Tx, open_writer

P = ParamSpec("P")
T = TypeVar("T")


class Scratch:
    """Changes take effect at once; what waits for their commit waits for `settle`, as in a commit that many share."""

    def __init__(self, entropy: Entropy) -> None:
        self._connection: sqlite3.Connection = open_writer(":memory:")
        self._entropy = entropy
        self._after: list[Callable[[], None]] = []
        self._batch = Batch()

    def change(self, now: Moment, change: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `change(tx, …)` returns. Raises what it raises, with nothing changed."""
        tx = Tx(self._connection, now, self._entropy, self._batch)
        self._connection.execute("SAVEPOINT change")
        try:
            result = change(tx, *args, **kwargs)
        except BaseException:
            self._connection.execute("ROLLBACK TO change")
            self._connection.execute("RELEASE change")
            raise
        self._connection.execute("RELEASE change")
        self._after += tx._after
        return result

    def settle(self) -> None:
        """The commit that the changes since the last one shared: what waited for it runs."""
        steps, self._after, self._batch = self._after, [], Batch()
        for step in steps:
            step()

    def close(self) -> None:
        self._connection.close()
