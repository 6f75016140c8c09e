"""Jobs that attack their runner: in a sandbox or container of ours they get nothing; nowhere do they leave anything."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.aio import run
from tests.harness_host import Heard, a_job, ran
from tests.runtimes import OF_THIS_MACHINE, OWNED, living
from vole.base import limits
from vole.base.errors import Invalid
from vole.config.runtimes import Bounds
from vole.wire import harness_pb2 as pb
from vole.wire.plan import ArtifactPlan
from vole_runner.harness import kept
from vole_runner.runtimes.runtime import JobSpec

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"), pytest.mark.timeout(60)]

SECRET = f"s3cret-{os.getpid()}-of-the-runner"
MARKER = f"31{os.getpid()}"


@dataclass
class World:
    """What is around a job on its runner's machine."""

    folder: Path
    key: Path
    other: Path  # another job's work folder
    keeper: int  # a process of the runner's user with the secret in its environment and memory
    control: Path  # a socket that it listens on
    port: int
    abstract: str

    @property
    def attempt(self) -> Path:
        return self.folder / "attempts"


@contextmanager
def a_world(folder: Path) -> Iterator[World]:
    key, other = folder / "home" / "key", folder / "others" / "2" / "work"
    for path in (key.parent, other, folder / "attempts", folder / "run"):
        path.mkdir(parents=True)
    key.write_text(SECRET)
    (other / "file").write_text(SECRET)
    keeper = subprocess.Popen(["sleep", "300"], env={"PATH": os.environ["PATH"], "VOLE_KEY": SECRET})
    abstract = f"vole-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as named, socket.socket() as tcp:
        unix.bind(str(folder / "run" / "control.sock"))
        named.bind(f"\0{abstract}")
        tcp.bind(("127.0.0.1", 0))
        for listener in (unix, named, tcp):
            listener.listen()
        try:
            control = folder / "run" / "control.sock"
            yield World(folder, key, other, keeper.pid, control, tcp.getsockname()[1], abstract)
        finally:
            keeper.kill()
            keeper.wait()


def attacked(runtime, world: World, *steps: str, bounds: Bounds | None = None) -> tuple[Heard, Path]:
    """The job's story on a fresh place; nothing of it is left when this returns."""

    async def story():
        extra = {"hidden": (world.key.parent, world.folder)} | ({"bounds": bounds} if bounds else {})
        async with runtime(world.folder / "r", **extra) as it:
            compute = await it.create(JobSpec("j", str(world.attempt)))
            try:
                return await ran(compute.address, world.attempt, a_job(*steps))
            finally:
                await it.stop(compute)
                assert living(MARKER) == []
                assert not list((world.folder / "r" / "home").glob("*/h.sock")), "a socket is left"

    heard, work = run(story(), timeout_s=40)
    assert [line for line in mounts() if str(world.folder / "r") in line] == []
    return heard, work


def mounts() -> list[str]:
    """Mount points of this machine."""
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def python(code: str) -> str:
    """A step that runs `code`. It prints `got …` for each thing that it should not have."""
    return f"{sys.executable} - <<'EOF'\nimport os, pathlib, socket, subprocess, sys, time\n{code}\nEOF"


def tried(*attempts: str) -> str:
    """A step that tries each line of Python, and prints the line behind `got` where it did not fail."""
    tests = "\n".join(f"attempt({line!r})" for line in attempts)
    return python(
        "def attempt(line):\n"
        "    try:\n"
        "        exec(line)\n"
        "    except (Exception, SystemExit) as error:\n"
        "        print('no', line, repr(error))\n"
        "    else:\n"
        "        print('got', line)\n"
        f"{tests}\nprint('done')"
    )


def got(heard: Heard) -> list[str]:
    printed = heard.printed().decode("utf-8", "replace")
    assert "done" in printed, (printed, heard.said())
    return re.findall(r"(?m)^got .*", printed)


# ---- What is not theirs


@pytest.mark.proves("SR-29")
@pytest.mark.parametrize("runtime", OWNED)
def test_the_key_is_not_in_files_processes_environments_or_memory(runtime, tmp_path):
    with a_world(tmp_path) as world:
        heard, _ = attacked(
            runtime,
            world,
            tried(
                f"open({str(world.key)!r}).read()",
                f"os.listdir({str(world.key.parent)!r})",
                f"os.listdir({str(Path.home() / '.ssh')!r})",
                f"open('/proc/{world.keeper}/environ').read()",
                f"open('/proc/{world.keeper}/mem', 'rb').read(1)",
                f"os.readlink('/proc/{world.keeper}/cwd')",
                f"os.kill({os.getpid()}, 0) if {os.getpid()} > 200 else 1/0",
                f"os.kill({world.keeper}, 9)",
                "open('/etc/shadow').read(1)[0]",
                f"assert any({SECRET!r} in p.read_text('latin-1') for p in pathlib.Path('/proc').glob('*/environ'))",
                "assert 'SSH_AUTH_SOCK' in os.environ",
                "assert [f for f in os.listdir('/proc/self/fd') if int(f) > 3]",
            ),
        )
        assert got(heard) == []
        assert world.keeper in living("sleep")


