"""Numbered SQL files, forward only. A newer schema or a file that changed after it was applied is refused."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from vole.base.errors import Invalid

_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def known() -> list[Migration]:
    """Every migration this version carries, in order."""
    folder = resources.files("vole.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if _FILE.fullmatch(entry.name))
    return [Migration(int(name[:4]), name, (folder / name).read_text("utf-8")) for name in names]


def apply(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, each migration in a transaction of its own. Raises Invalid, with nothing changed."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL) STRICT"
    )
    applied = {row[0]: (row[1], row[2]) for row in connection.execute("SELECT number, name, digest FROM migrations")}
    carried = {migration.number: migration for migration in known()}
    for number, (name, digest) in applied.items():
        if number not in carried:
            raise Invalid(
                f"the database has migration {name}, which this vole does not know: it is older than the data"
            )
        if carried[number].digest != digest:
            raise Invalid(f"migration {name} is not the one this database was made with")
    for number, migration in carried.items():
        if number not in applied:
            _apply_one(connection, migration)


def _apply_one(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO migrations (number, name, digest) VALUES (?, ?, ?)",
            (migration.number, migration.name, migration.digest),
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _statements(sql: str) -> list[str]:
    """Cut at semicolons that end a statement. (`executescript` would commit in the middle.)"""
    statements, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
