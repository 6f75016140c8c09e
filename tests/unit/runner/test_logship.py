"""A log arrives whole and once, whatever becomes of its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aio import run
from tests.unit.runner.desk import a_link, leased
from tests.unit.runner.forge import a_forge
from vole.base import limits
from vole.base.errors import Exhausted, Fenced, VoleError
from vole.wire.runner import Open
from vole_runner import spool as spools
from vole_runner.link import Bytes
from vole_runner.logship import ship
from vole_runner.spool import NOTICE, Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "log")
    yield made
    made.remove()


def test_bytes_arrive_as_they_were_while_more_are_written(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            shipping = asyncio.create_task(ship(spool, lease, link.channel))
            sent = b""
            for at in range(50):
                data = bytes([at]) * (at * 997)
                spool.append(data)
                sent += data
            spool.close()

            await shipping

            assert bytes(forge.queue.logs[lease]) == sent
            assert (spool.shipped, spool.seal.bytes) == (len(sent), len(sent))

    run(story())


@pytest.mark.proves("I-33")
def test_a_log_goes_on_from_the_offset_that_the_forge_says(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            spool.append(b"0123456789")
            spool.close()
            forge.queue.logs[lease] += b"01234"  # stored, and its answer lost

            await ship(spool, lease, link.channel)

            assert bytes(forge.queue.logs[lease]) == b"0123456789"

    run(story())


@pytest.mark.proves("I-33")
def test_a_log_whose_channel_is_cut_again_and_again_arrives_once(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            opened: list[Bytes] = []

            async def channel(opening: Open) -> Bytes:
                opened.append(await link.channel(opening))
                return opened[-1]

            shipping = asyncio.create_task(ship(spool, lease, channel))
            sent, before = b"", 0
            for cuts in range(5):
                # An offset that the forge corrects costs a channel more.
                await forge.queue.until(lambda before=before: len(opened) > before)
                before = len(opened)
                data = b"".join(b"line %d of %d\n" % (at, cuts) for at in range(2_000))
                spool.append(data)
                opened[-1].close()
                sent += data
            spool.close()

            await shipping

            assert bytes(forge.queue.logs[lease]) == sent

    run(story())


@pytest.mark.proves("SR-26", "I-05")
def test_a_log_of_a_lease_that_is_over_is_not_taken(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            shipping = asyncio.create_task(ship(spool, lease, link.channel))
            spool.append(b"before")
            await forge.queue.until(lambda: forge.queue.logs[lease] == b"before")
            forge.queue.fence(lease)
            spool.append(b"after")

            with pytest.raises(Fenced):
                await shipping

            assert bytes(forge.queue.logs[lease]) == b"before"

    run(story())


def test_a_forge_that_takes_no_more_is_not_asked_for_ever(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            lease = await leased(forge)
            forge.queue.log_refusal = Exhausted("the log is full")
            spool.append(b"x")

            with pytest.raises(VoleError, match="full"):
                await ship(spool, lease, link.channel)

    run(story())


@pytest.mark.proves("SR-34")
def test_beyond_the_bound_a_notice_stands_and_the_log_ends(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_BYTES_MAX", 1000)

    async def story() -> None:

        spool.append(b"x" * 600)
        spool.append(b"y" * 600)
        spool.append(b"z" * 600)

        text = (tmp_path / "log").read_bytes()
        assert text.startswith(b"x" * 600 + b"y")
        assert text.endswith(NOTICE)
        assert (len(text), spool.seal.truncated, spool.seal.bytes) == (1000, True, 1000)

    run(story())


def test_a_full_spool_makes_room_only_when_the_forge_has_written(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPOOL_UNSHIPPED_BYTES_MAX", 100)

    async def story() -> None:
        spool.append(b"x" * 100)
        room = asyncio.create_task(spool.room())
        done, _ = await asyncio.wait([room], timeout=0.05)
        assert not done

        spool.mark_shipped(1)

        await room

    run(story())


def test_the_spool_is_gone_when_it_is_removed(tmp_path: Path, spool: Spool) -> None:
    async def story() -> None:
        spool.append(b"x")

        spool.remove()

        assert not (tmp_path / "log").exists()

    run(story())


def test_the_notice_names_the_bound() -> None:
    assert b"64 MiB" in spools.NOTICE
