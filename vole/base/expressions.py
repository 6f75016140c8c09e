"""`${{ … }}`: parsing and evaluating the workflow's expressions. Bounded and pure; names only what stands in the text.

Text compares case by case, nothing is folded. A number and a text compare as numbers where the text is one. False
are `false`, null, 0 and the empty text. A missing property is null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.labels import nearest

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Contexts: TypeAlias = Mapping[str, Value]
Status = Literal["success", "failure", "cancelled", "skipped"]  # of what came before: steps, or needed jobs

_VOLE = tuple("sha ref ref_name ref_type repository run_number run_attempt actor event_name workflow job".split())  # noqa: SIM905

# The contexts, and the properties of those whose properties are fixed.
CONTEXTS: Mapping[str, frozenset[str] | None] = {
    "vole": frozenset(_VOLE),
    "matrix": None,
    "env": None,
    "inputs": None,
    "needs": None,
    "steps": None,
    "runner": frozenset(("os", "arch", "name")),
}
STATUS_FUNCTIONS = ("success", "failure", "always", "cancelled")
# How many arguments each function takes: least and most.
FUNCTIONS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(STATUS_FUNCTIONS, (0, 0)),
    **dict.fromkeys(("contains", "startsWith", "endsWith"), (2, 2)),
    **dict.fromkeys(("toJSON", "fromJSON"), (1, 1)),
    "join": (1, 2),
    "format": (1, 32),
}


class BadExpression(Invalid):
    """Text that is no expression, or names what there is not. `at` is where in the text, from 0."""

    def __init__(self, sentence: str, at: int, *, kind: Literal["syntax", "name", "value"] = "syntax") -> None:
        super().__init__(sentence, code="bad_expression")
        self.at = at
        self.kind = kind


@dataclass(frozen=True)
class Constant:
    value: bool | int | float | str | None


@dataclass(frozen=True)
class Access:
    """A context or a call's result, and the way into it: names, numbers, or expressions that give one."""

    root: str | Call
    path: tuple[Expr, ...]
    at: int


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Expr, ...]
    at: int


@dataclass(frozen=True)
class Not:
    operand: Expr


@dataclass(frozen=True)
class Logical:
    """`a && b && c` or `a || b || c`: the first operand that decides is the value."""

    operator: Literal["&&", "||"]
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Comparison:
    operator: str
    left: Expr
    right: Expr


Expr: TypeAlias = Constant | Access | Call | Not | Logical | Comparison
Template: TypeAlias = tuple[str | Expr, ...]


# ---- What callers use


def condition(text: str | None, contexts: Contexts, status: Status) -> bool:
    """Whether a job or step with `if: text` runs, after what came before ended as `status`.

    Without a status function in it, a condition also asks for success(). Raises Invalid for a bad expression.
    """
    if text is None:
        return status == "success"
    expression = parse_condition(text)
    if not any(call.name in STATUS_FUNCTIONS for call in calls(expression)) and status != "success":
        return False
    return truthy(evaluate(expression, contexts, status))


def interpolate(text: str, contexts: Contexts) -> str:
    """`text` with each `${{ … }}` replaced by its value. Raises Invalid, also when the result is over its bound."""
    if "${{" not in text:
        return text
    parts = parse_template(text)
    return _bounded("".join(part if isinstance(part, str) else to_text(evaluate(part, contexts)) for part in parts))


def parse(text: str, offset: int = 0) -> Expr:
    """The expression in `text`, without `${{ }}`, which begins at `offset` of a longer text. Raises BadExpression."""
    if len(text) > limits.EXPRESSION_CHARS_MAX:
        most = limits.EXPRESSION_CHARS_MAX
        raise BadExpression(f"an expression of {len(text)} characters; at most {most} (EXPRESSION_CHARS_MAX)", offset)
    parser = _Parser(text, offset)
    expression = parser.either(0)
    parser.expect_end()
    return expression


