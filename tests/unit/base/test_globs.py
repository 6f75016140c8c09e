"""Patterns. The table of forty examples is in docs/workflow.md; here stands what it cannot show."""

from __future__ import annotations

import pytest

from vole.base import globs, limits
from vole.base.errors import Invalid


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "empty"),
        ("!", "empty"),
        ("a" * (limits.GLOB_CHARS_MAX + 1), "GLOB_CHARS_MAX"),
        ("[abc", "without its"),
        ("[]", "without its"),
        ("[!a]", "turned round"),
        ("[^a]", "turned round"),
        ("[a/b]", "inside a set"),
        ("[z-a]", "no range"),
        ("a***", "three stars"),
        ("a\\*", "backslash"),
        ("[0-9]+", "repeats nothing"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        globs.check(pattern)


def test_a_list_does_not_begin_by_taking_away() -> None:
    globs.check_all(["**", "!a"])
    with pytest.raises(Invalid, match="begin with what to match"):
        globs.check_all(["!a", "**"])


def test_paths_keep_their_order() -> None:
    assert globs.filter_paths(["**", "!b"], ["c", "b", "a"]) == ["c", "a"]


def test_no_pattern_makes_matching_slow() -> None:
    pattern = "*a" * 250 + "b"
    text = "a" * 4_000

    # A backtracking matcher would not end; this one reads the text once. The test's own bound is the proof.
    assert not globs.match([pattern], text)
    assert not globs.match(["**a" * 100 + "b"], text)
    assert globs.match(["**/" * 50 + "a"], "/".join("a" * 1_000))


def test_a_range_and_a_set_of_odd_characters() -> None:
    assert all(globs.match(["[a-c0-2_-]"], char) for char in "abc012_-")
    assert not globs.match(["[a-c0-2_-]"], "d")
    assert globs.match(["[!]x"], "!x")
