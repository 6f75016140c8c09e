"""`on: manual` and `on: schedule`: what is declared, what may be said, and what a run sees of it."""

from __future__ import annotations

import pytest

from tests.unit.workflows.files import told, with_, workflow
from vole.base import limits
from vole.base.errors import Invalid
from vole.base.ids import CommitId, RefName, RepoName
from vole.wire import codec
from vole.wire.plan import EventFacts
from vole.workflows import expand, triggers
from vole.workflows.model import Checked, Input

FILE = with_(
    "top",
    """on:
  manual:
    inputs:
      to: {type: choice, options: [test, live], default: test}
      dry: {type: boolean, default: true}
      note: {required: true, description: why}
      level:""",
)


def event(name: str = "manual", **inputs: object) -> EventFacts:
    return EventFacts(name, "refs/heads/main", "main", "branch", None, "c" * 40, "ada", inputs=inputs)  # type: ignore[arg-type]


def test_the_inputs_of_a_file_are_read_with_their_types() -> None:
    found = workflow(FILE)

    assert found.push is None
    assert found.manual == (
        Input("to", "choice", "", False, "test", ("test", "live")),
        Input("dry", "boolean", "", False, "true"),
        Input("note", "string", "why", True),
        Input("level"),
    )
    assert codec.from_json(Checked, codec.parse(codec.canonical(Checked((found,))))).workflows == (found,)


@pytest.mark.parametrize(
    ("on", "by_hand", "by_push", "times"),
    [
        ("on: manual", True, False, ()),
        ("on: workflow_dispatch", True, False, ()),
        ("on: [push, manual]", True, True, ()),
        ("on: {manual: , push: }", True, True, ()),
        ("on: {workflow_dispatch: {}}", True, False, ()),
        ("on: {schedule: [{cron: '0 3 * * *'}, {cron: '0 4 * * *'}, {cron: '0 3 * * *'}]}", False, False,
         ("0 3 * * *", "0 4 * * *")),
        ("on: push", False, True, ()),
        ("name: x", False, True, ()),
    ],
)  # fmt: skip
def test_what_starts_a_workflow(on: str, by_hand: bool, by_push: bool, times: tuple[str, ...]) -> None:
    found = workflow(with_("top", on))

    assert (found.manual is not None, found.push is not None, found.schedule) == (by_hand, by_push, times)


def test_what_is_said_is_taken_by_its_type_and_the_rest_is_default() -> None:
    declared = workflow(FILE).manual or ()

    assert triggers.given_inputs(declared, {"note": "now", "dry": "false", "to": "live"}) == {
        "to": "live", "dry": False, "note": "now", "level": "",
    }  # fmt: skip


def test_every_problem_of_what_is_said_names_its_input() -> None:
    declared = workflow(FILE).manual or ()
    long = "x" * (limits.INPUT_CHARS_MAX + 1)

    with pytest.raises(Invalid) as refused:
        triggers.given_inputs(declared, {"dry": "yes", "to": "lvie", "levle": "1", "level": long, "odd\x1b": ""})

    assert refused.value.problems == (
        "input levle: there is none; did you mean 'level'?",
        r"input odd\x1b: there is none; there are: to, dry, note, level",
        "input to: 'lvie' is none of test, live; did you mean 'live'?",
        "input dry: 'yes' is neither true nor false",
        "input note: it is required, and nothing was said",
        f"input level: {limits.INPUT_CHARS_MAX + 1} characters; at most {limits.INPUT_CHARS_MAX} (INPUT_CHARS_MAX)",
    )


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_a_required_input_is_not_empty_and_no_value_holds_nul(text: str) -> None:
    with pytest.raises(Invalid, match="inputs above"):
        triggers.given_inputs((Input("note", required=True),), {"note": text})


def test_a_value_at_the_bound_is_taken() -> None:
    text = "x" * limits.INPUT_CHARS_MAX

    assert triggers.given_inputs((Input("a"),), {"a": text}) == {"a": text}


@pytest.mark.parametrize("name", ["push", "schedule"])
def test_where_nobody_was_asked_inputs_are_their_defaults(name: str) -> None:
    run = expand.plan(
        workflow(FILE), RepoName("app"), CommitId("c" * 40), RefName("refs/heads/main"), event(name), protected=True
    )

    wanted = {"to": "test", "dry": True, "note": "", "level": ""}
    assert run.event.inputs == wanted
    assert [job.event.inputs for job in run.jobs] == [wanted]


def test_what_was_said_is_pinned_in_every_job() -> None:
    said = event(to="live", dry=False, note="${{ vole.sha }}", level="")
    run = expand.plan(
        workflow(FILE), RepoName("app"), CommitId("c" * 40), RefName("refs/heads/main"), said, protected=True
    )

    assert {str(job.event.inputs) for job in run.jobs} == {str(said.inputs)}


def test_an_input_may_not_stand_in_a_script() -> None:
    file = "on: {manual: {inputs: {a: }}}\njobs:\n  test:\n    steps:\n      - run: echo ${{ inputs.a }}\n"

    assert "W025" in told(file)[0]
