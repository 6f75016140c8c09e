"""What goes to the host, in order: events numbered without a gap, log chunks within a window. Decides nothing.

What the host has not acknowledged is kept: it can come back on another stream and miss nothing. A host that does not
acknowledge slows the step; no line is dropped for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from vole.base import limits
from vole.base.clock import Clock
from vole.base.errors import Invalid
from vole.wire import harness_pb2 as pb
from vole_runner.harness.commands import CommandReader, Mask, Remark

_LEVELS = {"notice": pb.NOTICE, "warning": pb.WARNING, "error": pb.ERROR}


class Spool:
    """The frames of one attempt. One reader, the newest; everything happens on one loop."""

    def __init__(self, attempt_id: str, window_bytes: int, clock: Clock) -> None:
        self.last_seq = 0
        self.last_log_seq = 0
        self._attempt_id = attempt_id
        self._window = window_bytes
        self._clock = clock
        self._queue: deque[pb.HarnessFrame] = deque()
        # Sent and not acknowledged, each with its place among all: a mask stands before the chunk that shows its value.
        self._events: deque[tuple[int, pb.HarnessFrame]] = deque()
        self._logs: deque[tuple[int, pb.HarnessFrame]] = deque()
        self._sent = 0
        self._said = self._log_said = 0  # the newest event and chunk that were ever sent
        self._acked = self._log_acked = 0
        self._unacked_bytes = 0
        self._reader = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    @property
    def full(self) -> bool:
        return self._unacked_bytes >= self._window

    @property
    def settled(self) -> bool:
        """Nothing follows, and the host has said that it has every event."""
        return self._closed and self._acked == self.last_seq

    def event(self, **frame: object) -> None:
        """Queue an event, with the next number."""
        self.last_seq += 1
        self._put(pb.HarnessFrame(attempt_id=self._attempt_id, seq=self.last_seq, **frame))  # type: ignore[arg-type]

    def beat(self, heartbeat: pb.Heartbeat) -> None:
        self._put(pb.HarnessFrame(attempt_id=self._attempt_id, heartbeat=heartbeat))

    def chunk(self, step_id: str, stream: pb.Stream, offset: int, data: bytes) -> None:
        """Queue at most LOG_CHUNK_BYTES of a step's log. Room is the caller's to wait for."""
        self.last_log_seq += 1
        self._unacked_bytes += len(data)
        frame = pb.HarnessFrame(attempt_id=self._attempt_id)
        log = frame.log  # filled in place: a message given to another is serialised and parsed on the way
        log.step_id, log.stream, log.seq, log.offset, log.data = step_id, stream, self.last_log_seq, offset, data
        log.ts_unix_ns = self._clock.now() * 1_000
        self._put(frame)

    def ack(self, *, log_through: int = 0, events_through: int = 0) -> None:
        """Chunks and events up to these are safe with the host. An old or a future number does no harm."""
        while self._logs and self._logs[0][1].log.seq <= log_through:
            frame = self._logs.popleft()[1]
            self._log_acked = frame.log.seq
            self._unacked_bytes -= len(frame.log.data)
        while self._events and self._events[0][1].seq <= events_through:
            self._acked = self._events.popleft()[1].seq
        self.nudge()

    def replay(self, *, events_from: int, log_from: int) -> None:
        """Let the next reader begin with these; what is before them is settled. Raises Invalid for what is not kept."""
        if not (self._acked < events_from <= self._said + 1 and self._log_acked < log_from <= self._log_said + 1):
            raise Invalid(
                f"events from {events_from} and log from {log_from} cannot be said again: kept are events from "
                f"{self._acked + 1}, log from {self._log_acked + 1}"
            )
        again = [frame for _, frame in sorted((*self._events, *self._logs), key=lambda kept: kept[0])]
        self._queue = deque(
            frame
            for frame in (*again, *self._queue)
            if frame.seq >= events_from or frame.log.seq >= log_from  # heartbeats have neither
        )
        self._events.clear()
        self._logs.clear()
        self._acked, self._log_acked = events_from - 1, log_from - 1
        self._unacked_bytes = sum(len(frame.log.data) for frame in self._queue)
        self.nudge()

    def nudge(self) -> None:
        """Let whoever waits for room look again."""
        self._room.set()

    async def changed(self) -> None:
        """Returns after the next ack or nudge."""
        self._room.clear()
        await self._room.wait()

    def close(self) -> None:
        """Nothing follows what is queued."""
        self._closed = True
        self._ready.set()

    def frames(self) -> AsyncIterator[pb.HarnessFrame]:
        """Every frame until the spool is closed and empty, or until somebody else reads."""
        self._reader += 1
        self._ready.set()
        return self._read(self._reader)

    async def _read(self, reader: int) -> AsyncIterator[pb.HarnessFrame]:
        while reader == self._reader:
            if self._queue:
                yield self._next()
            elif self._closed:
                return
            else:
                self._ready.clear()
                await self._ready.wait()

    def _next(self) -> pb.HarnessFrame:
        frame = self._queue.popleft()
        self._sent += 1
        if frame.seq:
            self._said = max(self._said, frame.seq)
            self._events.append((self._sent, frame))
        elif frame.HasField("log"):
            self._log_said = max(self._log_said, frame.log.seq)
            self._logs.append((self._sent, frame))
        return frame

    def _put(self, frame: pb.HarnessFrame) -> None:
        self._queue.append(frame)
        self._ready.set()


class Remarks:
    """What the steps of one job asked to hide and to show, within bounds."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._masks: set[bytes] = set()
        self._annotations = 0

    def tell(self, step_id: str, said: Mask | Remark) -> bool:
        """Pass `said` on. False for a mask beyond MASKS_MAX: its value must not be shown."""
        if isinstance(said, Mask):
            if said.value not in self._masks:
                if len(self._masks) >= limits.MASKS_MAX:
                    return False
                self._masks.add(said.value)
                self._spool.event(mask=pb.Mask(value=said.value))
        elif self._annotations < limits.ANNOTATIONS_MAX:
            self._annotations += 1
            self.annotate(step_id, said)
        return True

    def annotate(self, step_id: str, said: Remark) -> None:
        """An annotation of the harness's own, outside the bound on those of steps."""
        note = pb.Annotation(
            step_id=step_id, level=_LEVELS[said.level], message=said.message, file=said.file, line=said.line
        )
        self._spool.event(annotation=note)


