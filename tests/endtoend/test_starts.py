"""Ada starts runs without a push: by hand over SSH with inputs, again after a failure, and by the clock."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.endtoend.actors import BOUND_S, Forge, Person, prepared

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(120)]

DEPLOY = """\
name: Ship it
on:
  manual:
    inputs:
      to: {type: choice, options: [test, live], default: test}
      dry: {type: boolean, default: true}
      note: {required: true}
jobs:
  build:
    steps:
      - id: make
        run: echo "version=7" >> "$VOLE_OUTPUT"; echo built > dist
    outputs:
      version: ${{ steps.make.outputs.version }}
    artifacts:
      - {name: dist, paths: [dist]}
  deploy:
    needs: build
    needs-artifacts: [dist]
    env:
      TO: ${{ inputs.to }}
      NOTE: ${{ inputs.note }}
      VERSION: ${{ needs.build.outputs.version }}
      GATE: "%s"
    steps:
      - run: |
          said="$VOLE_EVENT_NAME by $VOLE_ACTOR, attempt $VOLE_RUN_ATTEMPT"
          echo "$said, to $TO, $NOTE, version $VERSION, $(cat dist)"
      - if: inputs.dry
        run: echo "dry"
      - run: cat "$VOLE_EVENT_PATH"
      - run: test -e "$GATE"
"""
EVERY_MINUTE = "on: {schedule: [{cron: '* * * * *'}]}\njobs:\n  tick:\n    steps:\n      - run: echo tick\n"


def runs(forge: Forge) -> list[dict[str, object]]:
    """Every run of app, the oldest first."""
    found: list[dict[str, object]] = json.loads(forge.command("run", "list", "app", "--json"))
    return found[::-1]


def ended(forge: Forge, number: int, within_s: float = BOUND_S) -> dict[str, object]:
    """The run once it is finished."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        run = next((run for run in runs(forge) if run["number"] == number), None)
        if run is not None and run["state"] == "finished":
            return run
    raise AssertionError(f"app/{number} is not finished: {runs(forge)}")


def states(run: dict[str, object]) -> dict[str, object]:
    return {job["key"]: job["conclusion"] for job in run["jobs"]}  # type: ignore[attr-defined]


@contextmanager
def browser(forge: Forge, person: Person) -> Iterator[httpx.Client]:
    """A browser in which `person` is logged in."""
    link = person.says("login").out.strip()
    with httpx.Client(base_url=forge.url, headers={"Origin": forge.url}, timeout=BOUND_S) as client:
        assert client.post(link.removeprefix(forge.url)).status_code == 303
        yield client


def test_by_hand_with_inputs_and_again_what_failed(tmp_path: Path) -> None:
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        gate = tmp_path / "gate"
        pushed = ada.pushes("app", {".vole/workflows/deploy.yml": DEPLOY % gate})
        assert pushed.ok, pushed.err
        assert runs(forge) == []

        refused = ada.says("run", "start", "app", "deploy", "--input", "to=prod")
        assert refused.status == 2
        assert "input to: 'prod' is none of test, live" in refused.err
        assert "input note: it is required, and nothing was said" in refused.err
        assert "did you mean 'deploy'" in ada.says("run", "start", "app", "depoly").err
        assert runs(forge) == []

        said = ada.says(
            "run", "start", "app", "deploy", "--ref", "main", "--input", "to=live", "--input", "'note=a = b'"
        )
        assert said.ok, said.err
        assert said.out.startswith(f"app/1  Ship it  {forge.url}/app/runs/1  ")
        forge.runner(rui)
        assert states(ended(forge, 1)) == {"build": "success", "deploy": "failure"}
        log = forge.log("app/1/deploy")
        assert "manual by ada, attempt 1, to live, a = b, version 7, built" in log
        assert '"inputs":{"dry":true,"note":"a = b","to":"live"}' in log
        assert "\ndry" in log

        gate.touch()
        again = ada.says("rerun", "app/1", "--failed")
        assert again.ok, again.err
        assert again.out.startswith("app/2  Ship it  ")
        assert states(ended(forge, 2)) == {"build": "success", "deploy": "success"}
        assert "manual by ada, attempt 2, to live, a = b, version 7, built" in forge.log("app/2/deploy")
        refused = ada.says("rerun", "app/1")
        assert refused.status == 1
        assert "app/1 was run again already, as app/2" in refused.err
        forge.page("/app/runs/2").shows("not run again: this is the result of app/1/build", "as attempt 2")

        with browser(forge, ada) as client:
            answer = client.post("/app/runs/2/rerun")
            assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.url}/app/runs/3")
        third = ended(forge, 3)
        assert states(third) == {"build": "success", "deploy": "success"}
        assert (third["event"], third["by"], third["attempt"], third["rerun_of"]) == ("manual", "ada", 3, 2)
        assert "attempt 3" in forge.log("app/3/deploy")
    finally:
        forge.ends()


def test_the_clock_starts_a_minute_once_also_across_a_kill(tmp_path: Path) -> None:
    forge, ada, _ = prepared(tmp_path)
    ahead = str(50 - time.time() % 60)  # its next minute is ten seconds off
    words = [sys.executable, "-m", "tests.fault.ahead", ahead, str(forge.dir)]
    try:
        forge.starts(words=words)
        pushed = ada.pushes("app", {".vole/workflows/tick.yml": EVERY_MINUTE})
        assert pushed.ok, pushed.err
        deadline = time.monotonic() + 75
        while not (found := runs(forge)) and time.monotonic() < deadline:
            pass  # each look is a process of its own
        assert [(run["number"], run["event"], run["ref"]) for run in found] == [(1, "schedule", "refs/heads/main")]
        minute = str(found[0]["since"])[:16]

        forge.kill()
        forge.starts(words=words)

        ada.says("cancel", "app/1")
        assert [run["number"] for run in runs(forge) if str(run["since"])[:16] == minute] == [1]
        forge.page("/app/runs/1").shows("its schedule")
    finally:
        forge.ends()
