"""One channel until it is known what it is for, and the channel of commands. Serves neither git nor runners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import asyncssh

from vole.base import limits
from vole.base.errors import Denied, VoleError
from vole.people.model import Person
from vole.ssh import refusals
from vole.ssh.commands import Streams
from vole.ssh.connection import Connection
from vole.ssh.git_session import GitDoor, GitSession
from vole.ssh.words import git_request
from vole.wire import runner

Inner = asyncssh.SSHServerSession[bytes]
CommandDoor = Callable[[Person, str, Streams], Awaitable[int]]


@dataclass(frozen=True)
class Doors:
    """What a channel may turn out to be for. `spawn` runs a session's life in the door's group."""

    git: GitDoor
    commands: CommandDoor
    runners: Callable[[Connection], Inner]
    spawn: Callable[[Awaitable[None]], None]


class Living(Protocol):
    """A session whose whole life is one coroutine that ends with an exit status."""

    async def run(self) -> int: ...


class Session(asyncssh.SSHServerSession[bytes]):
    """A channel of a known key. It is for exactly one thing: a git service, a command, or the runner link."""

    def __init__(self, doors: Doors, connection: Connection) -> None:
        self._doors = doors
        self._connection = connection
        self._inner: Inner | None = None
        self._living: Living | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan
        self._connection.open_channels += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.open_channels -= 1
        self._writable.set()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def shell_requested(self) -> bool:
        return self._refuse(Denied("there is no shell here", next_step="`ssh git@HOST help` lists the commands"))

    def exec_requested(self, command: str) -> bool:
        try:
            request = git_request(command)
        except VoleError as error:
            return self._refuse(error)
        if self._connection.person.key_kind == "runner":
            return self._refuse(Denied("a runner key can do nothing but run jobs", next_step="use a git key"))
        if request is not None:
            protocol = self._chan.get_environment_bytes().get(b"GIT_PROTOCOL", b"").decode("ascii", "replace")
            session = GitSession(self._doors.git, self._connection, request, protocol)
            return self._become(session, session)
        commands = CommandSession(self._doors.commands, self._connection.person, command)
        return self._become(commands, commands)

    def subsystem_requested(self, subsystem: str) -> bool:
        if subsystem != runner.SUBSYSTEM:
            return False
        if self._connection.person.key_kind != "runner":
            refused = runner.Refused(runner.Refusal.GRANT, "this key is for git: a runner needs a key of kind `runner`")
            self._chan.write(runner.FROM_SERVER.encode(refused))
            return self._end(1)
        inner = self._doors.runners(self._connection)
        self._become(inner, None)
        return inner.subsystem_requested(subsystem)

    def session_started(self) -> None:
        if self._inner is not None:
            self._inner.session_started()
        if self._living is not None:
            self._doors.spawn(self._live(self._living))

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self._inner is not None:
            self._inner.data_received(data, datatype)

    def eof_received(self) -> bool:
        return self._inner is None or bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._inner is not None:
            self._inner.resume_writing()

    def _become(self, inner: Inner, living: Living | None) -> bool:
        self._inner, self._living = inner, living
        inner.connection_made(self._chan)
        return True

    async def _live(self, living: Living) -> None:
        status = await living.run()
        await self._all_written()
        if not self._chan.is_closing():
            self._chan.exit(status)
        await self._chan.wait_closed()

    async def _all_written(self) -> None:
        """The status must not overtake output: a client may leave when it has it."""
        if self._chan.is_closing():
            return
        self._chan.set_write_buffer_limits(high=0)  # pauses now if anything is left, resumes when nothing is
        try:
            async with asyncio.timeout(limits.SSH_TAIL_S):
                await self._writable.wait()
        except TimeoutError:
            self._chan.abort()

    def _refuse(self, error: VoleError) -> bool:
        refusal = refusals.of(error)
        text = "".join(f"vole: {line}\n" for line in refusal.lines)
        self._chan.write(text.encode(), asyncssh.EXTENDED_DATA_STDERR)
        return self._end(refusal.status)

    def _end(self, status: int) -> bool:
        """Accept the request, then close: the client gets a line and a status, not a bare failure."""
        asyncio.get_running_loop().call_soon(self._chan.exit, status)
        return True


class CommandSession(asyncssh.SSHServerSession[bytes]):
    """The channel of one command: its three streams, bounded both ways."""

    def __init__(self, door: CommandDoor, person: Person, line: str) -> None:
        self._door = door
        self._person = person
        self._line = line
        self._input = bytearray()
        self._input_over = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._work: asyncio.Future[int] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan
        chan.set_write_buffer_limits(high=limits.PUMP_BUFFER_BYTES_MAX)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._work is not None:
            self._work.cancel()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:  # noqa: ARG002
        self._input += data
        self._arrived.set()
        self._chan.pause_reading()

    def eof_received(self) -> bool:
        self._input_over = True
        self._arrived.set()
        return True

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def run(self) -> int:
        """Answer the command; its exit status. A client that leaves ends it."""
        self._work = asyncio.ensure_future(self._door(self._person, self._line, self))
        await asyncio.wait([self._work])
        return 1 if self._work.cancelled() else self._work.result()

    async def read(self, most: int) -> bytes:
        """Up to `most` bytes of standard input; empty at its end."""
        while not self._input and not self._input_over:
            self._arrived.clear()
            self._chan.resume_reading()
            await self._arrived.wait()
        data = bytes(self._input[:most])
        del self._input[:most]
        return data

    async def out(self, data: bytes) -> None:
        await self._write(data, None)

    async def err(self, data: bytes) -> None:
        await self._write(data, asyncssh.EXTENDED_DATA_STDERR)

    async def _write(self, data: bytes, datatype: asyncssh.DataType) -> None:
        await self._writable.wait()
        if not self._chan.is_closing():
            self._chan.write(data, datatype)