@pytest.mark.proves("SR-32")
@pytest.mark.parametrize("runtime", OWNED)
def test_another_jobs_folder_and_the_runners_own_are_not_there(runtime, tmp_path):
    with a_world(tmp_path) as world:
        heard, _ = attacked(
            runtime,
            world,
            tried(
                f"open({str(world.other / 'file')!r}).read()",
                f"assert set(os.listdir({str(tmp_path)!r})) - {{'attempts'}}",
                f"os.chdir({str(world.attempt)!r}); open('../home/key').read()",
                "open('/escape', 'w')",
                "open('/usr/escape', 'w')",
                f"open({str(Path(sys.prefix) / 'escape')!r}, 'w')",
                "open('/etc/escape', 'w')",
                "open('/run/escape', 'w')",
            ),
        )
        assert got(heard) == []


@pytest.mark.proves("SR-30")
@pytest.mark.parametrize("runtime", OWNED)
def test_no_door_of_the_machine_is_reached(runtime, tmp_path):
    with a_world(tmp_path) as world:
        heard, _ = attacked(
            runtime,
            world,
            tried(
                f"socket.create_connection(('127.0.0.1', {world.port}), 2)",
                "socket.create_connection(('169.254.169.254', 80), 2)",
                f"socket.socket(socket.AF_UNIX).connect({str(world.control)!r})",
                f"socket.socket(socket.AF_UNIX).connect('\\0{world.abstract}')",
                "assert len(list(pathlib.Path('/sys/class/net').iterdir())) > 1",
                "assert len(open('/proc/net/dev').readlines()) > 3",
            ),
        )
        assert got(heard) == []


@pytest.mark.parametrize("runtime", OWNED)
def test_nothing_of_the_kernel_is_theirs_to_change(runtime, tmp_path):
    with a_world(tmp_path) as world:
        heard, _ = attacked(
            runtime,
            world,
            tried(
                "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
                "os.open('/proc/sys/vm/drop_caches', os.O_WRONLY)",
                "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
                "subprocess.run(['mount', '-t', 'tmpfs', 'none', '/tmp'], check=True, capture_output=True)",
                "subprocess.run(['mount', '-o', 'remount,rw', '/'], check=True, capture_output=True)",
                "subprocess.run(['unshare', '--mount', 'true'], check=True, capture_output=True)",
                "os.mknod('/tmp/disk', 0o660 | 0o060000, os.makedev(254, 0))",
                "os.chroot('/tmp')",
                "os.setuid(1)",
                "os.nice(-5)",
                "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
                "assert int([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1], 16)",
                "assert any(os.path.exists(p) for p in ('/dev/vda', '/dev/sda', '/dev/mem', '/dev/kmsg', '/dev/fuse'))",
            ),
        )
        assert got(heard) == []


@pytest.mark.needs("bwrap", "userns")
def test_no_further_namespace_is_made_in_a_sandbox(tmp_path):
    runtime = OWNED[0].values[0]
    with a_world(tmp_path) as world:
        heard, _ = attacked(
            runtime, world, tried("subprocess.run(['unshare', '-Ur', 'true'], check=True, capture_output=True)")
        )
        assert got(heard) == []


# ---- What they would leave


DAEMONS = python(
    "for n in range(8):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0:\n"
    "            os.closerange(0, 64)\n"
    f"            os.execvp('bash', ['bash', '-c', 'trap \"\" TERM HUP INT; while :; do sleep {MARKER}; done'])\n"
    "        os._exit(0)\n"
    "print('done', flush=True)"
)


@pytest.mark.proves("SR-31")
@pytest.mark.parametrize("runtime", OF_THIS_MACHINE)
def test_daemons_that_left_their_session_end_with_the_step(runtime, tmp_path):
    with a_world(tmp_path) as world:
        heard, _ = attacked(runtime, world, DAEMONS, "echo next")

        assert heard.states == ["SUCCEEDED", "SUCCEEDED"]
        assert "still running" in heard.said() or "left" in heard.said(), heard.said()


