"""Brings an attempt's sources: the pinned commit, over the runner's own connection, through a cache per repository.

Runs no hook, reads no settings of the user, asks for no other commit. The caches are plain folders of packs; one that
is broken or full is thrown away and made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits
from vole.base.errors import Unavailable
from vole.base.ids import CommitId, RepoName
from vole.wire.runner import LeaseRef, Open, Refused
from vole_runner.harness.trees import remove_tree
from vole_runner.link import Bytes
from vole_runner.logship import answer, refusal

OpenChannel = Callable[[Open], Awaitable[Bytes]]

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = {bare}
[gc]
\tauto = 0
"""


@dataclass(frozen=True)
class Wanted:
    """What an attempt is to find in its work folder."""

    repository: RepoName
    commit: CommitId
    depth: int  # 0: the whole history


class _Broken(Exception):
    """The cache cannot give what it should."""


class Sources:
    """Every cache of one runner for one forge."""

    def __init__(self, root: Path, forge: str) -> None:
        self._root = root / hashlib.sha256(forge.encode()).hexdigest()[:16]
        self._locks: dict[RepoName, asyncio.Lock] = {}

    async def bring(self, wanted: Wanted, lease: LeaseRef, work: Path, open_channel: OpenChannel) -> None:
        """Make `work` with the commit checked out. Raises Fenced, or Unavailable for whatever stood in the way."""
        async with self._locks.setdefault(wanted.repository, asyncio.Lock()):
            try:
                await self._try(wanted, lease, work, open_channel)
            except _Broken:
                await asyncio.to_thread(_forget, self._path(wanted.repository), work)
                try:
                    await self._try(wanted, lease, work, open_channel)
                except _Broken as error:
                    raise Unavailable(f"the sources of {wanted.repository} could not be made: {error}") from None

    def _path(self, repository: RepoName) -> Path:
        return self._root / f"{repository}.git"

    async def _try(self, wanted: Wanted, lease: LeaseRef, work: Path, open_channel: OpenChannel) -> None:
        cache = _Cache(self._path(wanted.repository))
        await asyncio.to_thread(cache.prepare)
        shallow = cache.shallow(wanted)
        if shallow is None:
            shallow = await _fetch(cache, wanted, lease, open_channel)
        await asyncio.to_thread(_clone, cache, wanted, shallow, work)
        await _git(work, "reset", "--hard", "--quiet")


class _Cache:
    """A bare repository that only ever holds packs, and a note for each commit that was brought."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.packs = path / "objects" / "pack"
        self._notes = path / "brought"

    def prepare(self) -> None:
        """Make it, anew when it has grown many packs: one fresh pack is smaller and quicker than a repack."""
        if self.packs.is_dir() and len(list(self.packs.glob("*.pack"))) >= limits.CACHE_PACKS_MAX:
            remove_tree(self.path)
        for torn in self.packs.glob("tmp_*"):
            torn.unlink()
        if not self.packs.is_dir():
            self._notes.mkdir(parents=True, exist_ok=True)
            _make_repository(self.path, "ref: refs/heads/none", bare=True)

    def shallow(self, wanted: Wanted) -> tuple[CommitId, ...] | None:
        """The boundary of a commit that is here already at this depth; None when it is not."""
        try:
            lines = self._note(wanted).read_text("ascii").split()
        except FileNotFoundError:
            return None
        return tuple(CommitId.parse(line) for line in lines)

    def haves(self, wanted: Wanted) -> tuple[CommitId, ...]:
        """The newest commits to build on: those that are here with at least as much history as is wanted."""
        newest: list[tuple[int, CommitId]] = []
        for note in self._notes.iterdir():
            commit, _, depth = note.stem.partition("-")
            if commit != wanted.commit and (depth == "0" or 0 < wanted.depth <= int(depth)):
                newest.append((note.stat().st_mtime_ns, CommitId.parse(commit)))
        commits = dict.fromkeys(commit for _, commit in sorted(newest, reverse=True))
        return tuple(commits)[: limits.SOURCE_HAVES_MAX]

    def brought(self, wanted: Wanted, shallow: tuple[CommitId, ...]) -> None:
        """Note it, once its pack is in place."""
        note = self._note(wanted)
        fresh = note.with_suffix(".new")
        fresh.write_text("\n".join(shallow), "ascii")
        fresh.rename(note)

    def _note(self, wanted: Wanted) -> Path:
        return self._notes / f"{wanted.commit}-{wanted.depth}"


async def _fetch(cache: _Cache, wanted: Wanted, lease: LeaseRef, open_channel: OpenChannel) -> tuple[CommitId, ...]:
    haves = await asyncio.to_thread(cache.haves, wanted)
    opening = Open("source", lease.job, lease.epoch, depth=wanted.depth, haves=haves)
    channel = await open_channel(opening)
    try:
        said = await answer(channel)
        if isinstance(said, Refused):
            raise refusal(said)
        await _index(cache, channel)
    finally:
        channel.close()
    await asyncio.to_thread(cache.brought, wanted, said.shallow)
    return said.shallow


async def _index(cache: _Cache, channel: Bytes) -> None:
    process = await _start(cache.path, "index-pack", "--stdin", "--fix-thin", stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    try:
        while data := await channel.some():
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()
        await _succeeded(process, "index-pack")
    except (BrokenPipeError, ConnectionResetError):
        await _succeeded(process, "index-pack")
    finally:
        await _end(process)


def _clone(cache: _Cache, wanted: Wanted, shallow: tuple[CommitId, ...], work: Path) -> None:
    """A repository of its own beside the cache's packs, which it shares by hard link: it outlives the cache."""
    remove_tree(work)
    git = work / ".git"
    git.mkdir(parents=True)
    _make_repository(git, str(wanted.commit), bare=False)
    for file in cache.packs.iterdir():
        if file.suffix in (".pack", ".idx", ".rev"):
            _link(file, git / "objects" / "pack" / file.name)
    if shallow:
        (git / "shallow").write_text("".join(f"{commit}\n" for commit in shallow), "ascii")


def _make_repository(git: Path, head: str, *, bare: bool) -> None:
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (git / folder).mkdir(parents=True, exist_ok=True)
    (git / "config").write_text(_CONFIG.format(bare="true" if bare else "false"), "ascii")
    (git / "HEAD").write_text(f"{head}\n", "ascii")


def _link(file: Path, into: Path) -> None:
    try:
        os.link(file, into)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, into)


def _forget(cache: Path, work: Path) -> None:
    remove_tree(cache)
    remove_tree(work)


async def _git(folder: Path, *words: str) -> None:
    process = await _start(folder, *words)
    try:
        await _succeeded(process, words[0])
    finally:
        await _end(process)


async def _start(folder: Path, *words: str, stdin: int = asyncio.subprocess.DEVNULL) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsync=none", *words),
        cwd=folder,
        env=_environment(),
        stdin=stdin,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


async def _succeeded(process: asyncio.subprocess.Process, what: str) -> None:
    assert process.stderr is not None
    said = await process.stderr.read(limits.TEXT_CHARS_MAX)
    if await process.wait() != 0:
        first = said.decode("utf-8", "replace").strip().splitlines()[:1]
        raise _Broken(f"git {what}: {first[0] if first else f'exit {process.returncode}'}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # asyncio's own kill may reap the child behind its watcher's back
        await process.wait()


def _environment() -> dict[str, str]:
    """Nothing of the user's: no settings, no templates, no credentials, no prompt."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }
