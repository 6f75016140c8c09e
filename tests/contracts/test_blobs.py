"""A harness that shares no folder with its keeper: work goes there and comes back beside the stream, also when cut."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.aio import run
from tests.contracts.test_reattach import Keeper, wired
from tests.endtoend.test_harness_serve import refused, served
from tests.harness_host import a_job, hosted
from vole.base import limits
from vole.base.errors import Invalid, NotFound, VoleError
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope
from vole.wire.harness_pb2_grpc import JobHarnessStub
from vole.wire.plan import ArtifactPlan, JobContext, job_digest
from vole_runner.away import Folder
from vole_runner.harness.blobs import Room
from vole_runner.runtimes.dial import Connection, target

pytestmark = pytest.mark.timeout(60)

BIG = os.urandom(3_000_000)
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def harness(tmp_path) -> Iterator[str]:
    address = f"unix://{tmp_path}/h.sock"
    with served("--listen", address, "--root", str(tmp_path / "root")):
        yield address


def a_keeper(folder: Path, *steps: str, kept: tuple[str, ...] = ()) -> Keeper:
    keeper = Keeper(folder, a_job(*steps, artifacts=(ArtifactPlan("out", kept),) if kept else ()))
    keeper.work.mkdir()
    return keeper


@contextmanager
def a_folder_of_work(work: Path) -> Iterator[None]:
    (work / "bin").mkdir()
    (work / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
    (work / "bin" / "tool").chmod(0o755)
    (work / "link").symlink_to("bin/tool")
    (work / "big").write_bytes(BIG)
    yield


async def until_empty(folder: Path) -> None:
    async with asyncio.timeout(10):
        while list(folder.iterdir()):
            await asyncio.sleep(0.01)


def test_the_work_goes_there_whole_and_what_the_job_leaves_comes_back(harness, tmp_path):
    keeper = a_keeper(
        tmp_path,
        "./link; mkdir -p out/a; sha256sum < big > out/a/sum; cp big out/b; : > out/empty; pwd; echo no > gone",
        "exit 3",
        kept=("out/**",),
    )

    async def story():
        outcome = await keeper.run(harness, Folder(keeper.work))
        await until_empty(tmp_path / "root" / "attempts")
        return outcome

    with a_folder_of_work(keeper.work):
        outcome = run(story(), timeout_s=30)

    assert outcome.conclusion == "failure"
    assert b"\ntool\n" in keeper.told
    assert str(tmp_path / "root" / "attempts").encode() in keeper.told
    assert (keeper.work / "out" / "a" / "sum").read_text().split()[0] == hashlib.sha256(BIG).hexdigest()
    assert (keeper.work / "out" / "b").read_bytes() == BIG
    assert (keeper.work / "out" / "empty").read_bytes() == b""
    assert sorted(path.name for path in keeper.work.iterdir()) == ["out"]
    assert list((tmp_path / "root" / "blobs").iterdir()) == []


def test_a_push_and_a_fetch_that_are_cut_go_on_where_they_were(harness, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BLOB_TRIES", 50)
    keeper = a_keeper(tmp_path, "sleep 0.3; cp big out", kept=("out",))

    async def story():
        async with wired(tmp_path, harness) as relay:

            async def cutting():
                for folder, name in ((tmp_path / "root" / "blobs", "*.part"), (keeper.work, "out")):
                    for most in (0, 100_000, 1_000_000):
                        while sum(file.stat().st_size for file in folder.glob(name)) <= most:
                            await asyncio.sleep(0)
                        relay.cut()

            outcome, _ = await asyncio.gather(keeper.run(relay.address, Folder(keeper.work)), cutting())
            return outcome

    with a_folder_of_work(keeper.work):
        outcome = run(story(), timeout_s=50)

    assert outcome.conclusion == "success", outcome
    assert (keeper.work / "out").read_bytes() == BIG


def test_a_cancel_while_the_work_is_on_its_way_ends_the_job_before_its_first_step(harness, tmp_path):
    keeper = a_keeper(tmp_path, "echo ran", kept=("*",))

    class Cancelled(Folder):
        async def push(self, drive):
            await keeper.steps.cancel(pb.USER, 5.0)
            return await super().push(drive)

    outcome = run(keeper.run(harness, Cancelled(keeper.work)), timeout_s=30)

    assert (outcome.conclusion, outcome.reason) == (None, "it was told to end before its first step")
    assert keeper.marks == []
    assert b"ran" not in keeper.told


def test_an_artifact_that_cannot_be_kept_fails_the_job_by_name(harness, tmp_path):
    keeper = a_keeper(tmp_path, "touch $'bad\\xffname'", kept=("*",))

    outcome = run(keeper.run(harness, Folder(keeper.work)), timeout_s=30)

    assert outcome.conclusion == "errored"
    assert "artifact out: " in outcome.reason


def a_tar(member: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    return packed.getvalue()


def a_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return member


@pytest.mark.parametrize(
    "sources",
    [
        a_tar(a_member("../out")),
        a_tar(a_member("link", tarfile.SYMTYPE, "../../out")),
        a_tar(a_member("link", tarfile.SYMTYPE, "/etc/passwd")),
        a_tar(a_member("hard", tarfile.LNKTYPE, "../../root/lock")),
        a_tar(a_member("pipe", tarfile.FIFOTYPE)),
        a_tar(a_member("disk", tarfile.BLKTYPE)),
        b"no tar" * 200,
    ],
    ids=["parent", "link out", "absolute link", "hard link out", "pipe", "device", "garbage"],
)
def test_sources_that_lead_out_of_the_work_folder_start_nothing(harness, tmp_path, sources):
    class Hostile:
        async def push(self, drive):
            (tmp_path / "tar").write_bytes(sources)
            return await drive.push(tmp_path / "tar")

        async def fetch(self, drive, left):
            assert not left

    keeper = a_keeper(tmp_path, "echo ran")

    outcome = run(keeper.run(harness, Hostile()), timeout_s=30)

    assert outcome.conclusion == "errored"
    assert "the sources cannot be unpacked" in outcome.reason
    assert b"ran" not in keeper.told
    assert not (tmp_path / "out").exists()


# ---- What is refused


def pushed(address: str, *chunks: pb.BlobChunk) -> pb.BlobRef | str:
    async def story():
        async with grpc.aio.insecure_channel(target(address)) as channel:
            try:
                return await JobHarnessStub(channel).PushBlob(iter(chunks))
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name} {error.details()}"

    return run(story())


def test_a_push_is_asked_how_far_it_came_and_checked_at_its_end(harness):
    sha256 = hashlib.sha256(b"abcdef").hexdigest()
    first = pushed(harness, pb.BlobChunk(sha256=sha256, data=b"abc"))
    held = pushed(harness, pb.BlobChunk(sha256=sha256))
    gap = pushed(harness, pb.BlobChunk(sha256=sha256, offset=5, data=b"f"))
    double = pushed(harness, pb.BlobChunk(sha256=sha256, offset=0, data=b"a"))
    whole = pushed(harness, pb.BlobChunk(sha256=sha256, offset=3, data=b"def", last=True))
    again = pushed(harness, pb.BlobChunk(sha256=sha256, offset=0, data=b"abc"), pb.BlobChunk(sha256=sha256, last=True))

    assert [ref.size for ref in (first, held, whole, again)] == [3, 3, 6, 6]
    assert gap.startswith("ABORTED the next byte")
    assert double.startswith("ABORTED the next byte")


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([], "INVALID_ARGUMENT '' is no SHA-256"),
        ([pb.BlobChunk(sha256="../../x", data=b"x")], "INVALID_ARGUMENT '../../x' is no SHA-256"),
        ([pb.BlobChunk(sha256=EMPTY), pb.BlobChunk(sha256="f" * 64)], "INVALID_ARGUMENT one push is of one blob"),
        (
            [pb.BlobChunk(sha256="f" * 64, data=b"x", last=True)],
            "INVALID_ARGUMENT blob ffffffffffff: what came has SHA-256",
        ),
        (
            [pb.BlobChunk(sha256=EMPTY, data=b"x" * (limits.BLOB_CHUNK_BYTES + 1))],
            "RESOURCE_EXHAUSTED a chunk has at most",
        ),
    ],
)
def test_a_push_that_breaks_the_rules_is_refused_by_name(harness, tmp_path, chunks, said):
    assert pushed(harness, *chunks).startswith(said)
    assert sum(path.stat().st_size for path in (tmp_path / "root" / "blobs").iterdir()) == 0


def test_pushes_are_bounded_together(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BLOBS_BYTES_MAX", 3)
    room = Room(tmp_path / "root")

    async def push(digit, data):
        async def chunks():
            yield pb.BlobChunk(sha256=digit * 64, data=data)

        await room.receive(chunks())

    run(push("a", b"ab"))
    with pytest.raises(VoleError, match="BLOBS_BYTES_MAX"):
        run(push("b", b"cd"))


def test_a_start_whose_sources_were_not_pushed_and_a_fetch_of_what_is_not_there_are_refused(harness, tmp_path):
    async def story():
        async with hosted(harness, tmp_path, a_job("true")) as host:
            connection = Connection(harness)
            with pytest.raises(NotFound, match="is not of this attempt"):
                await connection.fetch(pb.BlobRef(sha256=EMPTY), tmp_path / "x")
            await connection.aclose()
            await host.drive.start(host.ref, *envelope_of(host), source=pb.BlobRef(sha256=EMPTY, size=1))
            with pytest.raises(NotFound, match="push it before Start"):
                await host.finish()

    run(story())


def envelope_of(host):
    document = host.plan.document()
    return JobEnvelope(document.decode(), JobContext("77", 12, 3, "https://f"), "", "mac", 60.0), job_digest(document)


def test_a_harness_without_a_folder_of_its_own_takes_no_blobs(tmp_path):
    address = f"unix://{tmp_path}/h.sock"
    with served("--listen", address):
        assert "serve with --root" in pushed(address, pb.BlobChunk(sha256=EMPTY))


def test_two_harnesses_do_not_share_a_folder(harness, tmp_path):
    assert "another harness has it" in refused(
        "--listen", f"unix://{tmp_path}/2.sock", "--root", str(tmp_path / "root")
    )


def test_bytes_that_are_not_what_was_announced_are_refused(harness, tmp_path):
    keeper = a_keeper(tmp_path, "echo one > out", kept=("out",))

    class Changed(Folder):
        async def fetch(self, drive, left):
            (location,) = (tmp_path / "root" / "attempts").rglob("out")
            location.write_text("two\n")
            await super().fetch(drive, left)

    outcome = run(keeper.run(harness, Changed(keeper.work)), timeout_s=30)

    assert outcome.conclusion is None
    assert "was announced" in outcome.reason


def test_a_path_that_leads_out_is_not_written(tmp_path):
    (tmp_path / "work").mkdir()
    ready = pb.ArtifactReady(name="out", path="../out", blob=pb.BlobRef(sha256=EMPTY))

    class Never:
        async def fetch(self, blob, target):
            raise AssertionError(target)

    with pytest.raises(Invalid, match="leads out of the work folder"):
        run(Folder(tmp_path / "work").fetch(Never(), [ready]))
