"""What a job leaves and what it needs: files below its work folder, wherever links point. Runs after and before steps.

A pattern or a name that leads out of the work folder gets nothing there (SR-23).
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vole.base import globs, limits
from vole.base.errors import Exhausted, Invalid, Unavailable
from vole.wire.plan import ArtifactPlan, NeededArtifact
from vole.wire.runner import Accepted, ArtifactFile, LeaseRef, Open, Refused
from vole_runner.link import Bytes
from vole_runner.logship import PAUSE_S, answer, refusal

OpenChannel = Callable[[Open], Awaitable[Bytes]]


@dataclass(frozen=True)
class Found:
    """One file to keep: what the forge is told, and where its bytes are here, links resolved."""

    file: ArtifactFile
    location: Path


def find(plan: ArtifactPlan, work: Path) -> list[tuple[str, Path]]:
    """The files that the artifact's patterns leave, by path. Raises Exhausted and Invalid, naming what is wrong."""
    if work.is_symlink():
        raise Invalid("the job put a link in the place of its work folder")
    root = Path(os.path.realpath(work))
    found: list[tuple[str, Path]] = []
    for path in _walk(root, ""):
        if not globs.match(plan.paths, path):
            continue
        if len(path.encode("utf-8", "surrogateescape")) > limits.ARTIFACT_PATH_BYTES_MAX:
            raise Exhausted(
                f"{path[:80]}…: a path of more than {limits.ARTIFACT_PATH_BYTES_MAX} bytes (ARTIFACT_PATH_BYTES_MAX)"
            )
        if not _is_text(path):
            raise Invalid(f"{ascii(path)[:120]}: the name is not UTF-8; rename the file")
        location = _inside(root, path)
        if location is not None:
            found.append((path, location))
        if len(found) > limits.ARTIFACT_FILES_MAX:
            raise Exhausted(f"more than {limits.ARTIFACT_FILES_MAX} files (ARTIFACT_FILES_MAX)")
    return found


def measure(name: str, path: str, location: Path) -> Found:
    """Size and digest of one file. Raises Exhausted for one over ARTIFACT_BYTES_MAX."""
    digest = hashlib.sha256()
    size = 0
    with _opened(location) as file:
        while data := file.read(1 << 20):
            size += len(data)
            digest.update(data)
            if size > limits.ARTIFACT_BYTES_MAX:
                raise Exhausted(f"{path}: more than {limits.ARTIFACT_BYTES_MAX >> 20} MiB (ARTIFACT_BYTES_MAX)")
    return Found(ArtifactFile(name, path, size, digest.hexdigest()), location)


async def send(found: Found, lease: LeaseRef, open_channel: OpenChannel) -> None:
    """Returns when the forge has kept it. A lost connection is waited out. Raises Fenced, or the forge's refusal."""
    file = found.file
    opening = Open(
        "artifact", lease.job, lease.epoch, name=file.name, path=file.path, size=file.size, sha256=file.sha256
    )
    while True:
        channel = await open_channel(opening)
        try:
            if await _sent(found, channel):
                return
        except Unavailable:
            pass
        finally:
            channel.close()
        await asyncio.sleep(PAUSE_S)


async def fetch(needed: NeededArtifact, lease: LeaseRef, work: Path, open_channel: OpenChannel) -> int:
    """Place a needed artifact's files below the work folder; how many. Raises Unavailable, Fenced, Invalid."""
    channel = await open_channel(Open("fetch", lease.job, lease.epoch, name=needed.name))
    try:
        said = await answer(channel)
        if isinstance(said, Refused):
            raise refusal(said)
        for file in said.files:
            await _receive(file, place(work, needed.path, file.path), channel)
    finally:
        channel.close()
    return len(said.files)


def place(work: Path, folder: str, path: str) -> Path:
    """Where a file goes, its folders made. Raises Invalid for a place outside the work folder, also by a link."""
    parts = (*PurePosixPath(folder).parts, *PurePosixPath(path).parts)
    if any(part == ".." or part.startswith("/") or "\0" in part for part in parts):
        raise Invalid(f"{folder}/{path} leads out of the work folder")
    root = Path(os.path.realpath(work))
    target = root.joinpath(*parts)
    parent = root
    for part in target.parent.relative_to(root).parts:
        parent = parent / part
        if parent.is_symlink() and not _is_below(root, os.path.realpath(parent)):
            raise Invalid(f"{folder}/{path} leads out of the work folder by the link {parent.relative_to(root)}")
        parent.mkdir(exist_ok=True)
    if target.is_symlink():
        target.unlink()
    return target


async def _sent(found: Found, channel: Bytes) -> bool:
    """Whether the forge has all of it. It says how much it has, and again after each of our pieces."""
    said = await answer(channel)
    if isinstance(said, Accepted) and said.offset < found.file.size:
        sending = asyncio.create_task(_send_from(found, said.offset, channel))
        try:
            while isinstance(said, Accepted) and said.offset < found.file.size:
                said = await answer(channel)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    if isinstance(said, Refused):
        raise refusal(said)
    return True


async def _send_from(found: Found, offset: int, channel: Bytes) -> None:
    with _opened(found.location) as file:
        file.seek(offset)
        while data := await asyncio.to_thread(file.read, limits.PUMP_READ_BYTES):
            channel.send(data)
            await channel.drain()
    channel.end()


async def _receive(file: ArtifactFile, target: Path, channel: Bytes) -> None:
    digest = hashlib.sha256()
    left = file.size
    with target.open("wb") as into:
        while left:
            data = await channel.some(min(left, limits.PUMP_READ_BYTES))
            if not data:
                raise Unavailable(f"{file.path}: the forge stopped {left} bytes before the end")
            await asyncio.to_thread(into.write, data)
            digest.update(data)
            left -= len(data)
    if digest.hexdigest() != file.sha256:
        raise Unavailable(f"{file.path}: what came is not what the forge announced")


def _walk(root: Path, below: str) -> Iterator[str]:
    """Paths of all files below `root`, links among them, in order. Links to folders are not walked into."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if path != ".git":
                yield from _walk(root, f"{path}/")
        else:
            yield path


def _inside(root: Path, path: str) -> Path | None:
    """Where the bytes of `path` are, None when that is outside of `root` or no plain file."""
    location = os.path.realpath(root / path)
    if not _is_below(root, location):
        return None
    try:
        mode = os.lstat(location).st_mode
    except OSError:
        return None
    return Path(location) if stat.S_ISREG(mode) else None


def _is_below(root: Path, location: str) -> bool:
    return location == str(root) or location.startswith(f"{root}{os.sep}")


def _opened(location: Path) -> io.FileIO:
    return io.FileIO(os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _is_text(path: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in path)
