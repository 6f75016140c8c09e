"""A work folder on its way to a harness that shares none with us: packed, pushed, and what the job left brought back.

What comes back lands where `artifacts` finds it, by the same rule that keeps needed artifacts in the work folder.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Sequence
from pathlib import Path

from vole.base import limits
from vole.base.errors import Exhausted
from vole.wire import harness_pb2 as pb
from vole_runner.artifacts import place
from vole_runner.harness.trees import remove_tree
from vole_runner.runtimes.dial import Drive


class Folder:
    """The work folder of one attempt."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._tar = work.with_name("work.tar")

    async def push(self, drive: Drive) -> pb.BlobRef:
        """Pack it and have it there; nothing of it stays here. Raises the harness's refusal, or OSError."""
        try:
            await asyncio.to_thread(self._pack)
            return await drive.push(self._tar)
        finally:
            await asyncio.to_thread(self._tar.unlink, missing_ok=True)

    async def fetch(self, drive: Drive, left: Sequence[pb.ArtifactReady]) -> None:
        """Have each file in the work folder. Raises Invalid for a path that leads out of it or other bytes."""
        for ready in left:
            if ready.blob.size > limits.ARTIFACT_BYTES_MAX:
                raise Exhausted(f"{ready.path[:200]}: {ready.blob.size} bytes (ARTIFACT_BYTES_MAX)")
            await drive.fetch(ready.blob, place(self._work, ".", ready.path))

    def _pack(self) -> None:
        self._work.mkdir(exist_ok=True)
        with tarfile.open(self._tar, "w") as tar:
            for entry in sorted(self._work.iterdir()):
                tar.add(entry, entry.name)
        remove_tree(self._work)
        self._work.mkdir(mode=0o700)
