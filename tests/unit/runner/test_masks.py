"""What a job asked to hide leaves the machine in no form and over no border."""

from __future__ import annotations

import base64
import urllib.parse

import pytest

from vole.base import limits
from vole_runner.masks import Masks

SECRET = b"s3cr/t+pass word&more"


def masks(*values: bytes) -> Masks:
    made = Masks()
    for value in values:
        assert made.add(value) is None
    return made


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_value_cut_by_a_chunk_border_is_hidden_wherever_the_border_is(cut: int) -> None:
    stream = masks(SECRET)

    shown = stream.feed(b"before " + SECRET[:cut]) + stream.feed(SECRET[cut:] + b" after\n") + stream.flush()

    assert shown == b"before *** after\n"


@pytest.mark.parametrize("ahead", [b"", b"u", b"us", b"user:", b"login:x"])
def test_a_value_inside_of_a_longer_base64_text_is_hidden(ahead: bytes) -> None:
    coded = base64.b64encode(ahead + SECRET + b"tail")
    first, last = -(-8 * len(ahead) // 6), 8 * (len(ahead) + len(SECRET)) // 6

    shown = masks(SECRET).hide(coded)

    assert shown == coded[:first] + b"***" + coded[last:]


@pytest.mark.parametrize("form", [base64.b64encode(SECRET), base64.urlsafe_b64encode(SECRET).rstrip(b"=")])
def test_a_value_alone_in_base64_is_hidden_whole(form: bytes) -> None:
    assert masks(SECRET).hide(b"<" + form + b">") == b"<***>"


@pytest.mark.parametrize(
    "form",
    [
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote(SECRET),
        urllib.parse.quote_plus(SECRET),
        urllib.parse.quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    ],
)
def test_a_value_as_a_url_carries_it_is_hidden(form: str) -> None:
    assert masks(SECRET).hide(f"https://u:{form}@h/".encode()) == b"https://u:***@h/"


def test_each_line_of_a_value_is_hidden_by_itself() -> None:
    hidden = masks(b"first line\r\n  second line\n\n")

    assert hidden.hide(b"1 first line 2 second line 3") == b"1 *** 2 *** 3"


def test_values_that_overlap_are_hidden_as_one() -> None:
    assert masks(b"abcab", b"abX").hide(b"[abcabX]") == b"[***]"


def test_overlapping_values_over_a_border_are_hidden_as_one() -> None:
    stream = masks(b"abcab", b"abX")

    assert stream.feed(b"[abcab") + stream.feed(b"X]\n") + stream.flush() == b"[***]\n"


def test_text_that_only_begins_like_a_value_comes_out_as_it_was() -> None:
    stream = masks(SECRET)

    shown = stream.feed(b"s3cr") + stream.feed(b"et is not it\ns3c") + stream.flush()

    assert shown == b"s3cret is not it\ns3c"


def test_without_masks_nothing_is_held_back() -> None:
    assert Masks().feed(b"s3cr") == b"s3cr"


@pytest.mark.parametrize("value", [b"ab", b"x" * (limits.MASK_BYTES_MAX + 1)])
def test_a_value_that_cannot_be_hidden_is_said_not_passed_over(value: bytes) -> None:
    refused = Masks().add(value)

    assert refused is not None
    assert "MASK_BYTES_M" in refused


def test_more_lines_than_the_bound_are_refused_by_its_name() -> None:
    hidden = Masks()

    refused = hidden.add(b"\n".join(b"line-%d" % at for at in range(limits.MASKS_MAX + 1)))

    assert refused is not None
    assert "MASKS_MAX" in refused
