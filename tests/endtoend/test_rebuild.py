"""The database is deleted and comes back from git: every page shows what it showed, byte for byte."""

from __future__ import annotations

import difflib
import json
import re
import time
from pathlib import Path

import httpx
import pytest

from tests import stored
from tests.endtoend.actors import BOUND_S, Forge, Person, Said, a_ready_forge, prepared, program
from tests.endtoend.test_starts import browser, ended

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(180)]

MAIN = """\
name: Build
on:
  push:
    branches: [main]
jobs:
  build:
    strategy:
      matrix:
        number: [1, 2]
    runs-on: [linux]
    timeout-minutes: 5
    artifacts:
      - {{name: "out-${{{{ matrix.number }}}}", paths: [made]}}
      - {{name: "gone-${{{{ matrix.number }}}}", paths: [made], retention-days: 30}}
    steps:
      - run: |
          echo "number ${{{{ matrix.number }}}}" | tee made
          echo "::warning file=made,line=1::look at this"
          echo "# all is well" >> "$VOLE_SUMMARY"
  gate:
    needs: build
    steps:
      - run: test -e {gate}
  forgiven:
    continue-on-error: true
    steps:
      - run: exit 3
  after:
    needs: gate
    steps:
      - run: echo after
"""
MANUAL = """\
name: By hand
on:
  manual:
    inputs:
      to: {type: string, required: true}
      dry: {type: boolean, default: true}
  schedule:
    - cron: "0 4 1 1 *"
jobs:
  one:
    steps:
      - {run: echo "$TO", env: {TO: "${{ inputs.to }}"}}
"""
SLOW = """\
on: {push: {branches: [slow]}, manual: {}}
jobs:
  slow:
    runs-on: [nobody]
    steps:
      - run: sleep 60
"""
PAGES = ("/", "/app", "/app/refs", "/app/runs", "/app/commits/main", "/app/start")
# What is of this moment and no history: who is connected, how full the disk is.
NOW = ("/runners", "/queue", "/status", "/healthz", "/readyz", "/api/v1/runners", "/api/v1/queue", "/api/v1/status")


def done(said: Said) -> Said:
    assert said.ok, said.err + said.out
    return said


def populated(forge: Forge, ada: Person, rui: Person, folder: Path) -> None:
    """Runs of every kind of ending; the last of them waits for ever."""
    gate = folder / "gate"
    forge.command("repo", "settings", "app", "--description", "the first of all")
    forge.command("repo", "create", "quiet")
    forge.command("grant", "ada", "quiet", "write")
    forge.command("grant", "rui", "quiet", "run")
    forge.command("label", "declare", "nobody")
    forge.command("gate", "set", "app", "release/*", "main", "status:deploy")
    forge.runner(rui, "linux")
    files = {"main": MAIN.format(gate=gate), "manual": MANUAL, "slow": SLOW}
    done(ada.pushes("app", {f".vole/workflows/{name}.yml": text for name, text in files.items()}))
    ended(forge, 1)
    done(ada.pushes("app", {"a": "b"}, message="nothing [skip ci]"))
    gate.touch()
    done(ada.says("rerun", "app/1", "--failed"))
    done(ada.says("run", "start", "app", "manual", "--input", "to=live"))
    numbers = [run["number"] for run in json.loads(forge.command("run", "list", "app", "--json"))]
    for number in numbers:
        ended(forge, number)
    done(
        ada.pushes("quiet", {".vole/workflows/x.yml": "jobs: {x: {steps: [{run: echo quiet}]}}"}, options=("ci.wait",))
    )
    done(ada.pushes("app", to="slow"))
    cancelled = max(run["number"] for run in json.loads(forge.command("run", "list", "app", "--json")))
    done(ada.says("cancel", f"app/{cancelled}"))
    ended(forge, cancelled)


_AGO = re.compile(r"(<time [^>]*>)[^<]*")  # how long ago: a minute later it is something else


