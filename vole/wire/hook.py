"""What the pre-receive courier asks and how it is answered: text lines over two inherited pipes.

Asked:   `check QUARANTINE`, one `option TEXT` each, one `OLD NEW REF` each, an empty line.
Answered: lines to print, then `.N`, the hook's exit status, one digit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.base.ids import CommitId, RefName

_NOTHING = "0" * 40
_STATUS = re.compile(r"\.[0-9]")


@dataclass(frozen=True)
class RefUpdate:
    """A ref as the pusher wants it. `None`, not forty zeros, means absent."""

    ref: RefName
    old: CommitId | None
    new: CommitId | None


@dataclass(frozen=True)
class Question:
    """One push as git puts it to its hook."""

    quarantine: str  # the folder of objects that are not accepted yet
    options: tuple[str, ...]
    updates: tuple[RefUpdate, ...]


def read_question(lines: list[bytes]) -> Question:
    """The question in `lines` (without the empty one). Raises Invalid or Exhausted, naming the bound."""
    first, *rest = lines or [b""]
    if not first.startswith(b"check "):
        raise Invalid("the hook asked something else than a check")
    options = [line[7:] for line in rest if line.startswith(b"option ")]
    updates = [_update(line) for line in rest if not line.startswith(b"option ")]
    if len(updates) > limits.PUSH_REFS_MAX:
        raise Exhausted(f"{len(updates)} refs in one push; at most {limits.PUSH_REFS_MAX} (PUSH_REFS_MAX)")
    if len(options) > limits.PUSH_OPTIONS_MAX:
        raise Exhausted(f"{len(options)} push options; at most {limits.PUSH_OPTIONS_MAX} (PUSH_OPTIONS_MAX)")
    if any(len(option) > limits.PUSH_OPTION_BYTES_MAX for option in options):
        raise Exhausted(f"a push option over {limits.PUSH_OPTION_BYTES_MAX} bytes (PUSH_OPTION_BYTES_MAX)")
    texts = tuple(option.decode("utf-8", "replace") for option in options)
    return Question(first[6:].decode("utf-8", "surrogateescape"), texts, tuple(updates))


def answer(lines: list[str], status: int) -> bytes:
    """What the hook prints, and its exit status of one digit. A line that looks like the status is kept apart."""
    shown = [f" {line}" if _STATUS.fullmatch(line) else line for text in lines for line in text.split("\n")]
    return "".join(f"{line}\n" for line in [*shown, f".{status}"]).encode("utf-8", "backslashreplace")


def _update(line: bytes) -> RefUpdate:
    parts = line.split(b" ", 2)
    if len(parts) != 3:
        raise Invalid("the hook asked about something that is no ref update")
    old, new = (
        None if part == _NOTHING.encode() else CommitId.parse(part.decode("ascii", "replace")) for part in parts[:2]
    )
    return RefUpdate(RefName.parse(parts[2]), old, new)
