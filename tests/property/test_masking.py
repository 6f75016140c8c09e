"""Whatever is masked and however the stream is cut: nothing masked comes out, nothing else is lost."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from vole_runner.masks import SHOWN, Masks

# Two letters make overlaps and half matches likely.
TEXT = st.text(alphabet="ab\n", max_size=60).map(str.encode)
VALUE = st.text(alphabet="ab", min_size=3, max_size=7).map(str.encode)
CUTS = st.lists(st.integers(min_value=0, max_value=60), max_size=6)


def streamed(masks: Masks, text: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    return b"".join(masks.feed(piece) for piece in pieces) + masks.flush()


def covered(values: list[bytes], text: bytes) -> bytes:
    """The oracle: mark every byte of every occurrence, then put the sign for each run of marks."""
    marked = bytearray(len(text))
    for value in values:
        for at in range(len(text)):
            if text.startswith(value, at):
                marked[at : at + len(value)] = b"\1" * len(value)
    return bytes(0 if mark else char for char, mark in zip(text, marked, strict=True))


@settings(max_examples=300)
@given(st.lists(VALUE, max_size=4), TEXT, CUTS)
def test_a_stream_is_masked_as_if_it_had_come_at_once(values: list[bytes], text: bytes, cuts: list[int]) -> None:
    masks = Masks()
    for value in values:
        masks.add(value)

    shown = streamed(masks, text, cuts)

    kept = bytes(char for char in covered(values, text) if char)
    assert shown.replace(SHOWN, b"") == kept
    assert not any(value in piece for value in values for piece in shown.split(SHOWN))
