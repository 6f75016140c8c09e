"""One JSON object a line, at most FRAME_BYTES_MAX. A frame's `type` names its message."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.wire import codec

M = TypeVar("M")


class Vocabulary:
    """The messages one side may send, by the name of their frame."""

    def __init__(self, **messages: type[Any]) -> None:
        self._forms = messages
        self._names = {form: name for name, form in messages.items()}

    def encode(self, message: object) -> bytes:
        """The frame of `message`, with its line end. Raises Exhausted for one over the bound."""
        body = {"type": self._names[type(message)], **codec.to_json(message)}
        line = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(line) > limits.FRAME_BYTES_MAX:
            raise Exhausted(f"a frame of {len(line)} bytes; at most {limits.FRAME_BYTES_MAX} (FRAME_BYTES_MAX)")
        return line

    def decode(self, line: bytes, *, strict: bool) -> Any:
        """The message in `line`. Raises Invalid; a lenient reader gets None for a frame it does not know."""
        value = codec.parse(line)
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise Invalid("a frame is an object with a type")
        name = value.pop("type")
        form = self._forms.get(name)
        if form is None:
            if strict:
                raise Invalid(f"unknown frame {name[:40]!r}")
            return None
        return codec.from_json(form, value, strict=strict, where=name)


class Lines:
    """Cuts a byte stream into lines, with the frame bound on each."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes. Raises Exhausted when an unfinished line passes FRAME_BYTES_MAX."""
        self._rest += data
        *lines, rest = self._rest.split(b"\n") if b"\n" in data else (self._rest,)
        self._rest = bytearray(rest)
        if len(self._rest) > limits.FRAME_BYTES_MAX or any(len(line) > limits.FRAME_BYTES_MAX for line in lines):
            raise Exhausted(f"a line of more than {limits.FRAME_BYTES_MAX} bytes (FRAME_BYTES_MAX)")
        return [bytes(line) for line in lines]
