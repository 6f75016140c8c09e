"""The operator's door: a unix socket in a folder that only the server's user may enter. Its peer is OPERATOR."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Invalid
from vole.people.model import OPERATOR
from vole.ssh.admin_session import ANSWERS, run_command
from vole.ssh.answers.counter import Desk
from vole.ssh.operator_link import ERR, EXIT, OUT, WORDS, read_frame, send_frame, short

_log = log.get("vole.ssh.operator")


class OperatorDoor:
    """A service: commands of the server machine, answered by the running server."""

    name = "operator"

    def __init__(self, path: Path, desk: Desk) -> None:
        self._path = path
        self._desk = desk
        self.answers = ANSWERS
        self._sessions: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. A socket of a server that died is replaced: the state lock says that it is dead."""
        self._path.unlink(missing_ok=True)
        with short(self._path) as name:
            self._server = await asyncio.start_unix_server(self._accept, name)
        os.chmod(self._path, 0o600)

    async def wait(self) -> None:
        assert self._server is not None
        await self._server.serve_forever()

    async def drain(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def stop(self) -> None:
        await self.drain()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.create_task(self._serve(reader, writer), name="operator session")
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            kind, words = await read_frame(reader)
            if kind != WORDS:
                raise Invalid("a command begins with its words")
            async with _Peer(reader, writer) as peer:
                command = asyncio.ensure_future(run_command(self._desk, OPERATOR, _words(words), peer, self.answers))
                await asyncio.wait([command, peer.left], return_when=asyncio.FIRST_COMPLETED)
                if not command.done():
                    command.cancel()
                    await asyncio.wait([command])
                    return
                await peer.send(EXIT, str(command.result()).encode())
                # Closing before the client has would break its pipe, and with it what it has not read yet.
                await asyncio.wait([peer.left], timeout=limits.STOP_S)
        except (asyncio.IncompleteReadError, ConnectionError, Invalid) as error:
            _log.info("operator left", why=error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class _Peer:
    """The streams of a client on the socket, and whether it is still there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._input: asyncio.Queue[bytes] = asyncio.Queue(maxsize=2)
        self._rest = b""

    async def __aenter__(self) -> _Peer:
        self.left = asyncio.create_task(self._read_all())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.left.cancel()
        await asyncio.wait([self.left])

    async def read(self, most: int) -> bytes:
        data = self._rest or await self._input.get()
        self._rest = data[most:]
        return data[:most]

    async def out(self, data: bytes) -> None:
        await self.send(OUT, data)

    async def err(self, data: bytes) -> None:
        await self.send(ERR, data)

    async def send(self, kind: bytes, data: bytes) -> None:
        for at in range(0, max(len(data), 1), limits.PUMP_READ_BYTES):
            await send_frame(self._writer, kind, data[at : at + limits.PUMP_READ_BYTES])

    async def _read_all(self) -> None:
        """Ends when the client is gone."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, Invalid):
            while True:
                _, data = await read_frame(self._reader)
                await self._input.put(data)


def _words(text: bytes) -> list[str]:
    try:
        return [str(word) for word in json.loads(text)]
    except (ValueError, TypeError):
        raise Invalid("the words of a command are a JSON list") from None
