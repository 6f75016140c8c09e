"""Artifacts: files by their digest, per repository, so that a digest opens nothing across repositories.

A file comes in resumable pieces and is an artifact only when size and digest are those declared. Decides nothing about
who may send or fetch one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Set as AbstractSet
from pathlib import Path

from vole.base import log
from vole.base.errors import Conflict, Invalid, NotFound, Unavailable
from vole.base.ids import Epoch, JobId, RepoId
from vole.evidence.logs import sync_folder
from vole.evidence.model import Upload, WrongOffset, check_file

_log = log.get("vole.evidence")

_PARTIAL = "partial"


class ArtifactStore:
    """The folder of artifacts. Plain blocking functions: `commit` reads the whole file and belongs in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, upload: Upload) -> int:
        """How many bytes of the file are here: it goes on from there. Raises Invalid, Exhausted."""
        check_file(upload.file)
        if self.place(upload.repo, upload.file.sha256).exists():
            return upload.file.size
        return _size(self._partial(upload))

    def append(self, upload: Upload, offset: int, data: bytes) -> int:
        """The length after `data` was written at `offset`.

        Raises WrongOffset for any place but the end, Unavailable when the disk takes no more.
        """
        here = self.begin(upload)
        if offset != here:
            raise WrongOffset(here)
        if here + len(data) > upload.file.size:
            raise Invalid(f"artifact {upload.file.name!r}: more than the {upload.file.size} bytes it said it had")
        path = self._partial(upload)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot(error) from None
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            os.ftruncate(descriptor, here)
            raise _cannot(error) from None
        finally:
            os.close(descriptor)
        return here + len(data)

    def commit(self, upload: Upload) -> None:
        """The file is whole: keep it. Done twice is done once.

        Raises WrongOffset while bytes are missing, Conflict for other bytes than were declared, Unavailable for bytes
        that cannot be made durable; those of both are thrown away and have to be sent again.
        """
        final = self.place(upload.repo, upload.file.sha256)
        if final.exists():
            return
        try:
            self._keep(upload, final)
        except OSError as error:
            _log.error("an artifact could not be made durable", artifact=str(final), why=error.strerror)
            if error.errno != errno.ENOSPC:  # what could not be made durable may be lost without another word
                for path in (self._partial(upload), final):
                    path.unlink(missing_ok=True)
            raise _cannot(error) from None

    def _keep(self, upload: Upload, final: Path) -> None:
        if upload.file.size == 0:
            self._partial(upload).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._partial(upload).touch(mode=0o600)
        self._verify(upload)
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._partial(upload).replace(final)
        for folder in (final.parent, final.parent.parent, self._root):
            sync_folder(folder)

    def has(self, repo: RepoId, sha256: str, size: int) -> bool:
        """True when the repository has that file, whole."""
        path = self.place(repo, sha256)
        return path.exists() and _size(path) == size

    def path(self, repo: RepoId, sha256: str) -> Path:
        """Where the file lies. Raises NotFound."""
        path = self.place(repo, sha256)
        if not path.exists():
            raise NotFound(f"there is no artifact {sha256[:12]} in this repository")
        return path

    def drop_partials(self, live: AbstractSet[tuple[JobId, Epoch]]) -> int:
        """Forget pieces whose lease is over; how many. At start."""
        kept = {f"{job}-{epoch}" for job, epoch in live}
        gone = [path for path in (self._root / _PARTIAL).glob("*/*") if path.name.rpartition("-")[0] not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def remove(self, repo: RepoId, sha256: str) -> int:
        """Forget one file that nothing names any more; how many bytes it had."""
        size = _size(self.place(repo, sha256))
        self.place(repo, sha256).unlink(missing_ok=True)
        return size

    def remove_repo(self, repo: RepoId) -> None:
        """Forget every artifact of a repository."""
        shutil.rmtree(self._root / str(repo), ignore_errors=True)
        shutil.rmtree(self._root / _PARTIAL / str(repo), ignore_errors=True)

    def _verify(self, upload: Upload) -> None:
        path = self._partial(upload)
        if _size(path) != upload.file.size:
            raise WrongOffset(_size(path))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if digest != upload.file.sha256:
            path.unlink()
            raise Conflict(f"artifact {upload.file.name!r}: the bytes have SHA-256 {digest}, not {upload.file.sha256}")

    def place(self, repo: RepoId, sha256: str) -> Path:
        """Where the file lies, whether it is there or not."""
        return self._root / str(repo) / sha256[:2] / sha256

    def _partial(self, upload: Upload) -> Path:
        return self._root / _PARTIAL / str(upload.repo) / f"{upload.job}-{upload.epoch}-{upload.file.sha256}"


def _cannot(error: OSError) -> Unavailable:
    return Unavailable(f"the artifact cannot be written just now: {error.strerror}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
