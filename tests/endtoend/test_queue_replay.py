"""`queue replay` on the log of a real forge: pushes, two runners, a cancel and a restart, decided again."""

from __future__ import annotations

import json

import pytest

from tests.endtoend.actors import a_ready_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(120)]

WORKFLOW = """\
on: push
jobs:
  one:
    runs-on: linux
    strategy:
      matrix:
        n: [1, 2, 3]
    steps:
      - run: "true"
  two:
    needs: one
    runs-on: linux
    steps:
      - run: "true"
"""


def test_the_log_of_a_forge_decides_as_the_forge_did_and_says_what_one_more_runner_would_change(tmp_path):
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        forge.runner(rui, "linux")
        assert ada.pushes("app", {".vole/workflows/ci.yml": WORKFLOW}, options=("ci.wait",)).ok
        forge.kill()
        forge.restarts()
        assert ada.pushes("app", {"a.txt": "again"}, options=("ci.wait",)).ok

        done = json.loads(forge.command("queue", "replay", "--json"))
        told = forge.person("ann", admin=True).says("queue", "replay", "--add-runner", "linux")
        nothing = forge.command("queue", "replay", "--to", "2020-01-01")
        odd = forge.vole("queue", "replay", "--from", "yesterday")
        refused = ada.says("queue", "replay")

    assert done == {"decisions": 8, "different": 0, "unknown": 0, "differences": []}
    assert told.ok, told.err
    assert "linux   8" in told.out
    assert "of 8 jobs" in told.out
    assert "0 grants decided again" in nothing
    assert "is for admins" in refused.err
    assert "say it like 2026-11-30T16:00:00Z" in odd.err
