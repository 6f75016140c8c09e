"""A keeper in miniature for tests of the harness: starts a job, grants its steps, keeps what it is told."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from vole.base.ids import CommitId, JobKey, RepoName
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope, fence
from vole.wire.plan import EventFacts, JobContext, JobPlan, StepPlan, job_digest
from vole_runner.runtimes import child
from vole_runner.runtimes.dial import AttemptRef, Connection, Drive

_numbers = count(1)
COMMIT = "a" * 40


def a_step(run: str, **what: object) -> StepPlan:
    return StepPlan(run=run, **{"number": 1, **what})  # type: ignore[arg-type]


def a_job(*steps: str | StepPlan, **what: object) -> JobPlan:
    """A job of these steps, numbered in order."""
    made = [a_step(step) if isinstance(step, str) else step for step in steps]
    numbered = tuple(StepPlan(**{**vars(step), "number": number}) for number, step in enumerate(made, 1))
    given: dict[str, object] = {
        "repository": RepoName("app"),
        "commit": CommitId(COMMIT),
        "workflow": "checks",
        "workflow_path": ".vole/workflows/ci.yml",
        "workflow_blob": CommitId("b" * 40),
        "job": "test",
        "key": JobKey("test.2"),
        "name": "the test",
        "event": EventFacts("push", "refs/heads/main", "main", "branch", None, COMMIT, "ada"),
        "steps": numbered,
        **what,
    }
    return JobPlan(**given)  # type: ignore[arg-type]


@dataclass(repr=False)
class Heard:
    """What a harness said of one attempt."""

    frames: list[pb.HarnessFrame] = field(default_factory=list)
    log_bytes: int = 0

    @property
    def results(self) -> dict[int, pb.StepResult]:
        return {int(f.result.step_id): f.result for f in self.frames if f.WhichOneof("frame") == "result"}

    @property
    def end(self) -> pb.End:
        return self.frames[-1].end

    @property
    def chunks(self) -> list[pb.LogChunk]:
        return [f.log for f in self.frames if f.WhichOneof("frame") == "log"]

    @property
    def annotations(self) -> list[pb.Annotation]:
        return [f.annotation for f in self.frames if f.WhichOneof("frame") == "annotation"]

    @property
    def masks(self) -> list[bytes]:
        return [f.mask.value for f in self.frames if f.WhichOneof("frame") == "mask"]

    def log(self, step: int = 1) -> bytes:
        """A step's whole log, the harness's own lines included."""
        return b"".join(chunk.data for chunk in self.chunks if chunk.step_id == str(step))

    def printed(self, step: int = 1) -> bytes:
        """What the step's processes printed."""
        return b"".join(c.data for c in self.chunks if c.step_id == str(step) and c.stream == pb.STDOUT)

    def said(self, step: int = 1) -> str:
        """The harness's own lines."""
        own = b"".join(c.data for c in self.chunks if c.step_id == str(step) and c.stream == pb.HARNESS)
        return own.decode()

    @property
    def states(self) -> list[str]:
        return [pb.StepState.Name(result.state) for result in self.results.values()]


@dataclass(repr=False)
class Host:
    """One stream, driven by hand."""

    drive: Drive
    folder: Path
    plan: JobPlan
    ref: AttemptRef
    heard: Heard = field(default_factory=Heard)
    grants: bool = True
    acks: bool = True

    @property
    def work(self) -> Path:
        return self.folder / "work"

    async def start(self, timeout_s: float | None = None, ttl_s: float = 60.0, **facts: object) -> None:
        document = self.plan.document()
        context = JobContext("77", 12, 3, "https://forge.example", **facts)  # type: ignore[arg-type]
        envelope = JobEnvelope(document.decode(), context, str(self.folder), "mac-1", ttl_s)
        await self.drive.start(self.ref, envelope, job_digest(document), timeout_s)

    async def until(self, wanted: Callable[[Heard], bool]) -> Heard:
        """Listen until `wanted` or the End."""
        if self.heard.frames and wanted(self.heard):
            return self.heard
        async with aclosing(self.drive.frames()) as frames:
            async for frame in frames:
                await self._hear(frame)
                if wanted(self.heard):
                    break
        return self.heard

    async def _hear(self, frame: pb.HarnessFrame) -> None:
        self.heard.frames.append(frame)
        self.heard.log_bytes += len(frame.log.data)
        match frame.WhichOneof("frame"):
            case "intent" if self.grants:
                await self.drive.grant(frame.intent.step_id)
            case "log" if self.acks:
                await self.drive.ack(log_through=frame.log.seq)

    async def printed(self, text: bytes, step: int = 1) -> None:
        """Listen until the step has printed `text`."""
        await self.until(lambda heard: text in heard.printed(step))
        assert text in self.heard.printed(step), self.heard.frames[-3:]

    async def finish(self) -> Heard:
        """Listen to the End."""
        return await self.until(lambda heard: False)


@asynccontextmanager
async def hosted(address: str, folder: Path, plan: JobPlan) -> AsyncIterator[Host]:
    """A stream past Hello, for an attempt in a fresh folder below `folder`."""
    number = next(_numbers)
    attempt = folder / f"attempt-{number}"
    attempt.mkdir(mode=0o700)
    connection = Connection(address)
    try:
        drive = await connection.open()
        uid = f"app/12/test-{os.getpid()}-{number}"
        try:
            yield Host(drive, attempt, plan, AttemptRef(uid, f"{uid}@1", fence(1, 0)))
        finally:
            await drive.aclose()
    finally:
        await connection.aclose()


async def ran(address: str, folder: Path, plan: JobPlan, **facts: object) -> tuple[Heard, Path]:
    """Run the job to its End; what was heard, and the work folder."""
    async with hosted(address, folder, plan) as host:
        await host.start(**facts)  # type: ignore[arg-type]
        return await host.finish(), host.work


@contextmanager
def a_harness(
    home: Path, env: dict[str, str] | None = None, leaking: tuple[int, ...] = (), words: tuple[str, ...] = ()
) -> Iterator[tuple[str, int]]:
    """A harness process: its address and pid. Ends with the block, by pid. `leaking`: descriptors that it inherits."""
    socket = home / "h.sock"
    with (home / "h.err").open("wb") as errors:
        process = subprocess.Popen(
            [*child.program(), "serve", "--listen", f"unix://{socket}", *words],
            env=env if env is not None else {"PATH": os.environ["PATH"], "HOME": str(home), "TZ": "UTC"},
            stdin=subprocess.PIPE,  # open for good: a step that inherited it would wait
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            pass_fds=leaking,
            cwd="/",
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", (home / "h.err").read_text()
        yield f"unix://{socket}", process.pid
    finally:
        process.terminate()
        try:
            assert process.wait(10) == 0, (home / "h.err").read_text()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


def alive(pid: int) -> bool:
    """Whether `pid` runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


async def gone(*pids: int, within_s: float = 10.0) -> None:
    """Returns when none of `pids` runs. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.01)
