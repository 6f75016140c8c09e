"""The forms a value may have: each checks a node, collecting every problem, and says itself as JSON Schema.

Knows no key of the dialect by name; `schema` puts the forms together.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from vole.base import expressions
from vole.base.expressions import BadExpression, Expr
from vole.base.labels import nearest
from vole.workflows.reading import Mapping, Node, Report, Sequence, Text, kind

Path: TypeAlias = tuple[str | int, ...]  # keys and places in lists, from the root: ("jobs", "test", "steps", 2, "if")
Rule: TypeAlias = Callable[[str], str | None]  # why a text does not fit, None when it does
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A text with expressions in it, parsed."""

    path: Path
    text: Text
    parts: tuple[Expr, ...]


@dataclass
class Walk:
    """One pass over a file: where problems go, and the expressions met on the way."""

    report: Report
    found: list[Found] = field(default_factory=list)

    def wrong(self, node: Node, path: Path, wanted: str) -> None:
        """The node has another form than `wanted`."""
        self.report.add(node.place, "W013", f"{said(path)}: expected {wanted}, not {kind(node)}")


class Form(Protocol):
    """What a value may be."""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        """Report what is wrong with `node`, and note the expressions in it."""
        ...

    def json(self) -> Json:
        """The form as JSON Schema."""
        ...


def said(path: Path) -> str:
    """A path in a sentence: its last key, and the place in the list."""
    keys = [at for at, part in enumerate(path) if isinstance(part, str)]
    if not keys:
        return "the file"
    rest = path[keys[-1] + 1 :]
    return f"{str(path[keys[-1]])[:60]}" + "".join(f"[{int(part) + 1}]" for part in rest)


@dataclass(frozen=True)
class Words:
    """Text. Expressions only with `contexts`, and only of those; `condition`: the text is one, `${{ }}` or bare."""

    contexts: frozenset[str] = frozenset()
    condition: bool = False
    script: bool = False  # a `run`: nothing but `${{ matrix.x }}`
    may_be_empty: bool = False
    rule: Rule | None = None
    code: str = "W016"  # of the rule
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if not isinstance(node, Text) or (node.absent and not self.may_be_empty):
            walk.wrong(node, path, "text")
        elif not node.value.strip() and not self.may_be_empty:
            walk.report.add(node.place, "W035", f"{said(path)} is blank; write something or leave the key out")
        elif self.condition or "${{" in node.value:
            self._expressions(node, path, walk)
        elif self.rule is not None and (reason := self.rule(node.value)):
            walk.report.add(node.place, self.code, f"{said(path)}: {reason}")

    def _expressions(self, node: Text, path: Path, walk: Walk) -> None:
        if not self.contexts:
            place = walk.report.inside(node, node.value.find("${{"))
            walk.report.add(place, "W034", f"{said(path)} takes no expression; write the text itself")
            return
        try:
            parts = (
                (expressions.parse_condition(node.value),)
                if self.condition
                else tuple(part for part in expressions.parse_template(node.value) if not isinstance(part, str))
            )
        except BadExpression as error:
            code = "W025" if self.script else "W024" if error.kind == "name" else "W023"
            sentence = f"{said(path)}: {error.sentence}" + ("; and put it in env" if self.script else "")
            walk.report.add(walk.report.inside(node, error.at), code, sentence)
            return
        before = len(walk.report.problems)
        for part in parts:
            self._allowed(part, node, path, walk)
        if len(walk.report.problems) == before:
            walk.found.append(Found(path, node, parts))

    def _allowed(self, part: Expr, node: Text, path: Path, walk: Walk) -> None:
        if self.script:
            if not _is_matrix_value(part):
                _script_problem(part, node, walk)
            return
        for access in expressions.accesses(part):
            if access.root not in self.contexts:
                there = ", ".join(sorted(self.contexts))
                sentence = f"{said(path)}: {access.root} is not known here; there are: {there}"
                walk.report.add(walk.report.inside(node, access.at), "W034", sentence)
        for call in expressions.calls(part):
            if call.name in expressions.STATUS_FUNCTIONS and not self.condition:
                sentence = f"{said(path)}: {call.name}() has a meaning in 'if' only"
                walk.report.add(walk.report.inside(node, call.at), "W034", sentence)

    def json(self) -> Json:
        return {"type": ["string", "number", "boolean"]} | ({"description": self.doc} if self.doc else {})


