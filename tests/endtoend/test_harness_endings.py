"""How an attempt ends before its time, and what a harness refuses. Real processes, also of a host that is killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.aio import run
from tests.harness_host import a_harness, a_job, a_step, alive, gone, hosted, ran
from vole.base import limits
from vole.base.errors import Exhausted, Fenced, Invalid, Unavailable
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope
from vole.wire.harness_pb2_grpc import JobHarnessStub
from vole.wire.plan import JobContext, job_digest
from vole_runner.runtimes.dial import LOST, SILENT, AttemptRef, Connection, target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process tree is seen through /proc")

WAITS = "echo $$ > pid; echo ready; sleep 300 & wait"
DEAF = "trap '' TERM; echo $$ > pid; echo ready; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    with a_harness(tmp_path_factory.mktemp("h")) as (address, pid):
        yield address, pid


def pid_of(host):
    return int((host.work / "pid").read_text())


# ---- Cancel


@pytest.mark.proves("SR-31", "SR-35")
@pytest.mark.parametrize(("script", "grace_s", "signalled"), [(WAITS, 10.0, "SIGTERM"), (DEAF, 0.3, "SIGKILL")])
def test_a_cancel_ends_the_step_tree_within_its_grace(harness, tmp_path, script, grace_s, signalled):
    async def story():
        async with hosted(harness[0], tmp_path, a_job(script, "echo no")) as host:
            await host.start()
            await host.printed(b"ready\n")
            await host.drive.cancel(pb.USER, grace_s)
            heard = await host.finish()
            return heard, alive(pid_of(host))

    heard, lives = run(story(), timeout_s=5)

    assert not lives
    assert (heard.end.state, heard.end.reason) == (pb.End.CANCELED, pb.USER)
    assert heard.states == ["CANCELED", "SKIPPED"]
    assert heard.results[1].signal == signalled
    assert bool(heard.results[1].leftovers) == (signalled == "SIGKILL")


def test_steps_that_say_always_run_inside_the_grace_of_a_cancel(harness, tmp_path):
    steps = [WAITS, a_step("echo cleaned", if_="always()"), a_step("echo told", if_="cancelled()"), a_step("echo no")]

    async def story():
        async with hosted(harness[0], tmp_path, a_job(*steps)) as host:
            await host.start()
            await host.printed(b"ready\n")
            await host.drive.cancel(pb.USER, 10.0)
            return await host.finish()

    heard = run(story())

    assert heard.states == ["CANCELED", "SUCCEEDED", "SUCCEEDED", "SKIPPED"]
    assert (heard.printed(2), heard.printed(3)) == (b"cleaned\n", b"told\n")
    assert heard.end.state == pb.End.CANCELED


def test_a_step_that_says_always_is_killed_at_the_end_of_the_grace(harness, tmp_path):
    steps = [WAITS, a_step(DEAF, if_="always()")]

    async def story():
        async with hosted(harness[0], tmp_path, a_job(*steps)) as host:
            await host.start()
            await host.printed(b"ready\n")
            await host.drive.cancel(pb.USER, 0.7)
            await host.printed(b"ready\n", step=2)
            heard = await host.finish()
            return heard, alive(pid_of(host))

    heard, lives = run(story(), timeout_s=6)

    assert heard.states == ["CANCELED", "CANCELED"]
    assert not lives


def test_after_a_superseded_lease_no_step_runs_any_more(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job(WAITS, a_step("echo no", if_="always()"))) as host:
            await host.start()
            await host.printed(b"ready\n")
            await host.drive.cancel(pb.SUPERSEDED, 10.0)
            return await host.finish()

    heard = run(story())

    assert heard.states == ["CANCELED", "SKIPPED"]


def test_the_jobs_own_time_limit_is_kept_without_the_host(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job(WAITS)) as host:
            await host.start(timeout_s=0.5)
            return await host.finish()

    heard = run(story(), timeout_s=6)

    assert (heard.end.state, heard.end.reason) == (pb.End.CANCELED, pb.TIMEOUT)


# ---- A lost host


@pytest.mark.proves("SR-31")
def test_leaving_an_attempt_on_purpose_ends_it_at_once(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job(WAITS)) as host:
            await host.start(ttl_s=600.0)
            await host.printed(b"ready\n")
            pid = pid_of(host)
            await host.drive.aclose()
            return alive(pid)

    assert not run(story())


@pytest.mark.proves("SR-35")
def test_a_harness_that_lost_its_host_ends_the_steps_at_half_the_ttl(harness, tmp_path):
    async def story():
        loop = asyncio.get_running_loop()
        async with hosted(harness[0], tmp_path, a_job(DEAF)) as host:
            await host.start(ttl_s=limits.LEASE_TTL_MIN_S)
            await host.printed(b"ready\n")
            pid, lost_at = pid_of(host), loop.time()
            host.drive._call.cancel()
            await gone(pid)
            return loop.time() - lost_at

    times = limits.lease_times(limits.LEASE_TTL_MIN_S)
    took_s = run(story())

    assert times.orphan_s * 0.9 < took_s < times.ttl_s


@pytest.mark.proves("SR-35")
def test_a_killed_keeper_takes_harness_and_steps_with_it(tmp_path):
    keeper = subprocess.Popen(
        [sys.executable, "-c", _KEEPER, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ".:runner"},
        stdout=subprocess.PIPE,
    )
    try:
        assert keeper.stdout is not None
        harness, step = map(int, keeper.stdout.readline().split())
    finally:
        keeper.kill()
        keeper.wait()
        keeper.stdout.close()

    run(gone(harness, step, within_s=12), timeout_s=14)


_KEEPER = f"""
import asyncio, os, sys
from pathlib import Path
from tests.harness_host import a_job, hosted
from vole_runner.runtimes.local import LocalRuntime
from vole_runner.runtimes.runtime import JobSpec

