"""The API and the metrics of a real server: a token by SSH, requests over real HTTP."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from tests.endtoend.actors import BOUND_S, prepared

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(90)]

PIPELINE = """\
on: push
jobs:
  quick:
    runs-on: linux
    steps:
      - name: Say hello
        run: echo hello
  waiting:
    runs-on: gpu
    steps:
      - run: echo never
"""


def _until(ask, holds):
    """What `ask` answers once `holds` is true of it, within BOUND_S."""
    deadline = time.monotonic() + BOUND_S
    while True:
        found = ask()
        if holds(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.proves("SR-46a")
def test_a_program_follows_a_run_and_cancels_it_with_a_token_that_ssh_printed_once(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    settings = forge.dir / "vole.yaml"
    settings.write_text(settings.read_text().replace("listen: none", "listen: 127.0.0.1:0", 1))
    try:
        forge.starts()
        forge.command("label", "declare", "gpu")
        runner = forge.runner(rui, "linux")
        ada.checkout("app")
        ada.commits("app", {".vole/workflows/ci.yml": PIPELINE})
        pushed = ada.pushes("app")
        assert pushed.ok, pushed.err
        token = ada.says("token", "create", "ci", "--scope", "start:app").out.strip()
        with httpx.Client(base_url=f"{forge.url}/api/v1", headers={"authorization": f"Bearer {token}"}) as api:

            def run():
                return api.get("/repositories/app/runs/1").json()

            quick = _until(run, lambda one: one["jobs"][0]["state"] == "finished")["jobs"][0]
            why = api.get("/repositories/app/why/1/waiting").json()["items"][0]
            queue = api.get("/queue?labels=gpu").json()
            nobody = httpx.get(f"{forge.url}/api/v1/repositories/app")
            cancelled = api.post("/repositories/app/cancel/1", json={"reason": "no gpu"})
            ended = _until(run, lambda one: one["state"] == "finished")
            events = api.get("/repositories/app/events/1").json()["items"]
            assert ada.says("token", "revoke", "ci").ok
            revoked = api.get("/runs")
        metrics = _metrics(forge)
    finally:
        forge.ends()

    assert quick["conclusion"] == "success"
    assert "began Say hello" in [line["words"] for line in ended["timeline"]["items"]]
    assert why["runners"][0]["reason"]["code"] == "lacks_label"
    assert [one["address"] for one in queue["items"]] == ["app/1/waiting"]
    assert nobody.status_code == 200
    assert nobody.json()["clone"]["ssh"] == f"ssh://git@127.0.0.1:{forge.ssh_port}/app.git"
    assert cancelled.json() == {"cancelled": 1}
    assert (ended["conclusion"], ended["jobs"][1]["reason"]) == ("cancelled", "cancelled by ada: no gpu")
    assert [one["kind"] for one in events if one["job"] == "quick"] == ["enqueued", "leased", "started", "concluded"]
    assert (revoked.status_code, revoked.json()["type"]) == (401, "urn:vole:problem:unknown_token")
    assert runner.process.pid
    assert metrics["vole_hook_seconds_count"] == 1
    assert metrics["vole_lease_wakeups_total"] > 0
    assert metrics["vole_queue_wait_seconds_count"] == 1
    assert 'vole_runner_last_seen_seconds{account="rui"}' in metrics


def _metrics(forge):
    address = re.search(r'"metrics": ?"([0-9.:]+)"', "".join(forge.server.lines)).group(1)
    text = httpx.get(f"http://{address}/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(vole_[^ #]+) (\S+)$", text, re.MULTILINE)}
