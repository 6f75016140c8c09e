"""Talking to a harness by address: the one dial rule, one connection, one stream an attempt. Decides nothing.

The keeper sees frames of `vole.wire.harness_pb2` and errors of `vole.base`; gRPC itself stays in here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from vole.base import limits
from vole.base.errors import Conflict, Denied, Exhausted, Fenced, Invalid, NotFound, Unavailable, VoleError
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope
from vole.wire.harness_pb2_grpc import JobHarnessStub
from vole_runner.runtimes.runtime import Descriptor, Resumability

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

T = TypeVar("T")

LOST = "harness_lost"  # code of Unavailable: the harness was there, and is not any more
SILENT = "harness_silent"  # code of Unavailable: no frame for HARNESS_SILENCE_S

_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_DNS = re.compile(r"dns://(?:[A-Za-z0-9._-]+(?::[0-9]{1,5})?)?/(?P<host>[A-Za-z0-9._-]+:[0-9]{1,5})")

# gRPC's own cap of 120 s would refuse a restarted harness for two minutes. Equal arguments share a connection
# unless the pool is local, and then the second describe would say nothing about the stream's own peer.
_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.http2.lookahead_bytes", limits.HARNESS_AHEAD_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_http_proxy", 0),  # the address is where the harness is
)
_KINDS: dict[grpc.StatusCode, type[VoleError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: Invalid,
    grpc.StatusCode.PERMISSION_DENIED: Denied,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Fenced,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
}


def target(address: str) -> str:
    """`address` as gRPC takes it: `host:port`, `dns:///host:port`, `unix:PATH`, `unix://PATH`.

    Raises Invalid for every other form: gRPC would turn a missing port into 443 and find out the rest at dial time.
    """
    if address.startswith("unix:"):
        path = address.removeprefix("unix:").removeprefix("//")
        if not path or len(path.encode()) > limits.SOCKET_PATH_BYTES_MAX:
            raise Invalid(f"{address[:160]!r}: a socket path of 1 to {limits.SOCKET_PATH_BYTES_MAX} bytes is needed")
        return f"unix:{path}"
    named = _DNS.fullmatch(address)
    plain = named["host"] if named else address
    if not _HOST_PORT.fullmatch(plain) or not 0 < int(plain.rpartition(":")[2]) < 1 << 16:
        raise Invalid(f"{address[:160]!r} is no harness address: host:port, dns:///host:port or unix:///path")
    return address


@dataclass(frozen=True)
class AttemptRef:
    """What every frame of the host names."""

    job_uid: str
    attempt_id: str
    fence: int


class Connection:
    """One connection to one address. Made inside a running loop; closed by `aclose`. `token` goes with every call."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._channel = grpc.aio.insecure_channel(target(address), options=_CHANNEL_OPTIONS)
        self._stub = JobHarnessStub(self._channel)  # type: ignore[no-untyped-call]

    async def describe(self) -> Descriptor:
        """Whatever answers now. Raises Unavailable, naming the address, after HARNESS_ANSWER_S."""
        try:
            answer = await self._stub.Describe(
                pb.DescribeRequest(), timeout=limits.HARNESS_ANSWER_S, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, self.address) from None
        return descriptor(answer)

    async def open(self) -> Drive:
        """A stream past its Hello, ready for Start; may be opened long before there is a job."""
        call, hello = await self.greeted()
        return Drive(self, call, descriptor(hello.descriptor))

    async def greeted(self) -> tuple[grpc.aio.StreamStreamCall, pb.Hello]:
        """A new stream, and the harness's first word on it. Raises Unavailable."""
        call = self._stub.Run(metadata=self._metadata)
        try:
            async with asyncio.timeout(limits.HARNESS_ANSWER_S):
                first = await call.read()
        except TimeoutError:
            call.cancel()
            raise Unavailable(f"{self.address}: no Hello within {limits.HARNESS_ANSWER_S} s") from None
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, self.address) from None
        if first is grpc.aio.EOF or first.WhichOneof("frame") != "hello":
            call.cancel()
            raise Unavailable(f"{self.address}: the harness did not begin with Hello")
        return call, first.hello

    async def push(self, path: Path) -> pb.BlobRef:
        """Have the file there, whole; a push that is cut goes on where it was. Raises the harness's refusal."""
        with path.open("rb") as file:
            sha256 = await asyncio.to_thread(lambda: hashlib.file_digest(file, "sha256").hexdigest())
            size = file.tell()

            async def pieces(offset: int) -> AsyncGenerator[pb.BlobChunk, None]:
                file.seek(offset)
                while offset < size:
                    data = await asyncio.to_thread(file.read, limits.BLOB_CHUNK_BYTES)
                    yield pb.BlobChunk(sha256=sha256, offset=offset, data=data)
                    offset += len(data)
                yield pb.BlobChunk(sha256=sha256, offset=size, last=True)

            async def once() -> pb.BlobRef:
                held = await self._stub.PushBlob(_only(pb.BlobChunk(sha256=sha256)), metadata=self._metadata)
                return await self._stub.PushBlob(pieces(held.size), metadata=self._metadata)  # type: ignore[no-any-return]

            return await self._tried(once)

    async def fetch(self, blob: pb.BlobRef, target: Path) -> None:
        """Have the harness's blob in `target`, whole and checked. Raises Unavailable, Invalid for other bytes."""
        with target.open("w+b") as file:

            async def once() -> None:
                offset = file.seek(0, os.SEEK_END)
                wanted = pb.FetchBlobRequest(sha256=blob.sha256, offset=offset)
                async for chunk in self._stub.FetchBlob(wanted, metadata=self._metadata):
                    file.write(chunk.data)
                    if file.tell() > blob.size:
                        raise Invalid(f"{self.address}: more bytes than the {blob.size} that were announced")

            await self._tried(once)
            file.seek(0)
            found = await asyncio.to_thread(lambda: hashlib.file_digest(file, "sha256").hexdigest())
        if found != blob.sha256:
            raise Invalid(f"{self.address}: a file came with SHA-256 {found[:12]}…, {blob.sha256[:12]}… was announced")

    async def _tried(self, once: Callable[[], Awaitable[T]]) -> T:
        for left in reversed(range(limits.BLOB_TRIES)):
            try:
                return await once()
            except grpc.aio.AioRpcError as error:
                refusal = _refusal(error, self.address)
                if not left or not isinstance(refusal, Unavailable | Conflict) or self.gone():
                    raise refusal from None
            await asyncio.sleep(limits.HARNESS_REDIAL_S)
        raise AssertionError("the last try raises")

    def gone(self) -> bool:
        """Nobody listens at the socket of the harness: its process has ended. A network's silence proves nothing."""
        if not self.address.startswith("unix:"):
            return False
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.setblocking(False)
            try:
                knocking.connect(self.address.removeprefix("unix:").removeprefix("//"))
            except (ConnectionRefusedError, FileNotFoundError):
                return True
            except OSError:
                pass
        return False

    async def aclose(self) -> None:
        await self._channel.close()


