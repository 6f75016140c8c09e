"""The form of a backup: the files of a server's folder, a list of their digests, and what it says of itself.

A backup is a folder, or that folder in a tar file. `sha256sum -c SHA256SUMS` holds for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vole.base import limits
from vole.base.errors import Conflict, Invalid, NotFound, Unavailable
from vole.wire import codec

SUMS, ABOUT = "SHA256SUMS", "backup.json"
_TARS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}

Progress = Callable[[str, int], None]
"""Told what is worked on, and how many bytes were copied since it was told before."""


@dataclass(frozen=True)
class About:
    """What a backup says of itself."""

    made_at: str  # ISO 8601
    vole: str  # version
    deployment: str
    keys: bool  # private keys are in it
    left_out: tuple[str, ...]
    v: int = 1

    @classmethod
    def read(cls, folder: Path) -> About:
        """Raises NotFound for a folder that is no backup, Invalid for one of another form."""
        try:
            text = (folder / ABOUT).read_text("utf-8")
        except FileNotFoundError:
            raise NotFound(
                f"{folder} holds no {ABOUT}: it is no backup", next_step="name what `vole backup` made"
            ) from None
        about = codec.from_json(cls, codec.parse(text))
        if about.v != 1:
            raise Invalid(f"{folder} is a backup of form {about.v}; this vole reads 1")
        return about


@dataclass
class Copier:
    """Copies files, and remembers what was in them."""

    source: Path
    into: Path
    progress: Progress
    sums: dict[str, str] = field(default_factory=dict)

    def put(self, source: Path, target: Path) -> None:
        """Copy one file as it is now, mode and all. Raises FileNotFoundError."""
        self._note(target, _copy(source, target))

    def note(self, target: Path) -> None:
        """A file of the backup that was written otherwise."""
        with target.open("rb") as file:
            self._note(target, hashlib.file_digest(file, "sha256").hexdigest())

    def _note(self, target: Path, sha256: str) -> None:
        self.sums[str(target.relative_to(self.into))] = sha256
        self.progress("", target.stat().st_size)

    def put_if_there(self, name: str) -> bool:
        """Copy a file by its name in the folder; whether it was there."""
        source, target = self.source / name, self.into / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self.put(source, target)
        except FileNotFoundError:
            return False
        return True

    def put_all(self, name: str) -> None:
        """Copy every file below a folder, but those that go meanwhile."""
        for folder, _, files in os.walk(self.source / name):
            for file in files:
                self.put_if_there(str(Path(folder, file).relative_to(self.source)))

    def close(self, about: About) -> None:
        """Write down what the backup is, and make all of it durable."""
        (self.into / ABOUT).write_bytes(codec.canonical(about) + b"\n")
        self.note(self.into / ABOUT)
        lines = (f"{digest}  {name}\n" for name, digest in sorted(self.sums.items()))
        (self.into / SUMS).write_text("".join(lines), "utf-8")
        os.sync()


def expected(folder: Path) -> dict[str, str]:
    """The digests of a backup's files, by name. Raises Invalid."""
    found = {}
    if not (folder / SUMS).is_file():
        raise Invalid(f"{folder / SUMS} is missing: the backup is not whole")
    for number, line in enumerate((folder / SUMS).read_text("utf-8").splitlines(), 1):
        digest, blanks, name = line.partition("  ")
        if not blanks or len(digest) != 64 or name.startswith("/") or ".." in name.split("/"):
            raise Invalid(f"{folder / SUMS}:{number}: no line of SHA-256 sums")
        found[name] = digest
    return found


@contextmanager
def made_whole(place: Path) -> Iterator[Path]:
    """A new folder, which is `place` in the end: whole or not there. An empty one is taken. Raises Conflict."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise Conflict(f"{place} is there already and not empty; nothing was changed", next_step="name another place")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as error:
        raise Unavailable(f"{place} cannot be made: {error.strerror}") from None
    try:
        yield making
        making.rename(place)
    except OSError as error:
        raise Unavailable(f"{error.filename or place}: {error.strerror}") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def is_tar(place: Path) -> bool:
    return _mode(place) is not None


def pack(folder: Path, place: Path) -> None:
    """The backup `folder` as the new tar file `place`, whole or not there."""
    making = place.with_name(f".{place.name}.making")
    mode = _mode(place)
    assert mode is not None, "the name says that it is a tar file"
    try:
        handle = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file, tarfile.open(making, mode, fileobj=file) as tar:  # type: ignore[call-overload]
            for one in sorted(folder.rglob("*")):
                tar.add(one, one.relative_to(folder), recursive=False, filter=_nobodys)
        os.sync()
        making.rename(place)
    finally:
        making.unlink(missing_ok=True)


@contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """The folder of a backup; of a tar file for as long as it is needed. Raises NotFound, Invalid."""
    if place.is_dir():
        yield place
        return
    if not place.is_file():
        raise NotFound(f"there is no backup {place}")
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as folder:
        try:
            with tarfile.open(place) as tar:
                tar.extractall(folder, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise Invalid(f"{place} cannot be read as a tar file: {error}") from None
        yield Path(folder)


def _mode(place: Path) -> str | None:
    return next((mode for ending, mode in _TARS.items() if place.name.endswith(ending)), None)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _copy(source: Path, target: Path) -> str:
    """The SHA-256. What is appended meanwhile may be in it or not."""
    digest = hashlib.sha256()
    with source.open("rb") as old, target.open("xb") as new:
        while piece := old.read(limits.MIB):
            digest.update(piece)
            new.write(piece)
        os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
    return digest.hexdigest()
