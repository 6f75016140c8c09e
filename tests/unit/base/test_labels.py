"""The one label rule."""

from __future__ import annotations

import pytest

from vole.base import labels
from vole.base.errors import Invalid
from vole.base.labels import Label

GOOD = ["linux", "0", "a", "arm64", "x.y_z-1", "a" * 63]
BAD = [
    ("Linux", "lower case: linux"),
    ("LINUX", "lower case: linux"),
    ("", "not blank"),
    (" ", "not blank"),
    ("\n", "not blank"),
    ("linux ", "no blanks around it: linux"),
    (" linux", "no blanks around it: linux"),
    ("linux\n", "no blanks around it: linux"),
    ("a" * 64, "1 to 63"),
    ("-a", "1 to 63"),
    (".a", "1 to 63"),
    ("_a", "1 to 63"),
    ("a b", "1 to 63"),
    ("a,b", "1 to 63"),
    ("\u212ainux", "1 to 63"),  # KELVIN SIGN, whose lower case is an ASCII k
    ("l\u0131nux", "1 to 63"),
    ("١", "1 to 63"),
    ("linux\0", "1 to 63"),
]


@pytest.mark.proves("SR-20")
@pytest.mark.parametrize("text", GOOD)
def test_a_label_is_itself(text: str) -> None:
    assert Label.parse(text) == text


@pytest.mark.proves("SR-20")
@pytest.mark.parametrize(("text", "remedy"), BAD)
def test_a_bad_label_is_refused_with_what_would_be_right(text: str, remedy: str) -> None:
    with pytest.raises(Invalid, match=remedy) as refusal:
        Label.parse(text)

    assert refusal.value.code == "bad_label"


def test_labels_keep_their_order_and_stand_there_once() -> None:
    assert labels.parse_all(["b", "a"]) == ("b", "a")
    assert labels.parse_all([]) == ()
    with pytest.raises(Invalid, match="twice"):
        labels.parse_all(["a", "b", "a"])


@pytest.mark.parametrize(
    ("label", "known", "near"),
    [
        ("lnux", ["linux"], "linux"),
        ("linuxx", ["linux"], "linux"),
        ("lniux", ["linux"], "linux"),  # two replacements
        ("linux", ["linux", "linus"], None),  # known itself
        ("lux", ["linux"], None),  # two away, and shorter than five
        ("lnx", ["linux"], None),
        ("macos", ["linux"], None),
        ("fast", ["fest"], "fest"),
        ("fasst", ["fasts", "fast", "flat"], "fast"),  # the nearest, then the first by name
        ("anything", [], None),
        ("arm6", ["arm64", "arm7"], "arm64"),
    ],
)
def test_a_slip_is_near_to_the_label_that_was_meant(label: str, known: list[str], near: str | None) -> None:
    assert labels.near(label, known) == near


@pytest.mark.parametrize(
    ("left", "right", "steps"),
    [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("abc", "abc", 0), ("flaw", "lawn", 2)],
)
def test_the_distance_is_the_fewest_changes(left: str, right: str, steps: int) -> None:
    assert labels.distance(left, right, 10) == labels.distance(right, left, 10) == steps
    assert labels.distance(left, right, 1) == min(steps, 2)


@pytest.mark.parametrize(
    ("label", "known", "shown"),
    [
        ("fast", ["linux", "fastest"], "fastest"),
        ("fsat", ["fast", "linux"], "fast"),
        ("linux-arm64", ["linux", "macos"], "linux"),
        ("gpu", ["linux", "macos"], None),
        ("fast", ["fast", "fastest"], None),  # known itself
        ("abcd", ["abzz", "abcz"], "abcz"),  # the nearest
    ],
)
def test_what_nobody_carries_is_shown_beside_the_label_it_is_like(
    label: str, known: list[str], shown: str | None
) -> None:
    assert labels.alike(label, known) == shown


def test_the_nearest_word_is_not_the_word_itself() -> None:
    assert labels.nearest("stpes", ["steps", "name"]) == "steps"
    assert labels.nearest("steps", ["steps", "name"]) is None
    assert labels.nearest("quite-other", ["steps", "name"]) is None
