"""Two that share no code with vole speak its harness contract: a harness on grpc-js, a keeper on grpclib."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpclib.client
import pytest

from tests.aio import run
from tests.harness_host import a_harness, a_job, alive, gone, hosted, ran
from vole.base import limits
from vole.base.errors import Unavailable
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope, fence
from vole.wire.plan import JobContext, job_digest
from vole_runner import gate
from vole_runner.gate import Demand
from vole_runner.runtimes.dial import LOST, Connection
from vole_runner.runtimes.runtime import RuntimeCapabilities

ROOT = Path(__file__).parents[2]
SERVICE = "/vole.harness.v1.JobHarness"
on_node = pytest.mark.needs("peers")


@contextmanager
def a_foreign_harness(folder: Path, fault: str = "") -> Iterator[str]:
    """Its address. It ends with the block, by pid."""
    socket = folder / "f.sock"
    process = subprocess.Popen(
        ["node", ROOT / "tests/peers/harness.js", f"unix:{socket}", ROOT / "vole/wire/harness.proto", fault],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---- A harness of somebody else's


@on_node
def test_a_job_runs_on_a_harness_that_knows_the_contract_alone(tmp_path):
    with a_foreign_harness(tmp_path) as address:
        heard, work = run(ran(address, tmp_path, a_job("echo one > file; echo out; echo err >&2", "cat file")))

    assert heard.states == ["SUCCEEDED", "SUCCEEDED"]
    assert (heard.printed(1), heard.printed(2)) == (b"out\nerr\n", b"one\n")
    assert heard.results[2].log_sha256 == hashlib.sha256(b"one\n").hexdigest()
    assert heard.end.state == pb.End.COMPLETED
    assert (work / "file").read_text() == "one\n"


@on_node
def test_its_failed_step_and_the_keepers_cancel_end_the_job(tmp_path):
    async def story(address):
        failed, _ = await ran(address, tmp_path, a_job("exit 3", "echo never"))
        async with hosted(address, tmp_path, a_job("echo $$ > pid; echo ready; exec sleep 300")) as host:
            await host.start()
            await host.printed(b"ready\n")
            pid = int((host.work / "pid").read_text())
            await host.drive.cancel(pb.USER, 5.0)
            heard = await host.finish()
            await gone(pid)
        return failed, heard

    with a_foreign_harness(tmp_path) as address:
        failed, cancelled = run(story(address))

    assert (failed.states, failed.results[1].exit_code, failed.end.state) == (["FAILED"], 3, pb.End.FAILED)
    assert (cancelled.end.state, cancelled.end.reason) == (pb.End.CANCELED, pb.USER)


@on_node
def test_its_tier_is_judged_by_the_gate(tmp_path):
    async def story(address):
        connection = Connection(address)
        try:
            return await connection.describe()
        finally:
            await connection.aclose()

    with a_foreign_harness(tmp_path, "memory") as address:
        said = run(story(address))

    assert said.id == "somebody-elses"
    assert "memory snapshots" in (gate.can_place(Demand(), said, RuntimeCapabilities()) or "")


@on_node
def test_a_stream_without_hello_is_no_harness_and_one_without_end_is_lost(tmp_path):
    async def without_hello(address):
        async with hosted(address, tmp_path, a_job("true")):
            pass

    with a_foreign_harness(tmp_path, "no-hello") as address, pytest.raises(Unavailable, match="Hello"):
        run(without_hello(address))
    (tmp_path / "f.sock").unlink(missing_ok=True)
    with a_foreign_harness(tmp_path, "no-end") as address, pytest.raises(Unavailable) as lost:
        run(ran(address, tmp_path, a_job("true")))

    assert lost.value.code == LOST


@on_node
@pytest.mark.proves("H-41")
def test_its_frame_of_another_attempt_ends_the_stream_for_good(tmp_path):
    with a_foreign_harness(tmp_path, "other-attempt") as address, pytest.raises(Unavailable) as lost:
        run(ran(address, tmp_path, a_job("echo out")))

    assert "on the stream of another attempt" in lost.value.sentence
    assert lost.value.code != LOST


@on_node
def test_a_peer_that_answers_nothing_is_unavailable_within_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_ANSWER_S", 0.2)

    async def story(address):
        connection = Connection(address)
        try:
            with pytest.raises(Unavailable, match=r"f\.sock"):
                await connection.describe()
            with pytest.raises(Unavailable, match="no Hello within"):
                await connection.open()
        finally:
            await connection.aclose()

    with a_foreign_harness(tmp_path, "silent") as address:
        run(story(address))


# ---- A keeper of somebody else's


class ForeignKeeper:
    """One attempt over grpclib: an HTTP/2 of its own, in Python."""

    def __init__(self, address: str, folder: Path, script: str) -> None:
        self._channel = grpclib.client.Channel(path=address.removeprefix("unix://"))
        self._plan = a_job(script).document()
        self._folder = folder
        self._name = {"job_uid": "app/1/x", "attempt_id": "app/1/x@1", "fence": fence(1, 0)}
        self.frames: list[pb.HarnessFrame] = []

    async def describe(self) -> pb.Descriptor:
        method = grpclib.client.UnaryUnaryMethod(
            self._channel, f"{SERVICE}/Describe", pb.DescribeRequest, pb.Descriptor
        )
        return await method(pb.DescribeRequest())

    async def runs(self, cancel_at: bytes | None = None) -> None:
        method = grpclib.client.StreamStreamMethod(self._channel, f"{SERVICE}/Run", pb.HostFrame, pb.HarnessFrame)
        envelope = JobEnvelope(self._plan.decode(), JobContext("1", 1, 1, "https://f"), str(self._folder), "m", 60.0)
        async with method.open() as stream:
            await stream.send_request()
            async for frame in stream:
                self.frames.append(frame)
                kind = frame.WhichOneof("frame")
                if kind == "hello":
                    start = pb.Start(plan=envelope.document(), plan_digest=job_digest(self._plan))
                    await stream.send_message(pb.HostFrame(start=start, **self._name))
                elif kind == "intent":
                    grant = pb.StepGrant(step_id=frame.intent.step_id, decision=pb.RUN)
                    await stream.send_message(pb.HostFrame(grant=grant, **self._name))
                elif kind == "log" and cancel_at is not None and cancel_at in frame.log.data:
                    await stream.send_message(pb.HostFrame(cancel=pb.Cancel(reason=pb.USER), **self._name))
                elif kind == "end":
                    await stream.end()

    def close(self) -> None:
        self._channel.close()


def kept_by_a_foreigner(tmp_path: Path, script: str, cancel_at: bytes | None = None) -> ForeignKeeper:
    async def story(address: str) -> ForeignKeeper:
        (tmp_path / "attempt").mkdir()
        keeper = ForeignKeeper(address, tmp_path / "attempt", script)
        try:
            assert (await keeper.describe()).id == "vole-shell"
            async with asyncio.timeout(10):
                await keeper.runs(cancel_at)
        finally:
            keeper.close()
        return keeper

    with a_harness(tmp_path) as (address, _):
        return run(story(address))


def test_a_keeper_that_knows_the_contract_alone_drives_our_harness(tmp_path):
    keeper = kept_by_a_foreigner(tmp_path, "echo hi; echo there")

    kinds = [frame.WhichOneof("frame") for frame in keeper.frames]
    printed = b"".join(frame.log.data for frame in keeper.frames if frame.log.stream == pb.STDOUT)
    events = [frame.seq for frame in keeper.frames if frame.seq]
    assert (kinds[0], kinds[-1]) == ("hello", "end")
    assert printed == b"hi\nthere\n"
    assert events == list(range(1, len(events) + 1))
    assert keeper.frames[-1].end.state == pb.End.COMPLETED


def test_it_cancels_as_ours_does(tmp_path):
    keeper = kept_by_a_foreigner(tmp_path, "echo $$ > pid; echo ready; sleep 300", cancel_at=b"ready")

    assert keeper.frames[-1].end.state == pb.End.CANCELED
    assert not alive(int((tmp_path / "attempt/work/pid").read_text()))
