"""One running git program: its pipes, its end with its whole process group, and the courier's two pipes.

Never builds a command: `service` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Sequence
from typing import Protocol, cast

from vole.base import limits
from vole.base.errors import Exhausted

_QUESTION_BYTES_MAX = limits.PUSH_REFS_MAX * (limits.REF_NAME_BYTES_MAX + 100)
_ANSWER_BYTES_MAX = 60 * limits.KIB  # what a pipe takes at once, so that answering never blocks


class Sink(Protocol):
    """Where a child's output goes."""

    def output(self, data: bytes) -> None: ...

    def errors(self, data: bytes) -> None: ...

    def may_feed(self, ready: bool, /) -> None:
        """Whether the child takes more input just now."""
        ...


class Child(asyncio.SubprocessProtocol):
    """A git program with its own process group. Output is delivered whole before `ended` is."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._transport: asyncio.SubprocessTransport | None = None
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._kill: asyncio.TimerHandle | None = None
        self._full = False
        self.was_ended = False  # by us, so that it may have left things behind

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    async def ended(self) -> int:
        """Its exit status, once it is gone, reaped, and everything it wrote was delivered."""
        return await asyncio.shield(self._end)

    def feed(self, data: bytes) -> None:
        """Input. What comes after the program closed its input is dropped."""
        if (pipe := self._input()) is not None:
            pipe.write(data)

    def close_input(self) -> None:
        """The end of input, after everything that was fed."""
        if (pipe := self._input()) is not None:
            pipe.write_eof()

    def pause_output(self) -> None:
        for pipe in self._outputs():
            pipe.pause_reading()

    def resume_output(self) -> None:
        for pipe in self._outputs():
            pipe.resume_reading()

    def end(self) -> None:
        """TERM to the group, KILL after GIT_END_S; its output is not wanted any more. Twice is once."""
        if self.was_ended or self._transport is None or self._end.done():
            return
        self.was_ended = True
        for number in range(3):
            if (pipe := self._transport.get_pipe_transport(number)) is not None:
                pipe.close()
        self._signal(signal.SIGTERM)
        self._kill = asyncio.get_running_loop().call_later(limits.GIT_END_S, self._signal, signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipes_ready(self) -> None:
        """Called once the pipes are connected: bounds on what they buffer."""
        pipe = self._input()
        if pipe is not None:
            pipe.set_write_buffer_limits(high=limits.PUMP_BUFFER_BYTES_MAX)
        for reader in self._outputs():
            # A pipe of 64 KiB would halve every read.
            with contextlib.suppress(OSError):
                fcntl.fcntl(reader.get_extra_info("pipe"), fcntl.F_SETPIPE_SZ, limits.PUMP_READ_BYTES)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if not self.was_ended:
            (self._sink.output if fd == 1 else self._sink.errors)(data)

    def pause_writing(self) -> None:
        self._full = True
        self._sink.may_feed(False)

    def resume_writing(self) -> None:
        # Not now: asyncio is about to look whether its pipe is closing, and takes it for empty. Input and its end that
        # came from in here would be cut off.
        self._full = False
        asyncio.get_running_loop().call_soon(self._tell_room)

    def _tell_room(self) -> None:
        if not self._full:
            self._sink.may_feed(True)

    def process_exited(self) -> None:
        # Members of the group that outlive their leader would keep the pipes, and so this session, open.
        self._signal(signal.SIGKILL)

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        assert self._transport is not None
        self._transport.close()
        if self._kill is not None:
            self._kill.cancel()
        if not self._end.done():
            self._end.set_result(self._transport.get_returncode() or 0)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _input(self) -> asyncio.WriteTransport | None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        return None if pipe is None or pipe.is_closing() else cast("asyncio.WriteTransport", pipe)

    def _outputs(self) -> list[asyncio.ReadTransport]:
        assert self._transport is not None
        pipes = [self._transport.get_pipe_transport(number) for number in (1, 2)]
        return [cast("asyncio.ReadTransport", pipe) for pipe in pipes if pipe is not None and not pipe.is_closing()]


class HookPipes:
    """The pipes through which one push's hook asks and is told. They die with the push; so does their proof.

    Of a `first` push one more, `known`: which commits git need not walk from, since nothing of them can be missing.
    """

    def __init__(self, *, first: bool = False) -> None:
        self._ask, self.ask = os.pipe()
        self.tell, self._tell = os.pipe()
        self.known: int | None = None
        self._known: int | None = None
        if first:
            self.known, self._known = os.pipe()
        self.vouched = False
        self._heard = bytearray()
        self._loop = asyncio.get_running_loop()
        self._question: asyncio.Future[list[bytes] | None] = self._loop.create_future()
        os.set_blocking(self._ask, False)
        os.set_blocking(self._tell, False)
        self._loop.add_reader(self._ask, self._hear)

    @property
    def ends(self) -> tuple[int, ...]:
        """The descriptors that the child inherits."""
        return (self.ask, self.tell) if self.known is None else (self.ask, self.tell, self.known)

    def given(self) -> None:
        """The child has its ends: close ours of them, so that its death is an end of file."""
        for end in self.ends:
            os.close(end)

    async def question(self) -> list[bytes] | None:
        """The lines the hook asks with, or None when the child ended without asking. Raises Exhausted."""
        return await asyncio.shield(self._question)

    def answer(self, text: bytes) -> None:
        """Let the hook go on. A hook that is gone hears nothing."""
        assert len(text) <= _ANSWER_BYTES_MAX, "an answer is bounded by its maker"
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, text)

    def vouch(self, commits: Sequence[bytes]) -> None:
        """Name the commits that are `known`, none when a pipe does not take them at once. The first time counts."""
        if self._known is None:
            return
        text = b"".join(commit + b"\n" for commit in commits)
        if 0 < len(text) <= _ANSWER_BYTES_MAX:
            self.vouched = True
            with contextlib.suppress(BrokenPipeError):
                os.write(self._known, text)
        os.close(self._known)
        self._known = None

    def close(self) -> None:
        """A hook that still waits reads an end of file, which is a refusal."""
        self._loop.remove_reader(self._ask)
        os.close(self._ask)
        os.close(self._tell)
        self.vouch(())
        if not self._question.done():
            self._question.set_result(None)

    def _hear(self) -> None:
        data = os.read(self._ask, limits.PUMP_READ_BYTES)
        self._heard += data
        if self._question.done():
            return
        if self._heard.endswith(b"\n\n"):
            self._question.set_result(bytes(self._heard[:-2]).split(b"\n"))
        elif not data:
            self._question.set_result(None)
        elif len(self._heard) > _QUESTION_BYTES_MAX:
            self._question.set_exception(Exhausted(f"more than {limits.PUSH_REFS_MAX} refs (PUSH_REFS_MAX)"))
        if not data or self._question.done():
            self._loop.remove_reader(self._ask)