class Drive:
    """One attempt's stream. `frames` has one reader; the verbs may be called from any task of the loop.

    A verb on a lost stream does nothing: `frames` is the one place that says so.
    """

    def __init__(self, connection: Connection, call: grpc.aio.StreamStreamCall, hello: Descriptor) -> None:
        self.hello = hello
        self._connection = connection
        self._call = call
        self._address = connection.address
        self._attempt = AttemptRef("", "", 0)
        self._writing = asyncio.Lock()
        self._begun = False  # Start was sent, and no End has come

    async def start(
        self,
        attempt: AttemptRef,
        envelope: JobEnvelope,
        digest: str,
        timeout_s: float | None = None,
        source: pb.BlobRef | None = None,
    ) -> None:
        """Hand over the job of `digest`. `timeout_s`: what is left of its time, None for the plan's own limit.

        `source`: its work folder as a tar, pushed before, for a harness that shares no folder with us.
        """
        if self._call.done():  # cut while it waited; nothing has begun on it
            self._call, hello = await self._connection.greeted()
            if hello.descriptor.instance_id != self.hello.instance_id:
                raise Unavailable(f"{self._address}: the harness that answers is another one", code=LOST)
        self._attempt, self._begun = attempt, True
        start = pb.Start(plan=envelope.document(), plan_digest=digest, log_window_bytes=limits.LOG_WINDOW_BYTES)
        if source is not None:
            start.source.CopyFrom(source)
        if timeout_s is not None:
            _fill(start.timeout, timeout_s)
        await self._send(start=start)

    async def take_up(self, events_from: int, log_from: int) -> None:
        """The same attempt, on another stream with a higher fence; `frames` goes on from there.

        Raises Unavailable, with code LOST where no stream will ever have it again.
        """
        call, hello = await self._connection.greeted()
        here = hello.descriptor.instance_id == self.hello.instance_id
        if not here or self._attempt.attempt_id not in {one.attempt_id for one in hello.running}:
            call.cancel()
            what = "does not have the attempt any more" if here else "is another one"
            raise Unavailable(f"{self._address}: the harness that answers {what}", code=LOST)
        attach = pb.Attach(instance_id=self.hello.instance_id, events_from=events_from, log_from=log_from)
        self._call.cancel()  # a word that waits to be written goes nowhere, or out on the new stream
        async with self._writing:
            self._call, self._attempt = call, replace(self._attempt, fence=self._attempt.fence + 1)
            await self._write(attach=attach)

    async def push(self, path: Path) -> pb.BlobRef:
        """Have the file with the harness (Connection.push)."""
        return await self._connection.push(path)

    async def fetch(self, blob: pb.BlobRef, target: Path) -> None:
        """Have a file of the attempt here (Connection.fetch)."""
        await self._connection.fetch(blob, target)

    def gone(self) -> bool:
        """The harness's process has ended, as far as its socket says."""
        return self._connection.gone()

    async def grant(self, step_id: str) -> None:
        """Let the step run. What must be durable before its effect is durable before this call."""
        await self._send(grant=pb.StepGrant(step_id=step_id, decision=pb.RUN))

    async def refuse(self, step_id: str, reason: str) -> None:
        """Do not run the step; the attempt ends as failed with `reason`."""
        await self._send(grant=pb.StepGrant(step_id=step_id, decision=pb.REFUSE, reason=reason))

    async def ack(self, *, log_through: int = 0, events_through: int = 0) -> None:
        """What is safe with us: it makes room in the harness's log window."""
        await self._send(ack=pb.Ack(events_through=events_through, log_through=log_through))

    async def cancel(self, reason: pb.Reason, grace_s: float) -> None:
        """End the attempt: TERM now, KILL after `grace_s`. The End still comes. Before Start there is none to end."""
        if not self._begun:
            return
        cancel = pb.Cancel(reason=reason)
        _fill(cancel.grace, grace_s)
        await self._send(cancel=cancel)

    async def frames(self) -> AsyncGenerator[pb.HarnessFrame, None]:
        """Every frame after Hello, End last; that one is acknowledged here.

        Raises Unavailable: code LOST when the stream ends without End, SILENT after HARNESS_SILENCE_S without a
        frame. Raises the harness's own refusal of Start as its kind.
        """
        while True:
            frame = await self._read()
            if frame.WhichOneof("frame") == "end":
                self._begun = False
            yield frame
            if not self._begun:
                await self.ack(events_through=frame.seq)
                return

    async def aclose(self) -> None:
        """Leave. A running attempt is ended for it, within the grace; a stream without Start is just closed."""
        if self._begun and not self._call.done():
            await self.cancel(pb.SUPERSEDED, limits.CANCEL_GRACE_S)
            with suppress(VoleError):
                # End proves that the word arrived: a cancelled call may drop what was just sent.
                async for _ in self.frames():
                    pass
        self._call.cancel()

    async def _read(self) -> pb.HarnessFrame:
        try:
            async with asyncio.timeout(limits.HARNESS_SILENCE_S):
                frame = await self._call.read()
        except TimeoutError:
            sentence = f"{self._address}: no frame for {limits.HARNESS_SILENCE_S} s (HARNESS_SILENCE_S)"
            raise Unavailable(sentence, code=SILENT) from None
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, self._address, code=LOST) from None
        if frame is grpc.aio.EOF:
            raise Unavailable(f"{self._address}: the stream ended without End", code=LOST)
        assert isinstance(frame, pb.HarnessFrame)
        if frame.attempt_id != self._attempt.attempt_id:
            sentence = f"{self._address}: a frame of {frame.attempt_id[:80]!r} on the stream of another attempt"
            raise Unavailable(sentence)
        return frame

    async def _send(self, **frame: object) -> None:
        async with self._writing:
            await self._write(**frame)

    async def _write(self, **frame: object) -> None:
        ref = self._attempt
        message = pb.HostFrame(job_uid=ref.job_uid, attempt_id=ref.attempt_id, fence=ref.fence, **frame)  # type: ignore[arg-type]
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            # gRPC says this too of a stream that we left: whoever writes is not cancelled by it.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise


