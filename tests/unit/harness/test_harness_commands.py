from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vole.base import limits
from vole_runner.harness.commands import CommandReader, Mask, Remark


def read(*pieces):
    """What was shown, piece by piece, and every command."""
    reader = CommandReader()
    shown, found = [], []
    for piece in pieces:
        out, said = reader.feed(piece)
        shown.append(out)
        found += said
    out, said = reader.flush()
    return [*shown, out], found + said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"::add-mask::secret", Mask(b"secret")),
        (b"::add-mask::two%0Alines%25", Mask(b"two\nlines%")),
        (b"::add-mask::%250A", Mask(b"%0A")),
        (b"::add-mask::a::b", Mask(b"a::b")),
        (b"::notice::hi", Remark("notice", "hi", "", 0)),
        (b"::warning file=a.py::hi", Remark("warning", "hi", "a.py", 0)),
        (b"::error file=a.py,line=7,col=3::a::b", Remark("error", "a::b", "a.py", 7)),
        (b"::error line=7, file=c%3A%2Cd ::x", Remark("error", "x", "c:,d", 7)),
        (b"::error file=a:b::x", Remark("error", "x", "a:b", 0)),
        (b"::error line=abc::x", Remark("error", "x", "", 0)),
        (b"::error line=99999999999::x", Remark("error", "x", "", 0)),
        (b"::error::\xff", Remark("error", "�", "", 0)),
        (b"::error::", Remark("error", "", "", 0)),
    ],
)
def test_a_command_is_read_as_it_says(line, said):
    assert read(line + b"\n")[1] == [said]
    assert read(line + b"\r\n")[1] == [said]
    assert read(line)[1] == [said]


@pytest.mark.proves("SR-33")
@pytest.mark.parametrize(
    "line",
    [
        b"::set-output name=a::b",
        b"::set-env name=PATH::/evil",
        b"::add-path::/evil",
        b"::debug::x",
        b"::group::x",
        b"::endgroup::",
        b"::add-mask::",
        b"::notice:x",
        b":: error::x",
        b"::error x",
        b" ::error::x",
        b"text ::error::x",
        b"\r::error::x",
        b"##[error]x",
        b"::ERROR::x",
        b"::stop-commands::",
    ],
)
def test_everything_else_is_text(line):
    shown, found = read(line + b"\n")

    assert found == []
    assert b"".join(shown) == line + b"\n"


def test_between_stop_and_its_token_all_is_text():
    lines = b"::stop-commands::tok\n::error::no\n::add-mask::no\n::other::\n::tok::\n::error::yes\n"

    assert read(lines)[1] == [Remark("error", "yes", "", 0)]


def test_a_line_over_the_bound_is_text():
    line = b"::error::" + b"x" * limits.COMMAND_LINE_BYTES_MAX

    assert read(line + b"\n")[1] == []
    assert read(line[:70], line[70:], b"\n::error::next\n")[1] == [Remark("error", "next", "", 0)]


def test_a_message_and_a_file_are_cut_to_their_bounds():
    [said] = read(b"::error file=" + b"f" * 999 + b"::" + b"m" * 9_999 + b"\n")[1]

    assert len(said.message) == limits.ANNOTATION_CHARS_MAX
    assert len(said.file) == limits.TEXT_CHARS_MAX


def test_a_beginning_of_a_mask_is_held_back_until_the_line_is_whole():
    shown, found = read(b"before\n::add-mask::sec", b"ret", b"\nafter")

    assert shown == [b"before\n", b"", b"::add-mask::secret\nafter", b""]
    assert found == [Mask(b"secret")]


def test_a_line_that_turns_out_to_be_text_is_shown_at_once():
    assert read(b"::a", b"pple", b" pie")[0] == [b"", b"::apple", b" pie", b""]


def test_a_mask_that_never_ends_is_shown_when_it_passes_the_bound():
    line = b"::add-mask::" + b"x" * limits.COMMAND_LINE_BYTES_MAX

    shown, found = read(line[:40_000], line[40_000:])

    assert shown == [b"", line, b""]
    assert found == []


@given(
    st.lists(
        st.sampled_from(
            [b"::add-mask::s", b"::error::e", b"::", b":", b"add-mask", b"\n", b"\r\n", b"x", b"::stop-commands::t\n"]
        ),
        max_size=30,
    ),
    st.lists(st.integers(1, 20), min_size=1, max_size=10),
)
def test_however_the_log_is_cut_it_means_the_same_and_loses_nothing(parts, cuts):
    whole = b"".join(parts)
    pieces, at, turn = [], 0, 0
    while at < len(whole):
        size = cuts[turn % len(cuts)]
        pieces.append(whole[at : at + size])
        at, turn = at + size, turn + 1

    shown, found = read(*pieces)

    assert b"".join(shown) == whole
    assert found == read(whole)[1]
