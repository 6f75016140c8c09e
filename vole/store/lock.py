"""One server per store: an exclusive lock on `run/lock` that a crash releases. The file says who holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from vole.base.errors import Conflict


class StateLock:
    """Held from construction to `release`. The kernel releases it when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Raises Conflict naming the process that holds the lock."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(self._file)
            raise Conflict(
                f"{path.parent.parent} is already served by {holder}",
                next_step="stop that server first, or give this one another folder",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"vole serve, process {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another server in."""
        os.close(self._file)
