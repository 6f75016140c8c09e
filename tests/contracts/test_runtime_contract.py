"""What every runtime promises, on each that there is."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.aio import run
from tests.harness_host import a_job, gone, hosted, ran
from tests.runtimes import EVERY, OF_THIS_MACHINE, living
from vole.base.errors import Invalid, Unavailable
from vole.wire import harness_pb2 as pb
from vole_runner.runtimes.dial import Connection
from vole_runner.runtimes.local import LocalRuntime
from vole_runner.runtimes.runtime import (
    ComputeState,
    ForkOpts,
    JobSpec,
    Resumability,
    RuntimeCapabilities,
    SnapshotKind,
    SnapshotRef,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")


@asynccontextmanager
async def local(folder, idle_max=2, environ=os.environ):
    runtime = LocalRuntime("here", folder / "home", idle_max, environ)
    try:
        yield runtime
    finally:
        await runtime.aclose()


@pytest.fixture(params=OF_THIS_MACHINE)
def runtime(request, tmp_path):
    return lambda: request.param(tmp_path)


MARKER = f"30{os.getpid()}"
DETACHED = f"(setsid sleep {MARKER} &); sleep 0.1; echo ready; sleep {MARKER}"


@pytest.fixture(params=EVERY)
def anywhere(request, tmp_path):
    return lambda: request.param(tmp_path)


def spec(uid, folder=""):
    return JobSpec(uid, str(folder))


def test_it_describes_the_harness_that_it_has(anywhere):
    async def story():
        async with anywhere() as it:
            return await it.describe()

    said = run(story())
    assert (said.id, said.resumability, said.protocol) == ("vole-shell", Resumability.RESTART_ONLY, 1)


def test_compute_has_an_address_that_answers_and_is_live_until_it_is_stopped(runtime):
    async def story():
        async with runtime() as it:
            compute = await it.create(spec("app/1/x@1"))
            connection = Connection(compute.address)
            said = await connection.describe()
            await connection.aclose()
            before = await it.status(compute)
            await it.stop(compute)
            return it, compute, said, before, await it.status(compute)

    it, compute, said, before, after = run(story())
    assert (compute.id, compute.runtime, compute.kind, compute.fence) == ("app/1/x@1", "here", it.kind, 0)
    assert said.running_jobs == 0
    assert (before, after) == (ComputeState.LIVE, ComputeState.TERMINATED)


@pytest.mark.parametrize("uid", ["", "twice"])
def test_compute_without_a_uid_or_with_one_that_is_taken_is_refused(runtime, uid):
    async def story():
        async with runtime() as it:
            await it.create(spec("twice"))
            with pytest.raises(Invalid):
                await it.create(spec(uid))

    run(story())


def test_a_cold_snapshot_names_the_run_and_a_warm_one_is_refused(anywhere):
    async def story():
        async with anywhere() as it:
            compute = await it.create(spec("j"))
            with pytest.raises(Invalid):
                await it.snapshot(compute, SnapshotKind.LOCAL)
            return await it.snapshot(compute, SnapshotKind.EXTERNAL)

    assert run(story()) == SnapshotRef(local="j", memory=False)


def test_restore_and_fork_give_compute_of_that_name(anywhere):
    async def story():
        async with anywhere() as it:
            restored = await it.restore(SnapshotRef(local="j"))
            forked = await it.fork(SnapshotRef(local="j"), ForkOpts(child_uid="k"))
            for bad in (it.restore(SnapshotRef(local="")), it.fork(SnapshotRef(local="j"), ForkOpts(child_uid=""))):
                with pytest.raises(Invalid):
                    await bad
            return restored.id, forked.id

    assert run(story()) == ("j", "k")


def test_stopping_what_is_not_there_is_nothing(anywhere):
    async def story():
        async with anywhere() as it:
            compute = await it.create(spec("j"))
            await it.stop(compute)
            await it.stop(compute)

    run(story())


def test_closing_ends_what_still_runs(runtime, tmp_path):
    async def story():
        async with runtime() as it:
            compute = await it.create(spec("j", tmp_path))
            async with hosted(compute.address, tmp_path, a_job(DETACHED)) as host:
                await host.start()
                await host.printed(b"ready\n")
                assert living(MARKER) != []
                await asyncio.gather(host.finish(), it.aclose(), return_exceptions=True)
                return living(MARKER)

    assert run(story()) == []


@pytest.mark.proves("SR-31")
def test_what_is_stopped_leaves_no_process(runtime, tmp_path):
    async def story():
        async with runtime() as it:
            compute = await it.create(spec("j", tmp_path))
            async with hosted(compute.address, tmp_path, a_job(DETACHED)) as host:
                await host.start()
                await host.printed(b"ready\n")
                await asyncio.gather(host.finish(), it.stop(compute), return_exceptions=True)
                return living(MARKER)

    assert run(story()) == []


# ---- The stream, wherever the harness is


def test_a_whole_job_runs_in_the_attempts_folder(anywhere, tmp_path):
    async def story():
        async with anywhere() as it:
            compute = await it.create(spec("j", tmp_path))
            heard, work = await ran(compute.address, tmp_path, a_job("echo one > file; echo hi", "cat file", "exit 3"))
            await it.stop(compute)
            return heard, (work / "file").read_text()

    heard, file = run(story())
    assert (heard.printed(1), heard.printed(2), file) == (b"hi\n", b"one\n", "one\n")
    assert (heard.states, heard.end.state) == (["SUCCEEDED", "SUCCEEDED", "FAILED"], pb.End.FAILED)


def test_a_cancel_ends_the_tree_within_its_grace(anywhere, tmp_path):
    async def story():
        async with anywhere() as it:
            compute = await it.create(spec("j", tmp_path))
            async with hosted(compute.address, tmp_path, a_job(f"trap '' TERM; {DETACHED}")) as host:
                await host.start()
                await host.printed(b"ready\n")
                await host.drive.cancel(pb.USER, 0.2)
                heard = await host.finish()
                return heard.end, living(MARKER)

    end, left = run(story())
    assert (end.state, end.reason, left) == (pb.End.CANCELED, pb.USER, [])


def test_a_job_that_is_over_its_time_is_ended(anywhere, tmp_path):
    async def story():
        async with anywhere() as it:
            compute = await it.create(spec("j", tmp_path))
            async with hosted(compute.address, tmp_path, a_job(DETACHED)) as host:
                await host.start(timeout_s=0.5)
                heard = await host.finish()
                return heard.end, living(MARKER)

    end, left = run(story())
    assert (end.state, end.reason, left) == (pb.End.CANCELED, pb.TIMEOUT, [])


# ---- What local alone promises


def test_local_owns_no_sandbox(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            return it.capabilities(), it.describes_live_harness

    assert run(story()) == (RuntimeCapabilities(), False)


@pytest.mark.proves("SR-29")
def test_a_harness_sees_nothing_of_the_keepers_environment_and_descriptors(tmp_path):
    async def story():
        reading, writing = os.pipe()
        os.set_inheritable(reading, True)
        environ = {**os.environ, "VOLE_KEY": "/home/ada/.ssh/key", "SSH_AUTH_SOCK": "/run/agent"}
        try:
            async with local(tmp_path, environ=environ) as it:
                await it.create(spec("j"))
                [(child, _)] = it._used.values()
                seen = f"/proc/{child.process.pid}"
                pairs = Path(f"{seen}/environ").read_bytes().split(b"\0")
                links = [os.readlink(f"{seen}/fd/{name}") for name in os.listdir(f"{seen}/fd")]
                return {pair.split(b"=")[0].decode() for pair in pairs if pair}, links, os.fstat(reading).st_ino
        finally:
            os.close(reading)
            os.close(writing)

    names, links, inode = run(story())
    assert names <= {"PATH", "HOME", "LANG", "TZ"}
    assert f"pipe:[{inode}]" not in links


def test_a_harness_listens_in_a_folder_closed_to_others(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            await it.prestart()
            return stat.S_IMODE((tmp_path / "home").stat().st_mode)

    assert run(story()) == 0o700


def test_a_harness_is_used_again_by_the_next_attempt(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            seen = []
            for uid in ("one", "two"):
                compute = await it.create(spec(uid))
                async with hosted(compute.address, tmp_path, a_job("echo hi")) as host:
                    await host.start()
                    heard = await host.finish()
                    seen.append((host.drive.hello.instance_id, heard.end.state))
                await it.stop(compute)
            return seen

    one, two = run(story())
    assert one == two
    assert one[1] == pb.End.COMPLETED


def test_two_attempts_at_once_have_a_harness_each(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            one, two = await it.create(spec("one")), await it.create(spec("two"))
            return one.address, two.address

    one, two = run(story())
    assert one != two


def test_a_harness_that_still_runs_something_is_not_used_again(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            compute = await it.create(spec("one", tmp_path))
            async with hosted(compute.address, tmp_path, a_job("echo $$ > pid; echo ready; sleep 300")) as host:
                await host.start()
                await host.printed(b"ready\n")
                await asyncio.gather(host.finish(), it.stop(compute))
                await gone(int((host.work / "pid").read_text()), within_s=1)
            return (await it.create(spec("two"))).address != compute.address

    assert run(story())


@pytest.mark.proves("SR-31")
def test_what_a_killed_harness_left_is_ended_when_it_is_stopped(tmp_path):
    async def story():
        async with local(tmp_path) as it, hosted_on(it, tmp_path) as (compute, host, harness):
            await host.start()
            await host.printed(b"ready\n")
            pids = [int(line) for line in (host.work / "pids").read_text().split()]
            os.kill(harness, signal.SIGKILL)
            with pytest.raises(Unavailable):
                await host.finish()
            async with asyncio.timeout(5):
                # A killed process is there until its last thread has gone.
                while await it.status(compute) is not ComputeState.TERMINATED:
                    await asyncio.sleep(0.01)
            await it.stop(compute)
            await gone(*pids, within_s=1)

    run(story())


@asynccontextmanager
async def hosted_on(it, tmp_path):
    script = "echo $$ >> pids; (setsid bash -c 'echo $$ >> pids; sleep 300' &); sleep 0.2; echo ready; sleep 300"
    attempt = tmp_path / "attempt"
    compute = await it.create(spec("j", attempt))
    [(child, _)] = it._used.values()
    async with hosted(compute.address, tmp_path, a_job(script)) as host:
        host.folder = host.folder.rename(attempt)
        yield compute, host, child.process.pid


def test_a_harness_that_cannot_start_is_unavailable_with_its_own_words(tmp_path, monkeypatch):
    monkeypatch.setattr("vole_runner.runtimes.local.program", lambda: [sys.executable, "-c", "raise SystemExit('no')"])

    async def story():
        async with local(tmp_path) as it:
            with pytest.raises(Unavailable, match="did not start: no"):
                await it.describe()

    run(story())


def test_a_home_whose_sockets_would_be_too_long_is_refused(tmp_path):
    with pytest.raises(Invalid, match="107"):
        LocalRuntime("here", tmp_path / ("x" * 100), 1, {})


def test_two_connections_to_one_address_are_two(tmp_path):
    async def story():
        async with local(tmp_path) as it:
            compute = await it.create(spec("j"))
            [(child, _)] = it._used.values()
            before = sockets_of(child.process.pid)
            one, two = Connection(compute.address), Connection(compute.address)
            await one.describe()
            await two.describe()
            after = sockets_of(child.process.pid)
            await one.aclose()
            await two.aclose()
            return after - before

    assert run(story()) == 2


def sockets_of(pid):
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    return sum(link.startswith("socket:") for link in links)


def test_nobody_at_an_address_is_unavailable_and_names_it(tmp_path):
    async def story():
        address = f"unix://{tmp_path}/nobody.sock"
        connection = Connection(address)
        try:
            with pytest.raises(Unavailable) as refusal:
                await connection.describe()
            return address, refusal.value.sentence
        finally:
            await connection.aclose()

    address, sentence = run(story())
    assert address in sentence
