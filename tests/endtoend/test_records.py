"""The evidence in git, as whoever clones it sees it: plain git and ssh-keygen, no vole."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.endtoend.actors import BOUND_S, Forge, Person, prepared, program

RUNS = "refs/vole/runs"
pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(90)]

WORKFLOW = """\
on: push
jobs:
  one:
    artifacts:
      - {name: out, paths: [made]}
    steps:
      - run: echo one | tee made
  two:
    needs: one
    reports: {junit: report.xml}
    steps:
      - run: |
          echo '<testsuite><testcase name="adds"/>' > report.xml
          echo '<testcase name="divides"><failure>by zero</failure></testcase></testsuite>' >> report.xml
          exit 1
"""


@pytest.fixture
def forge_of(tmp_path):
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        yield forge, ada, rui
    finally:
        forge.ends()


def a_finished_run(forge: Forge, ada: Person, rui: Person) -> str:
    """`app/1`, which fails; the pushed commit."""
    forge.runner(rui)
    said = ada.pushes("app", {".vole/workflows/ci.yml": WORKFLOW}, options=("ci.wait",))
    assert said.ok, said.err
    forge.records_what_it_owes()
    return ada.git("rev-parse", "HEAD", folder=ada.checkout("app")).out.strip()


def fetched(forge: Forge, ada: Person, *more: str):
    """A clone with the records in it, and the published list of signers beside it."""
    clone = forge.folder / "vera"
    assert ada.git("clone", "-q", ada.address("app"), str(clone)).ok
    assert "refs/vole" not in ada.git("for-each-ref", folder=clone).out
    got = ada.git("fetch", "-q", "origin", "refs/vole/runs:refs/vole/runs", folder=clone)
    assert got.ok, got.err
    signers = forge.folder / "record-signers"
    signers.write_bytes(httpx.get(forge.url + "/keys/record-signers", timeout=BOUND_S).content)
    return clone, signers


def verified(clone, signers, commit: str = "refs/vole/runs"):
    return program("git", "-c", f"gpg.ssh.allowedSignersFile={signers}", "verify-commit", commit, folder=clone)


def document(clone, path: str):
    raw = program("git", "cat-file", "blob", f"refs/vole/runs:{path}", folder=clone)
    assert raw.ok, raw.err
    value = json.loads(raw.out)
    assert json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) == raw.out
    return value


@pytest.mark.proves("I-36", "I-37", "SR-40")
def test_records_verify_with_git_alone_and_say_what_the_pages_say(forge_of):
    forge, ada, rui = forge_of
    commit = a_finished_run(forge, ada, rui)

    clone, signers = fetched(forge, ada)
    good = verified(clone, signers)
    one, two = (document(clone, f"runs/000/001/{key}/1.json") for key in ("one", "two"))
    whole = document(clone, "runs/000/001/run.json")

    assert good.ok, good.err
    assert 'Good "git" signature for records@' in good.err
    assert [one["purpose"], whole["purpose"], one["v"], whole["v"]] == ["vole attempt record", "vole run record", 1, 1]
    assert [doc["record"]["conclusion"] for doc in (one, two, whole)] == ["success", "failure", "failure"]
    assert {doc["record"]["commit"] for doc in (one, two, whole)} == {commit}
    log = forge.dir / "logs/app/1/one/1"
    assert one["record"]["log"] == {
        "bytes": log.stat().st_size,
        "sha256": hashlib.sha256(log.read_bytes()).hexdigest(),
        "state": "complete",
        "truncated": False,
    }
    assert [file["sha256"] for file in one["record"]["artifacts"]] == [hashlib.sha256(b"one\n").hexdigest()]
    shown = json.loads(forge.command("run", "list", "app", "--json"))[0]
    jobs = {job["key"]: job["outcome"]["conclusion"] for job in whole["record"]["jobs"]}
    assert jobs == {job["key"]: job["conclusion"] for job in shown["jobs"]} == {"one": "success", "two": "failure"}
    assert {name: two["record"]["tests"][name] for name in ("passed", "failed")} == {"passed": 1, "failed": 1}
    assert forge.page("/app/runs/1").shows("failure", "one", "two", "1 failed", "divides", "by zero")


@pytest.mark.proves("SR-41")
def test_a_rotated_key_verifies_old_and_new_and_survives_a_restart(forge_of):
    forge, ada, rui = forge_of
    a_finished_run(forge, ada, rui)
    said = forge.command("record", "rotate")
    forge.server.stop()
    forge.restarts()
    assert ada.pushes("app", {"more": "x"}, options=("ci.wait",)).ok
    forge.records_what_it_owes()

    clone, signers = fetched(forge, ada)
    keys = json.loads(forge.command("record", "keys", "--json"))
    chain = program("git", "rev-list", "refs/vole/runs", folder=clone).out.split()

    assert [verified(clone, signers, commit).ok for commit in chain] == [True] * len(chain)
    assert len(chain) >= 2
    assert [key["until"] is None for key in keys] == [False, True]
    assert keys[-1]["key"] in said
    assert keys[-1]["key"] in verified(clone, signers).err
    assert keys[0]["key"] in verified(clone, signers, chain[-1]).err
    inside = program("git", "cat-file", "blob", "refs/vole/runs:record-signers", folder=clone).out
    assert inside == signers.read_text()


@pytest.mark.proves("SR-39")
def test_no_pusher_moves_or_deletes_a_record(forge_of):
    forge, ada, rui = forge_of
    a_finished_run(forge, ada, rui)
    clone, _ = fetched(forge, ada)
    tip = program("git", "rev-parse", "refs/vole/runs", folder=clone).out

    for spec in ("HEAD:refs/vole/runs", "+refs/vole/runs~0:refs/vole/runs", ":refs/vole/runs", "HEAD:refs/vole/other"):
        assert not ada.git("push", "origin", spec, folder=clone).ok, spec

    assert ada.git("ls-remote", "origin", "refs/vole/*", folder=clone).out == f"{tip.strip()}\trefs/vole/runs\n"


def vole(folder: Path, *words: str | Path):
    return program(sys.executable, "-m", "vole", *words, folder=folder)


@pytest.mark.proves("SR-42")
def test_a_clone_is_verified_by_the_second_reader_offline_and_a_forged_one_is_not(forge_of):
    forge, ada, rui = forge_of
    a_finished_run(forge, ada, rui)
    clone, signers = fetched(forge, ada)
    (clone / "record-signers").write_bytes(signers.read_bytes())
    fetching, verifying = httpx.get(f"{forge.url}/api/v1/repositories/app/runs/1", timeout=BOUND_S).json()["record"][
        "verify"
    ]
    forge.server.stop()

    good = vole(clone, "verify", clone, "--signers", signers, "--files", forge.dir)
    own = vole(clone, "-C", forge.dir, "verify", "app")
    tip = program("git", "rev-parse", "refs/vole/runs", folder=clone).out.strip()

    shown = program("sh", "-c", verifying, folder=clone)
    assert (shown.ok, 'Good "git" signature' in shown.err, fetching) == (True, True, f"git fetch origin {RUNS}:{RUNS}")
    assert good.ok, good.err
    said = good.out.splitlines()
    assert said[0].startswith("app is as it was signed: attempts 2, runs 1, commits ")
    assert said[1].startswith("signed by records@")
    assert said[2:] == [
        "artifacts as recorded 2, not here 0",
        "logs as recorded 2, not here 0",
        f"up to {tip}; next time --seen {tip[:10]}",
    ]
    assert (own.out, own.ok) == (good.out, True)
    refused = {
        "whose signatures count?": ("verify", clone),
        "it is a record of app, not of web": ("verify", clone, "--signers", signers, "--name", "web"),
        "records were taken away": ("verify", clone, "--signers", signers, "--seen", "0123456789"),
        "no commit id": ("verify", clone, "--signers", signers, "--seen", "HEAD"),
        "no git repository": ("verify", signers.parent, "--signers", signers),
        "No such file": ("verify", clone, "--signers", clone / "nowhere"),
    }
    for why, words in refused.items():
        verdict = vole(clone, *words)
        assert (verdict.ok, verdict.out) == (False, ""), words
        assert why in verdict.err
    assert ada.git("update-ref", "refs/vole/runs", "HEAD", folder=clone).ok
    forged = vole(clone, "verify", clone, "--signers", signers)
    assert (forged.ok, "no signed commit of records" in forged.err) == (False, True)


def told(pid: int | str) -> str:
    """All that a process was given: arguments, environment, what its descriptors are."""
    folder = Path(f"/proc/{pid}")
    given = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
    return given.decode(errors="replace") + " ".join(os.readlink(link) for link in (folder / "fd").iterdir())


@pytest.mark.proves("SR-41")
def test_neither_parsers_nor_git_nor_its_hook_are_given_the_key(forge_of):
    forge, ada, _ = forge_of
    server = forge.server.process.pid
    parsers = [told(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    probe = forge.folder / "probe"
    (forge.dir / "run/hooks/pre-receive").write_text(
        f"#!/bin/sh\nfor pid in $$ $PPID; do cat /proc/$pid/cmdline /proc/$pid/environ; ls -l /proc/$pid/fd; done"
        f" >{probe}\nexit 1\n"
    )

    assert not ada.pushes("app", {".vole/workflows/ci.yml": WORKFLOW}).ok

    git_and_hook = probe.read_bytes().decode(errors="replace")
    assert parsers
    assert "receive-pack" in git_and_hook
    for given in (*parsers, git_and_hook):
        assert "record_ed25519" not in given
        assert "PRIVATE KEY" not in given
