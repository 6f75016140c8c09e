"""Peers from PyPI, each in an environment of its own that later runs use again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.clients import run
from tests.bench.machine import BrokenError, MissingError


def programs(cache: Path, name: str, packages: Sequence[str]) -> Path:
    """The folder of the programs of `packages`, Python among them. Raises MissingError."""
    folder = cache / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    holds = folder / "packages"
    if not holds.exists() or holds.read_text() != " ".join(packages):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _install(folder, packages)
        except (BrokenError, OSError, subprocess.TimeoutExpired) as fault:
            raise MissingError(f"{name} could not be installed from PyPI: {fault}") from fault
        holds.write_text(" ".join(packages))
    return folder / "bin"


def _install(folder: Path, packages: Sequence[str]) -> None:
    python = folder / "bin" / "python"
    if uv := shutil.which("uv"):
        run([uv, "venv", "-q", "--python", sys.executable, folder])
        run([uv, "pip", "install", "-q", "--python", python, *packages])
    else:
        run([sys.executable, "-m", "venv", folder])
        run([python, "-m", "pip", "install", "-q", *packages])
