"""Matrix expansion, what a job's plan holds, and the stamp of a push."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.workflows.files import BLOB, a_file, codes_of, told, with_, workflow
from vole.base import expressions, limits
from vole.base.errors import Exhausted, Invalid
from vole.base.ids import CommitId, RefName, RepoName
from vole.wire.plan import ArtifactPlan, Concurrency, EventFacts, JobPlan, NeededArtifact, RunPlan
from vole.workflows import expand
from vole.workflows.checks import parse
from vole.workflows.model import Decision, PushFilter

COMMIT = CommitId("c" * 40)
EVENT = EventFacts("push", "refs/heads/main", "main", "branch", None, COMMIT, "ada")


def _matrix(text: str, name: str = "") -> list[dict[str, object]]:
    lines = ["strategy:", f"  matrix: {text}"] + ([f"name: {name}"] if name else [])
    return [dict(job.matrix) for job in workflow(with_("job", *lines)).jobs if job.job == "test"]


def test_a_matrix_is_the_product_of_its_lists_in_file_order() -> None:
    assert _matrix("{b: [x, y], a: [1, 2]}") == [
        {"b": "x", "a": "1"},
        {"b": "x", "a": "2"},
        {"b": "y", "a": "1"},
        {"b": "y", "a": "2"},
    ]


def test_matrix_values_are_text_but_for_unquoted_truths() -> None:
    assert _matrix("{v: [3.10, 010, no, true, 'true', 1e3, null]}") == [
        {"v": value} for value in ("3.10", "010", "no", True, "true", "1e3", "null")
    ]


def test_exclude_takes_away_what_has_all_its_values() -> None:
    assert _matrix("{a: [1, 2], b: [x, y], exclude: [{a: 1, b: x}, {a: 2}]}") == [{"a": "1", "b": "y"}]


def test_include_extends_the_combinations_it_agrees_with_and_adds_the_others() -> None:
    found = _matrix("{a: [1, 2], include: [{c: all}, {a: 1, d: one}, {a: 3, e: new}, {a: 1, c: over}]}")

    assert found == [
        {"a": "1", "c": "over", "d": "one"},
        {"a": "2", "c": "all"},
        {"a": "3", "e": "new"},
    ]


def test_an_include_does_not_extend_what_another_include_made() -> None:
    assert _matrix("{include: [{a: 1}, {a: 1, b: 2}]}") == [{"a": "1"}, {"a": "1", "b": "2"}]


def test_sixty_four_combinations_are_the_most() -> None:
    assert len(_matrix(f"{{a: {[*range(8)]}, b: {[*range(8)]}}}")) == 64

    assert codes_of(with_("job", f"strategy: {{matrix: {{a: {[*range(65)]}}}}}")) == ["W020"]


def test_a_matrix_of_millions_is_refused_before_it_is_made() -> None:
    axes = ", ".join(f"a{at}: {[*range(50)]}" for at in range(20))

    (answer,) = told(with_("job", f"strategy: {{matrix: {{{axes}}}}}"))

    assert "W020" in answer
    assert "MATRIX_PRODUCT_MAX" in answer


def test_at_most_256_jobs_come_of_one_file() -> None:
    job = "  j%d: {strategy: {matrix: {a: [%s]}}, steps: [{run: x}]}\n"
    fits = "jobs:\n" + "".join(job % (at, ", ".join(map(str, range(64)))) for at in range(4))

    assert len(workflow(fits).jobs) == limits.WORKFLOW_JOBS_MAX
    assert codes_of(fits + "  one: {steps: [{run: x}]}\n") == ["W020"]


def test_matrix_jobs_have_keys_from_one_and_names_with_their_values() -> None:
    jobs = workflow(with_("job", "strategy: {matrix: {a: [x, y]}}")).jobs

    assert [(job.key, job.name) for job in jobs] == [
        ("test.1", "test (x)"),
        ("test.2", "test (y)"),
        ("other", "other"),
    ]


def test_a_name_with_an_expression_is_used_as_it_is() -> None:
    lines = ("strategy: {matrix: {a: [x, y]}}", "name: on ${{ matrix.a }}")

    assert [job.name for job in workflow(with_("job", *lines)).jobs][:2] == ["on x", "on y"]


def test_labels_artifacts_and_needed_artifacts_are_resolved_when_queued() -> None:
    content = """