def descriptor(answer: pb.Descriptor) -> Descriptor:
    """A descriptor as the keeper's own value."""
    able = answer.capabilities
    known = {tier.value for tier in Resumability}
    return Descriptor(
        id=answer.id,
        version=answer.version,
        instance_id=answer.instance_id,
        protocol=answer.protocol,
        resumability=Resumability(able.resumability if able.resumability in known else 0),
        workspace_checkpoint=able.workspace_checkpoint,
        reattach=able.reattach,
        requires_gpu=able.requires_gpu,
        isolates_jobs=able.isolates_jobs,
        labels=tuple(sorted(answer.labels.items())),
        step_kinds=tuple(answer.step_kinds),
        max_jobs=answer.max_jobs,
        running_jobs=answer.running_jobs,
    )


async def _only(chunk: pb.BlobChunk) -> AsyncGenerator[pb.BlobChunk, None]:
    yield chunk


def _fill(duration: Duration, seconds: float) -> None:
    duration.FromNanoseconds(round(seconds * 1_000_000_000))


def _refusal(error: grpc.aio.AioRpcError, address: str, code: str | None = None) -> VoleError:
    kind = _KINDS.get(error.code(), Unavailable)
    sentence = f"{address}: {error.details() or error.code().name}"[: limits.PROBLEM_CHARS_MAX]
    return kind(sentence, code=code if kind is Unavailable else None)
