"""kill -9 of the server before, inside and after each named change of the main story: nothing lost, nothing double."""

from __future__ import annotations

import json
import sys

import pytest

from tests.endtoend.actors import Forge, Person, Running, prepared

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
    "note_draining",
    "start",
    "sweep",
]

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
    """A push and two runners; whoever meets a dead server tries again, as people and runners do.

    Two, because a runner that could not start a job is not offered it again for a minute.
    """
    ada.commits("app", {".vole/workflows/ci.yml": PIPELINE})
    first = forge.runner_process(rui, flags=("--name", "first"))
    forge.runner_process(rui, flags=("--name", "second"))
    ada.pushes("app")
    return first


def _is_whole(forge: Forge) -> None:
    log = forge.log("app/1/two")
    runs = json.loads(forge.command("run", "list", "app", "--json"))
    assert [run["number"] for run in runs] == [1]
    assert [(job["key"], job["conclusion"]) for job in runs[0]["jobs"]] == [("one", "success"), ("two", "success")]
    assert log.count("\ntwo\n") == 1


def test_the_list_of_changes_is_whole(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    note = tmp_path / "changes"
    try:
        forge.starts(words=_dying(forge, "--note", str(note)))
        _story(forge, ada, rui)
        _is_whole(forge)
    finally:
        forge.ends()

    found = sorted(set(note.read_text().split()))
    assert found == CHANGES, " ".join(found)


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.proves("I-01", "I-04", "I-07", "I-27", "I-29")
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
    finally:
        forge.ends()
