"""A log on a terminal: colours stay, nothing else acts, whatever pieces the bytes come in."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vole.base import limits
from vole.ssh.answers.terminal import TerminalText

RESET = b"\x1b[0m"


def shown(*pieces: bytes) -> bytes:
    text = TerminalText()
    return b"".join(text.lines(piece) for piece in pieces) + text.rest()


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        (b"plain\nlines\n", b"plain\nlines\n"),
        (b"no end", b"no end\n"),
        (b"", b""),
        (b"\x1b[1;31mred\x1b[0m\tx\n", b"\x1b[1;31mred\x1b[0m\tx\n" + RESET),
        (b"\x1b]0;title\x07\n", b"\\x1b]0;title\\x07\n"),
        (b"\x1b[2J\x1b[Hcleared\n", b"\\x1b[2J\\x1b[Hcleared\n"),
        (b"\x9b31m \xff\n", b"\\x9b31m \\xff\n"),
        ("\u202egnp.exe\u2028x\n".encode(), b"\\u202egnp.exe\\u2028x\n"),
        (b" 10%\r 50%\r100%\ndone\r\n", b"100%\ndone\n"),
    ],
)
def test_what_a_job_printed_is_safe_to_show(raw: bytes, safe: bytes) -> None:
    assert shown(raw) == safe


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_pieces_show_what_the_whole_shows_and_only_colours_act(raw: bytes, cuts: list[int]) -> None:
    borders = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[begin:end] for begin, end in itertools.pairwise(borders)]

    whole = shown(raw)

    assert shown(*pieces) == whole
    bare = re.sub(rb"\x1b\[[0-9;:]*m", b"", whole)
    assert all(byte >= 0x20 or byte in b"\t\n" for byte in bare)


def test_an_endless_line_is_not_held_for_ever() -> None:
    text = TerminalText()

    given = b"".join(text.lines(b"x" * 1000) for _ in range(1000))

    assert len(given) > 1000 * 1000 - 2 * limits.LOG_CHUNK_BYTES
