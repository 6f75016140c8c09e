"""Whatever the bytes: the check answers, in bounds, with places that are in the file, and the same each time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.workflows.files import a_file, with_
from vole.base import expressions, globs, labels, limits
from vole.base.errors import Invalid
from vole.base.expressions import BadExpression, Contexts, Expr
from vole.wire import codec
from vole.wire.plan import JobPlan
from vole.workflows import codes
from vole.workflows.checks import parse
from vole.workflows.model import Checked

MANY = settings(max_examples=300)
SEEDS = [code.right for code in codes.CODES] + [code.wrong for code in codes.CODES]
SEEDS += re.findall(
    r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs/workflow.md").read_text("utf-8"), re.DOTALL
)
SNIPPETS = [
    b"\n", b"  ", b"- ", b": ", b"? ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"<<: ", b"!!x ", b"|\n", b">\n", b"'",
    b'"', b"#", b"---\n", b"...\n", b"%YAML 1.2\n", b"${{ ", b" }}", b"matrix.a", b"always()", b"\t", b"\r", b"\x00",
    b"\xff", "\u2028".encode(), b"jobs:", b"steps:", b"run: x", b"runs-on: ", b"needs: ", b"include: ", b"x" * 200,
]  # fmt: skip


def _holds(content: bytes) -> Checked:
    """What is true of every answer."""
    result = parse((a_file(content),), frozenset({"linux"}))

    assert bool(result.workflows) != bool(result.problems)
    lines = content.decode("utf-8", "replace").count("\n") + content.count(b"\r") + 2
    listed = {code.code for code in codes.CODES}
    for problem in result.problems:
        assert problem.code in listed
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
        assert problem.text.isprintable()
    assert codec.from_json(Checked, json.loads(json.dumps(codec.to_json(result)))) == result
    for workflow in result.workflows:
        for job in workflow.jobs:
            document = job.document()
            assert len(document) <= limits.PLAN_BYTES_MAX
            assert JobPlan.read(document) == job
    return result


@pytest.mark.proves("SR-18", "SR-22")
@MANY
@given(st.binary(max_size=400))
@example(b"")
def test_any_bytes_are_answered(content: bytes) -> None:
    _holds(content)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    content = bytearray(codes.example(draw(st.sampled_from([seed for seed in SEEDS if len(seed) < 3_000]))))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(content)))
        match draw(st.integers(0, 3)):
            case 0:
                content[at:at] = draw(st.sampled_from(SNIPPETS))
            case 1:
                del content[at : at + draw(st.integers(1, 20))]
            case 2:
                content[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case _:
                end = draw(st.integers(at, min(len(content), at + 60)))
                content[at:at] = content[at:end]
    return bytes(content)


@pytest.mark.proves("SR-18", "SR-22")
@settings(max_examples=300)
@given(_mutated())
def test_a_damaged_workflow_is_answered(content: bytes) -> None:
    _holds(content)


KEYS = """
name on push branches tags paths env defaults run shell jobs a b runs-on needs if strategy matrix include exclude
fail-fast steps id outputs artifacts needs-artifacts checkout depth timeout-minutes continue-on-error uses x
branches-ignore retention-days if-empty max-parallel on-lost working-directory
"""


def _key(at: int) -> str:
    keys = KEYS.split()
    return keys[at % len(keys)]


_KEY = st.integers(0, 99).map(_key)
_WORD = st.one_of(
    _KEY, st.sampled_from(["push", "linux", "lnux", "true", "1", "", "${{ matrix.a }}", "*", "!x", "../x"])
)
_VALUE = st.recursive(
    _WORD, lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(_KEY, below, max_size=6)), max_leaves=30
)


@settings(max_examples=120)
@given(st.dictionaries(_KEY, _VALUE, max_size=6))
def test_any_shape_made_of_our_keys_is_answered(shape: dict[str, object]) -> None:
    _holds(json.dumps(shape).encode())


@settings(max_examples=200)
@given(_mutated())
def test_the_same_file_gets_the_same_answer(content: bytes) -> None:
    assert parse((a_file(content),)) == parse((a_file(content),))


# ---- Expressions

TOKENS = """
vole.sha matrix.a matrix 'x' '' 1 2.5 true null == != < >= && || ! ( ) [ ] . , contains( join( format( toJSON(
fromJSON( success() always() env.A needs.b.result $ github.sha
"""
_TOKENS = st.lists(st.sampled_from(TOKENS.split()), max_size=14).map(" ".join)
_CONTEXTS: Contexts = {"vole": {"sha": "x"}, "matrix": {"a": True}, "env": {"A": "[1]"}, "needs": {}}


@MANY
@given(st.one_of(_TOKENS, st.text(max_size=60)))
def test_an_expression_is_parsed_or_refused_and_evaluates_or_is_refused(text: str) -> None:
    try:
        expression = expressions.parse(text)
    except BadExpression as refusal:
        at = refusal.at
    else:
        at = 0
        _evaluated(expression)
    assert 0 <= at <= len(text)


def _evaluated(expression: Expr) -> None:
    try:
        value = expressions.evaluate(expression, _CONTEXTS)
    except Invalid:
        return
    assert len(expressions.to_text(value)) <= limits.EXPRESSION_VALUE_CHARS_MAX


@MANY
@given(st.text(max_size=80))
def test_a_literal_survives_interpolation(text: str) -> None:
    assert expressions.interpolate(expressions.literal(text), {}) == text


# ---- Patterns: the same answer as a regular expression written from the same rules


def _as_regex(pattern: str) -> str:
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out, at = out + "(?:[^/]*/)*", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[":
            end = pattern.index("]", at)
            out, at = out + pattern[at : end + 1], end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return out


_PATTERN = st.lists(
    st.sampled_from(["a", "b", "/", "*", "**", "**/", "/**/", "?", "[ab]", "."]), min_size=1, max_size=8
).map("".join)


@settings(max_examples=400)
@given(_PATTERN, st.text(alphabet="ab/.", max_size=10))
@example("**/**/a", "a")
@example("a**/b", "ax/b")
def test_a_pattern_matches_what_its_regular_expression_matches(pattern: str, text: str) -> None:
    try:
        globs.check(pattern)
    except Invalid:
        return

    assert globs.match([pattern], text) == bool(re.fullmatch(_as_regex(pattern), text, re.DOTALL))


# ---- Labels


@pytest.mark.proves("SR-20")
@MANY
@given(st.text(max_size=70))
def test_a_label_is_accepted_exactly_when_its_grammar_says(text: str) -> None:
    lower = "abcdefghijklmnopqrstuvwxyz0123456789"
    fits = 0 < len(text) <= 63 and text[0] in lower and all(char in lower + "._-" for char in text)

    try:
        assert labels.Label.parse(text) == text
        accepted = True
    except Invalid:
        accepted = False

    assert accepted == fits
    assert bool(_labelled(text).workflows) == fits


def _labelled(text: str) -> Checked:
    written = json.dumps(text, ensure_ascii=False) if text.isprintable() else '"\\u2603"'
    return parse((a_file(with_("job", f"runs-on: {written}").encode("utf-8", "replace")),))


def _distance(left: str, right: str) -> int:
    if not left or not right:
        return len(left) + len(right)
    return min(
        _distance(left[1:], right) + 1,
        _distance(left, right[1:]) + 1,
        _distance(left[1:], right[1:]) + (left[0] != right[0]),
    )


@MANY
@given(st.text(alphabet="abc", max_size=5), st.text(alphabet="abc", max_size=5), st.integers(0, 3))
def test_the_edit_distance_is_that_of_its_definition(left: str, right: str, most: int) -> None:
    assert labels.distance(left, right, most) == min(_distance(left, right), most + 1)
