"""Every key that GitHub has is supported or refused by name; and the JSON Schema says the same as the check."""

from __future__ import annotations

import json

import pytest

from tests.unit.workflows.files import codes_of, told, with_
from vole.workflows import schema
from vole.workflows.forms import Json, Record

GITHUB = {
    "workflow": "name run-name on permissions env defaults concurrency jobs",
    "job": "name permissions needs if runs-on snapshot environment concurrency outputs env defaults steps "
    "timeout-minutes strategy continue-on-error container services uses with secrets",
    "strategy": "matrix fail-fast max-parallel job-total job-index",
    "step": "id if name uses run working-directory shell with env continue-on-error timeout-minutes",
    "push": "branches branches-ignore tags tags-ignore paths paths-ignore types",
    "workflow_dispatch": "inputs",
    "input": "description required default type options deprecationMessage",
    "schedule": "cron timezone",
}
RECORDS = {
    "workflow": schema.WORKFLOW,
    "job": schema.JOB,
    "strategy": schema.STRATEGY,
    "step": schema.STEP,
    "push": schema.PUSH,
    "workflow_dispatch": schema.MANUAL,
    "input": schema.INPUT,
    "schedule": schema.TIME,
}
EVENTS = (
    "branch_protection_rule check_run check_suite create delete deployment deployment_status discussion "
    "discussion_comment fork gollum image_version issue_comment issues label merge_group milestone page_build "
    "public pull_request pull_request_comment pull_request_review pull_request_review_comment pull_request_target push "
    "registry_package release repository_dispatch schedule status watch workflow_call workflow_dispatch workflow_run"
)
FOR_NOW = [
    ("job", "resume: steps"),
    ("job", "trust: owned"),
    ("job", "checkout: {submodules: true}"),
    ("job", "checkout: {lfs: true}"),
]
STEPS_FOR_NOW = ["effects: none", "idempotency-key: x", "rerun: safe"]


@pytest.mark.parametrize(("where", "keys"), GITHUB.items(), ids=GITHUB)
def test_every_github_key_is_supported_or_refused_and_not_both(where: str, keys: str) -> None:
    record = RECORDS[where]

    for key in keys.split():
        assert (key in record.keys) != (key in record.refused), key


@pytest.mark.parametrize("event", EVENTS.split())
def test_every_github_event_but_push_and_by_hand_is_refused_by_name(event: str) -> None:
    answer = told(with_("top", f"on: {event}"))

    if event in ("push", "workflow_dispatch"):
        assert answer == []
    else:
        assert len(answer) == 1
        assert f"W012 on: {event}: " in answer[0]


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_refused_key_has_a_reason_of_its_own_code(record: Record) -> None:
    for key, reason in record.refused.items():
        assert len(reason) > 10, key


@pytest.mark.parametrize(("where", "line"), FOR_NOW)
def test_what_is_not_built_yet_is_refused_with_that_word(where: str, line: str) -> None:
    (answer,) = told(with_(where, line))

    assert "W012" in answer
    assert "not built yet" in answer


@pytest.mark.parametrize("line", STEPS_FOR_NOW)
def test_step_keys_that_are_not_built_yet_are_refused_with_that_word(line: str) -> None:
    (answer,) = told(with_("step", "run: make", line))

    assert "W012" in answer
    assert "not built yet" in answer


@pytest.mark.proves("SR-19")
def test_all_unknown_keys_of_a_file_are_told_at_once_each_with_its_place() -> None:
    content = "nmae: x\njobs:\n  a:\n    rnus-on: x\n    steps:\n      - {run: x, shel: sh}\n  b:\n    stpes: []\n"

    answers = told(content)

    assert [answer.split()[:2] for answer in answers] == [
        ["1:1", "W011"],
        ["4:5", "W011"],
        ["6:18", "W011"],
        ["8:5", "W011"],
    ]
    assert [answer.rpartition("did you mean ")[2] for answer in answers] == [
        "'name'?",
        "'runs-on'?",
        "'shell'?",
        "'steps'?",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [("runs-on: [a, b]", None), ("runs-on: {group: a}", "W012"), ("env: {A: 1}", None), ("on-lost: fail", None)],
)
def test_forms_of_job_keys(line: str, code: str | None) -> None:
    assert codes_of(with_("job", line)) == ([code] if code else [])


def _refusing(form: Json, path: str = "") -> list[str]:
    """Objects of a schema that would let an unknown key pass."""
    open_ = [path] if "properties" in form and form["additionalProperties"] is not False else []
    for name, below in form.get("properties", {}).items():
        open_ += _refusing(below, f"{path}.{name}")
    for way in form.get("anyOf", []):
        open_ += _refusing(way, path)
    for name in ("items", "additionalProperties"):
        if isinstance(form.get(name), dict):
            open_ += _refusing(form[name], f"{path}.*")
    return open_


def test_the_json_schema_has_every_key_and_lets_no_unknown_one_pass() -> None:
    form = schema.json_schema()

    job = form["properties"]["jobs"]["additionalProperties"]
    assert set(form["properties"]) == set(schema.WORKFLOW.keys)
    assert set(job["properties"]) == set(schema.JOB.keys)
    assert set(job["properties"]["steps"]["items"]["properties"]) == set(schema.STEP.keys)
    assert _refusing(form) == [".jobs.*.strategy.matrix"]
    assert json.loads(json.dumps(form)) == form
