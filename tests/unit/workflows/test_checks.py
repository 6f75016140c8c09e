"""The folder as a whole: which entries are files, what is refused in their place, and how much is said."""

from __future__ import annotations

import json

import pytest

from tests.unit.workflows.files import AROUND, a_file, checked, codes_of, told, with_
from vole.base import limits
from vole.wire import codec
from vole.workflows import checks
from vole.workflows.checks import parse
from vole.workflows.model import MODE_LINK, MODE_SUBMODULE, Checked, Problem

GOOD = AROUND["top"].replace("%s", "name: x")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (".vole/workflows/ci.yml", True),
        (".vole/workflows/ci.yaml", True),
        (".vole/workflows/.ci.yml", True),
        (".vole/workflows/sub/ci.yml", False),
        (".vole/workflows/README.md", False),
        (".vole/workflows/ci.YML", False),
        (".vole/workflows/.yml", False),
        (".vole/ci.yml", False),
        (".vole/workflows", True),  # a link in place of the folder
        ("x/.vole/workflows/ci.yml", False),
    ],
)
def test_which_paths_are_workflows(path: str, is_one: bool) -> None:
    assert checks.is_workflow(path) is is_one


def test_other_entries_are_ignored_with_one_notice() -> None:
    others = tuple(a_file(b"\xff", name) for name in ("README.md", "sub/ci.yml", "x\x1b[2J", "y"))

    result = parse((a_file(GOOD), *others))

    assert result.problems == ()
    assert len(result.workflows) == 1
    (notice,) = result.notices
    assert notice.startswith("ignored: .vole/workflows/README.md, .vole/workflows/sub/ci.yml, ")
    assert "\x1b" not in notice


@pytest.mark.proves("SR-21")
@pytest.mark.parametrize(("mode", "word"), [(MODE_LINK, "symlink"), (MODE_SUBMODULE, "submodule")])
def test_a_link_or_submodule_in_a_files_place_is_refused(mode: int, word: str) -> None:
    result = parse((a_file(GOOD, mode=mode),))

    assert [problem.code for problem in result.problems] == ["W030"]
    assert word in result.problems[0].sentence
    assert result.workflows == ()


@pytest.mark.proves("SR-15")
def test_files_and_bytes_are_bounded_by_name() -> None:
    many = parse(tuple(a_file(GOOD, f"f{at}.yml") for at in range(limits.WORKFLOW_FILES_MAX + 1)))
    large = checked(b"#" * (limits.WORKFLOW_BYTES_MAX + 1))

    assert "WORKFLOW_FILES_MAX" in many.problems[0].sentence
    assert "WORKFLOW_BYTES_MAX" in large.problems[0].sentence
    assert parse(tuple(a_file(GOOD, f"f{at}.yml") for at in range(limits.WORKFLOW_FILES_MAX))).problems == ()


def test_one_bad_file_gives_no_workflows_at_all() -> None:
    result = parse((a_file(GOOD, "a.yml"), a_file("x", "b.yml")))

    assert result.workflows == ()
    assert [problem.path for problem in result.problems] == [".vole/workflows/b.yml"]


def test_the_first_twenty_problems_are_shown_and_the_rest_counted() -> None:
    result = checked("jobs: {a: {steps: [{run: x}]}}\n" + "".join(f"k{at}: x\n" for at in range(25)))

    assert len(result.lines) == limits.PROBLEMS_SHOWN_MAX + 1
    assert result.lines[-1] == "… and 5 more problems"
    assert len(result.problems) == 25


def test_problems_beyond_what_is_kept_are_counted() -> None:
    result = checked("jobs: {a: {steps: [{run: x}]}}\n" + "".join(f"k{at}: x\n" for at in range(1_000)))

    assert len(result.problems) == limits.PROBLEMS_KEPT_MAX
    assert result.lines[-1] == "… and 980 more problems"