async def main(folder):
    runtime = LocalRuntime("local", folder / "home", 1, os.environ)
    compute = await runtime.create(JobSpec("j", str(folder)))
    async with hosted(compute.address, folder, a_job({WAITS!r})) as host:
        await host.start(ttl_s=600.0)
        await host.printed(b"ready\\n")
        [(child, _)] = runtime._used.values()
        print(child.process.pid, (host.work / "pid").read_text(), flush=True)
        await host.finish()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_stopped_harness_ends_its_attempt_first(tmp_path):
    async def story(address, pid):
        async with hosted(address, tmp_path, a_job(WAITS)) as host:
            await host.start()
            await host.printed(b"ready\n")
            os.kill(pid, signal.SIGTERM)
            heard = await host.finish()
        await gone(pid)
        return heard, alive(pid_of(host))

    with a_harness(tmp_path) as (address, pid):
        heard, lives = run(story(address, pid))

    assert not lives
    assert (heard.end.state, heard.end.reason) == (pb.End.CANCELED, pb.INTERNAL)


def test_a_stream_that_ends_without_an_end_is_a_loss(tmp_path):
    async def story(address, pid):
        async with hosted(address, tmp_path, a_job(WAITS)) as host:
            await host.start()
            await host.printed(b"ready\n")
            os.kill(pid, signal.SIGKILL)
            os.killpg(pid_of(host), signal.SIGKILL)
            with pytest.raises(Unavailable) as loss:
                await host.finish()
            return loss.value

    with pytest.raises(AssertionError), a_harness(tmp_path) as (address, pid):  # it does not exit 0
        loss = run(story(address, pid))

    assert loss.code == LOST
    assert address in loss.sentence


def test_a_harness_that_goes_silent_is_noticed_by_its_missing_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_SILENCE_S", 0.5)

    async def story(address, pid):
        async with hosted(address, tmp_path, a_job(WAITS)) as host:
            await host.start()
            await host.printed(b"ready\n")
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(Unavailable) as silence:
                    await host.finish()
            finally:
                os.kill(pid, signal.SIGCONT)
            return silence.value

    with a_harness(tmp_path) as (address, pid):
        silence = run(story(address, pid))

    assert silence.code == SILENT


def test_a_peer_that_never_answers_is_unavailable_within_our_own_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_ANSWER_S", 0.3)
    met = []

    async def story():
        silent = await asyncio.start_unix_server(lambda _, writer: met.append(writer), tmp_path / "s.sock")
        connection = Connection(f"unix://{tmp_path}/s.sock")
        try:
            for ask in (connection.describe, connection.open):
                with pytest.raises(Unavailable, match=r"s\.sock"):
                    await ask()
        finally:
            await connection.aclose()
            for writer in met:
                writer.close()
                await writer.wait_closed()
            silent.close()

    run(story(), timeout_s=5)


# ---- Grants


