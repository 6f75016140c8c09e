"""The gRPC face of the harness: one attempt at a time, one stream each. Holds no rule of what a step is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio

import vole
from vole.base import errors, limits, log
from vole.base.clock import Clock
from vole.base.entropy import Entropy
from vole.base.errors import Conflict, Exhausted, Fenced, Invalid, NotFound, Unavailable, VoleError
from vole.wire import harness_pb2 as pb
from vole.wire.harness import DESCRIPTOR_ID, PROTOCOL, JobEnvelope
from vole.wire.harness_pb2_grpc import add_JobHarnessServicer_to_server
from vole_runner.harness import kept
from vole_runner.harness.blobs import Room, unpack
from vole_runner.harness.environment import Facts, Surroundings
from vole_runner.harness.files import make_places
from vole_runner.harness.kept import opened
from vole_runner.harness.processes import Processes, below, signal_groups
from vole_runner.harness.spool import Spool
from vole_runner.harness.steps import Job
from vole_runner.harness.trees import remove_tree

_log = log.get("vole_runner.harness")

Context: TypeAlias = "grpc.aio.ServicerContext"

CODES: Mapping[type[VoleError], grpc.StatusCode] = {
    errors.Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Denied: grpc.StatusCode.PERMISSION_DENIED,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.Conflict: grpc.StatusCode.ABORTED,
    errors.Fenced: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class Base:
    """What a harness was started with. `room`: where hosts that share no folder with it put theirs."""

    environ: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    room: Room | None = None


@dataclass(eq=False)
class Attempt:
    """What runs now, or ran last."""

    job_uid: str
    attempt_id: str
    fence: int  # of the stream that it is driven by
    job: Job
    spool: Spool
    times: limits.LeaseTimes
    timeout_s: float
    heartbeat_s: float
    facts: Facts
    source: Path | None  # the tar of its work folder; None: the host put the work there itself
    kept: dict[str, Path] = field(default_factory=dict)  # files that the host may fetch, by SHA-256
    replaced: asyncio.Event = field(default_factory=asyncio.Event)  # its stream is to end
    alone: asyncio.TimerHandle | None = None  # nobody drives it: then it ends

    def driven(self) -> None:
        """Somebody is there again; whoever was there before is not."""
        self.replaced.set()
        self.replaced = asyncio.Event()
        if self.alone is not None:
            self.alone.cancel()
            self.alone = None


class Harness:
    """Describe and Run. `group` is where attempts live: one outlives its stream by the orphan limit."""

    def __init__(
        self, processes: Processes, clock: Clock, entropy: Entropy, base: Base, group: asyncio.TaskGroup
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._base = base
        self._group = group
        self._instance = entropy.token()
        self._attempt: Attempt | None = None
        self._ended: Attempt | None = None  # whose host may not have heard how
        self._idle = asyncio.Event()
        self._idle.set()
        self._unfit = ""  # why no job may begin any more
        self._fences: OrderedDict[str, int] = OrderedDict()  # highest fence seen, by job

    def add_to(self, server: grpc.aio.Server) -> None:
        add_JobHarnessServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def end(self) -> None:
        """Take no more work and end what runs. Returns when nothing of it is left."""
        self._unfit = self._unfit or "the harness is ending"
        if self._attempt is not None:
            self._attempt.job.stop(pb.INTERNAL, self._attempt.times.grace_s)
        await self._idle.wait()

    # ---- The contract; gRPC looks the methods up by these names

    async def Describe(self, _request: pb.DescribeRequest, _context: Context) -> pb.Descriptor:  # noqa: N802
        return self._descriptor()

    async def PushBlob(self, chunks: AsyncIterator[pb.BlobChunk], context: Context) -> pb.BlobRef:  # noqa: N802
        try:
            return await self._own_room().receive(chunks)
        except VoleError as refusal:
            await context.abort(code_of(refusal), refusal.sentence)
            raise

    async def FetchBlob(self, request: pb.FetchBlobRequest, context: Context) -> None:  # noqa: N802
        attempt = self._attempt or self._ended
        path = None if attempt is None else attempt.kept.get(request.sha256)
        if path is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"blob {request.sha256[:12]!r} is not of this attempt")
            return
        with opened(path) as file:
            file.seek(request.offset)
            offset = request.offset
            while data := await asyncio.to_thread(file.read, limits.BLOB_CHUNK_BYTES):
                await context.write(pb.BlobChunk(sha256=request.sha256, offset=offset, data=data))
                offset += len(data)

    async def Run(self, _frames: object, context: Context) -> None:  # noqa: N802
        known = self._attempt or self._ended
        hello = pb.Hello(descriptor=self._descriptor(), running=[_state(known)] if known else [])
        await context.write(pb.HarnessFrame(hello=hello))
        first = await context.read()
        if not isinstance(first, pb.HostFrame):
            return
        try:
            attempt = self._driven_by(first)
        except VoleError as refusal:
            await context.abort(code_of(refusal), refusal.sentence)
        await self._converse(attempt, first.fence, context)

    # ---- One attempt

    def _driven_by(self, frame: pb.HostFrame) -> Attempt:
        """The attempt that `frame` starts or takes up again. Raises what it is refused for: nothing changed."""
        kind = frame.WhichOneof("frame")
        if kind not in ("start", "attach") or not frame.attempt_id or not frame.job_uid or frame.fence < 1:
            raise Invalid("the first frame is Start or Attach, and names job, attempt and fence")
        known = self._fences.get(frame.job_uid, 0)
        if frame.fence <= known:
            raise Fenced(
                f"fence {frame.fence} of {frame.job_uid[:80]!r} is not above {known}: someone else has the job"
            )
        attempt = self._begin(frame) if kind == "start" else self._take_up(frame)
        self._remember(frame.job_uid, frame.fence)
        return attempt

    def _begin(self, frame: pb.HostFrame) -> Attempt:
        if self._unfit:
            raise Unavailable(self._unfit)
        if self._attempt is not None:
            raise Exhausted("this harness runs one job at a time, and has one")
        self._attempt = attempt = self._prepare(frame)
        if self._ended is not None:
            self._forget(self._ended)
        self._idle.clear()
        self._group.create_task(self._run(attempt))
        self._group.create_task(self._beat(attempt))
        return attempt

    def _take_up(self, frame: pb.HostFrame) -> Attempt:
        """What runs here under another stream, or nobody's, or has ended without being heard out."""
        attach, attempt = frame.attach, self._attempt or self._ended
        if attach.instance_id != self._instance:
            raise Conflict(f"this harness is instance {self._instance}, not {attach.instance_id[:80]!r}")
        if attempt is None or (attempt.job_uid, attempt.attempt_id) != (frame.job_uid, frame.attempt_id):
            raise NotFound(f"attempt {frame.attempt_id[:80]!r} is not here; what had no host ended")
        attempt.spool.replay(events_from=attach.events_from, log_from=attach.log_from)
        attempt.fence = frame.fence
        return attempt

    def _prepare(self, frame: pb.HostFrame) -> Attempt:
        start = frame.start
        envelope, plan = JobEnvelope.read(start.plan, start.plan_digest)
        if not limits.LEASE_TTL_MIN_S <= envelope.ttl_s <= limits.LEASE_TTL_MAX_S:
            raise Invalid(f"a lease of {envelope.ttl_s} s (LEASE_TTL_MIN_S, LEASE_TTL_MAX_S)")
        times = limits.lease_times(envelope.ttl_s)
        source = self._own_room().blob(start.source) if start.HasField("source") else None
        if source is not None:
            envelope = replace(envelope, folder=str(self._own_room().fresh()))
        facts = Facts(plan, envelope, make_places(envelope.folder, plan.event), {**self._base.environ, **start.env})
        spool = Spool(frame.attempt_id, start.log_window_bytes or limits.LOG_WINDOW_BYTES, self._clock)
        job = Job(Surroundings(facts), spool, self._processes, self._clock, times.grace_s)
        timeout_s = start.timeout.ToNanoseconds() / 1e9 if start.HasField("timeout") else plan.timeout_s
        heartbeat_s = start.heartbeat.ToNanoseconds() / 1e9 or limits.HARNESS_HEARTBEAT_S
        return Attempt(
            job_uid=frame.job_uid,
            attempt_id=frame.attempt_id,
            fence=frame.fence,
            job=job,
            spool=spool,
            times=times,
            timeout_s=timeout_s,
            heartbeat_s=heartbeat_s,
            facts=facts,
            source=source,
        )

    async def _run(self, attempt: Attempt) -> None:
        try:
            end = await self._story(attempt)
        except Exception as error:
            _log.error("attempt failed in the harness", job=attempt.job_uid, trace=error)
            self._unfit = "the harness made a mistake"
            signal_groups(below(os.getpid()), signal.SIGKILL)
            end = pb.End(state=pb.End.FAILED, error=pb.Error(code=_INTERNAL, message=self._unfit))
        self._unfit = self._unfit or attempt.job.unfit
        self._attempt, self._ended = None, attempt
        attempt.spool.event(end=end)
        attempt.spool.close()
        self._idle.set()

    async def _story(self, attempt: Attempt) -> pb.End:
        if attempt.source is None:
            return await attempt.job.run(attempt.timeout_s)
        work = attempt.facts.places.work
        try:
            await asyncio.to_thread(unpack, attempt.source, work)
        except Invalid as problem:
            return pb.End(state=pb.End.FAILED, error=pb.Error(code=_INTERNAL, message=problem.sentence))
        end = await attempt.job.run(attempt.timeout_s)
        if end.state != pb.End.CANCELED or end.reason == pb.TIMEOUT:
            await self._keep(attempt, end, work)
        return end

    async def _keep(self, attempt: Attempt, end: pb.End, work: Path) -> None:
        """Tell of each file that the job leaves: the host cannot see our folder."""
        for artifact in attempt.facts.plan.artifacts:
            try:
                for path, location in await asyncio.to_thread(kept.find, artifact, work):
                    found = await asyncio.to_thread(kept.measure, artifact.name, path, location)
                    attempt.kept[found.file.sha256] = location
                    blob = pb.BlobRef(sha256=found.file.sha256, size=found.file.size)
                    attempt.spool.event(artifact=pb.ArtifactReady(name=artifact.name, blob=blob, path=path))
            except (VoleError, OSError) as problem:
                end.state = pb.End.FAILED
                end.error.code, end.error.message = _ABORTED, f"artifact {artifact.name}: {problem}"

    def _own_room(self) -> Room:
        if self._base.room is None:
            raise Invalid("this harness shares a folder with its host and takes no blobs; serve with --root for that")
        return self._base.room

    def _forget(self, attempt: Attempt) -> None:
        """Nobody will ask for its end or its files any more."""
        if self._ended is attempt:
            self._ended = None
        if attempt.source is not None:
            self._group.create_task(asyncio.to_thread(remove_tree, attempt.facts.places.work.parent))

    async def _beat(self, attempt: Attempt) -> None:
        while self._attempt is attempt:
            moment_ms = round(asyncio.get_running_loop().time() * 1000)
            attempt.spool.beat(pb.Heartbeat(monotonic_ms=moment_ms, step_id=attempt.job.current))
            with suppress(TimeoutError):
                async with asyncio.timeout(attempt.heartbeat_s):
                    await self._idle.wait()

    # ---- The stream

    async def _converse(self, attempt: Attempt, fence: int, context: Context) -> None:
        attempt.driven()
        replaced, frames = attempt.replaced, attempt.spool.frames()
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen(attempt, fence, context))
                writing = group.create_task(_write(frames, context))
                leaving = group.create_task(replaced.wait())
                await asyncio.wait({writing, leaving}, return_when=_FIRST)
                # A call that ends while the host still writes an ack would cost it the frames it has not read.
                await asyncio.wait({listening, leaving}, timeout=limits.HARNESS_ANSWER_S, return_when=_FIRST)
                for task in (listening, writing, leaving):
                    task.cancel()
        finally:
            if attempt.fence == fence:
                self._left_alone(attempt)
        if attempt.fence != fence:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"fence {attempt.fence} has the attempt now")

    async def _listen(self, attempt: Attempt, fence: int, context: Context) -> None:
        while isinstance(frame := await context.read(), pb.HostFrame):
            if not self._hear(attempt, fence, frame):
                attempt.job.stop(pb.INTERNAL, 0, "the host sent a frame that does not belong to this attempt")
        if attempt.fence == fence:
            self._left_alone(attempt)

    def _hear(self, attempt: Attempt, fence: int, frame: pb.HostFrame) -> bool:
        """Do what the host says. False for a frame of another attempt, or one that has no place here."""
        if attempt.fence != fence:
            return True  # said before it was replaced; it counts no more
        if (frame.attempt_id, frame.fence) != (attempt.attempt_id, fence):
            return False
        match frame.WhichOneof("frame"):
            case "grant":
                return attempt.job.granted(frame.grant)
            case "ack":
                attempt.spool.ack(log_through=frame.ack.log_through, events_through=frame.ack.events_through)
            case "cancel":
                attempt.job.stop(frame.cancel.reason or pb.USER, frame.cancel.grace.ToNanoseconds() / 1e9)
            case "detach":
                attempt.replaced.set()
            case _:
                return False
        return True

    def _left_alone(self, attempt: Attempt) -> None:
        """The keeper is gone. Its lease runs out at TTL; before that it is back, or the attempt is over."""
        if attempt is self._ended and attempt.spool.settled:
            self._forget(attempt)
        elif attempt.alone is None and attempt in (self._attempt, self._ended):
            loop = asyncio.get_running_loop()
            attempt.alone = loop.call_later(attempt.times.orphan_s, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        attempt.job.stop(pb.SUPERSEDED, attempt.times.grace_s)
        if self._ended is attempt:
            self._forget(attempt)

    # ---- What it says of itself

    def _descriptor(self) -> pb.Descriptor:
        return pb.Descriptor(
            id=DESCRIPTOR_ID,
            version=vole.__version__,
            instance_id=self._instance,
            capabilities=pb.Capabilities(resumability=pb.RESTART_ONLY, reattach=True),
            labels=self._base.labels,
            step_kinds=["run"],
            max_jobs=0 if self._unfit else 1,
            running_jobs=0 if self._attempt is None else 1,
            protocol=PROTOCOL,
        )

    def _remember(self, job_uid: str, fence: int) -> None:
        self._fences[job_uid] = fence
        self._fences.move_to_end(job_uid)
        if len(self._fences) > limits.FENCES_REMEMBERED:
            self._fences.popitem(last=False)


_INTERNAL, _ABORTED = 13, 10  # of google.rpc.Code
_FIRST = asyncio.FIRST_COMPLETED


def code_of(refusal: VoleError) -> grpc.StatusCode:
    """How this door spells a kind of error."""
    return next(code for kind, code in CODES.items() if isinstance(refusal, kind))


def _state(attempt: Attempt) -> pb.AttemptState:
    return pb.AttemptState(
        job_uid=attempt.job_uid,
        attempt_id=attempt.attempt_id,
        fence=attempt.fence,
        last_seq=attempt.spool.last_seq,
        last_log_seq=attempt.spool.last_log_seq,
    )


async def _write(frames: AsyncIterator[pb.HarnessFrame], context: Context) -> None:
    async for frame in frames:
        await context.write(frame)
