"""The head of a push as the client sends it, read while it passes, and side-band packets. Pure; never answers git."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

from vole.base import limits
from vole.base.errors import Exhausted

FLUSH = b"0000"
_NOTHING = b"0" * 40
_OID = re.compile(rb"[0-9a-f]{40}")
_LINE_BYTES_MAX = 900  # a side-band without -64k takes packets of 1000


class PushHead:
    """What a receive-pack's client wants, known once `feed` has seen it: refs, capabilities, number of objects."""

    def __init__(self) -> None:
        self.refs: list[bytes] = []
        self.capabilities: frozenset[bytes] = frozenset()
        self.objects: int | None = None
        self._tips: list[bytes] = []
        self._cut = False  # a client that has not all of its history, or says what we do not know
        self._lines = 0
        self._bytes = 0
        self._rest = bytearray()
        self._part: Literal["commands", "options", "pack", "over"] = "commands"

    @property
    def sideband(self) -> bool:
        """Whether the client shows lines of ours behind `remote:`."""
        return not self.capabilities.isdisjoint({b"side-band", b"side-band-64k"})

    @property
    def atomic_refs(self) -> tuple[bytes, ...]:
        """The refs that move all or not at all; none where each goes its own way."""
        return tuple(self.refs) if b"atomic" in self.capabilities else ()

    @property
    def over(self) -> bool:
        """Whether all of it was seen."""
        return self._part == "over"

    @property
    def complete_tips(self) -> tuple[bytes, ...]:
        """What the refs will name, where a pack into an empty repository proves by itself that nothing is missing.

        index-pack looks up every object that another one names. It is not run for small packs, and where a client's
        history is cut it stops at the cut.
        """
        whole = not self._cut and (self.objects or 0) >= limits.VOUCHED_OBJECTS_MIN
        return tuple(self._tips) if whole and all(map(_OID.fullmatch, self._tips)) else ()

    def feed(self, data: bytes) -> None:
        """Look at bytes on their way to git. Raises Exhausted, naming the bound, before git has them."""
        self._bytes += len(data)
        if self._bytes > limits.PACK_BYTES_MAX:
            raise Exhausted(f"more than {limits.PACK_BYTES_MAX} bytes in one push (PACK_BYTES_MAX)")
        if self._part == "over":
            return
        self._rest += data
        while self._part in ("commands", "options") and self._packet():
            pass
        if self._part == "pack" and len(self._rest) >= 12:
            self._pack_header(bytes(self._rest[:12]))

    def _packet(self) -> bool:
        """Take one packet off the rest; False when it is not whole yet."""
        try:
            size = int(self._rest[:4] or b"0", 16)
        except ValueError:
            return self._stop()  # git says what is wrong with it
        if len(self._rest) < max(size, 4):
            return False
        line = bytes(self._rest[4:size])
        del self._rest[: max(size, 4)]
        if size == 0:
            waits_for_options = self._part == "commands" and b"push-options" in self.capabilities
            self._part = "options" if waits_for_options else "pack"
        elif self._part == "commands":
            self._command(line)
        return True

    def _command(self, line: bytes) -> None:
        self._lines += 1
        if self._lines > limits.PUSH_REFS_MAX:
            raise Exhausted(f"more than {limits.PUSH_REFS_MAX} refs in one push (PUSH_REFS_MAX)")
        command, _, capabilities = line.rstrip(b"\n").partition(b"\0")
        if capabilities:
            self.capabilities |= frozenset(capabilities.split())
        parts = command.split(b" ", 2)
        if len(parts) != 3:
            self._cut = True
            return
        self.refs.append(parts[2])
        if parts[1] != _NOTHING:
            self._tips.append(parts[1])

    def _pack_header(self, header: bytes) -> None:
        self._stop()
        if header.startswith(b"PACK"):
            self.objects = int.from_bytes(header[8:], "big")
            if self.objects > limits.PUSH_OBJECTS_MAX:
                most = limits.PUSH_OBJECTS_MAX
                raise Exhausted(f"{self.objects} objects in one push; at most {most} (PUSH_OBJECTS_MAX)",
                                next_step="push the history in parts, oldest first")  # fmt: skip

    def _stop(self) -> bool:
        self._part = "over"
        self._rest.clear()
        return False


class Packets:
    """A stream of packets, however it is cut. What is none is taken for one that never ends."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def flushes(self, data: bytes) -> list[int]:
        """Take in `data`; where in it each flush packet ended."""
        at, found = 0, []
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = 4 - len(self._head)
                self._head += data[at : at + step]
            at += step
            if len(self._head) == 4:
                size, self._head = _size(self._head), b""
                self._left = max(size - 4, 0)
                found += [at] if size == 0 else []
        return found


def packet(payload: bytes) -> bytes:
    return f"{len(payload) + 4:04x}".encode() + payload


def remote_lines(lines: Iterable[str]) -> bytes:
    """`lines` as side-band packets that git prints behind `remote:`."""
    return b"".join(_packet(f"{line}\n".encode()) for line in lines)


def _packet(text: bytes) -> bytes:
    return b"".join(packet(b"\x02" + part) for part in _parts(text))


def _parts(text: bytes) -> Iterator[bytes]:
    for at in range(0, len(text), _LINE_BYTES_MAX):
        yield text[at : at + _LINE_BYTES_MAX]


def _size(head: bytes) -> int:
    try:
        return int(head, 16)
    except ValueError:
        return sys.maxsize