def parse_condition(text: str) -> Expr:
    """What `if` holds: an expression, bare or as one `${{ … }}` around all of it. Raises BadExpression."""
    if "${{" not in text:
        return parse(text)
    whole = text.strip()
    parts = parse_template(whole)
    if len(parts) != 1 or isinstance(parts[0], str):
        raise BadExpression("'${{ }}' goes around the whole condition or is left out: text beside it is always true", 0)
    return parts[0]


def parse_template(text: str) -> Template:
    """The texts and expressions that `text` is made of. Raises BadExpression."""
    parts: list[str | Expr] = []
    at = 0
    while (begin := text.find("${{", at)) >= 0:
        end = _end_of_expression(text, begin + 3)
        if begin > at:
            parts.append(text[at:begin])
        parts.append(parse(text[begin + 3 : end], begin + 3))
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    return tuple(parts)


def literal(text: str) -> str:
    """`text` written so that `interpolate` gives it back: for values that are no one's expressions."""
    return text if "${{" not in text else "${{ '" + text.replace("'", "''") + "' }}"


def truthy(value: Value) -> bool:
    """Whether a condition that gives `value` holds. Empty lists and maps do."""
    return isinstance(value, (list, dict)) or bool(value)


def to_text(value: Value) -> str:
    """A value as it stands in a text: null is nothing, 3.0 is `3`, lists and maps are JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else _json(value) if isinstance(value, (list, dict)) else str(value)


def calls(expression: Expr) -> Iterator[Call]:
    """Every function call in `expression`."""
    for node in _walk(expression):
        if isinstance(node, Call):
            yield node


def accesses(expression: Expr) -> Iterator[Access]:
    """Every use of a context in `expression`, with where it stands."""
    for node in _walk(expression):
        if isinstance(node, Access) and isinstance(node.root, str):
            yield node


def evaluate(expression: Expr, contexts: Contexts, status: Status = "success") -> Value:
    """The value of `expression`. Raises Invalid when a function gets what it cannot use or a bound is passed."""
    return _Evaluation(contexts, status).value(expression)


# ---- Parsing

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<number>-?(?:0x[0-9a-fA-F]{1,12}|[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,3})?)(?![A-Za-z0-9_.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,\[\]*])
    )""",
    re.VERBOSE,
)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_ELSEWHERE: Mapping[str, str] = {
    "github": "this is not GitHub; write vole.NAME, with one of: " + ", ".join(sorted(CONTEXTS["vole"] or ())),
    "secrets": "there is no secret store; keep a deploy credential on the runner that deploys",
    "vars": "there are no stored variables; write them in env or push with -o ci.variable=NAME=VALUE",
    "strategy": "there is no strategy context; matrix.NAME has the values",
    "job": "there is no job context; vole.job is the job's id",
    "jobs": "there is no jobs context; needs.ID.outputs.NAME has the outputs of needed jobs",
    "hashFiles": "there is no cache and no hashFiles; compute a digest in a step",
}


