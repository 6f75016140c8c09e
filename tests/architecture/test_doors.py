"""Every kind of error is spelt at every door, and what is no kind is our fault everywhere."""

from __future__ import annotations

import json

import pytest

from vole.base import errors
from vole.base.entropy import SeededEntropy
from vole.ssh import refusals as ssh
from vole.web import refusals as web
from vole.web.api import problems as api

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.VoleError) and kind is not errors.VoleError
]

# kind: SSH status, web status; the API has the web's
COLUMNS = {
    errors.Invalid: (2, 400),
    errors.Denied: (1, 403),
    errors.NotFound: (1, 404),
    errors.Gone: (1, 410),
    errors.Conflict: (1, 409),
    errors.Fenced: (1, 409),
    errors.Exhausted: (75, 429),
    errors.Unavailable: (75, 503),
}


def test_the_table_names_every_kind():
    assert set(COLUMNS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_kind_is_spelt_at_ssh_hook_and_web(kind):
    error = kind("the reason\x1b[31m", next_step="do this")

    over_ssh, over_hook = ssh.of(error), ssh.hook(error)
    page = web.refusal(error, SeededEntropy(), "/x")

    assert (over_ssh.status, page.status) == COLUMNS[kind]
    assert over_hook.status == 1
    assert over_ssh.reference is None
    for refusal in (over_ssh, over_hook):
        assert any("the reason" in line for line in refusal.lines)
        assert any("do this" in line for line in refusal.lines)
        assert not any("\x1b" in line for line in refusal.lines)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_kind_is_a_problem_at_the_api(kind):
    answer = api.problem(kind("the reason\x1b[31m", next_step="do this"), SeededEntropy(), "/api/v1/x")
    said = json.loads(answer.body)

    assert (answer.status_code, said["status"]) == (COLUMNS[kind][1], COLUMNS[kind][1])
    assert said["type"] == f"urn:vole:problem:{kind.default_code}"
    assert said["title"]
    assert "\x1b" not in said["detail"]
    if kind is not errors.NotFound:  # what is not there, and what is not theirs to see, have the same bytes
        assert "the reason" in said["detail"]
        assert said["next_step"] == "do this"
    assert ("retry-after" in answer.headers) == (kind in (errors.Exhausted, errors.Unavailable))


@pytest.mark.parametrize("kind", [errors.Exhausted, errors.Unavailable], ids=lambda kind: kind.__name__)
def test_what_may_pass_by_itself_says_try_again(kind):
    assert any("again" in line for line in ssh.of(kind("full")).lines)
    assert web.refusal(kind("full"), SeededEntropy(), "/x").headers["retry-after"]


def test_what_is_no_kind_is_our_fault_and_shows_a_reference_only():
    error = RuntimeError("secret detail")

    over_ssh, over_hook = ssh.of(error), ssh.hook(error)
    page = web.refusal(error, SeededEntropy(), "/x")

    assert (over_ssh.status, over_hook.status, page.status) == (70, 1, 500)
    for lines in (over_ssh.lines, over_hook.lines, page.lines):
        assert "secret" not in " ".join(lines)
    problem = api.problem(error, SeededEntropy(), "/api/v1/x")
    assert problem.status_code == 500
    assert b"secret" not in problem.body
    assert over_ssh.reference is not None
    assert over_ssh.reference in over_ssh.lines[0]
