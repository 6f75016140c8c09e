from __future__ import annotations

import pytest

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.wire.hook import RefUpdate, answer, read_question

A, NONE = b"a" * 40, b"0" * 40


def test_a_question_is_read_whole():
    question = read_question([b"check /q", b"option ci.skip", b"option ", NONE + b" " + A + b" refs/heads/a b"])

    assert question.quarantine == "/q"
    assert question.options == ("ci.skip", "")
    assert question.updates == (RefUpdate("refs/heads/a b", None, A.decode()),)


@pytest.mark.parametrize(
    "lines",
    [[], [b"x"], [b"check /q", b"x"], [b"check /q", b"a b refs/heads/x"], [b"check ", NONE + b" " + A + b" HEAD"]],
)
def test_what_is_no_question_is_refused(lines):
    with pytest.raises(Invalid):
        read_question(lines)


@pytest.mark.proves("SR-15")
def test_a_question_over_a_bound_is_refused_by_its_name():
    update = NONE + b" " + A + b" refs/heads/x"
    for lines, bound in (
        ([update] * (limits.PUSH_REFS_MAX + 1), "PUSH_REFS_MAX"),
        ([b"option x"] * (limits.PUSH_OPTIONS_MAX + 1), "PUSH_OPTIONS_MAX"),
        ([b"option " + b"x" * (limits.PUSH_OPTION_BYTES_MAX + 1)], "PUSH_OPTION_BYTES_MAX"),
    ):
        with pytest.raises(Exhausted, match=bound):
            read_question([b"check /q", *lines])


def test_only_the_last_line_can_look_like_the_status():
    text = answer([".vole/workflows/ci.yml:1:1 W001", ".0", "two\n.1"], 1)

    assert text == b".vole/workflows/ci.yml:1:1 W001\n .0\ntwo\n .1\n.1\n"
