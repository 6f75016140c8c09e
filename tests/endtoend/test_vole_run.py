"""`vole run`: the working tree, here and now, by the same keeper and harness as on a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.endtoend.actors import Said, a_ready_forge, program

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]

CI = """\
on: push
jobs:
  build:
    runs-on: linux
    steps:
      - run: cat source > built
    artifacts: [{name: built, paths: [built]}]
  test:
    needs: build
    needs-artifacts: [built]
    runs-on: [linux, fast]
    steps:
      - id: look
        run: |
          cat built
          echo "seen=$(cat built)" >> "$VOLE_OUTPUT"
  red:
    steps: [{run: exit 3}]
"""
GREEN = CI[: CI.index("  red:")]
BY_HAND = """\
on: {manual: {inputs: {who: {required: true}}}}
jobs:
  greet:
    env: {WHO: "${{ inputs.who }}"}
    steps: [{run: 'echo "hello, $WHO"'}]
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository whose last change is not committed."""
    work = tmp_path / "app"
    (work / ".vole/workflows").mkdir(parents=True)
    git(work, "init", "-q", "-b", "main")
    (work / ".vole/workflows/ci.yml").write_text(CI)
    (work / "source").write_text("committed\n")
    commit(work)
    (work / "source").write_text("changed\n")
    return work


def git(work: Path, *words: str) -> str:
    said = program("git", "-c", "user.name=A", "-c", "user.email=a@b.invalid", *words, folder=work)
    assert said.ok, said.err
    return said.out


def commit(work: Path) -> None:
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "a change")


def vole_run(work: Path, *words: str) -> Said:
    (work.parent / "tmp").mkdir(exist_ok=True)
    said = program(sys.executable, "-m", "vole", "run", *words, folder=work, env={"TMPDIR": str(work.parent / "tmp")})
    assert list((work.parent / "tmp").iterdir()) == [], "nothing of it is left"
    return said


def test_it_runs_what_is_not_committed_yet_and_leaves_the_repository_as_it_was(work: Path) -> None:
    before = git(work, "count-objects"), git(work, "status", "--porcelain"), git(work, "for-each-ref")

    said = vole_run(work)

    assert said.status == 1, said.out + said.err
    assert "test | changed\n" in said.out
    assert "build  success\n" in said.out
    assert "red  failure\n" in said.out
    assert (git(work, "count-objects"), git(work, "status", "--porcelain"), git(work, "for-each-ref")) == before


def test_one_job_brings_those_that_it_needs_and_no_other(work: Path) -> None:
    said = vole_run(work, "--job", "test")

    assert said.status == 0, said.out + said.err
    assert [line for line in said.out.splitlines() if "|" not in line] == ["build  success", "test  success"]


def test_a_workflow_for_people_runs_with_its_inputs(work: Path) -> None:
    (work / ".vole/workflows/hello.yml").write_text(BY_HAND)

    said = vole_run(work, "hello", "--input", "who=Vera")

    assert said.status == 0, said.out + said.err
    assert "greet | hello, Vera\n" in said.out
    assert "build" not in said.out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--job", "tset"), 1, "there is no job 'tset'; there are: build, red, test"),
        (("cii",), 1, "the working tree has no workflow 'cii'; did you mean 'ci'?"),
        (("hello",), 2, "who"),
        (("--input", "who"), 2, "--input 'who': write it as NAME=VALUE"),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_do(
    work: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    (work / ".vole/workflows/hello.yml").write_text(BY_HAND)

    said = vole_run(work, *words)

    assert said.status == code
    assert sentence in said.err


def test_what_a_push_would_refuse_is_refused_alike(work: Path) -> None:
    (work / ".vole/workflows/ci.yml").write_text(CI.replace("steps", "stpes", 1))

    said = vole_run(work)

    assert said.status == 2
    assert "ci.yml:5:5 " in said.err
    assert "did you mean 'steps'?" in said.err


def test_outside_of_a_repository_it_says_what_it_needs(tmp_path: Path) -> None:
    said = program(sys.executable, "-m", "vole", "run", folder=tmp_path)

    assert not said.ok
    assert "not a git repository" in said.err
    assert "git init" in said.err


def told(found: object) -> object:
    """A record without machine, time and signature: ids count microseconds, and a log's first line is a path there."""
    machine = {"runner", "log", "marks", "start", "id", "at"}
    if isinstance(found, dict):
        kept = {key: value for key, value in found.items() if key not in machine and not key.endswith(("_at", "_us"))}
        return {key: told(value) for key, value in kept.items()}
    return [told(value) for value in found] if isinstance(found, list) else found


def test_its_record_is_the_servers_but_for_machine_time_and_signature(tmp_path: Path, work: Path) -> None:
    (work / ".vole/workflows/ci.yml").write_text(GREEN)
    commit(work)
    with a_ready_forge(tmp_path / "forge") as (forge, ada, rui):
        forge.runner(rui, "linux", "fast")
        pushed = ada.git("push", "-o", "ci.wait", ada.address("app"), "main", folder=work)
        assert pushed.ok, pushed.err
        forge.records_what_it_owes()
        bare = forge.dir / "repos" / "app.git"
        on_server = {
            path: json.loads(git(bare, "show", f"refs/vole/runs:{path}"))
            for path in git(bare, "ls-tree", "-r", "--name-only", "refs/vole/runs", "runs").split()
        }

    said = vole_run(work, "--as", "ada", "--repository", "app", "--record", str(tmp_path / "record"))

    assert said.status == 0, said.out + said.err
    here = {
        str(path.relative_to(tmp_path / "record")): json.loads(path.read_text())
        for path in (tmp_path / "record").rglob("*.json")
    }
    assert here.keys() == on_server.keys()
    for path, document in here.items():
        assert told(document) == told(on_server[path]), path
    assert not (work / ".git/vole").exists()
