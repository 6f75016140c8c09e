"""Logs of attempts: one file each, bytes as they came, its length the truth. Decides nothing about leases.

An append goes to the end or nowhere: at another offset it is answered with the right one, so that a runner that lost
our answer sends a chunk twice and the log has it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Conflict, Exhausted, Unavailable
from vole.base.ids import RepoName, RunNumber
from vole.evidence.model import LogKey, WrongOffset

_log = log.get("vole.evidence")

__all__ = ["LogKey", "LogStore", "Seal", "WrongOffset"]


@dataclass(frozen=True)
class Seal:
    """A log that grows no more."""

    bytes: int
    sha256: str


EMPTY = Seal(0, hashlib.sha256().hexdigest())


@dataclass
class _Open:
    descriptor: int
    length: int
    hasher: hashlib._Hash | None = field(default_factory=hashlib.sha256)  # None: opened in the middle


class LogStore:
    """The folder of logs. Appends are plain calls of microseconds; `seal` and `remove_repo` belong in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: OrderedDict[LogKey, _Open] = OrderedDict()
        self._sealed: set[LogKey] = set()
        self._unsure: set[LogKey] = set()  # not made durable when they should have been

    def path(self, key: LogKey) -> Path:
        """Where the log lies, whether it is there or not."""
        return self._root / key.repo / str(key.run) / key.job / str(key.epoch)

    def length(self, key: LogKey) -> int:
        """How many bytes are stored."""
        known = self._open.get(key)
        if known is not None:
            return known.length
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def append_at(self, key: LogKey, offset: int, data: bytes) -> int:
        """The length after `data` was written at `offset`.

        Raises WrongOffset for any place but the end, Exhausted past LOG_BYTES_MAX, Conflict for a sealed log,
        Unavailable when the disk takes no more; the log is as before then.
        """
        if key in self._sealed:
            raise Conflict("the log is sealed: its result is being accepted")
        length = self.length(key)
        if offset != length:
            raise WrongOffset(length)
        if length + len(data) > limits.LOG_BYTES_MAX:
            raise Exhausted(f"a log of more than {limits.LOG_BYTES_MAX} bytes (LOG_BYTES_MAX)")
        if data:
            _write(self._opened(key), data)
        return length + len(data)

    def read(self, key: LogKey, offset: int, most: int) -> bytes:
        """At most `most` bytes from `offset`; none where there is no log."""
        try:
            with self.path(key).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""

    def close_for_good(self, key: LogKey) -> None:
        """Take no more appends until `reopen`. On the loop, before `seal` runs in its thread."""
        self._sealed.add(key)

    def reopen(self, key: LogKey) -> None:
        """Undo `close_for_good`: the result was not accepted, or was, and the lease refuses appends now."""
        self._sealed.discard(key)

    def seal(self, key: LogKey) -> Seal:
        """Length and digest of the log, once it is durable with the folders it lies in. Raises Unavailable.

        After an fsync that failed, the system holds pages for written that never were, and the next fsync says nothing
        of them: such a log is written again, whole, before it counts.
        """
        known = self._open.pop(key, None)
        if known is None and not self.path(key).exists():
            return EMPTY
        try:
            length = self._sync(key, None if known is None else known.descriptor)
        except OSError as error:
            self._unsure.add(key)
            _log.error("a log could not be made durable", log=str(self.path(key)), why=error.strerror)
            raise Unavailable(f"the log cannot be made durable just now: {error.strerror}") from None
        self._unsure.discard(key)
        hasher = _digest(self.path(key)) if known is None or known.hasher is None else known.hasher
        return Seal(length, hasher.hexdigest())

    def numbers(self, repo: RepoName) -> list[RunNumber]:
        """The runs of a repository that ever had a log which is still here."""
        folder = self._root / repo
        return [RunNumber(int(name)) for name in os.listdir(folder) if name.isdecimal()] if folder.is_dir() else []

    def remove(self, key: LogKey) -> int:
        """Forget one log that grows no more, and folders that are empty then; how many bytes it had."""
        if (known := self._open.pop(key, None)) is not None:
            os.close(known.descriptor)
        size = self.length(key)
        self.path(key).unlink(missing_ok=True)
        for folder in self._folders(key)[:2]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return size

    def bytes_of(self, repo: RepoName) -> int:
        """The bytes of all logs of a repository. It walks through them: not on the loop."""
        return bytes_below(self._root / repo)

    def remove_repo(self, repo: RepoName) -> None:
        """Forget every log of a repository, so that another one of its name begins empty."""
        for key in [key for key in self._open if key.repo == repo]:
            os.close(self._open.pop(key).descriptor)
        shutil.rmtree(self._root / repo, ignore_errors=True)

    def close(self) -> None:
        """Close every file. What was appended is in the hands of the operating system."""
        while self._open:
            os.close(self._open.popitem()[1].descriptor)

    def _sync(self, key: LogKey, opened: int | None) -> int:
        """How long the log is, now that it is durable. Closes `opened`. Raises OSError."""
        descriptor = os.open(self.path(key), os.O_RDONLY) if opened is None else opened
        try:
            if key in self._unsure:
                _write_again(self.path(key))
            else:
                os.fsync(descriptor)
            length = self.path(key).stat().st_size
        finally:
            os.close(descriptor)
        for folder in self._folders(key):
            sync_folder(folder)
        return length

    def _folders(self, key: LogKey) -> list[Path]:
        job = self.path(key).parent
        return [job, job.parent, job.parent.parent]

    def _opened(self, key: LogKey) -> _Open:
        known = self._open.get(key)
        if known is not None:
            self._open.move_to_end(key)
            return known
        path = self.path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot(error) from None
        length = os.fstat(descriptor).st_size
        opened = _Open(descriptor, length) if length == 0 else _Open(descriptor, length, None)
        self._open[key] = opened
        if len(self._open) > limits.LOG_FILES_OPEN_MAX:
            os.close(self._open.popitem(last=False)[1].descriptor)
        return opened


def _write(file: _Open, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file.descriptor, rest) :]
    except OSError as error:
        os.ftruncate(file.descriptor, file.length)
        raise _cannot(error) from None
    file.length += len(data)
    if file.hasher is not None:
        file.hasher.update(data)


def _cannot(error: OSError) -> Unavailable:
    return Unavailable(f"the log cannot be written just now: {error.strerror}")


def _write_again(path: Path) -> None:
    """The same bytes in another file, durable, in the place of this one."""
    fresh = path.with_name(f"{path.name}.again")
    with path.open("rb") as old, fresh.open("wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())
    fresh.replace(path)


def _digest(path: Path) -> hashlib._Hash:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def bytes_below(folder: Path) -> int:
    """The sizes of all files below `folder` together; of one that goes meanwhile, nothing."""
    total = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(at, name)).st_size
    return total


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
