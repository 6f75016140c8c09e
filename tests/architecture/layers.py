"""The map of the house: who may import whom, where each library lives. docs/architecture.md shows the same table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

# From the top down. A module imports from lower rows only; parts of one row never import each other.
ROWS: list[tuple[int, list[str]]] = [
    (6, ["vole.__main__", "vole.cli"]),
    (5, ["vole.app"]),
    (4, ["vole.ssh", "vole.web", "vole.nodewire"]),
    (3, ["vole.flows"]),
    (2, ["vole.people", "vole.repos", "vole.workflows", "vole.jobs", "vole.evidence", "vole.runners", "vole.nodes"]),
    (
        1,
        [
            "vole.wire",
            "vole.store",
            "vole.git",
            "vole.verifier",
            "vole.pki",
            "vole.releases",
            "vole.config",
            "vole.http",
            "vole.telemetry",
        ],
    ),
    (0, ["vole.base"]),
]

# Programs that run elsewhere, and all that they may import.
AWAY: dict[str, list[str]] = {
    "vole.agent": ["vole.base", "vole.wire", "vole.config", "vole.pki", "vole.releases"],
    "vole_runner": ["vole.base", "vole.wire", "vole.releases", "vole.config"],
    "vole_runner.harness": ["vole.base", "vole.wire"],
}

# Each library's one home.
HOMES: dict[str, list[str]] = {
    "sqlite3": ["vole.store"],
    "pygit2": ["vole.git", "vole.verifier"],
    "asyncssh": ["vole.ssh", "vole_runner.link"],
    "starlette": ["vole.web", "vole.nodewire"],
    "jinja2": ["vole.web"],
    "markdown_it": ["vole.web"],
    "nh3": ["vole.web"],
    "pygments": ["vole.web"],
    "yaml": ["vole.config.reading", "vole.workflows.reading"],
    "grpc": ["vole_runner.runtimes", "vole_runner.harness", "vole.wire"],
    "google": ["vole_runner.runtimes", "vole_runner.harness", "vole.wire"],
    "cryptography": ["vole.pki", "vole.releases", "vole.git.records", "vole.verifier"],
    "uvicorn": ["vole.http"],
    "httpx": ["vole.releases.fetch", "vole.agent.client"],
    "structlog": ["vole.telemetry"],
    "prometheus_client": ["vole.telemetry"],
    "click": ["vole.cli", "vole_runner.__main__", "vole_runner.harness.__main__", "vole.agent.__main__"],
    "rich": ["vole.cli"],
    "time": ["vole.base"],
    "random": ["vole.base"],
    "secrets": ["vole.base"],
}


@dataclass(frozen=True)
class Module:
    """One file of ours: its dotted name and what it imports, with the line."""

    name: str
    path: Path
    package: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text("utf-8"))

    @property
    def generated(self) -> bool:
        return "_pb2" in self.path.name

    def imports(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                assert node.level == 0, f"{self.path}:{node.lineno}: say the whole name of what is imported"
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def modules() -> list[Module]:
    """Every module of ours, in the server's tree and in the runner's."""
    found = []
    for base, package in ((ROOT, "vole"), (ROOT / "runner", "vole_runner")):
        for path in sorted((base / package).rglob("*.py")):
            parts = list(path.relative_to(base).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            found.append(Module(".".join(parts[:-1] if is_package else parts), path, is_package))
    return found


def within(name: str, part: str) -> bool:
    """Is `name` the module or package `part`, or inside it?"""
    return name == part or name.startswith(part + ".")


def row_of(name: str) -> tuple[int, str] | None:
    """The row and part that `name` belongs to."""
    for row, parts in ROWS:
        for part in parts:
            if within(name, part):
                return row, part
    return None


def away_of(name: str) -> str | None:
    """The program that `name` belongs to, the most exact one first."""
    found = [part for part in AWAY if within(name, part)]
    return max(found, key=len) if found else None


def rows_as_text() -> str:
    """The rows as docs/architecture.md shows them."""
    lines = [f" {row}  {'   '.join(part.removeprefix('vole.') for part in parts)}" for row, parts in ROWS]
    lines += [
        f"{program.removeprefix('vole.')} -> {', '.join(part.removeprefix('vole.') for part in allowed)}"
        for program, allowed in AWAY.items()
    ]
    return "\n".join(lines)


def homes_as_text() -> str:
    """Libraries and their homes, as docs/architecture.md shows them."""
    return "\n".join(
        f"{library}: {', '.join(home.removeprefix('vole.') for home in homes)}" for library, homes in HOMES.items()
    )
