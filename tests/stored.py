"""The database of a forge as another process reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from tests import invariants
from vole.base.clock import Moment
from vole.jobs.reads import health
from vole.store import copies
from vole.store.database import open_writer


@cache
def _template() -> bytes:
    with closing(open_writer(":memory:")) as connection:
        return connection.serialize()


def fresh(folder: Path) -> Path:
    """Where the database of a forge is; empty and migrated, as a copy, when there was none."""
    path = folder / "vole.db"
    if not path.exists():
        path.write_bytes(_template())
    return path


def rows(folder: Path, sql: str, *values: Any) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(folder / "vole.db")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql, values).fetchall()


def check(folder: Path) -> None:
    """The tables are what the event log says, and every invariant holds; `vole doctor` finds them whole too."""
    with closing(sqlite3.connect(folder / "vole.db")) as connection:
        invariants.check(connection)
    with copies.opened(folder / "vole.db", Moment(0)) as store:
        assert store.read(health.broken) == []
