"""A stream that is cut is not a job that is lost: keeper and harness find each other again, and nothing is missing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.aio import run
from tests.harness_host import a_harness, a_job, hosted
from vole.base import limits
from vole.base.clock import SystemClock
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope, fence
from vole.wire.harness_pb2_grpc import JobHarnessStub
from vole.wire.plan import JobContext, JobPlan, job_digest
from vole_runner.drive import Away, Outcome, Steps
from vole_runner.runtimes.dial import AttemptRef, Connection, target
from vole_runner.spool import Spool

TALK = "echo x >> ran; echo ::notice::begun; i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done"
SAID = b"".join(b"line %d\n" % number for number in range(1000))
REF = AttemptRef("app/12/test@1", "app/12/test@1", fence(1, 0))


class Relay:
    """A wire between keeper and harness that a test can cut, hold still or close."""

    def __init__(self, path: Path, harness: str) -> None:
        self.address = f"unix://{path}"
        self.deaf = False  # what the keeper says is swallowed
        self._path = path
        self._harness = harness.removeprefix("unix://")
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._joined, self._path)

    async def close(self) -> None:
        """Nobody listens here any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection breaks; what was under way is lost. The next one is whole again."""
        self.deaf = False
        for writer in self._writers:
            writer.transport.abort()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_unix_connection(self._harness)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        for source, sink, up in ((reader, there_writer, True), (there_reader, writer, False)):
            task = asyncio.create_task(self._pass(source, sink, up=up))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        try:
            while data := await source.read(65_536):
                if not (up and self.deaf):
                    sink.write(data)
                    await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.transport.abort()
            self._writers.discard(sink)


class Keeper:
    """One attempt, driven as the keeper drives it."""

    def __init__(self, folder: Path, plan: JobPlan, ttl_s: float = 600.0) -> None:
        self.work = folder / "a" / "work"
        self.work.parent.mkdir()
        self.plan, self.ttl_s = plan, ttl_s
        self._log = folder / "log"
        self.log = Spool(self._log)
        self.marks: list[tuple[int, str]] = []
        self.begins = asyncio.Event()
        self.steps: Steps | None = None

    async def run(self, address: str, away: Away | None = None) -> Outcome:
        connection = Connection(address)
        drive = await connection.open()
        try:
            self.steps = Steps(drive, self.plan, self.log, SystemClock(), self._marked)
            document = self.plan.document()
            folder = "" if away else str(self.work.parent)
            context = JobContext("77", 12, 3, "https://f")
            envelope = JobEnvelope(document.decode(), context, folder, "mac", self.ttl_s)
            return await self.steps.run(REF, envelope, job_digest(document), 60.0, away)
        finally:
            await drive.aclose()
            await connection.aclose()
            self.told = self._log.read_bytes()
            self.log.remove()

    def _marked(self, mark: object) -> None:
        self.marks.append((mark.step, mark.kind))  # type: ignore[attr-defined]
        self.begins.set()

    @property
    def ran(self) -> int:
        return (self.work / "ran").read_text().count("x")


@asynccontextmanager
async def wired(folder: Path, harness: str) -> AsyncIterator[Relay]:
    relay = Relay(folder / "r.sock", harness)
    await relay.open()
    try:
        yield relay
    finally:
        await relay.close()


pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def harness(tmp_path):
    with a_harness(tmp_path) as (address, pid):
        yield address, pid


def test_each_step_runs_once_and_the_log_is_whole_however_often_the_wire_is_cut(harness, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LOG_WINDOW_BYTES", 2_000)  # no step gets far without acks

    async def story():
        keeper = Keeper(tmp_path, a_job(TALK, TALK, TALK))
        async with wired(tmp_path, harness[0]) as relay:
            running = asyncio.create_task(keeper.run(relay.address))
            cuts = 0
            while cuts < 8 and not running.done():
                length = keeper.log.length
                while keeper.log.length == length and not running.done():
                    await asyncio.sleep(0)
                relay.cut()
                cuts += 1
            return await running, keeper, cuts

    outcome, keeper, cuts = run(story(), timeout_s=60)

    assert cuts > 3
    assert outcome.conclusion == "success", outcome
    assert keeper.ran == 3
    said = [line for line in keeper.told.splitlines(keepends=True) if line.startswith(b"line ")]
    assert b"".join(said) == SAID * 3
    assert [one.number for one in keeper.steps.outcomes] == [1, 2, 3]
    assert [one.message for one in keeper.steps.annotations] == ["begun"] * 3
    assert set(keeper.marks) == {(step, kind) for step in (1, 2, 3) for kind in ("begin", "end")}
    assert len(keeper.marks) == 6


def test_a_grant_that_was_lost_with_the_wire_is_given_again(harness, tmp_path):
    async def story():
        keeper = Keeper(tmp_path, a_job("echo x >> ran"))
        async with wired(tmp_path, harness[0]) as relay:
            running = asyncio.create_task(keeper.run(relay.address))
            await keeper.begins.wait()  # the keeper is about to grant
            relay.deaf = True
            await asyncio.sleep(0.2)
            assert not (keeper.work / "ran").exists()
            relay.cut()
            return await running, keeper

    outcome, keeper = run(story(), timeout_s=20)

    assert (outcome.conclusion, keeper.ran, keeper.marks) == ("success", 1, [(1, "begin"), (1, "end")])


def test_a_cancel_while_nobody_answers_reaches_the_harness_afterwards(harness, tmp_path):
    async def story():
        keeper = Keeper(tmp_path, a_job("echo x >> ran; exec sleep 300"))
        async with wired(tmp_path, harness[0]) as relay:
            running = asyncio.create_task(keeper.run(relay.address))
            while not (keeper.work / "ran").exists():
                await asyncio.sleep(0.01)
            relay.deaf = True  # the word goes out, and is lost
            await keeper.steps.cancel(pb.USER, 5.0)
            await asyncio.sleep(0.05)
            relay.cut()
            return await running

    assert run(story(), timeout_s=20).conclusion == "cancelled"


def test_a_harness_that_was_killed_is_lost_at_once(tmp_path):
    async def story(address, pid):
        keeper = Keeper(tmp_path, a_job("echo x >> ran; exec sleep 300"))
        running = asyncio.create_task(keeper.run(address))
        while not (keeper.work / "ran").exists():
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        return await running

    with pytest.raises(AssertionError), a_harness(tmp_path) as (address, pid):  # it does not exit 0
        outcome = run(story(address, pid), timeout_s=20)

    assert outcome.conclusion is None


def test_a_harness_that_was_stopped_for_a_while_goes_on(harness, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_SILENCE_S", 0.5)
    monkeypatch.setattr(limits, "HARNESS_ANSWER_S", 0.5)

    async def story():
        keeper = Keeper(tmp_path, a_job("echo x >> ran; while [ ! -e go ]; do sleep 0.05; done; echo done"))
        running = asyncio.create_task(keeper.run(harness[0]))
        while not (keeper.work / "ran").exists():
            await asyncio.sleep(0.01)
        os.kill(harness[1], signal.SIGSTOP)
        await asyncio.sleep(1.2)
        assert not running.done()
        os.kill(harness[1], signal.SIGCONT)
        (keeper.work / "go").touch()
        return await running, keeper

    monkeypatch.setattr(limits, "HARNESS_HEARTBEAT_S", 0.1)
    outcome, keeper = run(story(), timeout_s=30)

    assert (outcome.conclusion, keeper.ran) == ("success", 1)
    assert keeper.told.endswith(b"done\n")


def test_nobody_comes_back_in_time_and_the_attempt_is_lost_and_over(harness, tmp_path):
    async def story():
        keeper = Keeper(tmp_path, a_job("echo $$ > ran; exec sleep 300"), ttl_s=limits.LEASE_TTL_MIN_S)
        async with wired(tmp_path, harness[0]) as relay:
            running = asyncio.create_task(keeper.run(relay.address))
            while not (keeper.work / "ran").exists():
                await asyncio.sleep(0.01)
            relay._harness = str(tmp_path / "nobody")
            relay.cut()
            outcome = await running
        connection = Connection(harness[0])
        try:
            while (await connection.describe()).running_jobs:
                await asyncio.sleep(0.05)
        finally:
            await connection.aclose()
        return outcome

    assert run(story(), timeout_s=30).conclusion is None


# ---- What Attach is refused for


class Stream:
    """A stream of whoever knows the contract."""

    def __init__(self, call: grpc.aio.StreamStreamCall, hello: pb.Hello) -> None:
        self.call, self.hello = call, hello

    async def attaches(self, instance: str | None = None, fence: int = REF.fence + 1, **more: object) -> None:
        given = {"job_uid": REF.job_uid, "attempt_id": REF.attempt_id} | more
        attach = pb.Attach(
            instance_id=self.hello.descriptor.instance_id if instance is None else instance,
            events_from=int(given.pop("events_from", 1)),  # type: ignore[call-overload]
            log_from=int(given.pop("log_from", 1)),  # type: ignore[call-overload]
        )
        await self.call.write(pb.HostFrame(fence=fence, attach=attach, **given))  # type: ignore[arg-type]

    async def refused(self) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await self.call.read()
        return str(refusal.value.code().name)


@asynccontextmanager
async def a_stream(address: str) -> AsyncIterator[Stream]:
    async with grpc.aio.insecure_channel(target(address), options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        call = JobHarnessStub(channel).Run()
        hello = await call.read()
        yield Stream(call, hello.hello)
        call.cancel()


@pytest.mark.proves("H-41")
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"instance": "another"}, "ABORTED"),
        ({"fence": REF.fence}, "FAILED_PRECONDITION"),
        ({"fence": REF.fence - 1}, "FAILED_PRECONDITION"),
        ({"attempt_id": "another"}, "NOT_FOUND"),
        ({"job_uid": "another"}, "NOT_FOUND"),
        ({"events_from": 0}, "INVALID_ARGUMENT"),
        ({"events_from": 99}, "INVALID_ARGUMENT"),
        ({"log_from": 9_999}, "INVALID_ARGUMENT"),
        ({"log_from": 0}, "INVALID_ARGUMENT"),
    ],
    ids=str,
)
def test_an_attach_that_cannot_be_is_refused_and_the_stream_that_runs_goes_on(harness, tmp_path, said, code):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("echo ready; while [ ! -e go ]; do sleep 0.05; done")) as host:
            host.ref = REF
            await host.start()
            await host.printed(b"ready\n")
            async with a_stream(harness[0]) as other:
                assert [one.attempt_id for one in other.hello.running] == [REF.attempt_id]
                await other.attaches(**said)
                refused = await other.refused()
            (host.work / "go").touch()
            return refused, await host.finish()

    refused, heard = run(story(), timeout_s=20)

    assert refused == code
    assert heard.end.state == pb.End.COMPLETED


def test_a_higher_fence_takes_over_and_the_older_stream_is_closed(harness, tmp_path):
    async def story():
        plan = a_job("echo ready; while [ ! -e go ]; do sleep 0.05; done; echo more")
        async with hosted(harness[0], tmp_path, plan) as host:
            host.ref, host.acks = REF, False
            await host.start()
            await host.printed(b"ready\n")
            async with a_stream(harness[0]) as other:
                await other.attaches()
                with pytest.raises(Exception, match=f"fence {REF.fence + 1} has the attempt now"):
                    await host.finish()
                await host.drive.cancel(pb.USER, 0)  # a word of who has it no more
                (host.work / "go").touch()
                frames = []
                while (frame := await other.call.read()) is not grpc.aio.EOF:
                    frames.append(frame)
                    if frame.WhichOneof("frame") == "end":
                        end = pb.Ack(events_through=frame.seq)
                        refs = {"job_uid": REF.job_uid, "attempt_id": REF.attempt_id, "fence": REF.fence + 1}
                        await other.call.write(pb.HostFrame(ack=end, **refs))
                        await other.call.done_writing()
            async with a_stream(harness[0]) as later:
                return frames, list(later.hello.running)

    frames, left = run(story(), timeout_s=20)

    assert [frame.seq for frame in frames if frame.seq] == [1, 2, 3]
    assert frames[-1].end.state == pb.End.COMPLETED
    assert b"".join(frame.log.data for frame in frames).endswith(b"ready\nmore\n")
    assert left == []


def test_an_end_that_nobody_heard_can_be_asked_for(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("echo x > ran")) as host:
            host.ref = REF
            await host.start()
            await host.until(lambda heard: bool(heard.frames))
            host.drive._call.cancel()
            while not (host.work / "ran").exists():
                async with a_stream(harness[0]) as other:
                    await other.attaches(fence=REF.fence + 1)
                    await other.call.read()
                    refs = {"job_uid": REF.job_uid, "attempt_id": REF.attempt_id, "fence": REF.fence + 1}
                    grant = pb.StepGrant(step_id="1", decision=pb.RUN)
                    await other.call.write(pb.HostFrame(grant=grant, **refs))
                    while (frame := await other.call.read()).WhichOneof("frame") != "result":
                        pass
            while True:
                async with a_stream(harness[0]) as other:
                    if not other.hello.descriptor.running_jobs:
                        await other.attaches(fence=REF.fence + 2)
                        while (frame := await other.call.read()).WhichOneof("frame") != "end":
                            pass
                        return frame.end

    assert run(story(), timeout_s=20).state == pb.End.COMPLETED
