"""Frozen dataclasses to JSON and back, by their annotations. The form of a message is its dataclass.

Strict decoding (a server reading) refuses unknown and missing fields, wrong types, duplicate keys and NaN.
Lenient decoding (a runner reading a newer server) ignores unknown fields and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from vole.base.errors import Invalid

T = TypeVar("T")

_AS_IS = frozenset((str, int, float, bool))
_PLAIN: dict[type, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


def canonical(value: object) -> bytes:
    """Canonical JSON of a message: sorted keys, no blanks, UTF-8. The bytes that digests are taken of."""
    return json.dumps(
        to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8")


def to_json(value: object) -> Any:
    """`value` as what `json.dumps` takes: fields that are None are left out."""
    form = type(value)
    if form in _AS_IS:
        return value
    if (names := _names(typing.cast(type, form))) is not None:
        given = ((name, getattr(value, attribute)) for attribute, name in names)
        return {name: item if type(item) in _AS_IS else to_json(item) for name, item in given if item is not None}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


@cache
def _names(form: type) -> tuple[tuple[str, str], ...] | None:
    """Attribute and JSON name of each field of a message; None for what is no message."""
    if not dataclasses.is_dataclass(form):
        return None
    return tuple((field.name, field.name.rstrip("_")) for field in dataclasses.fields(form))


def parse(raw: bytes | str) -> Any:
    """JSON as values. Raises Invalid for bad UTF-8, bad JSON, duplicate keys, NaN and depth beyond Python's."""
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not JSON: {str(error)[:120]}") from None


def from_json(form: type[T], value: Any, *, strict: bool = True, where: str = "") -> T:
    """`value` as a `form`. Raises Invalid naming the field that does not fit."""
    read: T = _reader(typing.cast(type, form))(value, strict, where)
    return read


# Takes a value, whether to be strict, and where it stands: gives what the annotation says, or raises Invalid.
_Reader = Callable[[Any, bool, str], Any]


@cache
def _reader(hint: Any) -> _Reader:
    """What reads the values of an annotation. Made once: forms do not change, and messages are read all the time."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin, members = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return lambda value, _strict, _where: value
    if origin in (Union, types.UnionType):
        return _union(members)
    if origin is Literal:
        return _literal(members)
    if origin is tuple:
        return _items(_reader(members[0])) if members[-1] is Ellipsis else _exactly(tuple(map(_reader, members)))
    if origin is dict:
        return _values(_reader(members[1]))
    if dataclasses.is_dataclass(hint):
        return _message(typing.cast(type, hint))
    return _enum(hint) if issubclass(hint, StrEnum) else _plain(hint)


@dataclasses.dataclass(frozen=True)
class _Field:
    attribute: str
    read: _Reader
    required: bool
    none: bool  # given None where it is left out


def _message(form: type) -> _Reader:
    def read(value: Any, strict: bool, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(f"{where or form.__name__}: expected an object, not {_kind(value)}")
        fields = _fields(form)
        if strict and (extra := sorted(value.keys() - fields.keys())):
            raise Invalid(f"{where or form.__name__}: unknown field {extra[0]!r}")
        given: dict[str, Any] = {}
        for name, field in fields.items():
            if name in value:
                given[field.attribute] = field.read(value[name], strict, f"{where}.{name}" if where else name)
            elif field.required:
                raise Invalid(f"{where or form.__name__}: missing field {name!r}")
            elif field.none:
                given[field.attribute] = None
        return form(**given)

    return read


@cache
def _fields(form: type) -> dict[str, _Field]:
    hints = typing.get_type_hints(form)
    return {field.name.rstrip("_"): _field(form, field, hints[field.name]) for field in dataclasses.fields(form)}


def _field(form: type, field: dataclasses.Field[Any], hint: Any) -> _Field:
    """A field that is None is left out, so one that may be None is never missing."""
    may_be_none = type(None) in get_args(hint)
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    none = may_be_none and not hasattr(form, field.name)
    return _Field(field.name, _reader(hint), not has_default and not may_be_none, none)


def _union(members: tuple[Any, ...]) -> _Reader:
    readers = [_reader(member) for member in members if member is not type(None)]

    def read(value: Any, strict: bool, where: str) -> Any:
        if value is None and len(readers) < len(members):
            return None
        for reader in readers[:-1]:
            try:
                return reader(value, strict, where)
            except Invalid:
                continue
        return readers[-1](value, strict, where)

    return read


def _literal(members: tuple[Any, ...]) -> _Reader:
    kinds = {type(member) for member in members}

    def read(value: Any, _strict: bool, where: str) -> Any:
        if type(value) in kinds and value in members:
            return value
        raise Invalid(f"{where}: {value!r} is none of {', '.join(map(str, members))}"[:200])

    return read


def _items(member: _Reader) -> _Reader:
    def read(value: Any, strict: bool, where: str) -> Any:
        return tuple(member(item, strict, f"{where}[{at}]") for at, item in enumerate(_list(value, where)))

    return read


def _exactly(members: tuple[_Reader, ...]) -> _Reader:
    def read(value: Any, strict: bool, where: str) -> Any:
        items = _list(value, where)
        if len(members) != len(items):
            raise Invalid(f"{where}: expected {len(members)} items, not {len(items)}")
        pairs = zip(members, items, strict=True)
        return tuple(member(item, strict, f"{where}[{at}]") for at, (member, item) in enumerate(pairs))

    return read


def _values(member: _Reader) -> _Reader:
    def read(value: Any, strict: bool, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(f"{where}: expected an object, not {_kind(value)}")
        return {key: member(item, strict, f"{where}.{key}") for key, item in value.items()}

    return read


def _enum(form: type[StrEnum]) -> _Reader:
    known = {member.value: member for member in form}

    def read(value: Any, _strict: bool, where: str) -> Any:
        if isinstance(value, str) and value in known:
            return known[value]
        raise Invalid(f"{where}: {value!r} is none of {', '.join(known)}"[:200])

    return read


def _plain(form: type) -> _Reader:
    """Text, numbers and booleans, and the classes of ours that are one of them."""
    base = next((base for base in (bool, int, float, str) if issubclass(form, base)), None)
    kinds = () if base is None else _PLAIN[base]
    make = None if form in _PLAIN else getattr(form, "parse", form)

    def read(value: Any, _strict: bool, where: str) -> Any:
        if type(value) not in kinds:
            raise Invalid(f"{where}: expected {form.__name__}, not {_kind(value)}")
        if base is str and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise Invalid(f"{where}: a lone surrogate is no text")
        return value if make is None else make(value)

    return read


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Invalid(f"{where}: expected a list, not {_kind(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key[:80]!r}")
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
