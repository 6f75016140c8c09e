"""Every kind of error is spelt at every door, and what is no kind is our fault everywhere."""

from __future__ import annotations

import pytest

from vole.base import errors
from vole.base.entropy import SeededEntropy
from vole.ssh import refusals as ssh
from vole.web import refusals as web

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.VoleError) and kind is not errors.VoleError
]

# kind: SSH status, web status
COLUMNS = {
    errors.Invalid: (2, 400),
    errors.Denied: (1, 403),
    errors.NotFound: (1, 404),
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
    assert over_ssh.reference is not None
    assert over_ssh.reference in over_ssh.lines[0]
