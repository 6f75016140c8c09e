"""What a job asked to hide, hidden before anything leaves the machine: line by line, also as base64 and in URLs.

Knows bytes only; who said what to hide is the harness's business.
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Iterator

from vole.base import limits

SHOWN = b"***"


class Masks:
    """The masked values of one job, and the log stream that they are taken out of."""

    def __init__(self) -> None:
        self._lines: set[bytes] = set()
        self._forms: set[bytes] = set()
        self._longest = 0
        self._sorted: tuple[bytes, ...] = ()
        self._held = b""

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def add(self, value: bytes) -> str | None:
        """Hide each line of `value` from here on. A sentence where one cannot be hidden."""
        refused = None
        for line in filter(None, (part.strip(b" \t\r") for part in value.split(b"\n"))):
            refused = self._refusal(line) or refused
            if self._refusal(line) is None and line not in self._lines:
                self._lines.add(line)
                self._forms.update(_forms(line))
        self._sorted = tuple(sorted(self._forms))
        self._longest = max(map(len, self._forms), default=0)
        return refused

    def feed(self, data: bytes) -> bytes:
        """What may leave of the stream so far. An end that may be the beginning of a masked value is held back."""
        if not self._sorted:
            return data
        text = self._held + data
        keep_from = self._begun_at(text)
        shown, done = self._hidden(text, keep_from)
        self._held = text[done:]
        return shown

    def flush(self) -> bytes:
        """The held-back end: the stream is over."""
        text, self._held = self._held, b""
        return self.hide(text)

    def hide(self, data: bytes) -> bytes:
        """A whole value with what is masked taken out."""
        return self._hidden(data, len(data))[0]

    def hide_text(self, text: str) -> str:
        """The same for text."""
        return text if not self._sorted else self.hide(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _refusal(self, line: bytes) -> str | None:
        if len(line) < limits.MASK_BYTES_MIN:
            return f"a value of {len(line)} bytes is too short to hide (MASK_BYTES_MIN)"
        if len(line) > limits.MASK_BYTES_MAX:
            return f"a line of {len(line)} bytes is too long to hide (MASK_BYTES_MAX)"
        if len(self._lines) >= limits.MASKS_MAX and line not in self._lines:
            return f"more than {limits.MASKS_MAX} lines to hide (MASKS_MAX)"
        return None

    def _begun_at(self, text: bytes) -> int:
        """Where the longest end of `text` begins that some form begins with. No form holds a line end."""
        first = max(text.rfind(b"\n") + 1, len(text) - self._longest + 1, 0)
        end = text[first:]
        return first + min((_begins(form, end) for form in self._sorted), default=len(end))

    def _hidden(self, text: bytes, keep_from: int) -> tuple[bytes, int]:
        """`text` up to `keep_from` with every masked span replaced, and where it ends; a span is never cut."""
        shown: list[bytes] = []
        done = 0
        for start, end in self._spans(text):
            if start >= keep_from or end > keep_from:
                keep_from = min(start, keep_from)
                break
            shown += [text[done:start], SHOWN]
            done = end
        shown.append(text[done:keep_from])
        return b"".join(shown), keep_from

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """The masked stretches of `text`, in order. Values that overlap are one stretch."""
        found = sorted(span for form in self._sorted if form in text for span in _stretches(form, text))
        start = end = 0
        for begins, ends in found:
            if begins >= end and end:
                yield start, end
            start, end = (begins, ends) if begins >= end else (start, max(end, ends))
        if end:
            yield start, end


def _stretches(form: bytes, text: bytes) -> Iterator[tuple[int, int]]:
    """Where `form` stands in `text`; where it overlaps itself, as one stretch."""
    start = at = text.find(form)
    while at >= 0:
        following = text.find(form, at + 1)
        if following < 0 or following > at + len(form):
            yield start, at + len(form)
            start = following
        at = following


def _begins(form: bytes, end: bytes) -> int:
    """Where in `end` its longest end begins that is a beginning of `form`, but not all of it."""
    at = end.find(form[:1], max(0, len(end) - len(form) + 1))
    while at >= 0:
        if form.startswith(end[at:]):
            return at
        at = end.find(form[:1], at + 1)
    return len(end)


def _forms(line: bytes) -> Iterator[bytes]:
    """`line` as it is, and as base64 and URLs carry it. Shorter than MASK_BYTES_MIN is no use."""
    quoted = {urllib.parse.quote(line, safe=safe).encode() for safe in ("", "/")}
    quoted.add(urllib.parse.quote_plus(line).encode())
    lower = {re.sub(rb"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in quoted}
    for form in {line, *quoted, *lower, *_base64(line)}:
        if len(form) >= limits.MASK_BYTES_MIN:
            yield form


def _base64(line: bytes) -> Iterator[bytes]:
    """What stands for `line` in base64: alone, and inside of a longer text at each of the three ways it can lie."""
    alone = base64.b64encode(line)
    yield from (alone, alone.rstrip(b"="), base64.urlsafe_b64encode(line), base64.urlsafe_b64encode(line).rstrip(b"="))
    for ahead in range(3):
        coded = base64.b64encode(bytes(ahead) + line)
        whole = 8 * (ahead + len(line)) // 6  # characters that depend on `line` and what stands before it alone
        inner = coded[-(-8 * ahead // 6) : whole]
        if len(inner) >= limits.MASK_BYTES_MIN + 1:
            yield inner
            yield inner.replace(b"+", b"-").replace(b"/", b"_")