def _is_matrix_value(part: Expr) -> bool:
    return isinstance(part, expressions.Access) and part.root == "matrix" and len(part.path) == 1


def _script_problem(part: Expr, node: Text, walk: Walk) -> None:
    first = next(expressions.accesses(part), None) or next(expressions.calls(part), None)
    place = walk.report.inside(node, first.at) if first else node.place
    what = "only ${{ matrix.NAME }} may stand in a script, all else could inject commands"
    walk.report.add(
        place, "W025", f"run: {what}; put it in env and read the variable: env: {{X: ${{{{ … }}}}}}, then $X"
    )


@dataclass(frozen=True)
class Choice:
    """One of a few words. `others` are words that people carry over, with what to do instead."""

    options: tuple[str, ...]
    others: Map[str, str] = field(default_factory=dict)
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if not isinstance(node, Text) or node.absent:
            walk.wrong(node, path, f"one of {', '.join(self.options)}")
        elif node.value in self.others:
            walk.report.add(node.place, "W012", f"{said(path)}: {node.value}: {self.others[node.value]}")
        elif node.value not in self.options:
            hint = nearest(node.value, self.options)
            remedy = f"; did you mean '{hint}'?" if hint else ""
            sentence = f"{said(path)}: {node.value[:60]!r} is none of {', '.join(self.options)}{remedy}"
            walk.report.add(node.place, "W016", sentence)

    def json(self) -> Json:
        return {"enum": list(self.options)} | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Flag:
    """`true` or `false`, nothing else."""

    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if not isinstance(node, Text) or node.absent:
            walk.wrong(node, path, "true or false")
        elif node.value not in ("true", "false"):
            walk.report.add(node.place, "W016", f"{said(path)}: {node.value[:60]!r} is neither true nor false")

    def json(self) -> Json:
        return {"type": "boolean"} | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Number:
    """A whole number in decimal digits."""

    least: int
    most: int
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if not isinstance(node, Text) or node.absent:
            walk.wrong(node, path, f"a number from {self.least} to {self.most}")
        elif number(node) is None or not self.least <= (number(node) or 0) <= self.most:
            sentence = f"{said(path)}: {node.value[:60]!r} is no whole number from {self.least} to {self.most}"
            walk.report.add(node.place, "W016", sentence)

    def json(self) -> Json:
        doc = {"description": self.doc} if self.doc else {}
        return {"type": "integer", "minimum": self.least, "maximum": self.most} | doc


def number(node: Node | None) -> int | None:
    """The number a text is, None when it is none."""
    if isinstance(node, Text) and node.value.isascii() and node.value.isdigit() and len(node.value) < 10:
        return int(node.value)
    return None


