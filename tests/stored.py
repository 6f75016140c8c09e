"""The database of a forge as another process reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests import invariants


def rows(folder: Path, sql: str, *values: Any) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(folder / "vole.db")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql, values).fetchall()


def check(folder: Path) -> None:
    """The tables are what the event log says, and every invariant holds."""
    with closing(sqlite3.connect(folder / "vole.db")) as connection:
        invariants.check(connection)
