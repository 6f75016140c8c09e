"""Bitmaps over the packs of repositories that are used, written by the real git."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pygit2
import pytest

from tests.aio import run
from tests.unit.git.test_service import ENV
from vole.base import limits
from vole.base.ids import AccountName, RepoName
from vole.git.bitmaps import Bitmaps
from vole.git.service import GitPrograms
from vole.git.storage import Storage

OBJECTS = 90  # of one burst of commits


@pytest.fixture(autouse=True)
def at_once_and_small(monkeypatch):
    monkeypatch.setattr(limits, "BITMAPS_OBJECTS_MIN", OBJECTS - 60)
    monkeypatch.setattr(limits, "BITMAPS_AFTER_S", 0.0)


class Served:
    """A repository that is in use, and what looks after its bitmaps."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(folder)
        self.path = self.storage.create(RepoName("app"))
        self.programs = GitPrograms(folder, folder / "lock")
        self.bitmaps = Bitmaps(self.programs)

    def git(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run(["git", *words], cwd=self.path, input=given, check=True, env=ENV, capture_output=True)
        return done.stdout.decode().strip()

    def grow(self, *, loose: bool = False) -> None:
        """Thirty commits of three objects each."""
        begin = int(self.git("rev-list", "--count", "--all"))
        parts = []
        for number in range(begin, begin + OBJECTS // 3):
            parts.append(f"commit refs/heads/main\ncommitter A <a@b> {1_700_000_000 + number} +0000\ndata 1\nm\n")
            parts += ["from refs/heads/main^0\n" if number and number == begin else ""]
            parts.append(f"M 100644 inline file\ndata {len(str(number))}\n{number}\n")
        limit = "100000" if loose else "1"
        self.git("-c", f"fastimport.unpackLimit={limit}", "fast-import", "--quiet", given="".join(parts).encode())

    async def look(self) -> list[str]:
        """Serve it once, and say which bitmaps there are after the look that follows."""

        class Nothing:
            def output(self, data: bytes) -> None: ...

            def errors(self, data: bytes) -> None: ...

            def may_feed(self, ready: bool, /) -> None: ...

        async with self.programs.upload_pack(AccountName("ada"), self.path, None, Nothing()) as child:
            child.close_input()
            await child.ended()
        await self.bitmaps.once()
        return sorted(file.name for file in (self.path / "objects" / "pack").glob("*.bitmap"))

    def close(self) -> None:
        self.programs.close()
        self.storage.close()


@pytest.fixture
def served(tmp_path):
    served = Served(tmp_path)
    yield served
    served.close()


def test_a_repository_in_use_gets_bitmaps_over_all_that_it_holds_and_stays_whole(served):
    served.grow()
    served.grow(loose=True)
    served.grow()  # on top of what is loose: its pack alone is not closed

    assert len(run(served.look())) == 1

    counted = served.git("rev-list", "--count", "--objects", "--use-bitmap-index", "main")
    assert int(counted) == 3 * OBJECTS
    assert not list((served.path / "objects").glob("[0-9a-f][0-9a-f]/*"))
    served.git("fsck", "--full", "--strict")
    tip = pygit2.Repository(str(served.path)).revparse_single("main").peel(pygit2.Commit)
    assert pygit2.Repository(str(served.path))[tip.tree["file"].id].read_raw() == b"89"


def test_they_are_written_anew_when_as_many_objects_lack_them_as_have_them(served):
    async def story():
        served.grow()
        served.grow()
        first = await served.look()
        assert first
        served.grow()
        assert await served.look() == first
        served.grow()
        assert len(await served.look()) == 1
        assert await served.look() != first

    run(story())


def test_many_loose_objects_become_a_pack_and_many_packs_a_few(served, monkeypatch):
    monkeypatch.setattr(limits, "BITMAPS_OBJECTS_MIN", 1_000_000)

    async def story():
        served.grow(loose=True)
        assert await served.look() == []  # as many as may lie there
        monkeypatch.setattr(limits, "LOOSE_OBJECTS_MAX", 0)
        for _ in range(6):
            served.grow(loose=True)
            await served.look()

    run(story())
    assert not list((served.path / "objects").glob("[0-9a-f][0-9a-f]/*"))
    assert len(list((served.path / "objects" / "pack").glob("*.pack"))) <= 3
    assert served.git("rev-list", "--count", "--objects", "main") == str(7 * OBJECTS)
    served.git("fsck", "--full", "--strict")


def test_few_objects_and_a_repository_that_is_gone_get_none(served, monkeypatch):
    async def story():
        monkeypatch.setattr(limits, "BITMAPS_OBJECTS_MIN", OBJECTS + 50)
        served.grow()
        assert await served.look() == []
        served.programs.used[served.path] = asyncio.get_running_loop().time()
        served.storage.remove(RepoName("app"))
        await served.bitmaps.once()
        assert not served.programs.used

    run(story())


def test_what_git_could_not_do_is_tried_again_only_when_there_is_twice_as_much(served):
    async def story():
        lock = served.path / "objects" / "pack" / "multi-pack-index.lock"
        served.grow()
        lock.touch()
        assert await served.look() == []
        lock.unlink()
        assert await served.look() == []
        served.grow()
        assert len(await served.look()) == 1

    run(story())
