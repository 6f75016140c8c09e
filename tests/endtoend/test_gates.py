"""A branch with a gate, from the command that sets it to the audit, with real git, ssh and a real runner."""

from __future__ import annotations

import json

import pytest

from tests.endtoend.actors import prepared, program

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(90)]

WORKFLOW = """\
on: push
jobs:
  test:
    steps:
      - run: test ! -e broken
  build:
    needs: test
    steps:
      - run: echo built
"""


@pytest.fixture
def forge_of(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        yield forge, ada, rui
    finally:
        forge.ends()


@pytest.mark.proves("I-40", "I-31")
def test_a_gated_branch_moves_to_green_commits_alone_and_the_audit_names_the_records(forge_of):
    forge, ada, rui = forge_of
    assert ada.pushes("app", {"README": "x"}).ok
    said = forge.command("gate", "set", "app", "main", "ci/test", "ci/build")
    assert "note: main ci/test: no workflow of this commit is called so; it has none" in said
    green = ada.commits("app", {".vole/workflows/ci.yml": WORKFLOW})

    direct = ada.pushes("app")
    assert not direct.ok
    assert "main ci/test: it has no run of this commit; start it: git push origin" in direct.err
    both = ada.git("push", "origin", "HEAD:refs/heads/topic", "HEAD:refs/heads/main", folder=ada.checkout("app"))
    assert not both.ok
    assert forge.command("run", "list", "app", "--json") == "[]\n"

    forge.runner(rui)
    assert ada.pushes("app", to="topic", options=("ci.wait",)).ok
    # Pushed at once: the record may still be on its way.
    opened = ada.pushes("app")
    assert opened.ok, opened.err

    broken = ada.commits("app", {"broken": "x"})
    assert ada.pushes("app", to="topic", options=("ci.wait",)).ok
    shut = ada.pushes("app")
    assert not shut.ok
    number = json.loads(forge.command("run", "list", "app", "--json"))[0]["number"]
    assert any(
        f"main ci/test: it is red: failure; app/{number}/test@1 {forge.url}/app/runs/{number}; run it again" in line
        for line in shut.remote
    ), shut.remote
    assert any("main ci/build: it is red: skipped" in line for line in shut.remote)
    assert not ada.git("push", "origin", ":refs/heads/main", folder=ada.checkout("app")).ok

    fixed = ada.commits("app", {"broken": "", "more": "y"})
    ada.git("rm", "-q", "broken", folder=ada.checkout("app"))
    fixed = ada.commits("app", {"more": "z"})
    assert ada.pushes("app", to="topic", options=("ci.wait",)).ok
    assert ada.pushes("app").ok

    told = json.loads(ada.says("gate", "audit", "app", "main", "--json").out)
    lines = {(one["commit"], one["requirement"]): one for one in told["commits"]}
    assert {one["gate"] for (commit, _), one in lines.items() if commit in (green, fixed)} == {"open"}
    assert lines[broken, "ci/test"]["gate"] == "not judged"
    assert lines[broken, "ci/test"]["judged_as"] == fixed
    record = lines[green, "ci/test"]["record"]
    bare = forge.dir / "repos/app.git"
    brought = program("git", "show", "--name-only", "--format=", record, folder=bare).out.split()
    assert "runs/000/001/test/1.json" in brought
    assert lines[green, "ci/test"]["evidence"] == "app/1/test@1"
    table = ada.says("gate", "audit", "app", "main").out
    assert f"app/1/test@1 {record}" in table
    assert f"came with {fixed[:10]}; it is red: failure" in table


def test_an_atomic_push_is_refused_whole_and_leaves_nothing(forge_of):
    forge, ada, _ = forge_of
    forge.command("gate", "set", "app", "main", "ci")
    ada.commits("app", {".vole/workflows/ci.yml": WORKFLOW})

    refused = ada.git("push", "--atomic", "origin", "HEAD:refs/heads/main", "HEAD:refs/heads/topic",
                      folder=ada.checkout("app"))  # fmt: skip

    assert not refused.ok
    assert "a gate is shut" in refused.err
    assert ada.git("ls-remote", "origin", folder=ada.checkout("app")).out == ""
