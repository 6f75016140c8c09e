"""One channel as a stream of lines and bytes, bounded both ways. Knows nothing of what is said on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import asyncssh

from vole.base import limits, log
from vole.base.errors import Exhausted

_log = log.get("vole.ssh")


class Channel(asyncssh.SSHServerSession[bytes]):
    """A subsystem channel. `serve` runs while it is open, and is cancelled when the client is gone."""

    def __init__(self, subsystem: str, serve: Callable[[Channel], Awaitable[None]]) -> None:
        self._subsystem = subsystem
        self._serve = serve
        self._in = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self._paused = False
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan
        chan.set_write_buffer_limits(high=limits.PUMP_BUFFER_BYTES_MAX)

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == self._subsystem

    def session_started(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"channel {self._subsystem}")

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:  # noqa: ARG002
        self._in += data
        self._arrived.set()
        if len(self._in) >= limits.PUMP_BUFFER_BYTES_MAX and not self._paused:
            self._paused = True
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived.set()
        return True

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._ended = True
        self._arrived.set()
        self._writable.set()
        self._gone.set()
        if self._task is not None:
            self._task.cancel()

    async def line(self) -> bytes | None:
        """The next line without its end, None at the end of the stream. Raises Exhausted over FRAME_BYTES_MAX."""
        searched = 0
        while (end := self._in.find(b"\n", searched)) < 0:
            searched = len(self._in)
            if searched > limits.FRAME_BYTES_MAX:
                raise Exhausted(f"a line of more than {limits.FRAME_BYTES_MAX} bytes (FRAME_BYTES_MAX)")
            if not await self._more():
                return None
        found = bytes(self._in[:end])
        del self._in[: end + 1]
        return found

    async def arrives(self, most_s: float) -> bool:
        """Whether there is a byte for `some`, now or within `most_s`. False at once at the end of the stream."""
        if not self._in:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._more()
        return bool(self._in)

    async def some(self) -> bytes:
        """What has arrived, at least a byte; empty at the end of the stream."""
        while not self._in and await self._more():
            pass
        data, self._in = bytes(self._in), bytearray()
        return data

    def send(self, data: bytes) -> None:
        """Queue `data`. Raises Exhausted when the client has not read what was queued before."""
        if not self._writable.is_set() and self._chan.get_write_buffer_size() > 2 * limits.PUMP_BUFFER_BYTES_MAX:
            raise Exhausted("the client does not read what it is sent (PUMP_BUFFER_BYTES_MAX)")
        if not self._chan.is_closing():
            self._chan.write(data)

    async def drain(self) -> None:
        """Wait until there is room to send."""
        await self._writable.wait()

    async def gone(self, most_s: float) -> None:
        """Wait until the client has left, at most `most_s`: to cut it off would cut what it has not read yet."""
        try:
            async with asyncio.timeout(most_s):
                await self._gone.wait()
        except TimeoutError:
            return

    async def _more(self) -> bool:
        """Wait for more input; False at the end of the stream."""
        if self._ended:
            return False
        self._arrived.clear()
        if self._paused:
            self._paused = False
            self._chan.resume_reading()  # may deliver data and the end before it returns
        await self._arrived.wait()
        return True

    async def _run(self) -> None:
        try:
            await self._serve(self)
            await self.drain()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.error("channel failed", subsystem=self._subsystem, trace=error)
        finally:
            if not self._chan.is_closing():
                self._chan.write_eof()
                self._chan.close()
