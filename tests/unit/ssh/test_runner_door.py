"""What the runner door takes, refuses and lets go, on real SSH."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.aio import run
from tests.unit.runner.desk import a_hello, a_link, a_target, leased
from tests.unit.runner.forge import Forge, a_forge, a_repository
from vole.base import limits
from vole.base.errors import Denied, Invalid, Unavailable
from vole.wire import codec, runner
from vole.wire.runner import ANSWERS, FROM_RUNNER, FROM_SERVER, LeaseRef, Open, Refusal, Refused
from vole_runner.link import Bytes, Link


@asynccontextmanager
async def connected(forge: Forge) -> AsyncIterator[Link]:
    link = await Link.connect(a_target(forge))
    try:
        yield link
    finally:
        link.close()
        await link.lost()


async def told(channel: Bytes) -> object:
    line = await channel.line()
    return None if line is None else FROM_SERVER.decode(line, strict=True)


async def welcomed(link: Link, **said: object) -> Bytes:
    control = await link.channel(Open("control"))
    control.send(FROM_RUNNER.encode(a_hello(**said)))
    assert isinstance(await told(control), runner.Welcome)
    return control


async def refused_for(forge: Forge, *lines: bytes) -> Refused:
    """What a control channel is told after these raw lines."""
    async with connected(forge) as link:
        control = await link.channel(Open("control"))
        for line in lines:
            control.send(line)
        while not isinstance(said := await told(control), Refused):
            assert said is not None
        assert await control.line() is None
        return said


def hello_with(**fields: object) -> bytes:
    said = {"type": "hello", **codec.to_json(a_hello()), **fields}
    return json.dumps(said).encode() + b"\n"


@pytest.mark.parametrize("wire", [{"min": 2, "max": 3}, {"min": 0, "max": 0}])
def test_a_wire_that_does_not_meet_ours_is_unsupported_by_name(tmp_path: Path, wire: dict[str, int]) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refused = await refused_for(forge, hello_with(wire=wire))

            assert refused.code is Refusal.WIRE_UNSUPPORTED

    run(story())


def test_a_newer_runner_that_still_speaks_ours_may_say_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            control = await link.channel(Open("control"))

            control.send(hello_with(wire={"min": 1, "max": 2}, colour="blue"))

            assert isinstance(await told(control), runner.Welcome)

    run(story())


@pytest.mark.parametrize(
    "line",
    [
        hello_with(colour="blue"),
        b'{"type":"want","slot":0,"token":"t"}\n',
        b"GET / HTTP/1.1\n",
        b"\xff\xfe\n",
        b'{"type":"hello","type":"hello"}\n',
        hello_with(slots="many"),
    ],
)
def test_a_hello_that_breaks_the_rules_is_refused(tmp_path: Path, line: bytes) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refused = await refused_for(forge, line)

            assert refused.code is Refusal.INVALID
            assert forge.queue.sessions == []

    run(story())


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"sudo"}\n',
        b'{"type":"want","slot":1,"token":"t"}\n',
        b'{"type":"want","slot":-1,"token":"t"}\n',
        b'{"type":"renew","leases":[{"job":1,"epoch":1,"mood":"good"}]}\n',
        b'{"type":"started","job":"1","epoch":1}\n',
        hello_with(),
    ],
)
def test_a_frame_that_breaks_the_rules_ends_the_link(tmp_path: Path, line: bytes) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refused = await refused_for(forge, hello_with(), line)
            await forge.queue.until(lambda: forge.queue.goodbyes)

            assert refused.code is Refusal.INVALID

    run(story())


def test_a_connection_ends_whose_goodbye_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise Unavailable("the store cannot write just now: disk full")

    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            monkeypatch.setattr(forge.queue, "goodbye", fails)
            link = await Link.connect(a_target(forge))
            control = await welcomed(link)

            control.send(FROM_RUNNER.encode(runner.Bye()))

            async with asyncio.timeout(5):
                await link.lost()

    run(story())


@pytest.mark.proves("SR-34")
def test_a_frame_without_end_is_cut_at_the_bound(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refused = await refused_for(forge, hello_with(), b"x" * (limits.FRAME_BYTES_MAX + 2))

            assert refused.code is Refusal.EXHAUSTED
            assert "FRAME_BYTES_MAX" in refused.message

    run(story())


def test_a_channel_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUNNER_OPENING_S", 0.1)

    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refused = await refused_for(forge)

            assert "RUNNER_OPENING_S" in refused.message

    run(story())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Denied("nothing left", code=Refusal.GRANT), Refusal.GRANT),
        (Denied("no"), Refusal.GRANT),
        (Invalid("old", code=Refusal.VERSION_REFUSED), Refusal.VERSION_REFUSED),
        (Invalid("taken", code=Refusal.SUPERSEDED), Refusal.SUPERSEDED),
    ],
)
def test_a_refused_hello_is_told_by_its_stable_word(tmp_path: Path, error: Invalid | Denied, code: Refusal) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            forge.queue.hello_refusal = error

            assert (await refused_for(forge, hello_with())).code is code

    run(story())


def test_a_second_control_channel_on_a_connection_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            await welcomed(link)
            second = await link.channel(Open("control"))

            said = await told(second)

            assert isinstance(said, Refused)
            assert said.code is Refusal.INVALID

    run(story())


@pytest.mark.parametrize("kind", ["log", "artifact", "fetch", "source"])
def test_a_bulk_channel_before_welcome_is_refused(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            lease = await leased(forge)
            channel = await link.channel(Open(kind, lease.job, lease.epoch, offset=0))

            said = await told(channel)

            assert isinstance(said, Refused)
            assert "before `welcome`" in said.message

    run(story())


@pytest.mark.proves("SR-26", "I-05")
@pytest.mark.parametrize("kind", ["log", "artifact", "fetch", "source"])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_bulk_channel_at_another_epoch_is_fenced(tmp_path: Path, kind: str, epoch: int) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            opening = Open(kind, lease.job, epoch, offset=0, name="n", path="p", size=1, sha256="0" * 64)

            said = await told(await link.channel(opening))

            assert isinstance(said, Refused)
            assert said.code is Refusal.FENCED

    run(story())


@pytest.mark.proves("SR-26", "I-05")
def test_every_word_about_a_lease_that_is_over_is_answered_fenced(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            control = await welcomed(link)
            lease = LeaseRef(7, 3)
            log = runner.LogSeal(0, "0" * 64)
            words = (
                runner.Started(7, 3),
                runner.Marks(7, 3, ()),
                runner.Renew((runner.Renewal(7, 3),)),
                runner.Finish(7, 3, "success", log),
                runner.Handback(7, 3, "why"),
            )

            for word in words:
                control.send(FROM_RUNNER.encode(word))
            said = [await told(control) for _ in range(7)]

            assert said.count(runner.FencedLease(lease.job, lease.epoch)) == 5
            assert said.count(runner.Renewed(())) == 2
            assert forge.queue.finished == {}

    run(story())


def test_started_is_answered_as_the_first_renewal(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            control = await welcomed(link)
            lease = await leased(forge)

            control.send(FROM_RUNNER.encode(runner.Started(lease.job, lease.epoch)))

            assert await told(control) == runner.Renewed((lease,))

    run(story())


def test_a_want_asked_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            control = await welcomed(link)
            for at, low in enumerate((True, False), 1):
                control.send(FROM_RUNNER.encode(runner.Want(0, "same", disk_low=low)))
                await forge.queue.until(lambda at=at: len(forge.queue.words(runner.Want)) == at)

            forge.offer("one")
            forge.offer("two")
            said = await told(control)

            assert isinstance(said, runner.Job)
            assert said.token == "same"
            assert forge.queue.offered.qsize() == 1

    run(story())


@pytest.mark.proves("I-08")
def test_a_want_of_a_lost_connection_takes_no_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            async with connected(forge) as link:
                control = await welcomed(link)
                control.send(FROM_RUNNER.encode(runner.Want(0, "t")))
                await forge.queue.until(lambda: forge.queue.words(runner.Want))
                link.abort()
            await forge.queue.until(lambda: forge.queue.goodbyes)

            forge.offer("true")

            assert forge.queue.offered.qsize() == 1
            assert forge.queue.live == {}

    run(story())


@pytest.mark.proves("I-13")
def test_a_last_word_is_carried_through_when_its_connection_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            lease = await leased(forge)
            forge.queue.durable.clear()
            async with connected(forge) as link:
                control = await welcomed(link)
                control.send(FROM_RUNNER.encode(runner.Handback(lease.job, lease.epoch, "why")))
                await forge.queue.until(lambda: forge.queue.words(runner.Handback))
                link.abort()
            await forge.connections[0].ssh.wait_closed()
            for _ in range(20):  # turns of the loop, in which the link comes to its end
                await asyncio.sleep(0)

            forge.queue.durable.set()
            await forge.queue.until(lambda: forge.queue.goodbyes)

            assert forge.queue.told == [lease]

    run(story())


def test_an_order_reaches_the_runner_and_a_refusal_ends_its_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            control = await welcomed(link)
            cancel = runner.Cancel(1, 1, "operator", 5.0)
            forge.queue.order(cancel)
            forge.queue.order(Refused(Refusal.GRANT, "the key was removed"))

            said = [await told(control), await told(control)]
            await asyncio.wait_for(link.lost(), 5)

            assert said == [cancel, Refused(Refusal.GRANT, "the key was removed")]
            assert forge.queue.goodbyes == ["the key was removed"]

    run(story())


@pytest.mark.proves("SR-28")
def test_a_source_channel_dies_with_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOURCE_CHECK_S", 0.0)

    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            _, commit = a_repository(forge, [{"a": b"1"}, {"noise": os.urandom(6_000_000)}])
            lease = await leased(forge, commit=commit)
            channel = await link.channel(Open("source", lease.job, lease.epoch))
            said = ANSWERS.decode(await channel.line(), strict=True)
            forge.queue.fence(lease)

            pack = b""
            while data := await channel.some():
                pack += data

            assert said.shallow == (commit,)
            assert b"fenced" in pack  # and what came before is no whole pack

    run(story())


def test_an_artifact_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            digest = "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"  # of aaaa… four letters
            opening = Open("artifact", lease.job, lease.epoch, name="n", path="p", size=3, sha256=digest)
            first = await link.channel(opening)
            await first.line()
            first.send(b"a")
            await forge.queue.until(lambda: forge.queue.artifacts.get((lease.job, "n", "p")) == b"a")
            first.close()

            second = await link.channel(opening)
            said = ANSWERS.decode(await second.line(), strict=True)
            second.send(b"aa")
            end = ANSWERS.decode(await second.line(), strict=True)

            assert (said.offset, end.offset) == (1, 3)
            assert forge.queue.artifacts[lease.job, "n", "p"] == b"aaa"

    run(story())


def test_a_runner_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, connected(forge) as link:
            await welcomed(link)
            big = "x" * 500_000

            for _ in range(40):
                forge.queue.order(runner.Wait(1.0, big))
            await forge.queue.until(lambda: forge.queue.goodbyes)

    run(story())


async def log_channel(forge: Forge, link: Link) -> tuple[LeaseRef, Bytes]:
    lease = await leased(forge)
    channel = await link.channel(Open("log", lease.job, lease.epoch, offset=0))
    assert await acknowledged(channel) == 0
    return lease, channel


async def acknowledged(channel: Bytes) -> int | None:
    line = await channel.line()
    return None if line is None else ANSWERS.decode(line, strict=True).offset


def test_a_log_that_keeps_coming_is_acknowledged_once_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_ACK_GAP_S", 60)

    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease, channel = await log_channel(forge, link)
            for number in range(1, 6):
                channel.send(b"line\n")
                await forge.queue.until(lambda stored=5 * number: len(forge.queue.logs[lease]) == stored)
            channel.end()

            assert [await acknowledged(channel), await acknowledged(channel)] == [25, None]

    run(story())


def test_a_log_without_a_pause_is_acknowledged_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_ACK_GAP_S", 60)
    monkeypatch.setattr(limits, "LOG_ACK_BYTES", 100)

    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            _, channel = await log_channel(forge, link)

            channel.send(b"x" * 100)

            assert await acknowledged(channel) == 100

    run(story())


def test_a_log_that_pauses_is_acknowledged(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            _, channel = await log_channel(forge, link)

            channel.send(b"line\n")

            assert await acknowledged(channel) == 5

    run(story())
