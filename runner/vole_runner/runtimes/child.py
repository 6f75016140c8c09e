"""A harness that is started here and listens on a private socket: its program, its start, its first word.

Knows no sandbox, and ends nothing: whoever started it does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import vole
import vole_runner
from vole.base import limits
from vole.base.errors import Unavailable
from vole_runner.runtimes.dial import Connection
from vole_runner.runtimes.runtime import Descriptor

MODULE = "vole_runner.harness"


@dataclass(frozen=True)
class Child:
    """One process and where its harness listens."""

    process: asyncio.subprocess.Process
    socket: Path
    said: Path  # what it wrote to stderr

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    @property
    def alive(self) -> bool:
        """Asked of the kernel: asyncio learns of an end a little later."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        with suppress(OSError), self.said.open("rb") as said:
            said.seek(max(0, said.seek(0, os.SEEK_END) - 4 * limits.PROBLEM_CHARS_MAX))
            return said.read().decode("utf-8", "replace").strip()[-limits.PROBLEM_CHARS_MAX :]
        return ""


async def spawn(
    argv: Sequence[str], socket: Path, environ: Mapping[str, str], *, pass_fds: tuple[int, ...] = ()
) -> Child:
    """Start `argv`, which listens on `socket`: no stdin, no descriptor of ours but `pass_fds`. Raises Unavailable."""
    said = socket.with_suffix(".err")
    with said.open("wb") as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=environ,
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except OSError as error:
            raise Unavailable(f"{argv[0]} did not start: {error.strerror}") from None
    return Child(process, socket, said)


async def is_ready(child: Child, within_s: float) -> bool:
    """Whether its harness said that it listens. Cancelled, it is killed."""
    assert child.process.stdout is not None
    try:
        async with asyncio.timeout(within_s):
            return bool(await child.process.stdout.readline())
    except (TimeoutError, ValueError):
        return False
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            child.process.kill()
        raise


async def described(address: str) -> Descriptor:
    """What answers at `address` says, over a connection of its own. Raises Unavailable."""
    connection = Connection(address)
    try:
        return await connection.describe()
    finally:
        await connection.aclose()


def roots() -> tuple[str, ...]:
    """The folders that our packages are imported from."""
    return tuple(
        sorted({str(Path(package).resolve().parent.parent) for package in (vole.__file__, vole_runner.__file__)})
    )


def program(python: str = sys.executable) -> list[str]:
    """How a harness is started: without the keeper's folder, paths and PYTHON* variables.

    From a checkout the two roots are named; installed, the interpreter finds the package by itself.
    """
    ours = list(roots())
    if all(Path(root).name == "site-packages" for root in ours):
        return [python, "-I", "-m", MODULE]
    run = f"import sys, runpy; sys.path[:0] = {ours!r}; runpy.run_module({MODULE!r}, run_name='__main__')"
    return [python, "-I", "-c", run]
