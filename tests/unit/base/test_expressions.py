"""Expressions: what they mean, what is refused, and that they are bounded."""

from __future__ import annotations

import pytest

from vole.base import expressions, limits
from vole.base.errors import Invalid
from vole.base.expressions import BadExpression, Contexts, Status, Value

CONTEXTS: Contexts = {
    "vole": {"ref_name": "main", "run_number": 7},
    "matrix": {"os": "linux", "fast": True, "py": "3.10", "n": "10"},
    "env": {"A": "x", "EMPTY": ""},
    "needs": {"build": {"result": "success", "outputs": {"v-1": "1.2"}}},
    "steps": {},
    "inputs": {},
    "runner": {"os": "Linux"},
}


def value(text: str, status: Status = "success") -> Value:
    return expressions.evaluate(expressions.parse(text), CONTEXTS, status)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a'", "a"),
        ("'it''s'", "it's"),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("0xff", 255),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ("vole.ref_name", "main"),
        ("vole['ref_name']", "main"),
        ("matrix.nope", None),
        ("matrix.nope.deeper", None),
        ("matrix.os.length", None),
        ("needs.build.outputs.v-1", "1.2"),
        ("needs['build'].outputs['v-1']", "1.2"),
        ("vole.ref_name == 'main'", True),
        ("vole.ref_name == 'Main'", False),
        ("vole.ref_name != 'main'", False),
        ("vole.run_number == '7'", True),
        ("vole.run_number >= 7", True),
        ("matrix.n > 9", True),
        ("matrix.n > '9'", False),  # two texts compare as texts
        ("matrix.py == 3.1", True),
        ("matrix.os > 1", False),
        ("matrix.os < 1", False),
        ("'' == 0", True),
        ("' ' == 0", True),
        ("null == 0", True),
        ("true == 1", True),
        ("'true' == true", False),
        ("'1_0' == 10", False),
        ("'\u0661' == 1", False),
        ("matrix.fast && 'quick' || 'full'", "quick"),
        ("'' || 'b' || 'c'", "b"),
        ("'a' && 'b' && 0", 0),
        ("!matrix.fast", False),
        ("!(1 == 2) && !false", True),
        ("1 == 1 && 2 == 3 || true", True),
        ("contains('hello', 'ell')", True),
        ("contains('hello', 'ELL')", False),
        ("contains(fromJSON('[1, \"a\"]'), 'a')", True),
        ("contains(fromJSON('[1, 2]'), '2')", True),
        ("contains(fromJSON('[1, 2]'), 3)", False),
        ("startsWith(vole.ref_name, 'ma')", True),
        ("endsWith(vole.ref_name, 'ma')", False),
        ("format('{0}-{1}-{0} {{x}}', 'a', 2)", "a-2-a {x}"),
        ("join(fromJSON('[1, true, null, \"b\"]'), '/')", "1/true//b"),
        ("join('a')", "a"),
        ("join(fromJSON('[1, 2]'))", "1,2"),
        ("fromJSON('{\"a\": [10, 20]}').a[1]", 20),
        ("fromJSON('[5]')[3]", None),
        ("fromJSON('[5]')[true]", None),
        ("toJSON(needs.build.outputs)", '{\n  "v-1": "1.2"\n}'),
        ("fromJSON(toJSON(matrix)).os", "linux"),
    ],
)
def test_an_expression_has_its_value(text: str, expected: Value) -> None:
    found = value(text)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "at", "sentence"),
    [
        ("", 0, "expected a value"),
        ("a b", 0, "unknown context 'a'"),
        ("vole.sha vole", 9, "expected an operator"),
        ("vole.", 5, "property's name"),
        ("vole.sha ==", 11, "expected a value"),
        ("(1", 2, r"expected '\)'"),
        ("1 == 2 == 3", 7, "not chained"),
        ('"a"', 0, "single quotes"),
        ("'a", 0, "closing"),
        ("1 & 2", 2, "no part of an expression"),
        ("vole.*", 5, "not supported"),
        ("contains('a')", 0, "takes 2 arguments"),
        ("success(1)", 0, "takes 0 arguments"),
        ("Contains('a', 'b')", 0, "did you mean 'contains'"),
        ("github.sha", 0, "write vole.sha"),
        ("1 == github.event_name", 5, "write vole.event_name"),
        ("github.token", 0, "write vole.NAME"),
        ("secrets.A", 0, "no secret store"),
        ("hashFiles('a')", 0, "no hashFiles"),
        ("matrx.os", 0, "did you mean 'matrix'"),
        ("12abc", 0, "no part"),
        ("1.2.3", 0, "no part"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, at: int, sentence: str) -> None:
    with pytest.raises(BadExpression, match=sentence) as refusal:
        expressions.parse(text)

    assert refusal.value.at == at


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a ${{ matrix.os }}-${{ vole.run_number }}", "a linux-7"),
        ("${{ '}}' }}", "}}"),
        ("${{ matrix.nope }}!", "!"),
        ("it's ${{ 'a' }} isn't it", "it's a isn't it"),
        ("$${{ 'a' }} $ {{ }}", "$a $ {{ }}"),
        ("${{ true }} ${{ 3.0 }} ${{ 1.5 }} ${{ null }}", "true 3 1.5 "),
    ],
)
def test_a_text_gets_the_values_of_its_expressions(text: str, shown: str) -> None:
    assert expressions.interpolate(text, CONTEXTS) == shown


