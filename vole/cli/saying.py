"""A command of the table on the server machine: to the running server, or answered here when there is none."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from vole.base import limits
from vole.config import server
from vole.ssh import commands, operator_link

INTERRUPTED = 130


class ReaderLeft(ConnectionError):
    """Nobody reads our standard output any more, as in `vole log … | head`."""


class Terminal:
    """This process's own streams. Standard input is read whole beforehand: a key is the most that is ever there."""

    def __init__(self, stdin: bytes) -> None:
        self._stdin = stdin

    async def read(self, most: int) -> bytes:
        data, self._stdin = self._stdin[:most], self._stdin[most:]
        return data

    async def out(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise ReaderLeft from None

    async def err(self, data: bytes) -> None:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


def say(folder: Path, words: list[str]) -> int:
    """The exit status of `words`. Raises the kinds of errors that come before any answer."""
    call = commands.parse(words)
    stdin = _read_stdin() if call.command.reads_stdin else b""
    try:
        return asyncio.run(_say(folder, words, Terminal(stdin)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderLeft:
        sys.stderr.close()  # or Python complains of the pipe at exit
        return 0


async def _say(folder: Path, words: list[str], terminal: Terminal) -> int:
    link = await operator_link.dial(server.Paths(folder.absolute()).command_socket)
    if link is not None:
        return await operator_link.call(link, words, terminal)
    # Everything that a server needs, and only where there is none.
    from vole.app import App  # noqa: PLC0415
    from vole.people.model import OPERATOR  # noqa: PLC0415
    from vole.ssh.admin_session import run_command  # noqa: PLC0415

    async with App.closed_doors(server.load(folder)) as app:
        return await run_command(app.desk, OPERATOR, words, terminal)


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        sys.stderr.write("paste the public key, then Ctrl-D:\n")
    return sys.stdin.buffer.read(limits.COMMAND_STDIN_BYTES_MAX + 1)