def visited(forge: Forge, ada: Person) -> dict[str, tuple[int, str]]:
    """Every page that links lead to, as ada sees it, and its twin in the API, as anybody does."""
    found: dict[str, tuple[int, str]] = {}
    with browser(forge, ada) as client:
        todo = [*PAGES, "/quiet", "/quiet/runs"]
        while todo:
            path = todo.pop()
            if path in found or path.startswith(("/static", "/log", *NOW)):
                continue
            answer = client.get(path)
            found[path] = answer.status_code, _AGO.sub(r"\1", answer.text)
            if "text/html" in answer.headers["content-type"]:
                todo += [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', answer.text)]
    runs = sorted(path for path in found if re.fullmatch(r"/app/runs/[0-9]+(/[a-z.0-9]+)?", path))
    api = [f"/api/v1/repositories{path}" for path in runs]
    api += [path.replace("/runs/", "/events/") for path in api if path.count("/") == 6]
    api += [path.replace("/runs/", "/why/") for path in api if "/runs/" in path]
    for path in ["/api/v1/repositories", "/api/v1/runs", "/api/v1/repositories/app/runs", *api]:
        answer = httpx.get(forge.url + path, timeout=BOUND_S)
        found[path] = answer.status_code, answer.text
    return found


def differences(path: str, before: tuple[int, str], after: tuple[int, str]) -> list[str]:
    texts = [f"{status}\n{text}".splitlines() for status, text in (before, after)]
    return list(difflib.unified_diff(*texts, path, path, lineterm="", n=0))


def told(forge: Forge) -> list[object]:
    """What commands say of people and repositories, and what runs came from."""
    words = ("user list", "key list", "grant", "repo list", "gate list app", "run list app", "run list quiet")
    labels = json.loads(forge.command("label", "list", "--json"))
    declared = [label for label in labels if label["label"] == "nobody"]
    of_runs = "WHERE id IN (SELECT push_id FROM runs WHERE state = 'finished') ORDER BY id"
    origins = [
        *stored.rows(forge.dir, f"SELECT id, repo_id, account, state, received_at FROM pushes {of_runs}"),
        *stored.rows(forge.dir, f"SELECT * FROM starts {of_runs}"),
    ]
    return [*(forge.command(*word.split(), "--json") for word in words), declared, [tuple(row) for row in origins]]


def rebuilt(forge: Forge) -> str:
    """What the command says; the server runs again then, and its runner is back."""
    forge.server.stop()
    for file in forge.dir.glob("vole.db*"):
        file.unlink()
    said = forge.command("index", "rebuild")
    forge.restarts()
    late = time.monotonic() + BOUND_S
    while forge.command("runner", "list", "--json") == "[]\n":
        assert time.monotonic() < late, "the runner does not come back"
        time.sleep(0.05)
    return said


@pytest.mark.proves("I-39", "SR-80", "I-37")
def test_every_page_is_as_it_was_and_numbers_go_on_at_the_next_full_hundred(tmp_path: Path) -> None:
    with a_ready_forge(tmp_path) as (forge, ada, rui):
        populated(forge, ada, rui, tmp_path)
        forge.records_what_it_owes()
        before, said_before = visited(forge, ada), told(forge)
        done(ada.says("run", "start", "app", "slow"))  # it is queued when the database is lost

        said = rebuilt(forge)

        after, said_after = visited(forge, ada), told(forge)
        assert "its next run is app/100" in said
        assert said_after == said_before
        assert before.keys() <= after.keys()
        changed = [line for path in before for line in differences(path, before[path], after[path])]
        assert not changed, "\n".join(changed[:100])
        assert len([path for path in before if path.startswith("/app/runs/")]) > 10
        assert not stored.rows(forge.dir, "SELECT 1 FROM run_labels")
        forge.runner(rui, "linux")
        refused = forge.vole("index", "rebuild")
        assert refused.status == 1
        assert "is already served by vole serve" in refused.err
        done(ada.pushes("app", {"e": "f"}, options=("ci.wait",)))
        numbers = [run["number"] for run in json.loads(forge.command("run", "list", "app", "--json"))]
        assert max(numbers) >= 100


def test_a_database_that_is_there_is_left_alone(tmp_path: Path) -> None:
    forge, _, _ = prepared(tmp_path)
    before = (forge.dir / "vole.db").read_bytes()

    refused = forge.vole("index", "rebuild")

    assert refused.status == 1
    assert "vole.db; nothing was changed" in refused.err
    assert "mv vole.db vole.db.old" in refused.err
    assert (forge.dir / "vole.db").read_bytes() == before


def test_what_was_decided_without_a_server_is_in_git_at_once(tmp_path: Path) -> None:
    forge, _, _ = prepared(tmp_path)
    before = [forge.command(*words, "--json") for words in (("user", "list"), ("key", "list"), ("grant",))]
    for file in forge.dir.glob("vole.db*"):
        file.unlink()

    forge.command("index", "rebuild")

    assert [forge.command(*words, "--json") for words in (("user", "list"), ("key", "list"), ("grant",))] == before


def test_a_rebuild_that_fails_names_the_document_and_leaves_no_database(tmp_path: Path) -> None:
    forge, _, _ = prepared(tmp_path)
    for file in forge.dir.glob("vole.db*"):
        file.unlink()
    admin, ref = forge.dir / "vole-admin.git", "refs/vole/admin"
    good = program("git", "rev-parse", ref, folder=admin).out.strip()
    blob = program("git", "hash-object", "-w", "--stdin", folder=admin, given='{"purpose":"x"').out.strip()
    tree = program("git", "mktree", folder=admin, given=f"100644 blob {blob}\tada.json\n").out.strip()
    root = program("git", "mktree", folder=admin, given=f"040000 tree {tree}\taccounts\n").out.strip()
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    bad = program("git", *who, "commit-tree", "-m", "bad", root, folder=admin).out.strip()
    assert program("git", "update-ref", ref, bad, folder=admin).ok

    refused = forge.vole("index", "rebuild")
    left = (forge.dir / "vole.db").exists()

    assert refused.status == 2
    assert "vole-admin.git: accounts/ada.json: not JSON" in refused.err
    assert not left
    assert program("git", "update-ref", ref, good, folder=admin).ok
    assert "2 accounts and 1 repositories are back" in forge.command("index", "rebuild")
