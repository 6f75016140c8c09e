"""Packs of loose objects, and bitmaps over packs: with them a clone does not walk through all of history first.

They are a help, never needed: git reads past what they do not cover. Nothing waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from vole.base import limits, log
from vole.git import service
from vole.git.service import GitPrograms

_log = log.get("vole.git.bitmaps")

_IDX_ENTRY_BYTES = 28  # of an object in a pack's index: id, checksum, offset
_FOLDERS = 256  # of loose objects
_MIDX_ENTRY_BYTES = 32  # in an index over packs: id, pack and offset, order


class Bitmaps:
    """Written for repositories in use, each time that as many objects lack them as have them, or many lie loose."""

    def __init__(self, programs: GitPrograms) -> None:
        self._programs = programs
        self._tried: dict[Path, int] = {}  # how many objects there were when git could not

    async def once(self) -> None:
        """Each repository that was used a moment ago, one after another."""
        before = asyncio.get_running_loop().time() - limits.BITMAPS_AFTER_S
        for path in [path for path, at in self._programs.used.items() if at <= before]:
            del self._programs.used[path]
            packed, covered, loose = await asyncio.to_thread(_counts, path)
            wanted = packed >= max(limits.BITMAPS_OBJECTS_MIN, 2 * covered) or loose >= limits.LOOSE_OBJECTS_MAX
            if wanted and packed + loose >= 2 * self._tried.get(path, 0):
                await self._write(path, packed + loose)

    async def _write(self, path: Path, objects: int) -> None:
        self._tried.pop(path, None)
        if await service.map_packs(path):
            _log.info("bitmaps written", folder=path.name, objects=objects)
        elif path.exists():
            self._tried[path] = objects
            _log.warning("no bitmaps could be written", folder=path.name, objects=objects)


def _counts(path: Path) -> tuple[int, int, int]:
    """About how many objects are in packs, in the index over packs, and loose. None where there is no repository."""
    loose = _FOLDERS * sum(1 for _ in _sizes(path / "objects" / "17"))  # names are as good as random
    sizes = dict(_sizes(path / "objects" / "pack"))
    packed = sum(size for name, size in sizes.items() if name.endswith(".idx"))
    return packed // _IDX_ENTRY_BYTES, sizes.get("multi-pack-index", 0) // _MIDX_ENTRY_BYTES, loose


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        for file in folder.iterdir():
            yield file.name, file.stat().st_size
    except FileNotFoundError:
        return  # the repository is gone, or a pack of it just now