class _Parser:
    """Recursive descent with a depth bound. Each rule takes how deep it stands. Places are `offset` further on."""

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.offset = offset
        self.at = 0
        self.kind, self.word = "", ""
        self.begin = 0
        self.advance()

    def advance(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            rest = self.text[self.at :]
            self.begin = self.offset + self.at + len(rest) - len(rest.lstrip())
            if rest.strip():
                raise BadExpression(_strange(rest.strip()), self.begin)
            self.kind, self.word = "end", "the end"
            return
        self.kind = found.lastgroup or ""
        self.word = found[self.kind]
        self.begin, self.at = self.offset + found.start(self.kind), found.end()

    def take(self, *signs: str) -> str | None:
        if self.kind == "sign" and self.word in signs:
            token = self.word
            self.advance()
            return token
        return None

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise BadExpression(f"expected '{sign}', not {self._found()}", self.begin)

    def expect_end(self) -> None:
        if self.kind != "end":
            raise BadExpression(f"expected an operator or the end, not {self._found()}", self.begin)

    def either(self, depth: int) -> Expr:
        return self._logical("||", self.both, depth)

    def both(self, depth: int) -> Expr:
        return self._logical("&&", self.comparison, depth)

    def _logical(self, operator: Literal["&&", "||"], rule: Callable[[int], Expr], depth: int) -> Expr:
        operands = [rule(depth)]
        while self.take(operator):
            operands.append(rule(depth))
        return operands[0] if len(operands) == 1 else Logical(operator, tuple(operands))

    def comparison(self, depth: int) -> Expr:
        left = self.negation(depth)
        operator = self.take(*_COMPARISONS)
        if operator is None:
            return left
        right = self.negation(depth)
        if self.kind == "sign" and self.word in _COMPARISONS:
            raise BadExpression("comparisons are not chained; use '&&', or ( ) around one of them", self.begin)
        return Comparison(operator, left, right)

    def negation(self, depth: int) -> Expr:
        if depth > limits.EXPRESSION_DEPTH_MAX:
            most = limits.EXPRESSION_DEPTH_MAX
            raise BadExpression(f"nested deeper than {most} (EXPRESSION_DEPTH_MAX)", self.begin)
        return Not(self.negation(depth + 1)) if self.take("!") else self.primary(depth)

    def primary(self, depth: int) -> Expr:
        at, token = self.begin, self.word
        if self.kind == "name":
            return self.named(depth)
        if self.kind == "number":
            self.advance()
            return Constant(_number(token) or 0)
        if self.kind == "text":
            self.advance()
            return Constant(token[1:-1].replace("''", "'"))
        if self.take("("):
            inner = self.either(depth + 1)
            self.expect(")")
            return inner
        raise BadExpression(f"expected a value, not {self._found()}", at)

    def named(self, depth: int) -> Expr:
        name, at = self.word, self.begin
        self.advance()
        if self.take("("):
            call = self.call(name, at, depth)
            path = self.path(depth)
            return Access(call, path, at) if path else call
        if name in _WORDS:
            return Constant(_WORDS[name])
        if name not in CONTEXTS:
            raise _unknown("context", name, CONTEXTS, self.text[at - self.offset :], at)
        return Access(name, self.path(depth), at)

    def call(self, name: str, at: int, depth: int) -> Call:
        if name not in FUNCTIONS:
            raise _unknown("function", name, FUNCTIONS, self.text[at - self.offset :], at)
        arguments: list[Expr] = []
        while not self.take(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.either(depth + 1))
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            takes = f"{least}" if least == most else f"{least} to {most}"
            raise BadExpression(f"{name}() takes {takes} argument{'s' * (most != 1)}, not {len(arguments)}", at)
        return Call(name, tuple(arguments), at)

    def path(self, depth: int) -> tuple[Expr, ...]:
        path: list[Expr] = []
        while sign := self.take(".", "["):
            if sign == "[":
                path.append(self.either(depth + 1))
                self.expect("]")
            elif self.kind == "name":
                path.append(Constant(self.word))
                self.advance()
            elif self.kind == "sign" and self.word == "*":
                raise BadExpression("'.*' is not supported; name the property", self.begin)
            else:
                raise BadExpression(f"expected a property's name after '.', not {self._found()}", self.begin)
        return tuple(path)

    def _found(self) -> str:
        return self.word if self.kind == "end" else repr(self.word[:40])


def _end_of_expression(text: str, begin: int) -> int:
    """Where the `}}` is that ends the expression at `begin`; one inside a quoted text does not."""
    quoted = False
    for at in range(begin, len(text)):
        if text[at] == "'":
            quoted = not quoted
        elif text.startswith("}}", at) and not quoted:
            return at
    raise BadExpression("'${{' without its '}}'" + (" (a ' is not closed)" if quoted else ""), begin - 3)


def _strange(rest: str) -> str:
    if rest[0] == '"':
        return "texts stand in single quotes here: '…', not \"…\""
    if rest[0] == "'":
        return "a text without its closing '"
    return f"{rest[:20]!r} is no part of an expression"


def _unknown(what: str, name: str, known: Mapping[str, object], rest: str, at: int) -> BadExpression:
    property_ = re.match(r"github\.([a-z_]+)", rest)
    if property_ and property_[1] in (CONTEXTS["vole"] or ()):
        return BadExpression(f"github.{property_[1]}: this is not GitHub; write vole.{property_[1]}", at, kind="name")
    if name in _ELSEWHERE:
        return BadExpression(f"{name}: {_ELSEWHERE[name]}", at, kind="name")
    close = nearest(name, known) or next((other for other in known if other.lower() == name.lower()), None)
    remedy = f"did you mean '{close}'?" if close else f"there are: {', '.join(known)}"
    return BadExpression(f"unknown {what} '{name[:40]}'; {remedy}", at, kind="name")


def _number(text: str) -> int | float | None:
    """A number as a literal or in a text; None when the text is none."""
    found = _TOKEN.fullmatch(text.strip(" "))
    if found is None or found.lastgroup != "number":
        return None
    token = found["number"]
    if "x" in token:
        return int(token, 16)
    return float(token) if set(token) & set(".eE") else int(token)


def _walk(expression: Expr) -> Iterator[Expr]:
    stack: list[Expr] = [expression]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case Access(root, path):
                stack.extend(path if isinstance(root, str) else (root, *path))
            case Call(_, arguments):
                stack.extend(arguments)
            case Not(operand):
                stack.append(operand)
            case Logical(_, operands):
                stack.extend(operands)
            case Comparison(_, left, right):
                stack.extend((left, right))


# ---- Evaluating


@dataclass(frozen=True)
class _Evaluation:
    contexts: Contexts
    status: Status

    def value(self, node: Expr) -> Value:
        match node:
            case Constant(value):
                return value
            case Access(root, path):
                found = self.contexts.get(root) if isinstance(root, str) else self.value(root)
                for step in path:
                    found = _property(found, self.value(step))
                return found
            case Not(operand):
                return not truthy(self.value(operand))
            case Logical(operator, operands):
                return self._logical(operator, operands)
            case Comparison(operator, left, right):
                return _compare(operator, self.value(left), self.value(right))
            case Call(name, arguments):
                if name in STATUS_FUNCTIONS:
                    return name in ("always", {"cancelled": "cancelled"}.get(self.status, self.status))
                return _CALLS[name]([self.value(argument) for argument in arguments])

    def _logical(self, operator: str, operands: tuple[Expr, ...]) -> Value:
        value: Value = None
        for operand in operands:
            value = self.value(operand)
            if truthy(value) == (operator == "||"):
                break
        return value


def _property(holder: Value, key: Value) -> Value:
    if isinstance(holder, dict) and isinstance(key, str):
        return holder.get(key)
    if isinstance(holder, list) and isinstance(key, (int, float)) and not isinstance(key, bool):
        return holder[int(key)] if key == int(key) and 0 <= key < len(holder) else None
    return None


def _compare(operator: str, left: Value, right: Value) -> bool:
    if operator in ("==", "!="):
        return _equal(left, right) == (operator == "==")
    one: str | float
    other: str | float
    if isinstance(left, str) and isinstance(right, str):
        one, other = left, right
        return _ordered(operator, one < other, one == other)
    one, other = _as_number(left), _as_number(right)
    return not math.isnan(one) and not math.isnan(other) and _ordered(operator, one < other, one == other)


def _ordered(operator: str, less: bool, equal: bool) -> bool:
    return {"<": less, "<=": less or equal, ">": not less and not equal, ">=": not less}[operator]


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, (list, dict)) or isinstance(right, (list, dict)):
        return type(left) is type(right) and left == right
    if type(left) is type(right):
        return left == right
    return _as_number(left) == _as_number(right)


