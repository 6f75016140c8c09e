"""What receive-pack says first, which refs there are and what it can do, said while git is still being started.

Nothing is decided by it: git compares a ref with what the client believes of it when it moves it. Capabilities are what
git said before, never made up. Where it said otherwise than we did, it is waited for until it says the same again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from vole.base import limits
from vole.git.child import Sink
from vole.git.pktline import FLUSH, Packets, packet

_OID = re.compile(rb"[0-9a-f]{40}")
_NO_REF = (b"capabilities^{}", b"0" * 40)
_LOOSE_MAX = 2 * limits.LOOSE_REFS_MAX  # branches, and tags


class Advertisements:
    """What git said of itself, and in which repositories it says something else than one reads there."""

    def __init__(self) -> None:
        self._capabilities: dict[str | None, bytes] = {}
        self._odd: set[Path] = set()

    def of(self, path: Path, protocol: str | None) -> bytes | None:
        """What receive-pack is about to say, where that is known and short."""
        return None if path in self._odd else self._composed(path, protocol)

    def heard(self, path: Path, protocol: str | None, said: bytes | None, whole: bytes) -> None:
        """What it did say: to be compared, and to learn from. `said` is what we said before it."""
        capabilities = whole.partition(b"\n")[0].partition(b"\0")[2]
        if not capabilities:
            return  # a protocol in which git begins otherwise
        self._capabilities[protocol] = capabilities
        if (said or self._composed(path, protocol)) == whole:
            self._odd.discard(path)
        else:
            self._odd.add(path)

    def _composed(self, path: Path, protocol: str | None) -> bytes | None:
        if (capabilities := self._capabilities.get(protocol)) is None or (refs := _refs(path)) is None:
            return None
        (name, target), *others = sorted(refs.items()) or [_NO_REF]
        lines = [b"%s %s\0%s\n" % (target, name, capabilities), *(b"%s %s\n" % (at, ref) for ref, at in others)]
        return b"".join(map(packet, lines)) + FLUSH


class Advertised:
    """A sink that is told at once what git is about to say, and then not again. Hears what git says in any case."""

    def __init__(self, sink: Sink, known: Advertisements, path: Path, protocol: str | None) -> None:
        self._sink, self._known, self._path, self._protocol = sink, known, path, protocol
        self.errors, self.may_feed = sink.errors, sink.may_feed
        self._heard, self._packets, self._over = bytearray(), Packets(), False
        self._said = known.of(path, protocol)
        if self._said is not None:
            sink.output(self._said)

    def output(self, data: bytes) -> None:
        if self._over:
            self._sink.output(data)
            return
        end = next(iter(self._packets.flushes(data)), None)
        self._heard += data[:end]
        if self._said is None:
            self._sink.output(data)
        elif end is not None and data[end:]:
            self._sink.output(data[end:])
        if end is not None:
            self._known.heard(self._path, self._protocol, self._said, bytes(self._heard))
        self._over = end is not None or (self._said is None and len(self._heard) > limits.ADVERTISED_BYTES_MAX)


def _refs(path: Path) -> dict[bytes, bytes] | None:
    """Every ref that is shown; None where there are many, or one that is not plain."""
    try:
        # Before the packed ones: a ref that is being packed is in both.
        loose = list(islice(_loose(os.fsencode(path), b"refs"), _LOOSE_MAX + 1))
        return _packed(path / "packed-refs") | dict(loose) if len(loose) <= _LOOSE_MAX else None
    except (OSError, ValueError):
        return None


def _loose(path: bytes, folder: bytes) -> Iterator[tuple[bytes, bytes]]:
    with os.scandir(path + b"/" + folder) as entries:
        for entry in entries:
            name = folder + b"/" + entry.name
            if name == b"refs/vole" or name.endswith(b".lock"):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _loose(path, name)
                continue
            with open(entry.path, "rb") as file:
                yield name, _target(file.read(limits.REF_NAME_BYTES_MAX).rstrip())


def _packed(file: Path) -> dict[bytes, bytes]:
    try:
        if file.stat().st_size > limits.ADVERTISED_BYTES_MAX:
            raise ValueError
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    found = (line.partition(b" ") for line in lines if not line.startswith((b"#", b"^")))
    return {name: _target(oid) for oid, _, name in found if not name.startswith(b"refs/vole/")}


def _target(text: bytes) -> bytes:
    if not _OID.fullmatch(text):
        raise ValueError
    return text