def test_what_an_alias_repeats_is_told_once() -> None:
    content = "jobs:\n  a: {steps: &s [{run: x, shel: sh}]}\n  b: {steps: *s}\n  c: {steps: *s}\n"

    assert codes_of(content) == ["W011"]


@pytest.mark.proves("SR-22")
@pytest.mark.parametrize(
    "problem",
    [
        Problem("a\x1b]0;x\x07.yml", 1, 1, "W011", "unknown key '\x9b31m'"),
        Problem("a\u202eb.yml", 1, 1, "W011", "x"),
        Problem("a\udcff.yml", 1, 1, "W011", "x\ny"),
        Problem("a" * 5_000, 1, 1, "W011", "x" * 5_000),
    ],
)
def test_a_problem_is_one_bounded_line_without_control_characters(problem: Problem) -> None:
    assert len(problem.text) <= limits.PROBLEM_CHARS_MAX * 10  # escapes are longer than what they stand for
    assert problem.text.isprintable()
    assert ":1:1 W011 " in problem.text
    assert problem.text.encode("utf-8")


@pytest.mark.proves("SR-22")
def test_hostile_words_of_a_file_are_said_escaped_and_cut() -> None:
    answers = told('"\u202e\u200b' + "k" * 900 + '": x\njobs: {a: {steps: [{run: x}], "\u2066": 1}}')

    assert len(answers) == 2
    for answer in answers:
        assert answer.isprintable()
        assert len(answer) < limits.PROBLEM_CHARS_MAX


def test_a_near_miss_of_a_label_is_refused_and_a_new_label_is_not() -> None:
    assert codes_of(with_("job", "runs-on: lnux"), "linux") == ["W021"]
    assert codes_of(with_("job", "runs-on: gpu-big"), "linux") == []
    assert codes_of(with_("job", "runs-on: lnux")) == []
    assert codes_of(with_("job", "runs-on: lnux"), "linux", "lnux") == []


def test_the_label_problem_reads_as_documented() -> None:
    (line,) = checked(with_("job", "runs-on: Linux")).lines

    assert line == ".vole/workflows/ci.yml:3:14 W014 runs-on: 'Linux' is not a label; labels are lower case: linux"


def test_a_step_may_name_earlier_steps_only_and_outputs_all_of_them() -> None:
    steps = "    steps:\n      - {id: a, run: x}\n      - {id: b, run: x, if: steps.%s.outcome == 'success'}\n"
    job = "jobs:\n  j:\n    outputs: {v: '${{ steps.b.outputs.v }}'}\n"

    assert codes_of(job + steps % "a") == []
    assert codes_of(job + steps % "b") == ["W024"]


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("needs.build.result", None),
        ("needs.build.outputs.v", None),
        ("needs.build.outputs['v']", None),
        ("needs['build'].outputs[matrix.x]", None),
        ("needs.build.outputs.w", "W024"),
        ("needs.build.outcome", "W024"),
        ("needs.other.result", "W024"),
        ("matrix.x", None),
        ("matrix.y", None),
        ("matrix.z", "W024"),
        ("vole['sha']", None),
        ("vole['shaa']", "W024"),
        ("toJSON(needs)", None),
    ],
)
def test_what_an_expression_names_is_checked_where_it_can_be_known(expression: str, code: str | None) -> None:
    content = f"""
jobs:
  build: {{outputs: {{v: x}}, steps: [{{run: x}}]}}
  test:
    needs: build
    strategy: {{matrix: {{x: [a], include: [{{y: b}}]}}}}
    if: {expression}
    steps: [{{run: x}}]
"""
    assert codes_of(content) == ([code] if code else [])


def test_a_checked_folder_crosses_the_pipe_unchanged() -> None:
    result = parse((a_file(GOOD), a_file("on: {push: {paths: ['a/**']}}\n" + GOOD, "b.yml")))
    bad = parse((a_file("x"),))

    for value in (result, bad):
        assert codec.from_json(Checked, json.loads(json.dumps(codec.to_json(value)))) == value