def _as_number(value: Value) -> float:
    """null is 0, true 1, false 0, an empty text 0; what is no number compares with nothing."""
    if isinstance(value, str):
        number = _number(value) if value.strip(" ") else 0
        return math.nan if number is None else number
    return math.nan if isinstance(value, (list, dict)) else (value or 0)


def _contains(arguments: list[Value]) -> Value:
    within, item = arguments
    if isinstance(within, list):
        return any(_equal(member, item) for member in within)
    return to_text(item) in to_text(within)


def _join(arguments: list[Value]) -> Value:
    items: list[Value] = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
    separator = to_text(arguments[1]) if len(arguments) == 2 else ","
    return _bounded(separator.join(_bounded_all(items, len(separator))))


def _format(arguments: list[Value]) -> Value:
    template, values = to_text(arguments[0]), [to_text(value) for value in arguments[1:]]
    parts: list[str] = []
    total = 0
    for found in re.finditer(r"\{\{|\}\}|\{([0-9]{1,2})\}|[{}]|[^{}]+", template):
        parts.append(_slot(found, values))
        total += len(parts[-1])
        if total > limits.EXPRESSION_VALUE_CHARS_MAX:
            break
    return _bounded("".join(parts))


def _slot(found: re.Match[str], values: list[str]) -> str:
    piece = found[0]
    if piece in ("{{", "}}"):
        return piece[0]
    if piece in "{}":
        raise Invalid("format(): a lone brace in the pattern; write '{{' or '}}' for a plain one")
    if found[1] is None:
        return piece
    if int(found[1]) >= len(values):
        raise Invalid(f"format(): {piece} but only {len(values)} values, counted from 0")
    return values[int(found[1])]


