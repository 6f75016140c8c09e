"""kill -9 of the server before, inside and after each named change of the main story: nothing lost, nothing double."""

from __future__ import annotations

import json
import sys

import pytest

from tests import stored
from tests.endtoend.actors import Forge, Person, Running, prepared, program

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]

PIPELINE = """\
on: push
jobs:
  one:
    artifacts:
      - {name: out, paths: [made]}
    steps:
      - run: echo one | tee made
  two:
    needs: one
    needs-artifacts: [out]
    steps:
      - run: cat made && echo two
"""

# Every change of the story; `test_the_list_of_changes_is_whole` fails when there is another one.
CHANGES = [
    "_connect",
    "_disconnect",
    "_finish_all",
    "_mark",
    "_restart",
    "confirm_push",
    "expire_artifacts",
    "intend_push",
    "lease_many",
    "mark_recorded",
    "note_draining",
    "start",
    "sweep",
]

RUNS = "refs/vole/runs"
AT_START = {"_restart", "expire_artifacts", "sweep"}  # the server dies by itself, before anybody comes


def _dying(forge: Forge, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.fault.dying", str(forge.dir), *words]


def _begins(forge: Forge, name: str, when: str) -> None:
    """Start a server that will die; one that dies on its way up is followed by another at once."""
    if name not in AT_START:
        forge.starts(words=_dying(forge, name, when))
        return
    first = Running(_dying(forge, name, when), forge.folder)
    first.ends()
    first.stop()
    forge.starts()


def _story(forge: Forge, ada: Person, rui: Person) -> Running:
    """A push and three runners; whoever meets a dead server tries again, as people and runners do.

    A runner that could not start a job is not offered it again for a minute; some stories stop one of them.
    """
    ada.commits("app", {".vole/workflows/ci.yml": PIPELINE})
    first = forge.runner_process(rui, flags=("--name", "first"))
    for name in ("second", "third"):
        forge.runner_process(rui, flags=("--name", name))
    ada.pushes("app")
    return first


def _is_whole(forge: Forge) -> None:
    log = forge.log("app/1/two")
    runs = json.loads(forge.command("run", "list", "app", "--json"))
    assert [run["number"] for run in runs] == [1]
    assert [(job["key"], job["conclusion"]) for job in runs[0]["jobs"]] == [("one", "success"), ("two", "success")]
    assert log.count("\ntwo\n") == 1


def _is_recorded(forge: Forge) -> None:
    """Every attempt that ran, and the run, has one signed record; it says what the store says."""
    forge.records_what_it_owes()
    rows = stored.rows(
        forge.dir,
        "SELECT j.key, a.epoch, a.conclusion, a.end_cause FROM attempts a JOIN jobs j ON j.id = a.job_id "
        "WHERE a.started_at IS NOT NULL",
    )
    wanted = {f"runs/000/001/{row['key']}/{row['epoch']}.json": row["conclusion"] or "lost" for row in rows}
    bare = forge.dir / "repos/app.git"
    listed = program("git", "ls-tree", "-r", "--name-only", RUNS, "runs/", folder=bare).out.split()
    said = {at: json.loads(program("git", "cat-file", "blob", f"{RUNS}:{at}", folder=bare).out) for at in listed}
    assert {at: value["record"]["conclusion"] for at, value in said.items()} == {
        **wanted, "runs/000/001/run.json": "success"
    }  # fmt: skip
    signers = f"gpg.ssh.allowedSignersFile={forge.dir / 'keys/record_signers'}"
    for commit in program("git", "rev-list", RUNS, folder=bare).out.split():
        assert program("git", "-c", signers, "verify-commit", commit, folder=bare).ok
        parents = program("git", "show", "-s", "--format=%P", commit, folder=bare).out.split()
        changed = program("git", "diff-tree", "--root", "-r", "--name-status", commit, folder=bare).out
        assert len(parents) <= 1
        assert {line.split()[0] for line in changed.splitlines()[1:]} == {"A"}


def test_the_list_of_changes_is_whole(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    note = tmp_path / "changes"
    try:
        forge.starts(words=_dying(forge, "--note", str(note)))
        _story(forge, ada, rui)
        _is_whole(forge)
        forge.records_what_it_owes()
    finally:
        forge.ends()

    found = sorted(set(note.read_text().split()))
    assert found == CHANGES, " ".join(found)


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.proves("I-01", "I-04", "I-07", "I-27", "I-29", "I-36", "I-37", "I-38")
def test_kill_9_at_a_change_loses_nothing_and_doubles_nothing(tmp_path, name, when):
    forge, ada, rui = prepared(tmp_path)
    try:
        _begins(forge, name, when)
        first = _story(forge, ada, rui)
        if name in ("_disconnect", "note_draining"):
            first.says("ready")
            first.stop()
        if name not in AT_START:
            forge.server.ends()
            forge.server.stop()
            forge.restarts()
        # Her push may have been cut off: she pushes again, and what landed already lands no second time.
        assert ada.pushes("app").ok
        _is_whole(forge)
        _is_recorded(forge)
    finally:
        forge.ends()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.proves("I-36", "I-38", "SR-39")
def test_kill_9_around_the_move_of_the_record_ref_leaves_one_record(tmp_path, when):
    forge, ada, rui = prepared(tmp_path)
    try:
        _begins(forge, "move_ref", when)
        _story(forge, ada, rui)
        forge.server.ends()
        forge.server.stop()
        forge.restarts()
        _is_whole(forge)
        _is_recorded(forge)
    finally:
        forge.ends()
