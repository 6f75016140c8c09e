"""Bytes to nodes that know their line and column. Strict: what two readers could take differently is refused.

Every scalar is text. Nothing is expanded: an alias is the node it names, and its cost is counted before it is walked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import yaml

from vole.base import limits
from vole.base.escape import visible
from vole.workflows.model import Problem


@dataclass(frozen=True)
class Place:
    """Where in a file, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Text:
    """A scalar. `plain` means written without quotes and not as a block; `source` is how it stands in the file."""

    place: Place
    value: str
    plain: bool = True
    begin: int = 0  # offsets into the file's text
    end: int = 0
    nodes: int = 1
    height: int = 0

    @property
    def absent(self) -> bool:
        """A key with nothing after its colon."""
        return self.plain and not self.value


@dataclass(frozen=True)
class Sequence:
    """A list."""

    place: Place
    items: tuple[Node, ...]
    nodes: int
    height: int


@dataclass(frozen=True)
class Mapping:
    """A map, in file order; keys are unique."""

    place: Place
    entries: tuple[tuple[Text, Node], ...]
    nodes: int
    height: int

    def get(self, key: str) -> Node | None:
        """The value of `key`, None when it is not there."""
        return next((value for name, value in self.entries if name.value == key), None)


Node: TypeAlias = Text | Sequence | Mapping
NOWHERE = Place(1, 1)


