"""The operator's door: words in, streams out, and a command that ends when its caller leaves."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.aio import run
from vole.app import App
from vole.base import limits
from vole.base.errors import Unavailable
from vole.cli.founding import found
from vole.config import server
from vole.ssh import operator_link
from vole.ssh.answers.counter import Counter
from vole.ssh.operator import OperatorDoor


class Heard:
    def __init__(self, stdin: bytes = b"") -> None:
        self.stdin = stdin
        self.said = b""
        self.complained = b""
        self.spoken = asyncio.Event()

    async def read(self, most: int) -> bytes:
        data, self.stdin = self.stdin[:most], self.stdin[most:]
        return data

    async def out(self, data: bytes) -> None:
        self.said += data
        self.spoken.set()

    async def err(self, data: bytes) -> None:
        self.complained += data


@asynccontextmanager
async def a_door(folder: Path) -> AsyncIterator[tuple[OperatorDoor, Path]]:
    """A door on a store of its own, and the path of its socket."""
    found(folder / "forge", server.template())
    async with App.closed_doors(server.load(folder / "forge")) as app:
        path = app.config.paths.command_socket
        door = OperatorDoor(path, app.desk)
        await door.start()
        try:
            yield door, path
        finally:
            await door.stop()


async def called(path: Path, *words: str, stdin: bytes = b"") -> tuple[int, Heard]:
    link = await operator_link.dial(path)
    assert link is not None
    heard = Heard(stdin)
    return await operator_link.call(link, list(words), heard), heard


def test_words_are_answered_as_the_operators(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_door(tmp_path) as (_, path):
            status, heard = await called(path, "user", "add", "ada")
            again, complained = await called(path, "user", "add", "ada")

            assert (status, heard.complained) == (0, b"")
            assert b"ada is an account now" in heard.said
            assert (again, complained.said) == (1, b"")
            assert b"there is an account 'ada' already" in complained.complained

    run(story())


def test_standard_input_arrives_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_door(tmp_path) as (_, path):
            await called(path, "user", "add", "ada")
            long = await called(path, "key", "add", "ada", stdin=b"x" * (limits.COMMAND_STDIN_BYTES_MAX + 1))
            short = await called(path, "key", "add", "ada", stdin=b"x" * limits.COMMAND_STDIN_BYTES_MAX)

            assert (long[0], short[0]) == (75, 2)

    run(story())


def test_a_command_is_cancelled_when_its_caller_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def endless(_at: Counter) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with a_door(tmp_path) as (door, path):
            door.answers = {**door.answers, "ping": endless}
            calling = asyncio.create_task(called(path, "ping"))
            await begun.wait()

            calling.cancel()

            await cancelled.wait()

    run(story())


def test_a_caller_is_told_when_the_server_stops_under_it(tmp_path: Path) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def endless(_at: Counter) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with a_door(tmp_path) as (door, path):
            door.answers = {**door.answers, "ping": endless}
            calling = asyncio.create_task(called(path, "ping"))
            await begun.wait()

            await door.stop()

            with pytest.raises(Unavailable, match="before it answered"):
                await calling
            assert await operator_link.dial(path) is None

    run(story())


def test_the_server_leaves_the_hanging_up_to_its_caller(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_door(tmp_path) as (_, path):
            reader, writer = await asyncio.open_unix_connection(path)
            await operator_link.send_frame(writer, operator_link.WORDS, b'["ping"]')
            while (await operator_link.read_frame(reader))[0] != operator_link.EXIT:
                pass

            hanging_up = asyncio.create_task(reader.read(1))

            # A caller that still sends must not find its pipe broken, or it loses what it has not read yet.
            assert not (await asyncio.wait([hanging_up], timeout=0.2))[0]
            writer.close()
            assert await hanging_up == b""

    run(story())


def test_a_caller_that_breaks_the_form_ends_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_door(tmp_path) as (_, path):
            for junk in (b"x", b"w\xff\xff\xff\xff", b"i\0\0\0\0", b"w\0\0\0\x02{]"):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(junk)
                writer.write_eof()
                assert await reader.read() == b""
                writer.close()

            assert (await called(path, "ping"))[0] == 0

    run(story())


def test_only_the_servers_user_may_enter(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_door(tmp_path) as (_, path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    run(story())
