"""Concurrency groups with real processes: one at a time, and the same words for it everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.endtoend.actors import Forge, Person, Said, a_ready_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(120)]

# The first step goes on when its file is there, or after a minute.
WORKFLOW = """\
name: ship
on: push
concurrency: {{group: "ship-${{{{ vole.ref_name }}}}", {wish}}}
jobs:
  ship:
    steps:
      - run: |
          echo "began $VOLE_RUN_NUMBER"
          for i in $(seq 600); do test -e {gate}/$VOLE_RUN_NUMBER && break; sleep 0.1; done
          echo "shipped $VOLE_RUN_NUMBER"
"""


def push(ada: Person, gate: Path, wish: str, to: str) -> Said:
    pushed = ada.pushes("app", {".vole/workflows/ship.yml": WORKFLOW.format(gate=gate, wish=wish)}, to=to)
    assert pushed.ok, pushed.err
    return pushed


def waits_for(forge: Forge, ada: Person, pushed: Said, number: int, holder: int) -> None:
    """Run `number` says in every place that it waits for run `holder`."""
    sentence = f"waits for its concurrency group, held by app/{holder}"
    assert any(f"app/{number}  ship" in line and sentence in line for line in pushed.remote), pushed.err
    assert sentence in ada.says("why", f"app/{number}/ship").out
    assert sentence in ada.says("queue").out
    assert forge.page(f"/app/runs/{number}").shows(sentence)
    assert forge.page("/queue").shows(sentence)


@pytest.mark.proves("I-16")
def test_runs_of_the_default_branch_come_one_after_the_other_also_over_a_killed_server(tmp_path):
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        forge.runner(rui, flags=("--slots", "2"))
        push(ada, tmp_path, "cancel-in-progress: true", "main")
        forge.following(ada, "app/1/ship").says("began 1")

        waits_for(forge, ada, push(ada, tmp_path, "cancel-in-progress: true", "main"), 2, 1)
        forge.kill()
        forge.restarts()
        assert forge.job("app/2/ship")["state"] == "blocked"
        (tmp_path / "1").touch()
        (tmp_path / "2").touch()

        assert "shipped 2" in forge.log("app/2/ship")
        assert forge.job("app/1/ship")["conclusion"] == "success"
        assert forge.job("app/2/ship")["conclusion"] == "success"


def test_a_newer_push_of_a_branch_ends_what_runs_and_what_waits_and_starts_when_that_is_over(tmp_path):
    with a_ready_forge(tmp_path, lease_ttl="600s") as (forge, ada, rui):  # no renewal tells the runner: the push does
        forge.runner(rui, flags=("--slots", "3"))
        push(ada, tmp_path, "queue: latest", "main")
        (tmp_path / "1").touch()
        push(ada, tmp_path, "queue: latest", "topic")
        forge.following(ada, "app/2/ship").says("began 2")

        waits_for(forge, ada, push(ada, tmp_path, "queue: latest", "topic"), 3, 2)
        waits_for(forge, ada, push(ada, tmp_path, "queue: latest", "topic"), 4, 2)
        assert forge.job("app/3/ship")["conclusion"] == "cancelled"
        assert forge.page("/app/runs/3").shows("app/4 came later to concurrency group 'ship-topic' (queue: latest)")

        push(ada, tmp_path, "cancel-in-progress: true", "topic")
        (tmp_path / "5").touch()

        assert "shipped 5" in forge.log("app/5/ship")
        assert [forge.job(f"app/{number}/ship")["conclusion"] for number in (1, 2, 3, 4, 5)] == [
            "success",
            "cancelled",
            "cancelled",
            "cancelled",
            "success",
        ]
        assert "shipped 2" not in forge.command("log", "app/2/ship")


def test_a_push_whose_group_comes_out_as_no_name_is_refused_and_nothing_lands(tmp_path):
    with a_ready_forge(tmp_path) as (_forge, ada, _rui):
        name = "x" * 201
        refused = ada.pushes(
            "app", {".vole/workflows/ci.yml": WORKFLOW.format(gate=tmp_path, wish="queue: all")}, to=name
        )

        assert not refused.ok
        assert any("W036" in line and "GROUP_CHARS_MAX" in line for line in refused.remote), refused.err
        assert ada.git("ls-remote", "origin", folder=ada.checkout("app")).out == ""
