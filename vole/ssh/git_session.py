"""One git service over one SSH channel: bytes both ways, the hook's question, the runs at the end. Holds no rule.

Nothing is buffered beyond PUMP_BUFFER_BYTES_MAX either way. A client that leaves ends the git child and its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass

import asyncssh

from vole.base import limits, log
from vole.base.errors import Unavailable, VoleError
from vole.flows.push import OpenGit, Pushes
from vole.git.child import Child, HookPipes
from vole.git.pktline import FLUSH, Packets, PushHead, remote_lines
from vole.git.service import GitPrograms
from vole.git.storage import is_empty
from vole.people.model import Person
from vole.ssh import refusals
from vole.ssh.connection import Connection
from vole.ssh.words import GitRequest
from vole.wire import hook

_log = log.get("vole.ssh.git")


@dataclass(frozen=True)
class GitDoor:
    """What git sessions are served with."""

    pushes: Pushes
    programs: GitPrograms
    hook_took: Callable[[float], object] | None = None  # seconds from the hook's question to its answer


class GitSession(asyncssh.SSHServerSession[bytes]):
    """The channel of one upload-pack or receive-pack. `run` is its whole life."""

    def __init__(self, door: GitDoor, connection: Connection, request: GitRequest, protocol: str | None) -> None:
        self._door = door
        self._connection = connection
        self._request = request
        self._protocol = protocol
        self._child: Child | None = None
        self._early = bytearray()  # what came before git was started
        self._input_over = False
        self._gone = False  # the client, or its right to be here
        self._channel_full = False
        self._pipes: HookPipes | None = None
        self._head = PushHead() if request.service == "receive-pack" else None
        self._holding = False
        self._held = b""
        self._packets = Packets()
        self._reported = asyncio.Event()  # git has moved what it will move
        self._lines: list[str] = []  # about the runs, for the pusher
        self._failure: VoleError | None = None
        self._opened: OpenGit | None = None

    # From the channel

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan
        chan.set_write_buffer_limits(high=limits.PUMP_BUFFER_BYTES_MAX)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:  # noqa: ARG002
        if self._gone:
            return
        try:
            if self._head is not None:
                self._head.feed(data)
        except VoleError as error:
            self._fail(error)
            return
        self._vouch()
        if self._child is None:
            self._early += data
            self._chan.pause_reading()
        else:
            self._child.feed(data)

    def eof_received(self) -> bool:
        self._input_over = True
        if self._child is not None:
            self._child.close_input()
        return True

    def pause_writing(self) -> None:
        self._channel_full = True
        self._flow()

    def resume_writing(self) -> None:
        self._channel_full = False
        self._flow()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._leave()

    # From the child

    def output(self, data: bytes) -> None:
        if self._head is not None and self._packets.flushes(data) and self._holding:
            self._reported.set()
        if self._holding:
            data = self._held + data
            data, self._held = data[:-4], data[-4:]
        self._write(data)

    def errors(self, data: bytes) -> None:
        self._write(data, asyncssh.EXTENDED_DATA_STDERR)

    def may_feed(self, ready: bool, /) -> None:
        if self._chan.is_closing():
            return
        if ready:
            self._chan.resume_reading()
        else:
            self._chan.pause_reading()

    # Its life

    async def look_again(self, person: Person) -> None:
        """End when the person may not go on, or the repository is another."""
        opened = self._opened
        if opened is None:
            return
        try:
            now = await self._door.pushes.open(person, self._request.name, opened.level)
        except VoleError as error:
            self._fail(error)
            return
        if now.repo.id != opened.repo.id:
            self._leave()

    async def run(self) -> int:
        """Serve, and say how it ended: the exit status."""
        self._connection.watched.add(self)
        self._connection.ssh.watchers.add(self._flow)
        try:
            status = await (self._receive() if self._head is not None else self._upload())
            if self._failure is not None:
                raise self._failure
        except Exception as error:
            return self._refuse(error)
        finally:
            self._connection.watched.discard(self)
            self._connection.ssh.watchers.discard(self._flow)
        return status if status >= 0 else 128 - status

    async def _upload(self) -> int:
        person = self._connection.person
        self._opened = await self._door.pushes.open(person, self._request.name, "read")
        async with self._door.programs.upload_pack(person.name, self._opened.path, self._protocol, self) as child:
            self._attach(child)
            return await child.ended()

    async def _receive(self) -> int:
        person = self._connection.person
        push = self._opened = await self._door.pushes.open(person, self._request.name, "write")
        try:
            async with self._door.programs.receive_pack(person.name, push.path, self._protocol, self) as running:
                self._pipes = running.hook
                self._vouch()
                self._attach(running.child)
                return await self._answered(push, running.child, running.hook)
        finally:
            # Whatever happened: git may have moved refs, and it is gone now.
            self._say([*self._lines, *await self._door.pushes.confirm(push)])
            if push.options.wait:
                async for line in self._door.pushes.watch(push, lambda: not self._gone):
                    self._say([line])
            self._release()

    async def _answered(self, push: OpenGit, child: Child, pipes: HookPipes) -> int:
        lines = await pipes.question()
        if lines is None:
            return await child.ended()
        asked_at = asyncio.get_running_loop().time()
        answer, self._holding = await self._verdict(push, pipes, lines)
        if self._door.hook_took is not None:
            self._door.hook_took(asyncio.get_running_loop().time() - asked_at)
        pipes.answer(answer)
        if self._holding:
            # The repository is locked from here on.
            await _first(limits.PUSH_LOCK_S, self._reported.wait(), child.ended())
            if self._reported.is_set():
                self._lines = await self._door.pushes.confirm(push)
                await _first(limits.PUSH_LOCK_S, child.ended())
            child.end()
        return await child.ended()

    async def _verdict(self, push: OpenGit, pipes: HookPipes, lines: list[bytes]) -> tuple[bytes, bool]:
        assert self._head is not None
        try:
            question = hook.read_question(lines)
            if pipes.vouched and not is_empty(push.path):
                raise Unavailable("another push was the first of this repository", next_step="push again")
            said = await self._door.pushes.check(push, question, atomic_with=self._head.atomic_refs)
        except Exception as error:
            refusal = refusals.hook(error)
            if refusal.reference:
                _log.error("push check failed", reference=refusal.reference, repo=push.repo.name, trace=error)
            return hook.answer(list(refusal.lines), refusal.status), False
        return hook.answer(list(said), 0), True

    def _attach(self, child: Child) -> None:
        self._child = child
        if self._gone:
            child.end()
            return
        child.feed(bytes(self._early))
        self._early.clear()
        if self._input_over:
            child.close_input()
        self._flow()
        self._chan.resume_reading()

    def _vouch(self) -> None:
        """Of a first push, once its head is known: what nothing can be missing of, if git takes the pack."""
        if self._pipes is not None and self._head is not None and self._head.over:
            self._pipes.vouch(self._head.complete_tips)

    def _flow(self) -> None:
        """Read from git only what the channel, and the connection below it, have room for."""
        if self._child is None or self._gone:
            return
        if self._channel_full or not self._connection.ssh.writable.is_set():
            self._child.pause_output()
        else:
            self._child.resume_output()

    def _say(self, lines: Iterable[str]) -> None:
        """Lines for the pusher: before the held flush where there is a side-band, else on stderr."""
        if self._head is not None and self._head.sideband and self._held == FLUSH:
            self._write(remote_lines(lines))
        else:
            self._write("".join(f"{line}\n" for line in lines).encode(), asyncssh.EXTENDED_DATA_STDERR)

    def _release(self) -> None:
        self._holding = False
        held, self._held = self._held, b""
        self._write(held)

    def _refuse(self, error: Exception) -> int:
        refusal = refusals.of(error)
        if refusal.reference:
            _log.error("git session failed", reference=refusal.reference, repo=self._request.name, trace=error)
        text = "".join(f"vole: {line}\n" for line in refusal.lines)
        self._write(text.encode(), asyncssh.EXTENDED_DATA_STDERR)
        return refusal.status

    def _fail(self, error: VoleError) -> None:
        """End the child, and say why when it has ended."""
        self._failure = error
        self._leave()

    def _leave(self) -> None:
        self._gone = True
        if self._child is not None:
            self._child.end()

    def _write(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        if data and not self._chan.is_closing():
            self._chan.write(data, datatype)


async def _first(most_s: float, *events: Coroutine[object, object, object]) -> None:
    """Wait for one of `events`, at most `most_s`."""
    waits = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(waits, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