jobs:
  build:
    strategy: {matrix: {os: [linux, macos]}}
    runs-on: ["${{ matrix.os }}", fast]
    artifacts: [{name: "dist-${{ matrix.os }}", paths: ["out/${{ matrix.os }}/**"], retention-days: 0, if-empty: error}]
    steps: [{run: make}]
  test:
    needs: build
    needs-artifacts: [dist-linux, {name: dist-macos, path: mac}]
    steps: [{run: make test}]
"""
    first, second, test = workflow(content).jobs

    assert (first.runs_on, second.runs_on) == (("linux", "fast"), ("macos", "fast"))
    assert second.artifacts == (ArtifactPlan("dist-macos", ("out/macos/**",), 0, "error"),)
    assert test.needs_artifacts == (NeededArtifact("dist-linux"), NeededArtifact("dist-macos", "mac"))


def test_test_reports_are_an_artifact_of_their_own_name() -> None:
    lines = ("strategy: {matrix: {os: [linux]}}", "reports: {junit: 'out/${{ matrix.os }}/*.xml'}")

    job = workflow(with_("job", *lines)).jobs[0]

    assert job.artifacts == (ArtifactPlan("junit-reports", ("out/linux/*.xml",)),)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("reports: {}", "W015"),
        ("reports: {junit: ['../x.xml']}", "W031"),
        ("reports: {junit: ['!a.xml']}", "W026"),
        ("reports: {junit: a.xml, coverage: a.xml}", "W011"),
        ("artifacts: [{name: junit-reports, paths: [a]}]", "W031"),
    ],
)
def test_reports_that_cannot_be_found_are_refused(line: str, code: str) -> None:
    assert codes_of(with_("job", line))[:1] == [code]


@pytest.mark.proves("SR-23")
@pytest.mark.parametrize("value", ["../x", "/etc", "a/../..", "x/", "."])
def test_a_matrix_value_cannot_lead_an_artifact_out_of_the_work_folder(value: str) -> None:
    lines = (f"strategy: {{matrix: {{a: ['{value}']}}}}", 'artifacts: [{name: d, paths: ["${{ matrix.a }}"]}]')

    assert codes_of(with_("job", *lines)) == ["W031"]


def test_a_label_made_by_a_matrix_is_checked_after_expansion() -> None:
    lines = ("strategy: {matrix: {os: [linux, Linux, MacOS, lnux]}}", 'runs-on: "${{ matrix.os }}"')

    assert codes_of(with_("job", *lines), "linux") == ["W014", "W014", "W021"]


def test_a_plan_holds_what_the_file_says() -> None:
    content = """
name: CI
env: {A: outer, B: outer}
defaults: {run: {shell: sh, working-directory: src}}
jobs:
  a:
    if: vole.ref_name == 'main'
    env: {B: inner}
    defaults: {run: {shell: bash}}
    checkout: {depth: 0}
    on-lost: fail
    timeout-minutes: 5
    continue-on-error: true
    outputs: {v: "${{ steps.s.outputs.v }}"}
    strategy: {matrix: {x: ["1"]}, fail-fast: false, max-parallel: 3}
    steps:
      - {id: s, name: say, run: "echo ${{ matrix.x }}", env: {C: "${{ env.A }}"}, if: always(), timeout-minutes: 2}
      - {run: b, shell: python, working-directory: other, continue-on-error: true}