class Unreadable(Exception):
    """The first thing in a file after which reading cannot go on."""

    def __init__(self, place: Place, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.place, self.code, self.sentence = place, code, sentence


@dataclass
class Report:
    """The problems of one file as they are found, and its text for finding places inside a scalar."""

    path: str
    text: str = ""
    problems: list[Problem] = field(default_factory=list)
    unshown: int = 0  # found after PROBLEMS_KEPT_MAX
    settled: frozenset[int] = frozenset()

    def add(self, place: Place, code: str, sentence: str) -> None:
        """One more problem. The same one again, met through an alias, is not told twice."""
        problem = Problem(self.path, place.line, place.column, code, visible(sentence, limits.PROBLEM_CHARS_MAX))
        if len(self.problems) >= limits.PROBLEMS_KEPT_MAX:
            self.unshown += 1
        elif problem not in self.problems:
            self.problems.append(problem)

    def settle(self) -> None:
        """Remember the lines that have a problem: what comes of those is not told again."""
        self.settled = frozenset(problem.line for problem in self.problems)

    def inside(self, scalar: Text, offset: int) -> Place:
        """Where the character at `offset` of a scalar's value stands; its beginning where it is spelt otherwise."""
        if len(self.problems) >= limits.PROBLEMS_KEPT_MAX:
            return scalar.place
        word = scalar.value[offset : offset + 24].partition("\n")[0]
        at, before = scalar.begin - 1, scalar.value.count(word, 0, offset + len(word)) if word else 0
        for _ in range(before):
            at = self.text.find(word, at + 1, scalar.end)
            if at < 0:
                break
        return _place_at(self.text, at) if at >= scalar.begin else scalar.place


def read(content: bytes, report: Report) -> Mapping | None:
    """The map that `content` is; None with the reason in `report`. Duplicate keys are reported, and reading goes on."""
    try:
        report.text = _text(content)
        node = _compose(report)
    except Unreadable as refusal:
        report.add(refusal.place, refusal.code, refusal.sentence)
        return None
    if isinstance(node, Mapping):
        return node
    report.add(node.place, "W013", f"a workflow is a map with 'jobs:', not {kind(node)}")
    return None


def kind(node: Node) -> str:
    """What a node is, in a sentence."""
    if isinstance(node, Text):
        return "nothing" if node.absent else "text"
    return "a list" if isinstance(node, Sequence) else "a map"


def words(node: Node | None) -> str | None:
    """The text a node is, None when it is none or nothing."""
    return node.value if isinstance(node, Text) and not node.absent else None


def texts(node: Node | None) -> tuple[Text, ...]:
    """The texts of a list, or the one text that stands for a list of itself. Other nodes are left out."""
    if isinstance(node, Text):
        return () if node.absent else (node,)
    return tuple(item for item in items(node) if isinstance(item, Text) and not item.absent)


def items(node: Node | None) -> tuple[Node, ...]:
    """The items of a list; of anything else none."""
    return node.items if isinstance(node, Sequence) else ()


def entries(node: Node | None) -> tuple[tuple[Text, Node], ...]:
    """The entries of a map; of anything else none."""
    return node.entries if isinstance(node, Mapping) else ()


def at(node: Node | None, *path: str) -> Node | None:
    """What stands below `node` at a path of keys, None where there is nothing."""
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


# ---- Bytes

_BREAKS = {"\r": "a carriage return alone", "\x85": "NEL", "\u2028": "LINE SEPARATOR", "\u2029": "PARAGRAPH SEPARATOR"}
_BREAK = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")
_CONTROL_VALUE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_DIRECTIVE = re.compile(r"%YAML[ \t]+1\.2[ \t]*(?:#.*)?")


def _text(content: bytes) -> str:
    if len(content) > limits.WORKFLOW_BYTES_MAX:
        most = limits.WORKFLOW_BYTES_MAX
        raise Unreadable(NOWHERE, "W001", f"the file has {len(content)} bytes; at most {most} (WORKFLOW_BYTES_MAX)")
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = _place_at(content[: error.start].decode("utf-8", "replace"), -1)
        raise Unreadable(
            place, "W002", f"byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    if found := _BREAK.search(text):
        what = _BREAKS[found[0]]
        raise Unreadable(
            _place_at(text, found.start()),
            "W003",
            f"{what} (U+{ord(found[0]):04X}) is no line end here; use LF or CRLF",
        )
    if found := _CONTROL.search(text):
        what = f"U+{ord(found[0]):04X}"
        raise Unreadable(_place_at(text, found.start()), "W004", f"control character {what}; take it out")
    _directives(text)
    return text


def _directives(text: str) -> None:
    for number, line in enumerate(text.replace("\r", "").split("\n"), 1):
        if line.startswith("%") and not _DIRECTIVE.fullmatch(line):
            raise Unreadable(Place(number, 1), "W006", f"{line[:40]!r}: no directive but '%YAML 1.2'; leave it out")
        if line.strip() and line[0] not in "%#":
            return


def _place_at(text: str, at: int) -> Place:
    """The place of the character at `at`; -1 is the end."""
    at = len(text) if at < 0 else at
    begin = text.rfind("\n", 0, at) + 1
    return Place(text.count("\n", 0, at) + 1, at - begin + 1)


# ---- YAML

# The C parser reads ten times as fast; where PyYAML was built without it, its own gives the same events.
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Mark(Protocol):
    """A place as PyYAML counts it, from 0."""

    line: int
    column: int
    index: int


@dataclass
class _Open:
    """A list or map whose end has not come yet."""

    place: Place
    anchor: str | None
    is_map: bool
    items: list[Node] = field(default_factory=list)


def _compose(report: Report) -> Node:
    try:
        return _Composer(report).document(yaml.parse(report.text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise _syntax(error) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise Unreadable(NOWHERE, "W005", f"not YAML: {str(error).splitlines()[0][:120]}") from None


class _Composer:
    """Nodes from the parser's events, with a stack of its own: depth costs no recursion."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.anchors: dict[str, Node] = {}
        self.stack: list[_Open] = []
        self.count = 0

    def document(self, events: Iterator[yaml.Event]) -> Node:
        next(events)  # the stream's start
        if isinstance(next(events), yaml.StreamEndEvent):
            raise Unreadable(NOWHERE, "W013", "the file is empty; a workflow has at least 'jobs:'")
        root: Node | None = None
        while root is None:
            root = self.event(next(events))
        next(events)  # the document's end
        after = next(events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise Unreadable(_place(after.start_mark), "W006", "a second document; one file is one workflow")
        return root

    def event(self, event: yaml.Event) -> Node | None:
        """Take one event in; the whole document's node when it is the last."""
        place = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self.place_node(self.alias(event.anchor or "", place), None)
        if isinstance(event, yaml.ScalarEvent):
            _no_tag(event, place)
            return self.place_node(self.scalar(event, place), event.anchor)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            _no_tag(event, place)
            if len(self.stack) >= limits.YAML_DEPTH_MAX:
                raise _too_deep(place)
            self.stack.append(_Open(place, event.anchor, isinstance(event, yaml.MappingStartEvent)))
            return None
        done = self.stack.pop()
        return self.place_node(self.close(done), done.anchor)

    def place_node(self, node: Node, anchor: str | None) -> Node | None:
        """Put a whole node where it belongs, and remember it by its anchor."""
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            return node
        self.stack[-1].items.append(node)
        return None

    def alias(self, name: str, place: Place) -> Node:
        if any(opened.anchor == name for opened in self.stack):
            raise Unreadable(place, "W010", f"alias '*{name[:40]}' stands inside what it names")
        node = self.anchors.get(name)
        if node is None:
            raise Unreadable(place, "W005", f"alias '*{name[:40]}' names no anchor '&{name[:40]}' above it")
        if len(self.stack) + node.height > limits.YAML_DEPTH_MAX:
            raise _too_deep(place)
        self.charge(node.nodes, place)
        return node

    def charge(self, nodes: int, place: Place) -> None:
        self.count += nodes
        if self.count > limits.YAML_NODES_MAX:
            most = limits.YAML_NODES_MAX
            raise Unreadable(place, "W010", f"more than {most} values, aliases written out (YAML_NODES_MAX)")

    def scalar(self, event: yaml.ScalarEvent, place: Place) -> Text:
        self.charge(1, place)
        value = event.value
        if found := _CONTROL_VALUE.search(value):
            raise Unreadable(place, "W004", f"the text holds control character U+{ord(found[0]):04X}; take it out")
        begin, end = (mark.index if mark else 0 for mark in (event.start_mark, event.end_mark))
        return Text(place, value, not event.style, begin, end)

    def close(self, done: _Open) -> Node:
        self.charge(1, done.place)
        nodes = 1 + sum(item.nodes for item in done.items)
        height = 1 + max((item.height for item in done.items), default=0)
        if not done.is_map:
            return Sequence(done.place, tuple(done.items), nodes, height)
        entries: dict[str, tuple[Text, Node]] = {}
        for key, value in zip(done.items[::2], done.items[1::2], strict=True):
            self.entry(entries, key, value)
        return Mapping(done.place, tuple(entries.values()), nodes, height)

    def entry(self, entries: dict[str, tuple[Text, Node]], key: Node, value: Node) -> None:
        if not isinstance(key, Text):
            raise Unreadable(key.place, "W013", f"a key is text, not {kind(key)}")
        if key.value == "<<" and key.plain:
            raise Unreadable(key.place, "W008", "no merge key '<<'; write the keys out, or give a whole value an alias")
        if key.value in entries:
            first = entries[key.value][0].place.line
            self.report.add(key.place, "W009", f"key {key.value[:60]!r} stands there twice, first on line {first}")
        else:
            entries[key.value] = (key, value)


def _no_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, place: Place) -> None:
    if event.tag is not None:
        quote = "; a text that begins with '!' goes in quotes" if event.tag.startswith("!") else ""
        raise Unreadable(place, "W007", f"tag {event.tag[:40]!r}: no tags here, every value is text{quote}")


def _too_deep(place: Place) -> Unreadable:
    return Unreadable(place, "W010", f"nested deeper than {limits.YAML_DEPTH_MAX} (YAML_DEPTH_MAX)")


def _place(mark: _Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else NOWHERE


_REMEDIES = (
    ("mapping values are not allowed", "a value that holds ': ' goes in quotes; or the line is indented wrongly"),
    ("cannot start any token", "tabs do not indent, and a text that begins with @, ` or % goes in quotes"),
    ("did not find expected key", "the lines of one map begin in one column"),
    ("did not find expected '-' indicator", "the items of one list begin in one column"),
    ("could not find expected ':'", "a key is followed by ': '"),
    ("unexpected end of stream", "a quote is not closed"),
    ("found unexpected document indicator", "a quote is not closed"),
    ("did not find expected alphabetic", "a text that begins with * or & goes in quotes"),
)


def _syntax(error: yaml.MarkedYAMLError) -> Unreadable:
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "it cannot be read"
    if "nesting depth" in what:
        return _too_deep(_place(mark))
    remedy = next((remedy for part, remedy in _REMEDIES if part in what), None)
    return Unreadable(_place(mark), "W005", f"not YAML: {what}" + (f"; {remedy}" if remedy else ""))