@dataclass(frozen=True)
class Items:
    """A list; with `one`, a single item stands for a list of itself. `most` is the bound named `bound`."""

    item: Form
    one: bool = False
    most: int | None = None
    bound: str = ""
    what: str = "items"
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if isinstance(node, Sequence):
            self._list(node, path, walk)
        elif self.one and isinstance(node, Text) and not node.absent:
            self.item.check(node, path, walk)
        else:
            walk.wrong(node, path, "text or a list" if self.one else "a list")

    def _list(self, node: Sequence, path: Path, walk: Walk) -> None:
        if not node.items:
            walk.report.add(node.place, "W013", f"{said(path)}: an empty list; leave the key out or fill it")
        if self.most is not None and len(node.items) > self.most:
            sentence = f"{said(path)}: {len(node.items)} {self.what}; at most {self.most} ({self.bound})"
            walk.report.add(node.place, "W020", sentence)
            return
        for at, item in enumerate(node.items):
            self.item.check(item, (*path, at), walk)

    def json(self) -> Json:
        form: Json = {"type": "array", "items": self.item.json(), "minItems": 1}
        if self.most is not None:
            form["maxItems"] = self.most
        form = {"anyOf": [self.item.json(), form]} if self.one else form
        return form | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Table:
    """A map whose keys are names that people choose, by a rule of the `code`."""

    rule: Rule
    code: str
    value: Form
    most: int | None = None
    bound: str = ""
    what: str = "entries"
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if not isinstance(node, Mapping):
            walk.wrong(node, path, "a map")
            return
        if not node.entries:
            walk.report.add(node.place, "W013", f"{said(path)}: an empty map; leave the key out or fill it")
        if self.most is not None and len(node.entries) > self.most:
            sentence = f"{said(path)}: {len(node.entries)} {self.what}; at most {self.most} ({self.bound})"
            walk.report.add(node.place, "W020", sentence)
        for key, value in node.entries:
            if reason := self.rule(key.value):
                walk.report.add(key.place, self.code, f"{said(path)}: {reason}")
            self.value.check(value, (*path, key.value), walk)

    def json(self) -> Json:
        form: Json = {"type": "object", "additionalProperties": self.value.json(), "minProperties": 1}
        return form | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Record:
    """A map with known keys. `refused` names what other dialects have: the reason, and what to do instead."""

    what: str
    keys: Map[str, Form]
    refused: Map[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    may_be_absent: bool = False  # `push:` with nothing after it
    rest: Form | None = None  # of keys that are not in `keys`
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        if self.may_be_absent and isinstance(node, Text) and node.absent:
            return
        if not isinstance(node, Mapping):
            walk.wrong(node, path, f"a map with {', '.join(list(self.keys)[:4])}")
            return
        if not node.entries and not self.required and not self.may_be_absent:
            walk.report.add(node.place, "W013", f"{said(path)}: an empty map; leave the key out or fill it")
        excused: set[str] = set()  # a missing key is not told where what stands in its place was
        for key, value in node.entries:
            form = self.keys.get(key.value, self.rest)
            if form is not None:
                form.check(value, (*path, key.value), walk)
            elif key.value in self.refused:
                walk.report.add(key.place, "W012", f"{key.value}: {self.refused[key.value]}")
                excused.update(self.required)
            else:
                meant = self._meant(key.value)
                remedy = f"did you mean '{meant}'?" if meant else f"there are: {', '.join(self.keys)}"
                walk.report.add(key.place, "W011", f"unknown key {key.value[:60]!r} in {self.what}; {remedy}")
                excused.add(meant or "")
        for name in self.required:
            if node.get(name) is None and name not in excused:
                walk.report.add(node.place, "W015", f"{self.what} has no '{name}'; it needs one")

    def _meant(self, key: str) -> str | None:
        spelt = key.lower().replace("_", "-")
        return spelt if spelt in self.keys else nearest(spelt, self.keys)

    def json(self) -> Json:
        form: Json = {
            "type": ["object", "null"] if self.may_be_absent else "object",
            "properties": {name: value.json() for name, value in self.keys.items()},
            "additionalProperties": self.rest.json() if self.rest else False,
        }
        if self.required:
            form["required"] = list(self.required)
        return form | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Ways:
    """A value that may be written in several ways: as text, as a list, as a map."""

    wanted: str
    text: Form | None = None
    items: Form | None = None
    table: Form | None = None
    doc: str = ""

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        form = self.text if isinstance(node, Text) else self.items if isinstance(node, Sequence) else self.table
        if form is None or (isinstance(node, Text) and node.absent):
            walk.wrong(node, path, self.wanted)
        else:
            form.check(node, path, walk)

    def json(self) -> Json:
        ways = [form.json() for form in (self.text, self.items, self.table) if form is not None]
        return {"anyOf": ways} | ({"description": self.doc} if self.doc else {})


@dataclass(frozen=True)
class Refused:
    """A form that is never right, with the reason and what to do instead."""

    sentence: str

    def check(self, node: Node, path: Path, walk: Walk) -> None:
        walk.report.add(node.place, "W012", f"{said(path)}: {self.sentence}")

    def json(self) -> Json:
        return {"not": {}}
