"""Settings files: YAML to values with their places, units, and every problem at once. Knows no setting by name.

    root = reading.parse(text, "vole.yaml")
    url = root.text("url", "http://127.0.0.1:8080")
    ttl_s = root.section("queue").duration_s("lease_ttl", 60.0, least_s=6, most_s=600)
    root.finish()  # raises Invalid with all problems, unknown keys among them

A value with a problem reads as its default, so that reading goes on and finds the next problem.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.escape import visible

T = TypeVar("T")
D = TypeVar("D")

NONE = "none"  # how a file says that an optional setting is not set
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": limits.KIB, "MiB": limits.MIB, "GiB": limits.GIB, "TiB": 1 << 40}
_NUMBER = re.compile(r"[0-9]{1,15}")
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([A-Za-z]*)")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))


@dataclass(frozen=True)
class Listen:
    """Where a door listens. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class _Place:
    line: int
    column: int

    @classmethod
    def of(cls, node: yaml.Node) -> _Place:
        return cls(node.start_mark.line + 1, node.start_mark.column + 1)


class _Report:
    """The problems of one file, in the order of its lines."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: list[tuple[int, int, str]] = []

    def add(self, place: _Place, sentence: str) -> None:
        line = f"{self._source}:{place.line}:{place.column} {sentence}"
        self._found.append((place.line, place.column, visible(line, limits.PROBLEM_CHARS_MAX)))

    def finish(self) -> None:
        if self._found:
            problems = tuple(line for _, _, line in sorted(self._found))
            count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
            raise Invalid(f"{self._source}: {count}", code="settings", problems=problems)


class Section:
    """One mapping of the file. Each key that is asked for is known; `finish` names the others."""

    def __init__(
        self, report: _Report, path: str, place: _Place, nodes: dict[str, tuple[yaml.Node, yaml.Node]]
    ) -> None:
        self._report = report
        self._path = path
        self._place = place
        self._nodes = nodes
        self._asked: dict[str, Section | None] = {}
        self._items: list[Section] = []
        self._skipped = False

    @property
    def present(self) -> bool:
        """Whether the file says anything here."""
        return bool(self._nodes)

    @property
    def asked(self) -> tuple[str, ...]:
        """The full path of every setting that was asked for, sections' own names apart."""
        paths: list[str] = []
        for key, inner in self._asked.items():
            paths += [self._full(key)] if inner is None else inner.asked
        return tuple(paths)

    def value(self, key: str, default: D, parse: Callable[[str], T]) -> T | D:
        """What `parse` makes of the text at `key`. What `parse` raises as Invalid becomes a problem at its place."""
        self._asked[key] = None
        node = self._value_node(key)
        if node is None:
            return default
        return self._parsed(key, node, default, parse)

    def text(self, key: str, default: D) -> str | D:
        """The text at `key`, never empty."""
        return self.value(key, default, _text)

    def integer(self, key: str, default: D, *, least: int, most: int) -> int | D:
        """A whole number."""
        return self.value(key, default, lambda text: _integer(text, least, most))

    def boolean(self, key: str, default: D) -> bool | D:
        """`true` or `false`, nothing else."""
        return self.value(key, default, _boolean)

    def choice(self, key: str, default: D, options: tuple[str, ...]) -> str | D:
        """One of `options`."""
        return self.value(key, default, lambda text: _choice(text, options))

    def duration_s(self, key: str, default: D, *, least_s: float = 0.0, most_s: float = 3650 * 86400.0) -> float | D:
        """Seconds, written with a unit: `250ms 90s 5m 24h 30d`."""
        return self.value(key, default, lambda text: duration_s(text, least_s=least_s, most_s=most_s))

    def size(self, key: str, default: D, *, least: int = 0, most: int = 1 << 50) -> int | D:
        """Bytes, written with a unit: `512B 64KiB 512MiB 2GiB`."""
        return self.value(key, default, lambda text: size(text, least=least, most=most))

    def listen(self, key: str, default: D) -> Listen | D:
        """`host:port`; an IPv6 host stands in brackets."""
        return self.value(key, default, listen)

    def path(self, key: str, default: D, base: Path) -> Path | D:
        """A path; a relative one counts from `base`, `~` is the home folder."""
        return self.value(key, default, lambda text: base / Path(_text(text)).expanduser())

    def optional(self, key: str, parse: Callable[[str], T]) -> T | None:
        """As `value`, where `none` and absence both mean: not set."""
        return self.value(key, None, lambda text: None if text == NONE else parse(text))

    def each(self, key: str, default: D, parse: Callable[[str], T]) -> tuple[T, ...] | D:
        """A list, each item through `parse`; a single text is a list of one."""
        self._asked[key] = None
        node = self._value_node(key)
        if node is None:
            return default
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        parsed: list[T] = []
        for item in items:
            found = self._parsed(key, item, None, parse)
            if found is not None:
                parsed.append(found)
        return tuple(parsed)

    def section(self, key: str) -> Section:
        """The mapping at `key`. An absent, empty or `none` one reads as all defaults."""
        asked = self._asked.get(key)
        if asked is not None:
            return asked
        place, nodes = self._place, {}
        found = self._nodes.get(key)
        if found is not None:
            place = _Place.of(found[0])
            if not _says_nothing(found[1]):
                nodes = _mapping(self._report, self._full(key), found[1])
        inner = Section(self._report, self._full(key), place, nodes)
        self._asked[key] = inner
        return inner

    def sections(self, key: str) -> tuple[Section, ...]:
        """The mappings of the list at `key`; none where it is absent."""
        self._asked[key] = None
        node = self._value_node(key)
        if node is None or _says_nothing(node):
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self._report.add(_Place.of(node), f"{self._full(key)}: expected a list, each item settings as `key: value`")
            return ()
        items = []
        for number, item in enumerate(node.value, 1):
            path = f"{self._full(key)}[{number}]"
            items.append(Section(self._report, path, _Place.of(item), _mapping(self._report, path, item)))
        self._items += items
        return tuple(items)

    def says(self, key: str) -> bool:
        """Whether the file has `key` here."""
        return key in self._nodes

    def skip(self) -> None:
        """Unknown keys are not named here: what this section is could not be read."""
        self._skipped = True

    def problem(self, key: str, sentence: str) -> None:
        """Add a problem with the value at `key` that only its reader can see."""
        found = self._nodes.get(key)
        self._report.add(self._place if found is None else _Place.of(found[1]), f"{self._full(key)}: {sentence}")

    def finish(self) -> None:
        """Raises Invalid with every problem of the file. Call it on the root, after the last question."""
        self._name_unknown()
        self._report.finish()

    def _name_unknown(self) -> None:
        for key, (node, _) in self._nodes.items():
            if key not in self._asked and not self._skipped:
                close = difflib.get_close_matches(key, self._asked, n=1)
                known = ", ".join(sorted(self._asked)) or "nothing"
                remedy = f"did you mean {close[0]}?" if close else f"known here: {known}"
                self._report.add(_Place.of(node), f"{self._full(key)}: no such setting; {remedy}")
        for inner in (*self._asked.values(), *self._items):
            if inner is not None:
                inner._name_unknown()

    def _parsed(self, key: str, node: yaml.Node, default: D, parse: Callable[[str], T]) -> T | D:
        if not isinstance(node, yaml.ScalarNode):
            form = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
            self._report.add(_Place.of(node), f"{self._full(key)}: expected one value, not {form}")
            return default
        try:
            return parse(node.value)
        except Invalid as error:
            self._report.add(_Place.of(node), f"{self._full(key)}: {error.sentence}")
            return default

    def _value_node(self, key: str) -> yaml.Node | None:
        found = self._nodes.get(key)
        return None if found is None else found[1]

    def _full(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def read(path: Path) -> Section:
    """The root of the file at `path`. Raises Invalid where it cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", code="settings") from None
    if len(raw) > limits.SETTINGS_BYTES_MAX:
        raise Invalid(f"{path} has {len(raw)} bytes; at most {limits.SETTINGS_BYTES_MAX} (SETTINGS_BYTES_MAX)")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 at byte {error.start}", code="settings") from None
    return parse(text, path.name)


def parse(text: str, source: str) -> Section:
    """The root of `text`. Raises Invalid where it is no YAML; other problems wait for `finish`."""
    report = _Report(source)
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = _Place(1, 1) if mark is None else _Place(mark.line + 1, mark.column + 1)
        report.add(place, f"no YAML: {error.problem}")
        node = None
    except (yaml.YAMLError, RecursionError) as error:
        report.add(_Place(1, 1), f"no YAML: {str(error).splitlines()[0]}")
        node = None
    if node is None:
        report.finish()
    nodes = {} if node is None or _says_nothing(node) else _mapping(report, "", node)
    return Section(report, "", _Place(1, 1), nodes)


def duration_s(text: str, *, least_s: float = 0.0, most_s: float = 3650 * 86400.0) -> float:
    """Seconds of `90s`. Raises Invalid for a bare number, another unit, or outside the bounds."""
    seconds = _amount(text, _SECONDS, "90s")
    if not least_s <= seconds <= most_s:
        raise Invalid(f"{text!r} is outside {least_s:g}s to {most_s:g}s")
    return seconds


def size(text: str, *, least: int = 0, most: int = 1 << 50) -> int:
    """Bytes of `512MiB`. Raises Invalid for a bare number, another unit, or outside the bounds."""
    count = round(_amount(text, _BYTES, "512MiB"))
    if not least <= count <= most:
        raise Invalid(f"{text!r} is outside {least}B to {most}B")
    return count


def listen(text: str) -> Listen:
    """Raises Invalid for anything but `host:port`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise Invalid(f"{text!r} is no address to listen on; write host:port, as 127.0.0.1:8080 or [::1]:8080")
    return Listen(host.strip("[]"), _integer(port, 0, 65535))


def _says_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", NONE)


def _mapping(report: _Report, path: str, node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        report.add(_Place.of(node), f"{path or 'the file'}: expected settings, each as `key: value`")
        return {}
    found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        if not isinstance(key, yaml.ScalarNode):
            report.add(_Place.of(key), f"{path or 'the file'}: a key is one word")
        elif key.value in found:
            report.add(_Place.of(key), f"{name}: given twice; keep one")
        elif value.tag not in _PLAIN_TAGS:
            report.add(_Place.of(value), f"{name}: tags are not read here; remove {value.tag!r}")
        else:
            found[key.value] = (key, value)
    return found


def _amount(text: str, units: dict[str, float] | dict[str, int], example: str) -> float:
    match = _AMOUNT.fullmatch(text)
    listed = " ".join(units)
    if not match:
        raise Invalid(f"{text!r} is no amount; write it as {example} (units: {listed})")
    number, unit = match.groups()
    if not unit:
        raise Invalid(f"{text!r} has no unit; write it as {example} (units: {listed})")
    if unit not in units:
        raise Invalid(f"{text!r} has an unknown unit {unit!r}; write it as {example} (units: {listed})")
    return float(number) * units[unit]


def _text(text: str) -> str:
    if not text:
        raise Invalid("has no value; leave the line out to get the default")
    return text


def _integer(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise Invalid(f"{text!r} is no whole number from {least} to {most}")
    return int(text)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise Invalid(f"{text!r} is neither true nor false")
    return text == "true"


def _choice(text: str, options: tuple[str, ...]) -> str:
    if text not in options:
        close = difflib.get_close_matches(text, options, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise Invalid(f"{text!r} is none of {', '.join(options)}{hint}")
    return text