def test_a_step_that_is_not_granted_does_not_run(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("touch ran")) as host:
            host.grants = False
            await host.start()
            await host.until(lambda heard: heard.frames[-1].WhichOneof("frame") == "intent")
            await host.drive.refuse("1", "the journal cannot be written")
            heard = await host.finish()
            return heard, (host.work / "ran").exists()

    heard, did_run = run(story())

    assert not did_run
    assert heard.end.state == pb.End.FAILED
    assert heard.end.error.message == "the journal cannot be written"


def test_without_an_answer_nothing_runs_and_a_cancel_still_ends_it(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("touch ran")) as host:
            host.grants = False
            await host.start()
            await host.until(lambda heard: heard.frames[-1].WhichOneof("frame") == "intent")
            await host.drive.cancel(pb.USER, 1.0)
            heard = await host.finish()
            return heard, (host.work / "ran").exists()

    heard, did_run = run(story())

    assert not did_run
    assert heard.states == ["CANCELED"]
    assert heard.end.state == pb.End.CANCELED


def test_a_grant_of_another_step_ends_the_attempt(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("touch ran", "true")) as host:
            host.grants = False
            await host.start()
            await host.until(lambda heard: heard.frames[-1].WhichOneof("frame") == "intent")
            await host.drive.grant("2")
            return await host.finish(), (host.work / "ran").exists()

    heard, did_run = run(story())

    assert not did_run
    assert heard.end.HasField("error")


def test_the_input_digest_changes_with_what_the_step_depends_on(harness, tmp_path):
    async def digests(**what):
        heard, _ = await ran(harness[0], tmp_path, a_job(a_step("true", **what)))
        return [f.intent.input_digest for f in heard.frames if f.WhichOneof("frame") == "intent"]

    async def story():
        return await digests(env={"A": "1"}), await digests(env={"A": "2"})

    one, other = run(story())
    assert one != other


# ---- The window