def _from_json(arguments: list[Value]) -> Value:
    text = to_text(arguments[0])
    try:
        value: Value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"fromJSON(): {text[:60]!r} is no JSON: {str(error)[:120]}") from None
    if _depth_over(value, limits.EXPRESSION_DEPTH_MAX):
        raise Invalid(f"fromJSON(): nested deeper than {limits.EXPRESSION_DEPTH_MAX} (EXPRESSION_DEPTH_MAX)")
    return value


def _no_constant(name: str) -> Value:
    raise ValueError(f"{name} is no JSON")


def _depth_over(value: Value, most: int) -> bool:
    level: list[Value] = [value]
    for _ in range(most):
        level = [item for holder in level for item in _members(holder)]
        if not level:
            return False
    return True


def _members(value: Value) -> list[Value]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _json(value: Value) -> str:
    return _bounded(json.dumps(value, indent=2, ensure_ascii=False))


def _bounded_all(items: list[Value], extra: int) -> Iterator[str]:
    total = 0
    for item in items:
        text = to_text(item)
        total += len(text) + extra
        if total - extra > limits.EXPRESSION_VALUE_CHARS_MAX:
            _bounded(" " * (limits.EXPRESSION_VALUE_CHARS_MAX + 1))
        yield text


def _bounded(text: str) -> str:
    if len(text) > limits.EXPRESSION_VALUE_CHARS_MAX:
        most = limits.EXPRESSION_VALUE_CHARS_MAX
        raise Invalid(f"an expression's value of more than {most} characters (EXPRESSION_VALUE_CHARS_MAX)")
    return text


_CALLS: Mapping[str, Callable[[list[Value]], Value]] = {
    "contains": _contains,
    "startsWith": lambda arguments: to_text(arguments[0]).startswith(to_text(arguments[1])),
    "endsWith": lambda arguments: to_text(arguments[0]).endswith(to_text(arguments[1])),
    "format": _format,
    "join": _join,
    "toJSON": lambda arguments: _json(arguments[0]),
    "fromJSON": _from_json,
}
