"""Frozen dataclasses to JSON and back, by their annotations. The form of a message is its dataclass.

Strict decoding (a server reading) refuses unknown and missing fields, wrong types, duplicate keys and NaN.
Lenient decoding (a runner reading a newer server) ignores unknown fields and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from vole.base.errors import Invalid

T = TypeVar("T")

_PLAIN: dict[type, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


def canonical(value: object) -> bytes:
    """Canonical JSON of a message: sorted keys, no blanks, UTF-8. The bytes that digests are taken of."""
    return json.dumps(
        to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8")


def to_json(value: object) -> Any:
    """`value` as what `json.dumps` takes: fields that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name.rstrip("_"): to_json(item) for name, item in pairs if item is not None}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def parse(raw: bytes | str) -> Any:
    """JSON as values. Raises Invalid for bad UTF-8, bad JSON, duplicate keys, NaN and depth beyond Python's."""
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not JSON: {str(error)[:120]}") from None


def from_json(form: type[T], value: Any, *, strict: bool = True, where: str = "") -> T:
    """`value` as a `form`. Raises Invalid naming the field that does not fit."""
    if not isinstance(value, dict):
        raise Invalid(f"{where or form.__name__}: expected an object, not {_kind(value)}")
    fields = _fields(typing.cast(type, form))  # mypy does not know a class for hashable here
    if strict and (extra := sorted(set(value) - set(fields))):
        raise Invalid(f"{where or form.__name__}: unknown field {extra[0]!r}")
    given: dict[str, Any] = {}
    for name, (attribute, hint, required) in fields.items():
        if name in value:
            given[attribute] = _decode(hint, value[name], strict, f"{where}.{name}".lstrip("."))
        elif required:
            raise Invalid(f"{where or form.__name__}: missing field {name!r}")
        elif not hasattr(form, attribute) and type(None) in get_args(hint):
            given[attribute] = None
    return form(**given)


@cache
def _fields(form: type) -> dict[str, tuple[str, Any, bool]]:
    hints = typing.get_type_hints(form)
    return {
        field.name.rstrip("_"): (
            field.name,
            hints[field.name],
            _required(field, hints[field.name]),
        )
        for field in dataclasses.fields(form)
    }


def _required(field: dataclasses.Field[Any], hint: Any) -> bool:
    """A field that is None is left out, so one that may be None is never missing."""
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return not has_default and type(None) not in get_args(hint)


def _decode(hint: Any, value: Any, strict: bool, where: str) -> Any:
    if hint is type(value) and (hint is bool or hint is int or (hint is str and value.isascii())):
        return value  # most fields of most messages
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(hint, value, strict, where)
    if origin is Literal:
        if value in get_args(hint) and type(value) in {type(item) for item in get_args(hint)}:
            return value
        raise Invalid(f"{where}: {value!r} is none of {', '.join(map(str, get_args(hint)))}"[:200])
    if origin is tuple:
        return _decode_tuple(hint, value, strict, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise Invalid(f"{where}: expected an object, not {_kind(value)}")
        return {key: _decode(get_args(hint)[1], item, strict, f"{where}.{key}") for key, item in value.items()}
    return _decode_class(hint, value, strict, where)


def _decode_union(hint: Any, value: Any, strict: bool, where: str) -> Any:
    members = [member for member in get_args(hint) if member is not type(None)]
    if value is None and len(members) < len(get_args(hint)):
        return None
    for member in members[:-1]:
        try:
            return _decode(member, value, strict, where)
        except Invalid:
            continue
    return _decode(members[-1], value, strict, where)


def _decode_tuple(hint: Any, value: Any, strict: bool, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Invalid(f"{where}: expected a list, not {_kind(value)}")
    members = get_args(hint)
    if members[-1] is not Ellipsis:
        if len(members) != len(value):
            raise Invalid(f"{where}: expected {len(members)} items, not {len(value)}")
        pairs = zip(members, value, strict=True)
        return tuple(_decode(member, item, strict, f"{where}[{at}]") for at, (member, item) in enumerate(pairs))
    return tuple(_decode(members[0], item, strict, f"{where}[{at}]") for at, item in enumerate(value))


def _decode_class(hint: Any, value: Any, strict: bool, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast("type[Any]", hint), value, strict=strict, where=where)
    if issubclass(hint, StrEnum):
        if value in list(hint):
            return hint(value)
        raise Invalid(f"{where}: {value!r} is none of {', '.join(hint)}"[:200])
    plain = _plain_of(hint)
    if plain is None or type(value) not in _PLAIN[plain]:
        raise Invalid(f"{where}: expected {hint.__name__}, not {_kind(value)}")
    if plain is str and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise Invalid(f"{where}: a lone surrogate is no text")
    return value if hint in _PLAIN else (hint.parse(value) if hasattr(hint, "parse") else hint(value))


@cache
def _plain_of(hint: type) -> type | None:
    return next((base for base in (bool, int, float, str) if issubclass(hint, base)), None)


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
