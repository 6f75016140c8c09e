"""The few `::command::` lines of a step's log. All else is text; nothing a step prints moves any state.

A command is read here and kept in the log as it came. It can name a value to hide or a remark on a file, no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vole.base import limits

_MASK = b"::add-mask::"
_COMMAND = re.compile(rb"::([a-z][a-z-]*)(?: ([^:]*(?::(?!:)[^:]*)*))?::(.*)", re.DOTALL)
_BEGUN = re.compile(rb"\n::")  # half the time that `in` takes
_LEVELS: dict[bytes, Literal["notice", "warning", "error"]] = {
    b"notice": "notice",
    b"warning": "warning",
    b"error": "error",
}


@dataclass(frozen=True)
class Mask:
    """A value to hide. It may hold line ends."""

    value: bytes


@dataclass(frozen=True)
class Remark:
    """An annotation as printed."""

    level: Literal["notice", "warning", "error"]
    message: str
    file: str
    line: int


class CommandReader:
    """Reads one step's log as it passes, in chunks cut anywhere."""

    def __init__(self) -> None:
        self._held = b""  # a line that may become an add-mask: it is not shown before its mask is known
        self._line: bytes | None = b""  # the unfinished line so far, while it may be another command
        self._stopped: bytes | None = None  # the token that switches commands on again

    def feed(self, data: bytes) -> tuple[bytes, list[Mask | Remark]]:
        """What may be shown now, and the commands that stand in or before it."""
        data, self._held = self._held + data, b""
        found: list[Mask | Remark] = []
        first, newline, rest = data.partition(b"\n")
        if newline:
            self._finish(first, found)
            rest = self._lines(rest, found)
        else:
            rest = first
        self._begin(rest)
        return (data[: len(data) - len(self._held)] if self._held else data), found

    def flush(self) -> tuple[bytes, list[Mask | Remark]]:
        """The rest, when the step has ended: its last line counts without a line end too."""
        found: list[Mask | Remark] = []
        data, self._held = self._held, b""
        self._finish(data, found)
        return data, found

    def _lines(self, data: bytes, found: list[Mask | Remark]) -> bytes:
        """Read the whole lines of `data`; returns the unfinished one. Most logs hold no command at all."""
        if not data.startswith(b"::") and _BEGUN.search(data) is None:
            return data[data.rfind(b"\n") + 1 :]
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._finish(line, found)
        return rest

    def _finish(self, piece: bytes, found: list[Mask | Remark]) -> None:
        if self._line is not None and (self._line or piece.startswith(b"::")):
            line = (self._line + piece).removesuffix(b"\r")
            if line.startswith(b"::") and len(line) <= limits.COMMAND_LINE_BYTES_MAX:
                self._command(line, found)
        self._line = b""

    def _begin(self, rest: bytes) -> None:
        if self._line is None:
            return
        line = self._line + rest
        if len(line) > limits.COMMAND_LINE_BYTES_MAX or not _may_be(line, b"::"):
            self._line = None
        elif not self._line and self._stopped is None and _may_be(line, _MASK):
            self._held = rest
        else:
            self._line = line

    def _command(self, line: bytes, found: list[Mask | Remark]) -> None:
        if self._stopped is not None:
            if line == b"::" + self._stopped + b"::":
                self._stopped = None
            return
        match = _COMMAND.fullmatch(line)
        if match is None:
            return
        name, parameters, text = match.groups()
        if name == b"add-mask" and (value := _plain(text)):
            found.append(Mask(value))
        elif name == b"stop-commands" and text:
            self._stopped = text
        elif name in _LEVELS:
            found.append(_remark(_LEVELS[name], parameters or b"", text))


def _may_be(line: bytes, start: bytes) -> bool:
    return line.startswith(start) or start.startswith(line)


def _remark(level: Literal["notice", "warning", "error"], parameters: bytes, text: bytes) -> Remark:
    given: dict[bytes, bytes] = {}
    for pair in parameters.split(b","):
        key, _, value = pair.partition(b"=")
        given[key.strip()] = _plain(value.replace(b"%3A", b":").replace(b"%2C", b",")).strip()
    number = given.get(b"line", b"")
    return Remark(
        level,
        _text(_plain(text), limits.ANNOTATION_CHARS_MAX),
        _text(given.get(b"file", b""), limits.TEXT_CHARS_MAX),
        int(number) if number.isdigit() and len(number) < 10 else 0,
    )


def _plain(text: bytes) -> bytes:
    return text.replace(b"%0D", b"\r").replace(b"%0A", b"\n").replace(b"%25", b"%")


def _text(raw: bytes, most: int) -> str:
    return raw.decode("utf-8", "replace")[:most]
