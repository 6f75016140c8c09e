"""The corpus: what each known bad input is answered with, word for word."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.workflows.files import AROUND, told


def _cases() -> Iterator[tuple[str, list[str]]]:
    lines = (Path(__file__).parent / "bad_inputs.txt").read_text("utf-8").split("\n")
    given, expected = "", list[str]()
    for line in [*lines, "end "]:
        if line.startswith("    "):
            expected.append(line.strip())
        elif line and not line.startswith("#"):
            if given:
                yield given, expected
            given, expected = line, []


CASES = list(_cases())


def test_the_corpus_has_more_than_two_hundred_inputs() -> None:
    assert len({given for given, _ in CASES}) == len(CASES) > 200


@pytest.mark.proves("SR-18", "SR-19")
@pytest.mark.parametrize(("given", "expected"), CASES, ids=[given[:60] for given, _ in CASES])
def test_a_bad_input_is_refused_with_its_place_and_reason(given: str, expected: list[str]) -> None:
    kind, _, text = given.partition(" ")
    raw, _ = codecs.escape_decode(text.encode())
    content = AROUND[kind].encode().replace(b"%s", raw)

    answers = told(content, "linux", "arm64")

    assert [answer.rstrip() for answer in answers] == expected