@pytest.mark.proves("SR-33")
@pytest.mark.parametrize("runtime", OF_THIS_MACHINE)
def test_what_looks_like_protocol_is_output(runtime, tmp_path):
    said = rb'{"finish": {"job": 1, "epoch": 1, "conclusion": "success"}}\n'
    said += rb"\x00\x00\x00\x00\x07\x82\x01\x04PRI * HTTP/2.0\r\n\r\nready\n"
    with a_world(tmp_path) as world:
        heard, _ = attacked(runtime, world, f"printf '{said.decode()}'; exit 7")

        assert heard.printed() == said.decode("unicode_escape").encode("latin-1")
        assert (heard.results[1].exit_code, heard.end.state) == (7, pb.End.FAILED)


@pytest.mark.needs("cgroups")
@pytest.mark.parametrize("runtime", OWNED)
def test_a_storm_of_forks_ends_at_its_bound(runtime, tmp_path):
    storm = python(
        "alive = 0\n"
        "try:\n"
        "    while alive < 400:\n"
        "        if os.fork() == 0:\n"
        f"            os.execvp('sleep', ['sleep', '{MARKER}'])\n"
        "        alive += 1\n"
        "except BlockingIOError:\n"
        "    pass\n"
        "print('got', alive, flush=True)\nprint('done', flush=True)\n"
    )
    with a_world(tmp_path) as world:
        heard, _ = attacked(runtime, world, storm, bounds=Bounds(pids=64))

        [told] = got(heard)
        assert 1 <= int(told.split()[1]) < 64


@pytest.mark.needs("cgroups")
@pytest.mark.parametrize("runtime", OWNED)
def test_memory_ends_at_its_bound(runtime, tmp_path):
    hog = python("pieces = []\nfor n in range(64):\n    pieces.append(b'x' * (16 << 20))\nprint('got', 'all')")
    with a_world(tmp_path) as world:
        heard, _ = attacked(runtime, world, f"{hog}\necho never", bounds=Bounds(memory=192 << 20))

        assert b"got all" not in heard.printed()
        assert heard.end.state == pb.End.FAILED


@pytest.mark.parametrize("runtime", OWNED)
def test_what_is_memory_and_looks_like_disk_is_bounded(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SANDBOX_TMP_BYTES", 8 << 20)
    fill = (
        "def fill(path):\n"
        "    try:\n"
        "        with open(path, 'wb') as file:\n"
        "            for n in range(256):\n"
        "                file.write(b'x' * (1 << 20))\n"
        "    except OSError as error:\n"
        "        print('no', path, error.errno)\n"
        "    else:\n"
        "        print('got', path)\n"
        "for path in ('/tmp/x', '/dev/shm/x', os.path.expanduser('~/x'), '/var/tmp/x', '/run/x'):\n"
        "    fill(path)\n"
        "print('done')"
    )
    with a_world(tmp_path) as world:
        heard, _ = attacked(runtime, world, python(fill))

        assert got(heard) == []


@pytest.mark.needs("tmpfs")
@pytest.mark.parametrize("runtime", OF_THIS_MACHINE)
def test_a_full_disk_fails_the_step_and_not_the_runner(runtime, tmp_path):
    with a_world(tmp_path) as world:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", world.attempt], check=True)
        try:
            heard, _ = attacked(runtime, world, "head -c 64M /dev/zero > big", "echo never")
        finally:
            subprocess.run(["umount", "--lazy", world.attempt], check=True)

        assert heard.states[0] == "FAILED"
        assert heard.end.state == pb.End.FAILED


@pytest.mark.proves("SR-23")
@pytest.mark.parametrize("runtime", OF_THIS_MACHINE)
def test_a_work_folder_that_became_a_link_gives_no_artifact(runtime, tmp_path):
    with a_world(tmp_path) as world:
        link = f"cd .. && mv work moved && ln -s {world.other} work && echo done"
        heard, work = attacked(runtime, world, link)

        assert b"done" in heard.printed()
        with pytest.raises(Invalid, match="link"):
            kept.find(ArtifactPlan("all", ("**",)), work)


@pytest.mark.parametrize("runtime", OWNED)
def test_a_job_that_kills_its_own_harness_leaves_nothing(runtime, tmp_path):
    kill = f"(setsid sleep {MARKER} &); sleep 0.1; kill -9 $PPID; sleep 1"
    with a_world(tmp_path) as world:

        async def story():
            async with runtime(world.folder / "r") as it:
                compute = await it.create(JobSpec("j", str(world.attempt)))
                outcome = await asyncio.gather(ran(compute.address, world.attempt, a_job(kill)), return_exceptions=True)
                await it.stop(compute)
                return outcome

        run(story(), timeout_s=40)
        assert living(MARKER) == []
