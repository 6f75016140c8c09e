"""Bytes that come beside the ordered stream, by their digest, and the folder for them and for attempts.

Knows no job. A digest of others is looked up and compared; it names a file only once it is known to be one.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import AsyncIterable
from itertools import count
from pathlib import Path

from vole.base import limits
from vole.base.errors import Conflict, Exhausted, Invalid, NotFound
from vole.wire import harness_pb2 as pb
from vole_runner.harness.listening import locked
from vole_runner.harness.trees import remove_tree

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Room:
    """A folder of this harness alone: blobs on their way in, and a fresh folder for each attempt."""

    def __init__(self, root: Path) -> None:
        """Raises Conflict where another harness has the folder. What a killed one left is removed."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = locked(root / "lock")
        self._blobs, self._attempts = root / "blobs", root / "attempts"
        self._numbers = count(1)
        for folder in (self._blobs, self._attempts):
            remove_tree(folder)
            folder.mkdir(mode=0o700)

    def fresh(self) -> Path:
        """A new folder for an attempt."""
        folder = self._attempts / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        return folder

    async def receive(self, chunks: AsyncIterable[pb.BlobChunk]) -> pb.BlobRef:
        """Take a push in; how much of the blob is here now. Raises Invalid, Conflict for a gap, Exhausted."""
        sha256 = ""
        async for chunk in chunks:
            if sha256 and chunk.sha256 != sha256:
                raise Invalid("one push is of one blob")
            sha256 = _digest(chunk.sha256)
            self._append(chunk)
        return pb.BlobRef(sha256=_digest(sha256), size=self._held(sha256))

    def blob(self, ref: pb.BlobRef) -> Path:
        """A blob that was pushed whole. Raises NotFound."""
        path = self._blobs / _digest(ref.sha256)
        if not path.is_file() or path.stat().st_size != ref.size:
            raise NotFound(f"blob {ref.sha256[:12]} of {ref.size} bytes is not here: push it before Start")
        return path

    def _append(self, chunk: pb.BlobChunk) -> None:
        whole, part = self._blobs / chunk.sha256, self._blobs / f"{chunk.sha256}.part"
        if whole.exists():
            return
        if len(chunk.data) > limits.BLOB_CHUNK_BYTES:
            raise Exhausted(f"a chunk has at most {limits.BLOB_CHUNK_BYTES} bytes (BLOB_CHUNK_BYTES)")
        held = self._held(chunk.sha256)
        if chunk.data and chunk.offset != held:
            raise Conflict(f"the next byte of blob {chunk.sha256[:12]} goes to offset {held}")
        if chunk.data:
            used = sum(file.stat().st_size for file in self._blobs.iterdir())
            if used + len(chunk.data) > limits.BLOBS_BYTES_MAX:
                raise Exhausted(f"blobs of more than {limits.BLOBS_BYTES_MAX >> 30} GiB in all (BLOBS_BYTES_MAX)")
            with part.open("ab") as file:
                file.write(chunk.data)
        if chunk.last:
            part.touch()
            with part.open("rb") as pushed:
                found = hashlib.file_digest(pushed, "sha256").hexdigest()
            if found != chunk.sha256:
                part.unlink()
                raise Invalid(f"blob {chunk.sha256[:12]}: what came has SHA-256 {found[:12]}…")
            part.rename(whole)

    def _held(self, sha256: str) -> int:
        for name in (sha256, f"{sha256}.part"):
            if (self._blobs / name).exists():
                return (self._blobs / name).stat().st_size
        return 0


def unpack(tar: Path, into: Path) -> None:
    """The work folder as it was packed; the tar is used up. Raises Invalid for what leads out of `into`, or no tar."""
    try:
        with tarfile.open(tar, "r:") as packed:
            packed.extractall(into, filter="data")
    except (tarfile.TarError, OSError, ValueError) as error:
        raise Invalid(f"the sources cannot be unpacked: {error}") from None
    finally:
        tar.unlink(missing_ok=True)


def _digest(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise Invalid(f"{text[:80]!r} is no SHA-256")
    return text
