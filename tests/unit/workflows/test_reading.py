"""Bytes to nodes: places, aliases, bounds, and what PyYAML would have let pass."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.workflows.files import codes_of, told, with_
from vole.base import limits
from vole.workflows import reading
from vole.workflows.reading import Mapping, Report, Text


def _read(content: str | bytes) -> Mapping:
    report = Report("x.yml")
    node = reading.read(content.encode() if isinstance(content, str) else content, report)
    assert node is not None, report.problems
    return node


def _bomb(levels: int) -> str:
    lines = ["a0: &a0 [x]"] + [f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]" for at in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.proves("SR-18")
@pytest.mark.parametrize(
    "text", ["on", "no", "yes", "3.10", "010", "1:30", "2026-11-30", "null", "~", "1e3", "0x1f", ".inf"]
)
def test_every_scalar_is_text(text: str) -> None:
    node = _read(f"{text}: {text}\nlist: [{text}]\n")

    key, value = node.entries[0]
    assert (key.value, value) == (text, node.get(text))
    assert isinstance(value, Text)
    assert (value.value, value.plain) == (text, True)


def test_places_are_lines_and_columns_from_one_also_after_wide_characters() -> None:
    node = _read("ä: 'ü'\nlist:\n  - x\n  - {k: v}\n")

    found = [reading.at(node, "ä"), *reading.items(node.get("list"))]
    assert [(item.place.line, item.place.column) for item in found if item] == [(1, 4), (3, 5), (4, 5)]


def test_a_byte_order_mark_and_crlf_change_nothing() -> None:
    plain = told(with_("job", "runs-on: Linux"))

    assert told(b"\xef\xbb\xbf" + with_("job", "runs-on: Linux").replace("\n", "\r\n").encode()) == plain


@pytest.mark.parametrize(
    ("content", "line_and_column"),
    [
        ('run: "a ${{ x }} ${{ x }}"', (1, 18)),
        ("run: |\n  one\n  two ${{ x }}\n", (3, 7)),
        ("run: >\n  one\n  two ${{ x }}\n", (3, 7)),
        ('run: "\\u0061 ${{ x }}"', (1, 14)),
        ('run: "${{ \\x78 }}"', (1, 6)),  # spelt otherwise in the file: the beginning of the text
    ],
)
def test_the_place_of_what_stands_inside_a_text(content: str, line_and_column: tuple[int, int]) -> None:
    report = Report("x.yml")
    node = reading.read(content.encode(), report)
    run = reading.at(node, "run")
    assert isinstance(run, Text)

    place = report.inside(run, run.value.rindex("${{"))

    assert (place.line, place.column) == line_and_column


def test_an_alias_is_the_value_it_names() -> None:
    content = "x: &steps [{run: a}]\ny: *steps\nz: [*steps, *steps]\n"

    node = _read(content)

    assert node.get("x") == node.get("y")
    assert reading.items(node.get("z")) == (node.get("x"), node.get("x"))
    assert node.nodes == 21  # as if written out: four keys and lists, and four times a step of four


@pytest.mark.proves("SR-18")
def test_doubling_aliases_are_counted_before_anything_is_expanded() -> None:
    assert len(_bomb(40)) < 1_000

    (answer,) = told(_bomb(40))

    assert "W010" in answer
    assert "YAML_NODES_MAX" in answer


def test_aliases_count_towards_the_depth() -> None:
    content = "a0: &a0 [x]\n" + "".join(f"a{at}: &a{at} [*a{at - 1}]\n" for at in range(1, 40))

    (answer,) = told(content)

    assert "W010" in answer
    assert "YAML_DEPTH_MAX" in answer


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_depth_is_bounded_whatever_is_nested(opening: str) -> None:
    assert codes_of(opening * 500) == ["W010"]


def test_the_largest_depth_and_node_count_are_read() -> None:
    deep = "a: " + "[" * (limits.YAML_DEPTH_MAX - 1) + "]" * (limits.YAML_DEPTH_MAX - 1)
    wide = f"a: [{','.join('x' * (limits.YAML_NODES_MAX - 3))}]"

    assert _read(deep).height == limits.YAML_DEPTH_MAX
    assert _read(wide).nodes == limits.YAML_NODES_MAX
    assert codes_of(f"a: [{','.join('x' * (limits.YAML_NODES_MAX - 2))}]") == ["W010"]


def test_ten_thousand_values_take_a_moment_and_no_recursion() -> None:
    content = "jobs:\n" + "".join(f"  j{at}: {{steps: [{{run: x}}]}}\n" for at in range(250))

    assert told(content) == []


def test_a_merge_key_in_quotes_is_a_key_like_another() -> None:
    assert codes_of('"<<": {a: b}\njobs: {a: {steps: [{run: x}]}}') == ["W011"]


def test_duplicate_keys_are_all_told_and_reading_goes_on() -> None:
    answers = told("name: a\nname: b\nname: c\njobs:\n  a:\n    runs-on: X\n    steps: [{run: x}]\n")

    assert [answer.split()[:2] for answer in answers] == [["2:1", "W009"], ["3:1", "W009"], ["6:14", "W014"]]


def test_the_c_parser_is_the_one_in_use_here() -> None:
    assert yaml.__with_libyaml__


SAME = [
    "a: 1\nb: [x, 'y', \"z\"]\n",
    "a: |\n  one\n  two\n\nb: >-\n  x\n  y\n",
    "? a\n: b\n",
    "{a: {b: c}, d: [e]}",
    "a: &x {b: c}\nd: *x\n",
    "- a\n- - b\n  - c\n",
    'a: "\\x41\\u00e9\\n"\n',
    "# only\n\na: # c\n  b\n",
]


@pytest.mark.parametrize("content", SAME)
def test_pyyaml_without_the_c_parser_gives_the_same_events(content: str) -> None:
    def events(loader: type[yaml.SafeLoader | yaml.CSafeLoader]) -> list[tuple[object, ...]]:
        return [
            (type(event).__name__, getattr(event, "value", None), event.start_mark.line, event.start_mark.column)
            for event in yaml.parse(content, Loader=loader)
            if not isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent))
        ]

    assert events(yaml.CSafeLoader) == events(yaml.SafeLoader)
