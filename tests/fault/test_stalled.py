"""The server stands still for longer than a lease lives, and goes on: nothing expires by that alone."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time

import pytest

from tests import invariants
from tests.endtoend.actors import Forge, Person, prepared

pytestmark = [pytest.mark.needs("git", "ssh")]

TTL_S = 6.0
WORKFLOW = """\
on: push
jobs:
  long:
    steps:
      - run: echo on; [ -e %(gate)s ] || sleep 600
  short:
    steps:
      - run: echo on; while [ ! -e %(gate)s ]; do sleep 0.05; done; echo off
  waits:
    runs-on: later
    steps:
      - run: echo on
"""


def stall(forge: Forge, ada: Person, rui: Person, span_s: float) -> list[tuple[int, str, dict[str, str]]]:
    """A server that stops while two jobs run and one is queued, and goes on; the events of leases since then."""
    gate = forge.folder / "gate"
    first = forge.runner(rui, flags=("--slots", "2", "--min-free", "1MiB"))
    ada.says("label", "declare", "later")
    assert ada.pushes("app", {".vole/workflows/ci.yml": WORKFLOW % {"gate": gate}}).ok
    for job in ("long", "short"):
        forge.following(ada, f"app/1/{job}").says("on$")

    forge.server.process.send_signal(signal.SIGSTOP)
    try:
        gate.touch()  # `short` ends, `long` would if it were begun again
        assert not threading.Event().wait(span_s)
    finally:
        forge.server.process.send_signal(signal.SIGCONT)
    resumed = time.time_ns() // 1000

    forge.runner_process(rui, "later", flags=("--name", "late", "--min-free", "1MiB"))
    for job in ("long", "short", "waits"):
        forge.log(f"app/1/{job}")
    assert first.process.poll() is None
    with sqlite3.connect(f"file:{forge.dir / 'vole.db'}?mode=ro", uri=True) as connection:
        invariants.check(connection)
        rows = connection.execute("SELECT at, kind, detail FROM events WHERE job_id IS NOT NULL ORDER BY id").fetchall()
    return [(at - resumed, kind, json.loads(detail)) for at, kind, detail in rows]


def assert_nothing_expired_by_it(forge: Forge, events: list[tuple[int, str, dict[str, str]]]) -> None:
    run = json.loads(forge.command("run", "list", "app", "--json"))[0]
    assert {job["key"]: job["conclusion"] for job in run["jobs"]} == dict.fromkeys(
        ("long", "short", "waits"), "success"
    )
    # The runner let go of what it could not renew, as it must. The server waits its whole TTL for a word all the same.
    early = [event for event in events if event[2].get("cause") == "expired" and event[0] < (TTL_S - 1.5) * 1e6]
    assert early == []


@pytest.mark.timeout(120)
@pytest.mark.proves("I-15", "I-16")
def test_a_server_that_stood_still_for_longer_than_a_ttl_expires_nothing_by_it(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        assert_nothing_expired_by_it(forge, stall(forge, ada, rui, TTL_S + 2))
    finally:
        forge.ends()


@pytest.mark.slow
@pytest.mark.timeout(1_000)
@pytest.mark.proves("I-15", "I-16")
def test_a_server_that_stood_still_for_ten_minutes_expires_nothing_by_it(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        assert_nothing_expired_by_it(forge, stall(forge, ada, rui, 600))
    finally:
        forge.ends()
