"""The runner's own folder: one fresh place for each attempt, gone afterwards, and no leftovers. Runs no job.

WORK/lock            held by the process that owns WORK
WORK/cache/…         sources by forge and repository
WORK/attempts/J-E/   one attempt: `work`, and what the harness puts beside it
WORK/spool/J-E.log   its log, out of the attempt's reach by name
WORK/run/            sockets
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Self

from vole.base import limits
from vole.base.errors import Conflict, Unavailable
from vole.wire.runner import LeaseRef
from vole_runner.harness.trees import remove_tree


class Folders:
    """WORK, held by this process alone until `release`."""

    def __init__(self, root: Path, lock: int) -> None:
        self.root = root
        self._lock = lock
        self._numbers = count(1)
        self.sockets = _short_folder(root)

    @classmethod
    def claim(cls, root: Path) -> Self:
        """Raises Conflict when another runner has `root`. What a crash left there is removed."""
        root = root.absolute()
        try:
            for folder in (root, root / "cache", root / "attempts", root / "spool"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"the work folder {root} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise Conflict(
                f"another vole-runner works in {root}", next_step="give this one a --name or a --work of its own"
            ) from None
        folders = cls(root, lock)
        folders.sweep()
        return folders

    def fresh(self) -> Path:
        """A new, empty folder for an attempt, of a name that this process never gave before."""
        folder = self.root / "attempts" / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        return folder

    def spool(self, lease: LeaseRef) -> Path:
        return self.root / "spool" / f"{lease.job}-{lease.epoch}.log"

    def sweep(self) -> None:
        """Remove what attempts of an earlier process left."""
        for left in [*(self.root / "attempts").iterdir(), *(self.root / "spool").iterdir()]:
            remove_tree(left)

    def disk_low(self, min_free: int | None) -> bool:
        """Whether less is free than asked for; unasked, MIN_FREE_BYTES or MIN_FREE_SHARE, whichever is less."""
        usage = shutil.disk_usage(self.root)
        least = min_free if min_free is not None else min(limits.MIN_FREE_BYTES, limits.MIN_FREE_SHARE * usage.total)
        return usage.free < least

    def release(self) -> None:
        remove_tree(self.sockets)
        os.close(self._lock)


def _short_folder(root: Path) -> Path:
    """A private folder for sockets: in WORK where its path leaves room for their names, else in the temporary one.

    WORK/run then leads there, so that the process after one that was killed finds it and removes it.
    """
    folder = root / "run"
    if folder.is_symlink():
        remove_tree(folder.readlink())
    remove_tree(folder)
    if len(os.fsencode(folder)) + 40 <= limits.SOCKET_PATH_BYTES_MAX:
        folder.mkdir(mode=0o700)
        return folder
    elsewhere = Path(tempfile.mkdtemp(prefix="vole-"))
    folder.symlink_to(elsewhere)
    return elsewhere
