"""The gate in its order, against a harness that answers as it is told: real streams, to an address that is not ours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.aio import run
from vole.base import limits
from vole.base.errors import Invalid, Unavailable
from vole.wire import harness_pb2 as pb
from vole.wire.harness import PROTOCOL
from vole.wire.harness_pb2_grpc import JobHarnessServicer, add_JobHarnessServicer_to_server
from vole_runner.gate import Demand
from vole_runner.placer import UNFIT, UNPLACEABLE, Placer
from vole_runner.runtimes.remote import CLOSED, NO_ADDRESS, RemoteRuntime, read_token
from vole_runner.runtimes.runtime import (
    ComputeState,
    ForkOpts,
    Incarnation,
    JobSpec,
    RuntimeCapabilities,
    SnapshotKind,
    SnapshotRef,
)

JOB = "app/1/x"
ANY = Demand()


@dataclass
class Told(JobHarnessServicer):
    """A harness that says what the test sets, and keeps what it was asked, in order."""

    describe: dict[str, object] = field(default_factory=dict)  # changes of the descriptor
    hello: dict[str, object] = field(default_factory=dict)
    fails: grpc.StatusCode | None = None
    silent: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    starts: int = 0

    async def Describe(self, request, context):
        await self._heard("describe", context)
        return descriptor(self.describe)

    async def Run(self, requests, context):
        await self._heard("run", context)
        yield pb.HarnessFrame(hello=pb.Hello(descriptor=descriptor(self.hello)))
        async for frame in requests:
            self.starts += frame.WhichOneof("frame") == "start"

    async def _heard(self, what, context):
        self.asked.append(what)
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        if self.fails is not None:
            await context.abort(self.fails, "as it was told")
        if what in self.silent:
            await asyncio.Event().wait()


def descriptor(changes) -> pb.Descriptor:
    tier = changes.get("resumability", pb.RESTART_ONLY)
    return pb.Descriptor(
        id=changes.get("id", "vole-shell"),
        version=changes.get("version", "1"),
        instance_id=changes.get("instance_id", "i-1"),
        protocol=PROTOCOL,
        step_kinds=["run"],
        max_jobs=1,
        capabilities=pb.Capabilities(resumability=tier),
    )


@asynccontextmanager
async def served(told: Told, path: Path) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_JobHarnessServicer_to_server(told, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield f"unix://{path}"
    finally:
        await server.stop(0)


class Counted(RemoteRuntime):
    """A remote runtime that counts what is made on it."""

    made = 0

    async def create(self, spec):
        self.made += 1
        return await super().create(spec)


@asynccontextmanager
async def placing(folder: Path, address: str, *, token=None, pinned_id=None, spare=False):
    runtime = Counted("lab", address, token)
    numbers = count(1)

    def fresh() -> Path:
        new = folder / str(next(numbers))
        new.mkdir()
        return new

    placer = Placer(runtime, fresh, spare=spare, pinned_id=pinned_id)
    try:
        yield placer, runtime
    finally:
        await placer.aclose()


async def placed(placer: Placer, demand: Demand = ANY, job: str = JOB):
    """Place and give back; what was refused."""
    seat = placer.take(job, demand)
    try:
        seat, drive = await placer.place(seat, demand)
        return drive.hello
    finally:
        await placer.free(seat)


async def refusal(placer: Placer, demand: Demand = ANY) -> Unavailable:
    with pytest.raises(Unavailable) as refused:
        await placed(placer, demand)
    return refused.value


def story_of(tmp_path, told, then, **how):
    async def story():
        async with served(told, tmp_path / "h.sock") as address, placing(tmp_path, address, **how) as (placer, runtime):
            return await then(placer, runtime)

    return run(story())


# ---- In order


@pytest.mark.proves("H-1", "H-2", "I-54")
def test_a_harness_known_by_its_address_alone_is_described_dialled_and_greets(tmp_path):
    told = Told()

    hello = story_of(tmp_path, told, lambda placer, _: placed(placer))

    assert (hello.id, hello.version) == ("vole-shell", "1")
    assert told.asked[:2] == ["describe", "run"]
    assert told.starts == 0


@pytest.mark.proves("H-3", "H-19")
@pytest.mark.parametrize(
    ("demand", "describe", "words"),
    [
        (Demand(owned=True), {}, "sandbox of our own"),
        (Demand(resume_steps=True), {}, "resumes by steps"),
        (Demand(labels=(("gpu", "a100"),)), {}, "gpu=a100"),
        (Demand(), {"resumability": pb.REQUIRES_MEMORY_SNAPSHOT}, "memory snapshots"),
        (Demand(), {"resumability": pb.RESUMABILITY_UNSPECIFIED}, "survive"),
    ],
)
def test_what_the_first_gate_refuses_has_made_no_compute_and_opened_no_stream(tmp_path, demand, describe, words):
    told = Told(describe=describe)

    async def then(placer, runtime):
        return await refusal(placer, demand), runtime.made

    refused, made = story_of(tmp_path, told, then)
    assert words in refused.sentence
    assert made == 0
    assert set(told.asked) == {"describe"}


@pytest.mark.proves("H-18", "H-23", "I-54", "SR-74")
def test_another_harness_on_the_stream_than_the_one_described_is_refused_before_start(tmp_path):
    told = Told(hello={"resumability": pb.REQUIRES_MEMORY_SNAPSHOT})

    async def then(placer, runtime):
        return await refusal(placer)

    refused = story_of(tmp_path, told, then)
    assert "memory snapshots" in refused.sentence
    assert "run" in told.asked
    assert told.starts == 0


@pytest.mark.parametrize("where", ["describe", "hello"])
def test_a_pinned_identity_is_compared_at_both_gates(tmp_path, where):
    told = Told(**{where: {"id": "somebody-elses"}})

    async def then(placer, runtime):
        return await refusal(placer)

    assert "pinned" in story_of(tmp_path, told, then, pinned_id="vole-shell").sentence
    assert told.starts == 0


@pytest.mark.proves("H-24")
def test_a_second_attempt_of_a_job_is_refused_and_not_queued(tmp_path):
    async def then(placer, runtime):
        first = placer.take(JOB, Demand())
        first, _ = await placer.place(first, Demand())
        refused = await refusal(placer)
        await placed(placer, job="app/1/y")
        await placer.free(first)
        await placed(placer)
        return refused

    refused = story_of(tmp_path, Told(), then)
    assert refused.code == UNPLACEABLE
    assert "still ending" in refused.sentence


def test_a_spare_seat_is_asked_again_with_the_job(tmp_path):
    told = Told()

    async def then(placer, runtime):
        placer.refill()
        seat = placer.take(JOB, Demand(resume_steps=True))
        await asyncio.wait([seat.coming])
        told.asked.clear()
        try:
            with pytest.raises(Unavailable, match="resumes by steps"):
                await placer.place(seat, Demand(resume_steps=True))
        finally:
            await placer.free(seat)

    story_of(tmp_path, told, then, spare=True)
    assert told.asked == ["describe"]


# ---- Down and up


@pytest.mark.proves("H-4", "H-20")
def test_a_harness_no_job_may_run_on_takes_the_runtime_down_until_a_fit_one_answers(tmp_path):
    told = Told(describe={"resumability": pb.REQUIRES_MEMORY_SNAPSHOT})

    async def then(placer, runtime):
        refused = await refusal(placer)
        waiting = asyncio.create_task(placer.up())
        for _ in range(3):
            await asyncio.sleep(0)
        down = not waiting.done()
        told.describe = {}
        async with asyncio.timeout(5):
            await waiting
        return refused, down, await placed(placer)

    refused, down, hello = story_of(tmp_path, told, then)
    assert "is down" in refused.sentence
    assert (down, hello.id) == (True, "vole-shell")


@pytest.mark.proves("H-5", "H-8")
def test_nobody_at_the_address_is_unavailable_names_it_and_is_noticed_when_it_comes(tmp_path):
    async def story():
        path = tmp_path / "h.sock"
        async with placing(tmp_path, f"unix://{path}") as (placer, runtime):
            refused = await refusal(placer)
            async with served(Told(), path), asyncio.timeout(2):
                await placer.up()
                await placed(placer)
            return refused, runtime.made

    refused, _ = run(story())
    assert str(tmp_path / "h.sock") in refused.sentence


@pytest.mark.proves("H-21")
@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INTERNAL,
    ],
)
def test_whatever_error_a_describe_ends_with_the_job_goes_back_and_nothing_was_made(tmp_path, code):
    told = Told(fails=code)

    async def then(placer, runtime):
        return await refusal(placer), runtime.made

    refused, made = story_of(tmp_path, told, then)
    assert refused.code not in (UNPLACEABLE, UNFIT)
    assert (made, told.starts) == (0, 0)


@pytest.mark.proves("H-7", "H-22", "SR-74")
@pytest.mark.parametrize("silent", ["describe", "run"])
def test_a_peer_that_answers_nothing_at_either_gate_is_unavailable_within_the_bound(tmp_path, silent, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_ANSWER_S", 0.3)

    async def then(placer, runtime):
        async with asyncio.timeout(3):
            return await refusal(placer)

    told = Told(silent=frozenset({silent}))
    assert "is down" in story_of(tmp_path, told, then).sentence
    assert told.asked.count("run") == (silent == "run")


@pytest.mark.proves("H-7")
def test_a_peer_that_accepts_and_never_speaks_is_unavailable_within_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARNESS_ANSWER_S", 0.3)

    async def story():
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(tmp_path / "h.sock"))
            mute.listen()
            async with placing(tmp_path, f"unix://{tmp_path}/h.sock") as (placer, _), asyncio.timeout(5):
                return await refusal(placer)

    assert str(tmp_path / "h.sock") in run(story()).sentence


@pytest.mark.proves("H-6")
def test_who_is_cancelled_while_a_peer_is_silent_is_cancelled_and_the_runtime_is_not_down(tmp_path):
    async def then(placer, runtime):
        seat = placer.take(JOB, Demand())
        waiting = asyncio.create_task(placer.place(seat, Demand()))
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(1):
            await placer.up()
        told.silent = frozenset()
        seat.coming.cancel()
        await asyncio.wait([seat.coming])
        return waiting.cancelled()

    told = Told(silent=frozenset({"describe"}))
    assert story_of(tmp_path, told, then)


# ---- The remote backend, operation by operation


@pytest.mark.proves("H-12", "H-14", "H-15", "H-16", "H-17")
def test_it_attaches_and_provisions_nothing():
    async def story():
        it = RemoteRuntime("lab", "unix:///nobody.sock")
        compute = await it.create(JobSpec("j", ""))
        await it.stop(compute)
        cold = await it.snapshot(compute, SnapshotKind.EXTERNAL)
        refused = [
            it.create(JobSpec("", "")),
            it.snapshot(compute, SnapshotKind.LOCAL),
            it.restore(SnapshotRef("")),
            it.fork(SnapshotRef("j"), ForkOpts("")),
        ]
        for operation in refused:
            with pytest.raises(Invalid):
                await operation
        return (
            compute,
            cold,
            await it.status(compute),
            await it.restore(cold),
            await it.fork(cold, ForkOpts("k")),
            it.capabilities(),
        )

    compute, cold, state, restored, forked, able = run(story())
    assert compute == Incarnation("j", "unix:///nobody.sock", "lab", "remote") == restored
    assert (cold, state) == (SnapshotRef("j", memory=False), ComputeState.LIVE)
    assert (forked.id, forked.address) == ("k", compute.address)
    assert able == RuntimeCapabilities()


@pytest.mark.proves("H-9")
def test_a_closed_one_describes_nothing_more_and_closes_twice(tmp_path):
    async def then(placer, runtime):
        await runtime.describe()
        await runtime.aclose()
        await runtime.aclose()
        with pytest.raises(Invalid) as closed:
            await runtime.describe()
        return closed.value.code

    assert story_of(tmp_path, Told(), then) == CLOSED


def test_without_an_address_it_says_so_unless_it_is_closed():
    async def story():
        it = RemoteRuntime("lab", "")
        codes = []
        for _ in range(2):
            with pytest.raises(Invalid) as refused:
                await it.describe()
            codes.append(refused.value.code)
            await it.aclose()
        return codes

    assert run(story()) == [NO_ADDRESS, CLOSED]


def test_what_answers_now_is_the_answer(tmp_path):
    told = Told()

    async def then(placer, runtime):
        first = await runtime.describe()
        told.describe = {"version": "2"}
        return first.version, (await runtime.describe()).version

    assert story_of(tmp_path, told, then) == ("1", "2")


@pytest.mark.proves("H-13")
def test_a_stop_leaves_the_harness_reachable(tmp_path):
    async def then(placer, runtime):
        await placed(placer)
        return (await runtime.describe()).id

    assert story_of(tmp_path, Told(), then) == "vole-shell"


@pytest.mark.proves("H-10")
def test_a_relative_socket_is_reached_by_both_connections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def story():
        async with served(Told(), tmp_path / "h.sock"), placing(tmp_path, "unix://h.sock") as (placer, _):
            return await placed(placer)

    assert run(story()).id == "vole-shell"


def test_the_token_goes_with_every_call_and_into_no_words(tmp_path):
    told = Told()

    async def then(placer, runtime):
        await placed(placer)
        return repr(await runtime.create(JobSpec("j", "")))

    words = story_of(tmp_path, told, then, token="s3cret")
    assert set(told.tokens) == {"Bearer s3cret"}
    assert "s3cret" not in words


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [(0o644, "abc", "others"), (0o600, "", "one word"), (0o600, "a b", "one word"), (0o600, "x" * 5000, "4096")],
)
def test_a_token_file_is_private_and_holds_one_word(tmp_path, mode, text, words):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)

    with pytest.raises(Invalid, match=words):
        read_token(path)


def test_a_token_is_read_without_its_line_end(tmp_path):
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(0o600)

    assert read_token(path) == "abc"
