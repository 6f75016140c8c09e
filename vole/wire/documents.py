"""What is written for good: canonical JSON in an envelope that sorts its purpose first, so the bytes begin with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from vole.base.clock import Moment
from vole.base.errors import Invalid
from vole.base.ids import AccountName
from vole.wire import codec

T = TypeVar("T")


@dataclass(frozen=True)
class GateDocument:
    """A gate, as the document of its repository has it."""

    pattern: str
    requires: tuple[str, ...]
    set_by: AccountName
    set_at: Moment


@dataclass(frozen=True)
class _Envelope:
    purpose: str
    record: object
    v: Literal[1] = 1


def write(purpose: str, record: object) -> bytes:
    """The canonical bytes."""
    return codec.canonical(_Envelope(purpose, record))


def read(purpose: str, form: type[T], data: bytes) -> T:
    """What `write` wrote. Raises Invalid for another purpose or version, and for whatever is not in its form."""
    found = codec.from_json(_Envelope, codec.parse(data), where="document")
    if found.purpose != purpose:
        raise Invalid(f"it is for {found.purpose[:80]!r}, not for {purpose!r}")
    return codec.from_json(form, found.record, where="record")
