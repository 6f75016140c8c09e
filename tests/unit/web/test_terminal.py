from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vole.base import limits
from vole.web.pages.terminal import Painter, together
from vole.wire.runner import Mark

_TAG = re.compile(r"<[^>]*>")


def _html(data: bytes, *marks: Mark, start: int = 0) -> str:
    painter = Painter(start, marks)
    return together([*painter.feed(data), *painter.end()])


def _lines(data: bytes) -> list[str]:
    return re.findall(r'<div class="ln" id="o\d+"><a [^>]*></a>(.*?)</div>', _html(data))


def _mark(offset: int, step: int, title: str = "") -> Mark:
    return Mark(offset, 0, step, "begin", title)


@pytest.mark.proves("SR-50")
@pytest.mark.parametrize(
    "line",
    [
        b"<script>alert(1)</script>",
        b"\x1b[31m<img src=x onerror=alert(1)>\x1b[0m",
        b"\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
        b"\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
        b"\x1b[31;\"onmouseover=alert(1)m",
        b"::group::<script>x</script>",
        b"::error file=<b>::<script>x</script>",
    ],
)  # fmt: skip
def test_nothing_in_a_log_becomes_a_tag_or_a_link(line):
    tags = set(_TAG.findall(_html(line + b"\n")))

    ours = re.compile(
        r'</?(?:div|span|summary|details)(?: (?:class|id)="[a-z0-9 ]*")*(?: open)?>'
        r'|<a href="#o\d+" aria-hidden="true" tabindex="-1">|</a>'
    )
    assert all(ours.fullmatch(tag) for tag in tags), tags


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"\x1b[31mred\x1b[0m plain", '<span class="f1">red</span> plain'),
        (b"\x1b[1;92mok\x1b[22;39m!", '<span class="f10 bold">ok</span>!'),
        (b"\x1b[44mblue\x1b[49m", '<span class="b4">blue</span>'),
        (b"\x1b[38;5;196mx\x1b[m", '<span class="f9">x</span>'),
        (b"\x1b[38;2;0;255;0mx", '<span class="f10">x</span>'),
        (b"\x1b[2Kcleared\x1b[1A", "cleared"),
        (b"\x1b]0;title\x07text", "text"),
        (b"10%\r50%\r100%", "100%"),
        (b"text\r", "text"),
        (b"bell\x07 nul\0", "bell\\x07 nul\\x00"),
        ("name \u202egnp.exe".encode(), "name \\u202egnp.exe"),
        (b"caf\xe9", "caf\\xe9"),
        (b"\tindented", "\tindented"),
        (b"a & b", "a &amp; b"),
    ],
)
def test_a_line_looks_as_on_a_terminal(line, shown):
    assert _lines(line + b"\n") == [shown]


def test_a_colour_goes_on_into_the_next_line_and_ends_with_its_step():
    painted = _html(b"\x1b[31mone\ntwo\nthree\n", _mark(0, 1), _mark(13, 2))

    assert painted.count('<span class="f1">') == 2


def test_lines_stand_in_the_step_that_printed_them():
    painted = _html(b"a\nb\n", _mark(0, 1, "Build"), _mark(2, 2, "Test <x>"))

    assert re.sub(r'<a [^>]*></a>| id="[^"]*"', "", painted) == (
        '<details class="step" open><summary>Build</summary><div><div class="ln">a</div></div></details>'
        '<details class="step" open><summary>Test &lt;x&gt;</summary><div><div class="ln">b</div></div></details>'
    )


def test_a_range_begins_inside_its_step():
    assert "<summary>Build</summary>" in _html(b"later\n", _mark(0, 1, "Build"), start=100)


def test_a_group_folds_its_lines_and_ends_with_its_step():
    painted = _html(b"::group::deps\nx\n::endgroup::\ny\n", _mark(0, 1, "Build"))

    assert re.search(r'<details class="group"><summary>deps</summary><div id="g0"><div [^>]*><a [^>]*></a>x', painted)
    assert painted.endswith("y</div></div></details>")


@pytest.mark.proves("SR-33")
def test_stopped_commands_are_text_until_their_word():
    lines = _lines(b"::stop-commands::w\n::error::no\n::w::\n::error::yes\n")

    assert lines == ["::error::no", "::w::", '<span class="error">error: yes</span>']


def test_a_mark_that_comes_late_is_noticed():
    painter = Painter(0, [_mark(0, 1)])
    painter.feed(b"one\ntwo\n")

    assert painter.more_marks([_mark(0, 1), _mark(8, 2)])
    assert not painter.more_marks([_mark(0, 1), _mark(8, 2), _mark(5, 3)])


def test_the_unfinished_line_is_shown_and_painted_again_when_it_ends():
    painter = Painter()
    painter.feed(b"done\nhal")

    assert painter.partial() == "hal"
    assert "half" in painter.feed(b"f\n")[0].head


def test_a_line_without_end_is_shown_in_bounded_parts():
    painter = Painter()
    pieces = [piece for _ in range(40) for piece in painter.feed(b"x" * 10_000)]

    assert len(pieces) == 400_000 // limits.LOG_LINE_BYTES_MAX
    assert len(painter.partial()) < limits.LOG_LINE_BYTES_MAX


_ATOMS = [b"a", b"\n", b"\r", b"\x1b[31m", b"\x1b", b"::group::g\n", b"\xc3", b"\xa9"]


@given(st.lists(st.sampled_from(_ATOMS), max_size=30), st.data())
def test_however_the_bytes_are_cut_the_page_is_the_same(parts, data):
    whole = b"".join(parts)
    marks = [_mark(0, 1), _mark(len(whole) // 2, 2)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    painter = Painter(0, marks)
    pieces = [
        piece
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for piece in painter.feed(whole[begin:end])
    ]

    assert together([*pieces, *painter.end()]) == _html(whole, *marks)
