"""The program starts light: what a command does not need is not imported for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "asyncio",
    "asyncssh",
    "pygit2",
    "sqlite3",
    "starlette",
    "uvicorn",
    "jinja2",
    "yaml",
    "structlog",
    "rich",
    "grpc",
)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["user", "--help"]])
def test_help_imports_nothing_of_a_server(words: list[str]) -> None:
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "vole", *words],
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )

    imported = {line.rsplit("|", 1)[1].strip() for line in said.stderr.splitlines() if "|" in line}
    assert "vole.cli" in imported
    assert imported.isdisjoint(HEAVY)
