"""The whole log of one attempt on our disk, until its result is accepted. Never sends it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from vole.base import limits
from vole.wire.runner import LogSeal

NOTICE = f"\n[vole] this log has reached {limits.LOG_BYTES_MAX >> 20} MiB; what follows is not kept\n".encode()


class Spool:
    """One file, of one loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b", buffering=0)
        self._sha256 = hashlib.sha256()
        self._turn = asyncio.Event()
        self.length = 0
        self.shipped = 0  # bytes that the forge has written
        self.truncated = False
        self.closed = False
        self.given_up = False

    @property
    def seal(self) -> LogSeal:
        """What the finished log must be found to be."""
        return LogSeal(self.length, self._sha256.hexdigest(), self.truncated)

    @property
    def all_shipped(self) -> bool:
        return self.given_up or (self.closed and self.shipped >= self.length)

    def append(self, data: bytes) -> None:
        """Keep `data`; beyond LOG_BYTES_MAX a notice stands in its place and the job goes on.

        On the loop, as `read` is: a chunk into the page cache takes less than a thread does to hear of it.
        """
        room = limits.LOG_BYTES_MAX - len(NOTICE) - self.length
        if self.truncated or not data:
            return
        if len(data) > room:
            self.truncated = True
            data = data[:room] + NOTICE
        self._write(data)
        self.length += len(data)
        self._turned()

    def read(self, offset: int) -> bytes:
        """Up to LOG_CHUNK_BYTES from `offset`."""
        return os.pread(self._file.fileno(), limits.LOG_CHUNK_BYTES, offset)

    def mark_shipped(self, length: int) -> None:
        self.shipped = length
        self._turned()

    def close(self) -> None:
        """Nothing more is appended."""
        self.closed = True
        self._turned()

    def give_up(self) -> None:
        """The forge takes no more of it: nobody waits for that any longer."""
        self.given_up = True
        self._turned()

    async def more(self, offset: int) -> bool:
        """Wait for bytes beyond `offset`; False when there will be none."""
        while self.length <= offset and not self.closed:
            await self._turn.wait()
        return self.length > offset

    async def room(self) -> None:
        """Wait until the forge lacks less than SPOOL_UNSHIPPED_BYTES_MAX: a full spool slows the job."""
        while not self.given_up and self.length - self.shipped >= limits.SPOOL_UNSHIPPED_BYTES_MAX:
            await self._turn.wait()

    def remove(self) -> None:
        """The result is accepted, or nobody wants it any more."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _turned(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self._sha256.update(data)
