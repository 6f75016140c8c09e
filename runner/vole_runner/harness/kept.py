"""What a job leaves of its work folder: the files that patterns find, wherever links point. Runs after the steps.

A pattern or a name that leads out of the work folder gets nothing there (SR-23).
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vole.base import globs, limits
from vole.base.errors import Exhausted, Invalid
from vole.wire.plan import ArtifactPlan
from vole.wire.runner import ArtifactFile


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
    with opened(location) as file:
        while data := file.read(1 << 20):
            size += len(data)
            digest.update(data)
            if size > limits.ARTIFACT_BYTES_MAX:
                raise Exhausted(f"{path}: more than {limits.ARTIFACT_BYTES_MAX >> 20} MiB (ARTIFACT_BYTES_MAX)")
    return Found(ArtifactFile(name, path, size, digest.hexdigest()), location)


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
    if not is_below(root, location):
        return None
    try:
        mode = os.lstat(location).st_mode
    except OSError:
        return None
    return Path(location) if stat.S_ISREG(mode) else None


def is_below(root: Path, location: str) -> bool:
    """Whether a resolved path is `root` or in it."""
    return location == str(root) or location.startswith(f"{root}{os.sep}")


def opened(location: Path) -> io.FileIO:
    """The file itself, never what a link there leads to."""
    return io.FileIO(os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _is_text(path: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in path)
