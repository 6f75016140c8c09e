from __future__ import annotations

import pytest

from vole.base import limits
from vole.base.errors import Conflict, Denied, Exhausted, Fenced, Invalid, NotFound, Unavailable
from vole.ssh import refusals

TABLE = [(Invalid, 2), (Denied, 1), (NotFound, 1), (Conflict, 1), (Fenced, 1), (Exhausted, 75), (Unavailable, 75)]


@pytest.mark.parametrize(("kind", "status"), TABLE)
def test_every_kind_has_its_status_and_its_sentence(kind, status):
    refusal = refusals.of(kind("because"))

    assert refusal.status == status
    assert "because" in refusal.lines[0]
    assert refusal.reference is None


@pytest.mark.parametrize(("kind", "_"), TABLE)
def test_a_hook_refuses_every_kind_with_its_sentence(kind, _):
    refusal = refusals.hook(kind("because"))

    assert refusal.status == 1
    assert refusal.lines[0] == "because"


@pytest.mark.parametrize("column", [refusals.of, refusals.hook])
def test_a_fault_of_ours_shows_a_reference_and_nothing_else(column):
    refusal = column(RuntimeError("secret detail"))

    assert refusal.status == (70 if column is refusals.of else 1)
    assert refusal.reference
    assert refusal.lines == (f"the server failed; its log says why under {refusal.reference}",)


def test_what_may_help_is_said_once():
    assert refusals.of(Unavailable("busy")).lines == ("busy", "try again in a moment")
    assert refusals.of(Exhausted("full", next_step="push less")).lines == ("full", "push less")
    assert refusals.of(Fenced("lease j-41")).lines == ("fenced: lease j-41",)


@pytest.mark.proves("SR-12", "SR-22")
@pytest.mark.parametrize("column", [refusals.of, refusals.hook])
def test_lines_are_bounded_and_have_no_control_byte(column):
    problems = tuple(f"{number} \x1b[31m\u202e" + "x" * 1000 for number in range(100))

    refusal = column(Invalid("many", problems=problems))

    assert len(refusal.lines) <= limits.PROBLEMS_SHOWN_MAX + 5
    for line in refusal.lines:
        assert "\x1b" not in line
        assert "\u202e" not in line
        assert len(line) <= limits.PROBLEM_CHARS_MAX + 20


def test_a_word_that_is_no_command_is_like_a_missing_thing():
    assert refusals.of(Invalid("what?", code="unknown_command")).status == 1