class _Pipe(asyncio.Protocol):
    """The reading end of a step's output: small pieces are gathered for LOG_GAP_S, a full chunk never waits."""

    def __init__(self) -> None:
        self._transport: asyncio.ReadTransport | None = None
        self._held = bytearray()
        self._some = asyncio.Event()
        self._plenty = asyncio.Event()
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        self._some.set()
        if len(self._held) >= limits.LOG_CHUNK_BYTES:
            self._plenty.set()
        if len(self._held) >= 2 * limits.LOG_CHUNK_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._over = True
        self._some.set()
        self._plenty.set()

    def connection_lost(self, _why: Exception | None) -> None:
        self.eof_received()

    async def read(self) -> bytes:
        """At most LOG_CHUNK_BYTES, as soon as there is any; nothing at the end."""
        await self._some.wait()
        with memoryview(self._held) as held:
            data = bytes(held[: limits.LOG_CHUNK_BYTES])
        del self._held[: limits.LOG_CHUNK_BYTES]
        if not self._over:
            if not self._held:
                self._some.clear()
            if len(self._held) < limits.LOG_CHUNK_BYTES:
                self._plenty.clear()
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    async def gather(self) -> None:
        """Wait for a full chunk or the end, at most LOG_GAP_S: the first line went at once, the next go together."""
        if not self._plenty.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.LOG_GAP_S):
                    await self._plenty.wait()


class StepLog:
    """One step's log on its way: the pipe of its processes, and the harness's own lines."""

    def __init__(self, step_id: str, spool: Spool, remarks: Remarks) -> None:
        self.bytes = 0
        self.trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why it cannot go on
        self._step_id = step_id
        self._spool = spool
        self._remarks = remarks
        self._digest = hashlib.sha256()
        self._reader = CommandReader()
        self._ended = asyncio.Event()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def say(self, text: str) -> None:
        """A line of the harness's own."""
        self._send(pb.HARNESS, text.encode("utf-8", "backslashreplace") + b"\n")

    def ended(self) -> None:
        """The step's processes are gone: what is still in the pipe is little, and goes out at once."""
        self._ended.set()
        self._spool.nudge()

    async def pump(self, descriptor: int) -> None:
        """Everything that comes through the pipe, until its end. Owns `descriptor`."""
        pipe = _Pipe()
        reading = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, reading)
        try:
            while data := await pipe.read():
                if not await self._pass(*self._reader.feed(data)):
                    return
                if not self._ended.is_set():
                    await pipe.gather()
            await self._pass(*self._reader.flush())
        finally:
            transport.close()

    async def _pass(self, shown: bytes, found: list[Mask | Remark]) -> bool:
        if not all(self._remarks.tell(self._step_id, said) for said in found):
            self.trouble.set_result(f"more than {limits.MASKS_MAX} masks in one job (MASKS_MAX)")
            return False
        while self._spool.full and not self._ended.is_set():
            await self._spool.changed()
        if shown:
            self._send(pb.STDOUT, shown)
        return True

    def _send(self, stream: pb.Stream, data: bytes) -> None:
        for start in range(0, len(data), limits.LOG_CHUNK_BYTES):
            piece = data[start : start + limits.LOG_CHUNK_BYTES]
            self._spool.chunk(self._step_id, stream, self.bytes, piece)
            self._digest.update(piece)
            self.bytes += len(piece)