def test_a_value_that_looks_like_an_expression_is_not_evaluated_again() -> None:
    contexts: Contexts = {"env": {"A": "${{ env.B }}", "B": "secret"}}

    assert expressions.interpolate("${{ env.A }}", contexts) == "${{ env.B }}"


@pytest.mark.parametrize("text", ["x", "a ${{ b }} 'c'", "''${{", "${{ ' }}"])
def test_a_literal_gives_its_text_back(text: str) -> None:
    assert expressions.interpolate(expressions.literal(text), {}) == text


@pytest.mark.parametrize("text", ["${{ a", "${{ 'a }}", "x ${{"])
def test_an_expression_without_its_end_is_refused(text: str) -> None:
    with pytest.raises(BadExpression, match="without its"):
        expressions.parse_template(text)


STATUSES: tuple[Status, ...] = ("success", "failure", "cancelled", "skipped")


@pytest.mark.parametrize(
    ("text", "runs_after"),
    [
        (None, "success"),
        ("true", "success"),
        ("false", ""),
        ("vole.ref_name == 'main'", "success"),
        ("${{ vole.ref_name == 'main' }}", "success"),
        ("success()", "success"),
        ("failure()", "failure"),
        ("cancelled()", "cancelled"),
        ("always()", "success failure cancelled skipped"),
        ("!cancelled()", "success failure skipped"),
        ("failure() || success()", "success failure"),
        ("always() && vole.ref_name == 'other'", ""),
        ("'false'", "success"),
        ("''", ""),
    ],
)
def test_a_condition_asks_for_success_unless_it_says_otherwise(text: str | None, runs_after: str) -> None:
    found = [status for status in STATUSES if expressions.condition(text, CONTEXTS, status)]

    assert found == runs_after.split()


@pytest.mark.parametrize("text", ["${{ true }} && false", "x ${{ true }}", "${{ true }}${{ true }}"])
def test_a_condition_with_text_beside_its_expression_is_refused(text: str) -> None:
    with pytest.raises(BadExpression, match="around the whole condition"):
        expressions.parse_condition(text)


def test_nesting_is_bounded() -> None:
    deep = "(" * (limits.EXPRESSION_DEPTH_MAX + 1) + "1" + ")" * (limits.EXPRESSION_DEPTH_MAX + 1)

    for text in (deep, "!" * 2_000 + "true", "matrix" + "[matrix" * 400 + "]" * 400, "join(" * 500 + "1" + ")" * 500):
        with pytest.raises(BadExpression, match="EXPRESSION_DEPTH_MAX"):
            expressions.parse(text)


def test_a_long_row_of_operands_needs_no_depth() -> None:
    text = " && ".join(["true"] * 500)

    assert value(text) is True


def test_an_expression_is_bounded_in_length() -> None:
    with pytest.raises(BadExpression, match="EXPRESSION_CHARS_MAX"):
        expressions.parse("'" + "x" * limits.EXPRESSION_CHARS_MAX + "'")


@pytest.mark.parametrize(
    "text",
    [
        "format(format(format('{0}{0}{0}{0}{0}{0}{0}{0}', env.L), env.L), env.L)",
        "format('{0}{0}{0}', env.L)",
        "join(fromJSON(format('[{0}]', env.ONES)), env.L)",
        "toJSON(format('{0}{0}', env.L))",
    ],
)
def test_a_value_is_bounded_in_length(text: str) -> None:
    half = "x" * (limits.EXPRESSION_VALUE_CHARS_MAX // 2 + 1)
    contexts: Contexts = {"env": {"L": half, "ONES": ",".join("1" * 50_000)}}

    with pytest.raises(Invalid, match="EXPRESSION_VALUE_CHARS_MAX"):
        expressions.evaluate(expressions.parse(text), contexts)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fromJSON('nope')", "no JSON"),
        ("fromJSON('NaN')", "no JSON"),
        ("fromJSON(env.DEEP)", "JSON"),
        ("fromJSON(env.DIGITS)", "no JSON"),
        ("format('{1}', 'a')", "only 1 values"),
        ("format('{x}', 'a')", "lone brace"),
    ],
)
def test_a_function_refuses_what_it_cannot_use(text: str, sentence: str) -> None:
    contexts: Contexts = {"env": {"DEEP": "[" * 60_000, "DIGITS": "9" * 5_000}}

    with pytest.raises(Invalid, match=sentence):
        expressions.evaluate(expressions.parse(text), contexts)


def test_json_nested_too_deep_is_refused() -> None:
    deep = "[" * 33 + "]" * 33

    with pytest.raises(Invalid, match="EXPRESSION_DEPTH_MAX"):
        value(f"fromJSON('{deep}')")