def test_a_full_window_slows_the_step_and_loses_nothing(harness, tmp_path):
    total = 3 * limits.LOG_WINDOW_BYTES
    whole = b"".join(bytes([n % 256]) * 65536 for n in range(total // 65536))
    script = f"import os\nfor n in range({total} // 65536): os.write(1, bytes([n % 256]) * 65536)"

    async def story():
        async with hosted(harness[0], tmp_path, a_job(a_step(script, shell="python"))) as host:
            host.acks = False
            await host.start()
            # Heartbeats go on: one that comes after a chunk with nothing in between shows a step that waits.
            await host.until(lambda heard: heard.log_bytes >= limits.LOG_WINDOW_BYTES)
            await host.until(lambda heard: heard.frames[-1].WhichOneof("frame") == "heartbeat")
            held = host.heard.log_bytes
            host.acks = True
            await host.drive.ack(log_through=host.heard.chunks[-1].seq)
            return held, await host.finish()

    held, heard = run(story())

    assert held < limits.LOG_WINDOW_BYTES + 4 * limits.LOG_CHUNK_BYTES
    printed = heard.printed()
    assert len(printed) == total
    assert hashlib.sha256(printed).hexdigest() == hashlib.sha256(whole).hexdigest()


def test_no_step_begins_while_the_window_is_full(harness, tmp_path):
    script = f"import os\nos.write(1, b'x' * {limits.LOG_WINDOW_BYTES})"

    async def story():
        async with hosted(harness[0], tmp_path, a_job(a_step(script, shell="python"), "touch ran")) as host:
            host.acks = False
            await host.start()
            await host.until(lambda heard: 1 in heard.results)
            await host.until(lambda heard: heard.frames[-1].WhichOneof("frame") in ("intent", "heartbeat"))
            early = host.heard.frames[-1].WhichOneof("frame")
            await host.drive.cancel(pb.USER, 1.0)
            return early, await host.finish()

    early, heard = run(story())

    assert early == "heartbeat"
    assert heard.states == ["SUCCEEDED", "CANCELED"]


# ---- Refusals


def started(host, **changes):
    document = host.plan.document()
    envelope = JobEnvelope(document.decode(), JobContext("1", 1, 1, ""), str(host.folder), "mac-1", 60.0)
    return host.drive.start(host.ref, replace(envelope, **changes), job_digest(document))


@pytest.mark.proves("SR-32")
def test_a_folder_that_held_an_attempt_is_refused(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("echo secret > $RUNNER_TEMP/left")) as first:
            await first.start()
            await first.finish()
        async with hosted(harness[0], tmp_path, a_job("cat $RUNNER_TEMP/left")) as second:
            await started(second, folder=str(first.folder))
            with pytest.raises(Invalid, match="needs a fresh folder"):
                await second.finish()

    run(story())


@pytest.mark.parametrize(
    "changes",
    [{"folder": "work"}, {"folder": "/"}, {"folder": "/nonexistent/x"}, {"ttl_s": 1.0}, {"plan": "{}"}, {"plan": ""}],
    ids=str,
)
def test_a_start_that_makes_no_sense_is_refused(harness, tmp_path, changes):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("true")) as host:
            await started(host, **changes)
            with pytest.raises(Invalid):
                await host.finish()

    if changes != {"folder": "/"} or os.geteuid() != 0:
        run(story())


def test_a_plan_that_is_not_the_pinned_one_is_refused(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("true")) as host:
            other = a_job("curl evil").document()
            await started(host, plan=other.decode())
            with pytest.raises(Invalid, match="not the pinned job"):
                await host.finish()

    run(story())


def test_a_second_job_at_once_is_refused(harness, tmp_path):
    async def story():
        async with (
            hosted(harness[0], tmp_path, a_job(WAITS)) as host,
            hosted(harness[0], tmp_path, a_job("true")) as other,
        ):
            await host.start()
            await host.printed(b"ready\n")
            await other.start()
            with pytest.raises(Exhausted):
                await other.finish()
            await host.drive.cancel(pb.USER, 1.0)
            return await host.finish()

    assert run(story()).end.reason == pb.USER


def test_a_fence_that_is_not_above_the_last_is_refused(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("true")) as host:
            await host.start()
            await host.finish()
        async with hosted(harness[0], tmp_path, a_job("true")) as late:
            late.ref = AttemptRef(host.ref.job_uid, "late", host.ref.fence)
            await late.start()
            with pytest.raises(Fenced):
                await late.finish()
        async with hosted(harness[0], tmp_path, a_job("true")) as later:
            later.ref = AttemptRef(host.ref.job_uid, "later", host.ref.fence + 1)
            await later.start()
            return await later.finish()

    assert run(story()).end.state == pb.End.COMPLETED


@asynccontextmanager
async def a_foreign_host(address):
    async with grpc.aio.insecure_channel(target(address)) as channel:
        call = JobHarnessStub(channel).Run()
        hello = await call.read()
        assert hello.WhichOneof("frame") == "hello"
        yield call
        call.cancel()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (pb.HostFrame(job_uid="j", attempt_id="a", fence=1, grant=pb.StepGrant()), "INVALID_ARGUMENT"),
        (pb.HostFrame(job_uid="j", attempt_id="a", fence=1, attach=pb.Attach()), "ABORTED"),
        (pb.HostFrame(job_uid="j", fence=1, start=pb.Start()), "INVALID_ARGUMENT"),
        (pb.HostFrame(attempt_id="a", fence=1, start=pb.Start()), "INVALID_ARGUMENT"),
        (pb.HostFrame(job_uid="j", attempt_id="a", start=pb.Start()), "INVALID_ARGUMENT"),
        (pb.HostFrame(job_uid="j", attempt_id="a", fence=1, start=pb.Start(plan=b"\xff")), "INVALID_ARGUMENT"),
        (pb.HostFrame(), "INVALID_ARGUMENT"),
    ],
    ids=["grant", "attach", "no attempt", "no job", "no fence", "no plan", "nothing"],
)
def test_a_stream_that_does_not_begin_with_start_is_refused(harness, frame, code):
    async def story():
        async with a_foreign_host(harness[0]) as call:
            await call.write(frame)
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call.read()
            return refusal.value.code().name

    assert run(story()) == code


def test_a_frame_of_another_attempt_ends_this_one(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job(WAITS)) as host:
            await host.start()
            await host.printed(b"ready\n")
            host.drive._attempt = AttemptRef(host.ref.job_uid, "another", host.ref.fence)
            await host.drive.ack(log_through=1)
            host.drive._attempt = host.ref
            heard = await host.finish()
            return heard, alive(pid_of(host))

    heard, lives = run(story())

    assert not lives
    assert heard.end.HasField("error")


def test_blobs_are_refused_by_name(harness):
    async def story():
        async with grpc.aio.insecure_channel(target(harness[0])) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                async for _ in JobHarnessStub(channel).FetchBlob(pb.FetchBlobRequest()):
                    pass
            with pytest.raises(grpc.aio.AioRpcError) as other:
                await JobHarnessStub(channel).PushBlob(iter([pb.BlobChunk()]))
            return refusal.value.code(), other.value.code()

    assert run(story()) == (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
