"""The main job, end to end, with real processes: push, pipeline, runner, pages."""

from __future__ import annotations

import re

import pytest

from tests.endtoend.actors import ROOT, a_ready_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]

PIPELINE = """\
name: ci
on: push
jobs:
  build:
    runs-on: linux
    outputs:
      answer: ${{ steps.make.outputs.answer }}
    artifacts:
      - name: site
        paths: ["out/**"]
    steps:
      - id: make
        run: |
          mkdir out && echo "built $VOLE_SHA" > out/index.txt
          echo answer=42 >> "$VOLE_OUTPUT"
      - name: a check that may fail
        run: exit 7
        continue-on-error: true
  test:
    runs-on: [linux]
    needs: build
    needs-artifacts: [site]
    strategy:
      matrix:
        python: ["3.10", "3.11"]
    env:
      ANSWER: ${{ needs.build.outputs.answer }}
    steps:
      - run: |
          echo "python ${{ matrix.python }} answer $ANSWER"
          cat out/index.txt
"""

SLOW = """\
on: push
jobs:
  long:
    runs-on: linux
    steps:
      - run: |
          echo "attempt on $RUNNER_NAME"
          if [ "$RUNNER_NAME" = first ]; then sleep 60; fi
          echo done
"""


def test_a_push_runs_needs_matrix_artifact_and_a_step_that_may_fail(tmp_path):
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        forge.runner(rui, "linux")

        pushed = ada.pushes("app", {".vole/workflows/ci.yml": PIPELINE}, options=("ci.wait",))

        assert pushed.ok, pushed.err
        assert any(line.startswith("app/1  ci  ") and "starts now" in line for line in pushed.remote), pushed.err
        assert "python 3.10 answer 42" in forge.log("app/1/test.1")
        assert "python 3.11 answer 42" in forge.log("app/1/test.2")
        assert re.search(r"built [0-9a-f]{40}", forge.log("app/1/test.2"))
        run = forge.page("/app/runs/1")
        assert run.shows("success", "build", "test.1", "test.2", "site")
        assert forge.job("app/1/build")["conclusion"] == "success"
        assert forge.page("/app/runs/1/build").shows("a check that may fail")


@pytest.mark.proves("I-03", "I-07", "I-35")
def test_another_runner_finishes_the_job_of_a_killed_one_and_both_logs_read(tmp_path):
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        first = forge.runner(rui, "linux", flags=("--name", "first"))
        assert ada.pushes("app", {".vole/workflows/ci.yml": SLOW}).ok
        forge.following(ada, "app/1/long").says("attempt on first")

        first.kill()
        forge.runner(rui, "linux", flags=("--name", "second"))
        log = forge.log("app/1/long")

        assert "attempt on second" in log
        assert "done" in log
        assert "attempt on first" in forge.command("log", "app/1/long@1")
        assert forge.job("app/1/long")["conclusion"] == "success"
        assert forge.job("app/1/long")["epoch"] == 2


@pytest.mark.proves("I-09")
def test_a_workflow_that_changes_itself_runs_as_it_was_queued(tmp_path):
    changing = """\
on: push
jobs:
  one:
    steps:
      - run: |
          echo 'on: push' > .vole/workflows/ci.yml
          git commit -qam x 2>/dev/null || true
          echo original one
  two:
    needs: one
    steps:
      - run: echo original two
"""
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        assert ada.pushes("app", {".vole/workflows/ci.yml": changing}).ok
        changed = changing.replace("original", "changed")
        assert ada.pushes("app", {".vole/workflows/ci.yml": changed}).ok

        forge.runner(rui)

        assert "original two" in forge.log("app/1/two")
        assert "changed two" in forge.log("app/2/two")


def test_a_job_no_runner_can_take_says_why_everywhere_until_one_can(tmp_path):
    fast = "on: push\njobs:\n  x:\n    runs-on: [linux, fast]\n    steps:\n      - run: echo took it\n"
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        forge.runner(rui, "linux", flags=("--name", "linux-1"))

        pushed = ada.pushes("app", {".vole/workflows/ci.yml": fast})

        assert pushed.ok, pushed.err
        assert any("waits" in line and "fast" in line and "linux-1" in line for line in pushed.remote), pushed.err
        why = ada.says("why", "app/1/x")
        assert "linux-1" in why.out
        assert "fast" in why.out
        assert forge.page("/app/runs/1").shows("linux-1", "fast")
        assert forge.page("/runners").shows("linux-1", "fast")

        forge.runner(rui, "linux", "fast", flags=("--name", "both"))

        assert "took it" in forge.log("app/1/x")


@pytest.mark.proves("SR-25")
def test_a_runner_filter_outside_its_grant_is_refused_at_start(tmp_path):
    with a_ready_forge(tmp_path) as (forge, _ada, rui):
        forge.creates("secret", public=False)

        refused = forge.runner_process(rui, "linux", flags=("--repos", "secret"))

        assert refused.ends() == 4
        assert any("secret" in line and "grant" in line for line in refused.lines), refused.lines


@pytest.mark.parametrize(
    ("line", "code", "remedy"),
    [
        ("runs-on: Linux", r"ci\.yml:4:14 W\d{3} ", "linux"),
        ("runs-on: ''", r"ci\.yml:4:14 W\d{3} ", "leave the key out"),
        ("runs-on: 'linux '", r"ci\.yml:4:14 W\d{3} ", "linux"),
        ("runs-on: lnux", r"ci\.yml:4:14 W021 ", "did you mean 'linux'"),
        ("runs_on: linux", r"ci\.yml:4:5 W\d{3} ", "runs-on"),
    ],
)
@pytest.mark.proves("SR-19", "SR-20")
def test_a_bad_workflow_is_refused_at_the_push_with_place_and_remedy(tmp_path, line, code, remedy):
    workflow = f"on: push\njobs:\n  x:\n    {line}\n    steps:\n      - run: make\n"
    with a_ready_forge(tmp_path) as (forge, ada, _rui):
        forge.command("label", "declare", "linux")

        refused = ada.pushes("app", {".vole/workflows/ci.yml": workflow})

        assert not refused.ok
        problem = next((said for said in refused.remote if re.search(code, said)), None)
        assert problem, refused.err
        assert remedy in problem
        assert ada.git("ls-remote", "origin", folder=ada.checkout("app")).out == ""


def test_a_forgotten_repository_takes_its_labels_with_it(tmp_path):
    with a_ready_forge(tmp_path) as (forge, ada, _rui):
        waits = "on: push\njobs:\n  x:\n    runs-on: [linux, gpu]\n    steps:\n      - run: 'true'\n"
        assert ada.pushes("app", {".vole/workflows/ci.yml": waits}).ok
        assert "gpu" in forge.command("queue")

        forge.command("repo", "remove", "app", "--yes")

        assert "gpu" not in forge.command("queue")
        assert forge.page("/app").status == 404
        assert not ada.git("ls-remote", ada.address("app")).ok


@pytest.mark.proves("SR-29", "SR-30")
def test_a_runner_without_a_sandbox_says_at_its_start_what_a_step_can_reach(tmp_path):
    with a_ready_forge(tmp_path) as (forge, _, rui):
        runner = forge.runner(rui, "linux")

        warning = next(line for line in runner.lines if "runtime local" in line)

    assert all(word in warning for word in ("files", "keys", "the network"))
    documented = (ROOT / "docs" / "security.md").read_text("utf-8")
    assert "**Runtime `local`**" in documented
    assert all(word in documented for word in ("the network", "own SSH key", "metadata"))
