"""Messages and their bytes: strict and lenient reading, canonical form, the frame bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.base.ids import CommitId, Epoch, JobId, RepoName
from vole.wire import codec, hook, plan, runner
from vole.wire.frames import Lines


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Message:
    name: RepoName
    inner: Inner | None = None
    kinds: tuple[Literal["a", "b"], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    if_: str | None = None


WHOLE = Message(RepoName("app"), Inner(3), ("a", "b"), {"K": "V"}, "x")


def test_a_message_survives_the_wire():
    assert codec.from_json(Message, codec.parse(codec.canonical(WHOLE))) == WHOLE


def test_canonical_json_has_one_form():
    assert codec.canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"name": "app", "extra": 1}', "extra"),
        ("{}", "name"),
        ('{"name": 1}', "name"),
        ('{"name": "App"}', "App"),
        ('{"name": "app", "inner": {"size": true}}', "inner.size"),
        ('{"name": "app", "inner": {"size": 1.5}}', "inner.size"),
        ('{"name": "app", "inner": [1]}', "inner"),
        ('{"name": "app", "kinds": ["a", "c"]}', "kinds"),
        ('{"name": "app", "kinds": "a"}', "kinds"),
        ('{"name": "app", "name": "lib"}', "duplicate"),
        ('{"name": "app", "inner": {"size": NaN}}', "NaN"),
        ('{"name": "app", "if": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "JSON"),
        ("[]", "object"),
    ],
)
def test_a_strict_reader_refuses_and_names_the_field(text, names):
    with pytest.raises(Invalid, match=names):
        codec.from_json(Message, codec.parse(text))


def test_a_lenient_reader_passes_over_what_is_new_and_nothing_else():
    assert codec.from_json(Message, {"name": "app", "later": 1}, strict=False).name == "app"
    with pytest.raises(Invalid):
        codec.from_json(Message, {"name": 7}, strict=False)


def test_an_unknown_frame_is_refused_by_the_server_and_passed_over_by_the_runner():
    line = b'{"type":"dance"}'

    assert runner.FROM_SERVER.decode(line, strict=False) is None
    with pytest.raises(Invalid, match="dance"):
        runner.FROM_RUNNER.decode(line, strict=True)


def test_a_frame_over_the_bound_is_not_sent():
    finish = runner.Finish(
        JobId(1), Epoch(1), "success", runner.LogSeal(0, ""), summary="x" * (limits.FRAME_BYTES_MAX + 1)
    )

    with pytest.raises(Exhausted, match="FRAME_BYTES_MAX"):
        runner.FROM_RUNNER.encode(finish)


def test_the_first_line_of_a_channel_says_what_it_is():
    line = runner.opening(runner.Open("log", JobId(3), Epoch(2), offset=10))

    assert line.startswith(b'{"')
    assert b'"open":"log"' in line
    assert runner.read_opening(line) == runner.Open("log", JobId(3), Epoch(2), offset=10)


@given(st.lists(st.binary(max_size=50).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.integers(1, 7))
def test_lines_come_whole_however_they_are_cut(lines, size):
    stream = b"".join(line + b"\n" for line in lines)
    reader, found = Lines(), []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])

    assert found == lines


def test_a_line_without_end_is_refused_at_the_bound():
    with pytest.raises(Exhausted, match="FRAME_BYTES_MAX"):
        Lines().feed(b"x" * (limits.FRAME_BYTES_MAX + 1))


def _a_plan() -> plan.JobPlan:
    commit = CommitId("a" * 40)
    event = plan.EventFacts("push", "refs/heads/main", "main", "branch", None, commit, "ada")
    steps = (plan.StepPlan("make test", 1, env={"A": "1"}, if_="always()"),)
    return plan.JobPlan(
        RepoName("app"),
        commit,
        "ci",
        ".vole/workflows/ci.yml",
        commit,
        "test",
        "test",
        "test",
        event,
        steps,  # type: ignore[arg-type]
        matrix={"python": "3.10", "fast": True, "n": 3},
    )


def test_a_pinned_document_reads_back_and_its_digest_is_of_its_bytes():
    document = _a_plan().document()

    assert plan.JobPlan.read(document) == _a_plan()
    assert plan.job_digest(document) == plan.job_digest(plan.JobPlan.read(document).document())


def test_a_document_of_another_version_is_refused():
    with pytest.raises(Invalid, match="v"):
        plan.JobPlan.read(_a_plan().document().replace(b'"v":1', b'"v":2'))


def test_the_hook_asks_and_absent_is_nothing_not_forty_zeros():
    new = "b" * 40
    question = hook.read_question(
        [
            b"check /q",
            b"option ci.skip",
            f"{'0' * 40} {new} refs/heads/main".encode(),
            f"{new} {'0' * 40} refs/tags/v1".encode(),
        ]
    )

    assert question.options == ("ci.skip",)
    assert question.updates[0].old is None
    assert question.updates[0].new == new
    assert question.updates[1].new is None


def test_no_printed_line_can_be_taken_for_the_exit_status():
    assert hook.answer([".0", "a\n.0"], 1) == b" .0\na\n .0\n.1\n"
