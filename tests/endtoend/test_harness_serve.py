"""`vole-harness serve` as an operator runs it: where it listens, what it refuses, whose socket it takes over."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.aio import run
from vole.base import limits
from vole.base.errors import Conflict, Invalid
from vole.wire import harness_pb2 as pb
from vole.wire.harness_pb2_grpc import JobHarnessStub
from vole_runner.harness.listening import SocketPath, checked
from vole_runner.runtimes import child
from vole_runner.runtimes.dial import target

TOKEN = "a-token-of-some-length"


@contextmanager
def served(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A harness that serves; it ends with the block, by pid."""
    process = subprocess.Popen(
        [*child.program(), "serve", *words],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", process.communicate()[1]
        yield process
    finally:
        process.terminate()
        process.communicate()


def refused(*words: str) -> str:
    """The line that a harness ends with that cannot serve; gRPC may have said something before."""
    ended = subprocess.run(
        [*child.program(), "serve", *words],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended
    return ended.stderr.splitlines()[-1]


async def described(address: str, **metadata: str) -> pb.Descriptor:
    async with grpc.aio.insecure_channel(target(address)) as channel:
        return await JobHarnessStub(channel).Describe(pb.DescribeRequest(), metadata=tuple(metadata.items()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def left_behind(path: Path) -> SocketPath:
    """A socket and its lock as a killed harness leaves them; nothing is locked."""
    with socket.socket(socket.AF_UNIX) as dead:
        claim = SocketPath(path)
        dead.bind(str(path))
        claim.bound()
    os.close(claim._lock)
    return claim


# ---- The path of a socket


def test_a_killed_harness_leaves_a_path_that_the_next_one_takes_over(tmp_path):
    path = tmp_path / "h.sock"
    address = f"unix://{path}"
    with served("--listen", address, "--label", "gpu", "--label", "arch=arm64") as first:
        said = run(described(address))
        first.kill()
        first.wait()
        assert path.exists()
        with served("--listen", address):
            again = run(described(address))

    assert dict(said.labels) == {"gpu": "", "arch": "arm64"}
    assert said.instance_id != again.instance_id
    assert stat.S_IMODE((tmp_path / "h.sock.lock").stat().st_mode) == 0o600


def test_two_harnesses_do_not_share_a_path(tmp_path):
    address = f"unix://{tmp_path}/h.sock"
    with served("--listen", address):
        before = run(described(address))
        assert "another harness has it" in refused("--listen", address)
        assert run(described(address)).instance_id == before.instance_id


@pytest.mark.parametrize("what", ["file", "folder", "link", "socket", "dead socket", "another socket"])
def test_what_no_harness_left_stays_where_it_is(tmp_path, what):
    path = tmp_path / "h.sock"
    with ExitStack() as stack:
        if what == "another socket":
            left_behind(path)
            path.unlink()
        if what == "file":
            path.write_text("kept")
        elif what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to("nowhere")
        else:
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(str(path))
            if what != "dead socket":
                listening.listen()
        before = path.lstat()

        with pytest.raises(Invalid, match="something stands there that no harness left"):
            SocketPath(path)

        assert path.lstat() == before


def test_a_socket_of_ours_where_somebody_answers_is_not_taken(tmp_path):
    path = tmp_path / "h.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        claim = SocketPath(path)
        listening.bind(str(path))
        listening.listen()
        claim.bound()
        os.close(claim._lock)

        with pytest.raises(Conflict, match="somebody listens there"):
            SocketPath(path)

        assert path.exists()


@pytest.mark.parametrize("what", ["link", "hard link", "folder", "pipe", "foreign"])
def test_a_lock_that_is_not_a_file_of_ours_alone_is_refused_and_stays(tmp_path, what):
    path, lock = tmp_path / "h.sock", tmp_path / "h.sock.lock"
    left_behind(path)
    lock.unlink()
    (tmp_path / "other").write_text("kept")
    if what == "link":
        lock.symlink_to("other")
    elif what == "hard link":
        lock.hardlink_to(tmp_path / "other")
    elif what == "folder":
        lock.mkdir()
    elif what == "pipe":
        os.mkfifo(lock)
    else:
        if os.geteuid() != 0:
            pytest.skip("only root gives a file away")
        lock.touch()
        os.chown(lock, 12345, 12345)

    with pytest.raises(Invalid, match=r"h\.sock\.lock"):
        SocketPath(path)

    assert path.exists()
    assert (tmp_path / "other").read_text() == "kept"


# ---- Addresses and callers


@pytest.mark.proves("SR-75")
def test_cleartext_beyond_this_machine_needs_the_operators_word():
    for address in ("0.0.0.0:7000", "10.0.0.7:7000", "[::]:7000", "lab.example:7000"):
        with pytest.raises(Invalid, match="--allow-plaintext"):
            checked(address, plaintext=False)
        assert checked(address, plaintext=True) == address
    for address in ("127.0.0.1:7000", "[::1]:7000", "localhost:7000", "unix:///run/h.sock"):
        assert checked(address, plaintext=False) == address


@pytest.mark.parametrize(
    "address",
    ["", "unix://rel", "unix:rel", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", ":70", "http://a:1", "/run/h.sock"],
)
def test_an_address_that_cannot_be_listened_on_is_refused_in_one_line(address):
    with pytest.raises(Invalid, match="is no address to listen on"):
        checked(address, plaintext=True)


def test_a_path_that_is_too_long_is_refused_at_start():
    assert "SOCKET_PATH_BYTES_MAX" in refused("--listen", "unix:///" + "x" * limits.SOCKET_PATH_BYTES_MAX)


def test_a_port_that_is_taken_is_refused_and_its_owner_goes_on(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    with served("--listen", address):
        before = run(described(address))
        assert "it cannot be listened on" in refused("--listen", address)
        assert run(described(address)).instance_id == before.instance_id


@pytest.mark.parametrize("given", [{}, {"authorization": "Bearer another"}, {"authorization": TOKEN}])
def test_who_does_not_name_the_token_gets_no_answer(tmp_path, given):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    address = f"unix://{tmp_path}/h.sock"

    async def story():
        async with grpc.aio.insecure_channel(target(address)) as channel:
            for call in (
                JobHarnessStub(channel).Describe(pb.DescribeRequest(), metadata=tuple(given.items())),
                JobHarnessStub(channel).Run(metadata=tuple(given.items())).read(),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await call
                assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
        return await described(address, authorization=f"Bearer {TOKEN}")

    with served("--listen", address, "--token-file", str(tmp_path / "token")):
        assert run(story()).max_jobs == 1


@pytest.mark.parametrize("content", [None, "", "short", "x" * 500])
def test_a_token_that_is_none_is_refused_at_start(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)

    assert "--token-file" in refused("--listen", f"unix://{tmp_path}/h.sock", "--token-file", str(tmp_path / "token"))
    assert not (tmp_path / "h.sock").exists()