"""
    (job,) = workflow(content).jobs
    first, second = job.steps

    assert (job.workflow, job.job, job.key, job.if_) == ("CI", "a", "a.1", "vole.ref_name == 'main'")
    assert job.env == {"A": "outer", "B": "inner"}
    assert (job.checkout_depth, job.on_lost, job.timeout_s, job.timeout_from) == (0, "fail", 300, "job")
    assert (job.continue_on_error, job.fail_fast, job.max_parallel) == (True, False, 3)
    assert job.outputs == {"v": "${{ steps.s.outputs.v }}"}
    assert (first.number, first.id, first.name, first.run) == (1, "s", "say", "echo ${{ matrix.x }}")
    assert (first.shell, first.working_directory, first.if_, first.timeout_s) == ("bash", "src", "always()", 120)
    assert first.env == {"C": "${{ env.A }}"}
    assert (second.number, second.shell, second.working_directory) == (2, "python", "other")
    assert second.continue_on_error


def test_what_a_file_does_not_say_has_its_default() -> None:
    (job,) = workflow("jobs: {a: {steps: [{run: x}]}}").jobs

    assert (job.workflow, job.name, job.runs_on, job.timeout_s, job.timeout_from) == ("ci", "a", (), 3600, "default")
    assert (job.checkout_depth, job.on_lost, job.fail_fast, job.continue_on_error) == (1, "rerun", True, False)
    assert job.steps[0].shell is None


@pytest.mark.parametrize(
    ("on", "filter_"),
    [
        (None, PushFilter()),
        ("push", PushFilter()),
        ("[push]", PushFilter()),
        ("{push: }", PushFilter()),
        ("{push: {}}", PushFilter()),
        ("{push: {branches: main}}", PushFilter(branches=("main",))),
        ("{push: {tags-ignore: [a, b]}}", PushFilter(tags_ignore=("a", "b"))),
        ("{push: {branches-ignore: [x], paths: ['a/**', '!a/b']}}", PushFilter(None, ("x",), paths=("a/**", "!a/b"))),
    ],
)
def test_the_spellings_of_on(on: str | None, filter_: PushFilter) -> None:
    assert workflow(with_("top", f"on: {on}" if on else "name: x")).push == filter_


# ---- The stamp


def _stamped(event: EventFacts = EVENT) -> list[JobPlan]:
    run = expand.plan(
        workflow(with_("top", "env: {A: file}")), RepoName("app"), COMMIT, RefName(event.ref), event, protected=False
    )
    return list(run.jobs)


def test_a_stamped_plan_names_repository_commit_and_event_and_reads_back_the_same() -> None:
    (job,) = _stamped()

    assert (job.repository, job.commit, job.event, job.workflow_blob) == ("app", COMMIT, EVENT, BLOB)
    assert JobPlan.read(job.document()) == job


def test_a_pushed_variable_wins_over_the_file_and_is_no_expression() -> None:
    value = "it's ${{ vole.sha }} }}"
    (job,) = _stamped(replace(EVENT, variables={"A": value, "B": "plain"}))

    assert job.env["B"] == "plain"
    assert expressions.interpolate(job.env["A"], {"vole": {"sha": "x"}}) == value


def test_a_document_over_its_bound_is_refused_by_the_bounds_name() -> None:
    big = replace(EVENT, variables={f"V{at}": "x" * 1000 for at in range(300)})

    with pytest.raises(Exhausted, match="PLAN_BYTES_MAX"):
        _stamped(big)


# ---- Concurrency groups


def _planned(content: str, event: EventFacts = EVENT, *, protected: bool = False) -> RunPlan:
    return expand.plan(workflow(content), RepoName("app"), COMMIT, RefName(event.ref), event, protected=protected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("concurrency: deploy", Concurrency("deploy")),
        ("concurrency: {group: deploy}", Concurrency("deploy")),
        ("concurrency: {group: a, queue: all, cancel-in-progress: false}", Concurrency("a")),
        ("concurrency: {group: a, queue: latest}", Concurrency("a", queue="latest")),
        ("concurrency: {group: a, cancel-in-progress: true}", Concurrency("a", cancel_in_progress=True)),
        ("concurrency: '${{ vole.workflow }}-${{ vole.ref_name }}'", Concurrency("ci-main")),
    ],
)
@pytest.mark.parametrize("where", ["top", "job"])
def test_the_spellings_of_a_group_at_the_file_and_at_a_job(where: str, line: str, expected: Concurrency) -> None:
    run = _planned(with_(where, line))

    assert (run.concurrency if where == "top" else run.jobs[0].concurrency) == expected
    assert (run.concurrency is None) == (where == "job")


def test_the_groups_of_a_matrix_know_their_values_and_their_job() -> None:
    lines = ("strategy: {matrix: {to: [test, live]}}", "concurrency: '${{ vole.job }} ${{ matrix.to }}'")

    groups = [job.concurrency and job.concurrency.group for job in _planned(with_("job", *lines)).jobs]

    assert groups == ["test test", "test live", None]


@pytest.mark.parametrize("says_so", [True, False])
@pytest.mark.parametrize("protected", [True, False])
def test_what_is_protected_is_spared_unless_its_file_says_otherwise(protected: bool, says_so: bool) -> None:
    line = f"concurrency: {{group: a, cancel-protected: {str(says_so).lower()}}}"

    for run in (_planned(with_("top", line), protected=protected), _planned(with_("job", line), protected=protected)):
        group = run.concurrency or run.jobs[0].concurrency
        assert group is not None
        assert group.spared is (protected and not says_so)


@pytest.mark.parametrize("ref_name", ["", "x" * 201, "a\u2028b"])
def test_a_group_that_comes_out_as_no_name_is_refused_with_its_code(ref_name: str) -> None:
    event = replace(EVENT, ref_name=ref_name)

    with pytest.raises(Invalid, match=r"ci\.yml: W036 concurrency: .*GROUP_CHARS_MAX.*vole\.ref_name"):
        _planned(with_("top", "concurrency: ${{ vole.ref_name }}"), event)


def test_a_group_is_pinned_and_a_document_without_one_is_what_it_was() -> None:
    with_group, without = _planned(with_("job", "concurrency: a")).jobs

    assert JobPlan.read(with_group.document()) == with_group
    assert b"concurrency" in with_group.document()
    assert b"concurrency" not in without.document()
    assert JobPlan.read(without.document()).concurrency is None


def test_aliases_cannot_make_a_document_over_its_bound() -> None:
    content = f"jobs:\n  a:\n    env: {{A: &a {'x' * 30_000}}}\n    steps:\n" + "      - run: *a\n" * 100

    (answer,) = told(content)

    assert "W033" in answer
    assert "PLAN_BYTES_MAX" in answer


def test_all_documents_of_a_push_together_have_a_bound() -> None:
    steps = "    steps: &s\n" + f"      - run: {'x' * 1900}\n" * 30
    many = f"jobs:\n  a:\n    strategy: {{matrix: &m {{n: {[*range(64)]}}}}}\n{steps}"
    many += "".join(f"  b{at}: {{strategy: {{matrix: *m}}, steps: *s}}\n" for at in range(3))

    result = parse(tuple(a_file(many, f"c{at}.yml") for at in range(3)))

    assert [problem.code for problem in result.problems] == ["W033"]
    assert "PUSH_PLAN_BYTES_MAX" in result.problems[0].sentence
    assert result.workflows == ()


def test_a_run_skipped_by_a_filter_says_so_apart_from_skip_ci() -> None:
    run = expand.plan(
        workflow(with_("top", "name: x")), RepoName("app"), COMMIT, RefName(EVENT.ref), EVENT, protected=False
    )

    assert run.skipped is None
    assert expand.skipped(run, Decision("skip", "x")).skipped == "filter"
    assert expand.skipped(run, None).skipped == "skip_ci"
