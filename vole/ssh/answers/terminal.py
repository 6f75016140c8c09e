"""A job's log for a terminal: its colours stay, and nothing else in it can act. Holds at most one unfinished line."""

from __future__ import annotations

import re

from vole.base import limits
from vole.base.escape import visible

_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,40}m|\t)")
_RESET = b"\x1b[0m"


class TerminalText:
    """Bytes in, in any pieces; whole safe lines out. A progress line shows its last state only."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._coloured = False

    def lines(self, data: bytes) -> bytes:
        """The lines that `data` finishes, and of an endless one what is too long to hold."""
        whole, newline, self._unfinished = (self._unfinished + data).rpartition(b"\n")
        safe = b"".join(self._line(line) + b"\n" for line in whole.split(b"\n")) if newline else b""
        if len(self._unfinished) > limits.LOG_CHUNK_BYTES:
            safe += self._line(self._unfinished)
            self._unfinished = b""
        return safe

    def rest(self) -> bytes:
        """What is left at the end; colours end with it."""
        safe = self._line(self._unfinished)
        self._unfinished = b""
        return safe + (b"\n" if safe else b"") + (_RESET if self._coloured else b"")

    def _line(self, line: bytes) -> bytes:
        text = line.decode("utf-8", "surrogateescape").rstrip("\r").rpartition("\r")[2]
        parts = _COLOUR.split(text)  # every second one is a colour or a tab
        self._coloured = self._coloured or any(part.startswith("\x1b") for part in parts[1::2])
        return "".join(part if at % 2 else visible(part) for at, part in enumerate(parts)).encode()
