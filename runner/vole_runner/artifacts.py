"""The way of files that jobs leave and need, to the forge and from it. Runs after and before the steps.

A name that leads out of the work folder gets nothing there (SR-23).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

from vole.base import limits
from vole.base.errors import Invalid, Unavailable
from vole.wire.plan import NeededArtifact
from vole.wire.runner import Accepted, ArtifactFile, LeaseRef, Open, Refused
from vole_runner.harness.kept import Found, is_below, opened
from vole_runner.link import Bytes
from vole_runner.logship import PAUSE_S, answer, refusal

OpenChannel = Callable[[Open], Awaitable[Bytes]]


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
        if parent.is_symlink() and not is_below(root, os.path.realpath(parent)):
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
    with opened(found.location) as file:
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
