"""Which push starts what: the table of workflow filters, skip words, push options."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.unit.workflows.files import with_, workflow
from vole.base import limits
from vole.wire.plan import EventFacts
from vole.workflows import triggers
from vole.workflows.model import ChangedPaths, Decision


def _event(ref: str) -> EventFacts:
    kind: Literal["branch", "tag"] = "tag" if ref.startswith("tag:") else "branch"
    name = ref.removeprefix("tag:")
    return EventFacts("push", f"refs/{'tags' if kind == 'tag' else 'heads'}/{name}", name, kind, None, "c" * 40, "ada")


def _never() -> ChangedPaths:
    raise AssertionError("changed paths were asked for")


def _decide(on: str, ref: str, *paths: str) -> Decision:
    changed = (lambda: ChangedPaths(paths)) if paths else _never
    return triggers.decide(workflow(with_("top", f"on: {on}")), _event(ref), changed)


@pytest.mark.parametrize(
    ("on", "ref", "outcome"),
    [
        ("push", "main", "run"),
        ("push", "tag:v1", "run"),
        ("{push: {branches: main}}", "main", "run"),
        ("{push: {branches: main}}", "other", "skip"),
        ("{push: {branches: main}}", "tag:main", "none"),
        ("{push: {branches-ignore: wip}}", "main", "run"),
        ("{push: {branches-ignore: wip}}", "wip", "skip"),
        ("{push: {branches-ignore: wip}}", "tag:v1", "none"),
        ("{push: {tags: 'v*'}}", "tag:v1", "run"),
        ("{push: {tags: 'v*'}}", "tag:x", "skip"),
        ("{push: {tags: 'v*'}}", "v1", "none"),
        ("{push: {tags-ignore: 'v*'}}", "tag:x", "run"),
        ("{push: {branches: main, tags: 'v*'}}", "main", "run"),
        ("{push: {branches: main, tags: 'v*'}}", "tag:v1", "run"),
        ("{push: {branches: main, tags: 'v*'}}", "tag:x", "skip"),
        ("{push: {branches: ['**', '!wip/**']}}", "wip/x", "skip"),
        ("{push: {branches: ['**', '!wip/**', 'wip/go']}}", "wip/go", "run"),
        ("{push: {paths: 'src/**'}}", "tag:v1", "run"),
    ],
)
def test_ref_filters(on: str, ref: str, outcome: str) -> None:
    assert _decide(on, ref).outcome == outcome


@pytest.mark.parametrize(
    ("on", "paths", "outcome"),
    [
        ("{push: {paths: 'src/**'}}", ("src/a", "docs/b"), "run"),
        ("{push: {paths: 'src/**'}}", ("docs/b",), "skip"),
        ("{push: {paths: ['**', '!docs/**']}}", ("docs/b",), "skip"),
        ("{push: {paths: ['**', '!docs/**']}}", ("docs/b", "a"), "run"),
        ("{push: {paths-ignore: 'docs/**'}}", ("docs/b",), "skip"),
        ("{push: {paths-ignore: 'docs/**'}}", ("docs/b", "a"), "run"),
        ("{push: {branches: other, paths: '**'}}", (), "skip"),
    ],
)
def test_path_filters(on: str, paths: tuple[str, ...], outcome: str) -> None:
    assert _decide(on, "main", *paths).outcome == outcome


def _with_changes(changed: ChangedPaths) -> Decision:
    filtered = workflow(with_("top", "on: {push: {paths: src/**}}"))
    return triggers.decide(filtered, _event("main"), lambda: changed)


@pytest.mark.parametrize(
    "paths", [None, ("a",) * (limits.CHANGED_PATHS_MAX + 1), ("x" * 5_000,) * 1_000], ids=["unknown", "many", "long"]
)
def test_a_path_filter_counts_as_matched_when_there_is_too_much_to_compare(paths: tuple[str, ...] | None) -> None:
    decision = _with_changes(ChangedPaths(paths))

    assert decision.outcome == "run"
    assert "counts as matched" in (decision.notice or "")


def test_what_the_paths_were_compared_with_is_passed_on() -> None:
    assert _with_changes(ChangedPaths(("src/a",), "compared with main")).notice == "compared with main"
    assert "compared with main" in (_with_changes(ChangedPaths(("b",), "compared with main")).notice or "")


def test_a_skipped_workflow_says_which_filter_left_the_ref_out() -> None:
    assert "on.push.branches" in (_decide("{push: {branches: main}}", "wip\x1b[2J").notice or "")
    assert "\x1b" not in (_decide("{push: {branches: main}}", "wip\x1b[2J").notice or "")


@pytest.mark.parametrize(
    ("message", "skips"),
    [
        ("fix [skip ci]", True),
        ("fix\n\nlong [ci skip] text", True),
        ("[no ci] x", True),
        ("[skip actions]", True),
        ("[actions skip]", True),
        ("skip ci", False),
        ("[SKIP CI]", False),
        ("fix\n\nskip-checks: true", True),
        ("fix\n\nskip-checks:true\nSigned-off-by: A <a@b>\n", True),
        ("fix\n\nSigned-off-by: A <a@b>\nskip-checks: true\n\n", True),
        ("fix\n\nskip-checks: false", False),
        ("fix\n\nskip-checks: true\n\nmore text", False),
        ("fix\n\nit says skip-checks: true\nhere", False),
        ("skip-checks: true", False),
        ("", False),
    ],
)
def test_the_words_that_skip(message: str, skips: bool) -> None:
    assert triggers.skip_ci(message) is skips


def test_push_options_have_a_listed_meaning() -> None:
    options = triggers.push_options(["ci.skip", "ci.verbose", "ci.wait", "ci.variable=A=b=c", "ci.variable=E="])

    assert (options.skip, options.verbose, options.wait) == (True, True, True)
    assert options.variables == {"A": "b=c", "E": ""}
    assert options.notices == ()


@pytest.mark.proves("SR-11")
@pytest.mark.parametrize(
    ("option", "notice"),
    [
        ("ci.skp", "did you mean ci.skip"),
        ("ci.skip=yes", "no meaning"),
        ("other", "there are ci.skip"),
        ("", "no meaning"),
        ("ci.variable", "NAME=VALUE"),
        ("ci.variable=A", "NAME=VALUE"),
        ("ci.variable=1=x", "no variable's name"),
        ("ci.variable=VOLE_SHA=x", "set by vole"),
        ("ci.variable=A=x\0", "NUL"),
    ],
)
def test_an_option_without_meaning_is_a_notice_and_does_nothing(option: str, notice: str) -> None:
    options = triggers.push_options([option])

    assert (options.skip, options.verbose, options.wait, options.variables) == (False, False, False, {})
    assert len(options.notices) == 1
    assert notice in options.notices[0]


def test_an_event_that_is_no_push_runs_what_was_chosen() -> None:
    manual = EventFacts("manual", "refs/heads/main", "main", "branch", None, "c" * 40, "ada")

    assert triggers.decide(workflow(with_("top", "on: {push: {branches: x}}")), manual, _never).outcome == "run"
