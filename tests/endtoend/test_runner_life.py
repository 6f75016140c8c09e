"""A runner's life against a real server: its key goes, its server dies, its job is cancelled, its filter narrows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.endtoend.actors import Forge, Person, Running, a_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]


def a_workflow(script: str, *, runs_on: str = "linux") -> dict[str, str]:
    lines = "".join(f"          {line}\n" for line in script.splitlines())
    text = f"on: push\njobs:\n  x:\n    runs-on: {runs_on}\n    steps:\n      - run: |\n{lines}"
    return {".vole/workflows/ci.yml": text}


def peopled(forge: Forge) -> tuple[Person, Person]:
    forge.creates("app")
    ada = forge.person("ada", rights={"app": "write"})
    return ada, forge.person("rui", rights={"app": "run"}, kind="runner")


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not runs(pid)


def step_pid(follower: Running) -> int:
    return int(follower.says(r"pid (\d+)").group(1))


@pytest.mark.proves("SR-27")
def test_a_removed_runner_key_ends_its_idle_connection_within_five_seconds(tmp_path):
    with a_forge(tmp_path) as forge:
        _, rui = peopled(forge)
        runner = forge.runner(rui, "linux", flags=("--exit-on-refusal",))
        listed = forge.command("key", "list", "rui")
        fingerprint = re.search(r"SHA256:\S+", listed).group(0)

        forge.command("key", "remove", fingerprint)

        assert runner.ends(within_s=5) == 4


@pytest.mark.proves("SR-27", "SR-35")
def test_a_removed_runner_key_ends_the_step_that_runs_under_it(tmp_path):
    with a_forge(tmp_path) as forge:
        ada, rui = peopled(forge)
        forge.runner(rui, "linux", flags=("--exit-on-refusal",))
        assert ada.pushes("app", a_workflow("echo pid $$; sleep 60")).ok
        pid = step_pid(forge.following(ada, "app/1/x"))
        fingerprint = re.search(r"SHA256:\S+", forge.command("key", "list", "rui")).group(0)

        forge.command("key", "remove", fingerprint)

        assert gone(pid, within_s=10)


@pytest.mark.proves("SR-35", "SR-31")
def test_a_cancelled_job_ends_its_processes_and_says_cancelled(tmp_path):
    with a_forge(tmp_path, ttl="12s") as forge:  # a grace of 2 s between TERM and KILL
        ada, rui = peopled(forge)
        forge.runner(rui, "linux")
        assert ada.pushes("app", a_workflow("trap '' TERM; setsid sleep 61 & echo pid $!; sleep 62")).ok
        pid = step_pid(forge.following(ada, "app/1/x"))

        said = ada.says("cancel", "app/1/x")

        assert said.ok, said.err
        assert gone(pid, within_s=10)
        forge.log("app/1/x")
        assert forge.job("app/1/x")["conclusion"] == "cancelled"


@pytest.mark.proves("I-16", "I-33")
def test_a_running_job_outlives_the_kill_of_its_server_and_its_log_is_whole(tmp_path):
    with a_forge(tmp_path, ttl="30s") as forge:  # a start of the server may take seconds
        ada, rui = peopled(forge)
        runner = forge.runner(rui, "linux")
        script = 'for i in $(seq 1 40); do echo "line $i"; sleep 0.05; done'
        assert ada.pushes("app", a_workflow(script)).ok
        forge.following(ada, "app/1/x").says("line 3$")

        forge.kill()
        forge.restarts()
        runner.says("connected again")
        log = forge.log("app/1/x")

        assert [line for line in log.splitlines() if line.startswith("line")] == [f"line {at}" for at in range(1, 41)]
        assert forge.job("app/1/x")["conclusion"] == "success"
        assert forge.job("app/1/x")["epoch"] == 1


def test_a_runner_that_is_drained_by_term_finishes_its_job_first(tmp_path):
    with a_forge(tmp_path) as forge:
        ada, rui = peopled(forge)
        runner = forge.runner(rui, "linux")
        assert ada.pushes("app", a_workflow("echo on; sleep 1; echo done")).ok
        forge.following(ada, "app/1/x").says("on$")

        status = runner.stop()

        assert status == 0
        assert forge.job("app/1/x")["conclusion"] == "success"


@pytest.mark.proves("SR-25")
def test_a_filter_narrows_what_a_runner_takes_and_says_what_is_left(tmp_path):
    with a_forge(tmp_path) as forge:
        ada, rui = peopled(forge)
        forge.creates("lib")
        forge.command("grant", "ada", "lib", "write")
        forge.command("grant", "rui", "lib", "run")
        runner = forge.runner_process(rui, "linux", flags=("--repos", "lib,nope", "--name", "only-lib"))
        runner.says("the filter leaves: lib")
        runner.says("warning: .*nope")
        runner.says("ready")

        pushed = ada.pushes("app", a_workflow("echo here"))
        other = ada.pushes("lib", a_workflow("echo there"))

        assert pushed.ok
        assert other.ok
        assert "there" in forge.log("lib/1/x")
        assert forge.job("app/1/x")["state"] == "queued"
        why = ada.says("why", "app/1/x").out
        assert "only-lib" in why
