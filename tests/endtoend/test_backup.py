"""A backup of a forge that is at work, and what is served from it: `vole backup`, `vole restore`."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests import stored
from tests.endtoend.actors import Forge, Page, Person, prepared, program
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.config.server import Paths
from vole.flows.backup import back_up, restore

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(120)]

QUICK = """\
on: push
jobs:
  quick:
    artifacts: [{name: out, paths: [made]}]
    steps: [{run: echo hello | tee made}]
"""
SLOW = """\
on: push
jobs:
  slow:
    steps: [{run: echo begun; sleep 60}]
"""
RUNS, ADMIN = "refs/vole/runs", "refs/vole/admin"


@pytest.fixture
def busy(tmp_path):
    """`app/1` is green, `app/2` is running."""
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        forge.runner(rui)
        assert ada.pushes("app", {".vole/workflows/ci.yml": QUICK}, options=("ci.wait",)).ok
        forge.records_what_it_owes()
        assert ada.pushes("app", {".vole/workflows/ci.yml": SLOW}).ok
        forge.following(ada, "app/2/slow").says("begun")
        yield forge, ada, rui
    finally:
        forge.ends()


def another(forge: Forge, backup: Path, *flags: str) -> tuple[Forge, str]:
    """A forge on what `backup` gives, served beside the other's people, and what restore said."""
    folder = forge.folder / f"again-{len(forge.started)}"
    folder.mkdir()
    new = Forge(folder)
    said = forge.vole("restore", str(backup), str(new.dir), *flags)
    assert said.ok, said.err
    settings = new.dir / "vole.yaml"
    settings.write_text(re.sub(r"listen: 127\.0\.0\.1:\d+", "listen: 127.0.0.1:0", settings.read_text()))
    return new, said.out


def history(forge: Forge, *paths: str) -> list[str]:
    """Pages without what is of another server or moment: addresses, ages, the newest commit of records."""
    other = r"\d+ (seconds?|minutes?) ago|just now|127\.0\.0\.1:\d+|(in commit|verify-commit) [0-9a-f]{10}"
    forge.records_what_it_owes()
    return [re.sub(other, "*", words(forge, path)) for path in paths]


def words(forge: Forge, path: str) -> str:
    page: Page = forge.page(path)
    assert page.status == 200, page.text
    return page.words


def loaded(forge: Forge, ada: Person, stop: threading.Event) -> threading.Thread:
    """Branches come one after the other until `stop`."""

    def push() -> None:
        at = 0
        while not stop.is_set():
            at += 1
            ada.commits("app", {"count": str(at)})
            ada.git("push", "-q", "origin", f"HEAD:refs/heads/b{at}", folder=ada.checkout("app"))

    thread = threading.Thread(target=push)
    thread.start()
    return thread


@pytest.mark.proves("SR-80", "I-04")
def test_a_forge_at_work_is_backed_up_and_served_again(busy):
    forge, ada, _ = busy
    paths = ("/app/runs/1", "/app/runs/1/quick", "/app/tree/main", "/app/commits/main")
    pages = history(forge, *paths)
    stop = threading.Event()
    pushing = loaded(forge, ada, stop)
    try:
        said = forge.vole("backup", str(forge.folder / "kept"))
    finally:
        stop.set()
        pushing.join()
    assert said.ok, said.err
    assert "left out: private keys" in said.out
    sums = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=forge.folder / "kept", check=False)
    assert sums.returncode == 0
    assert not list((forge.folder / "kept" / "keys").glob("*_ed25519"))
    decided = program("git", "ls-tree", "-r", "--name-only", ADMIN, folder=forge.folder / "kept/vole-admin.git")
    assert "repositories/app.json" in decided.out.split()

    new, told = another(forge, forge.folder / "kept")
    assert "lost: app/2/slow had not ended" in told
    assert "app: the next run is app/1000" in told
    stored.check(new.dir)
    new.starts()
    try:
        assert history(new, *paths) == pages
        assert "restored from a backup" in words(new, "/app/runs/2/slow")
        new.records_what_it_owes()
        record = program(
            "git", "cat-file", "blob", f"{RUNS}:runs/000/002/slow/1.json", folder=new.dir / "repos/app.git"
        )
        assert json.loads(record.out)["record"]["conclusion"] == "lost"
        new.command("rerun", "app/2")
        numbers = [run["number"] for run in json.loads(new.command("run", "list", "app", "--json"))]
        assert numbers[0] == 1000
        assert max(numbers[1:]) < 1000
    finally:
        new.ends()
    stored.check(new.dir)


@pytest.mark.proves("SR-80")
def test_what_ran_after_the_backup_gives_no_number_again(busy):
    forge, _, _ = busy
    kept = forge.folder / "kept.tar.gz"
    assert forge.vole("backup", "--with-keys", str(kept)).ok
    forge.ends()
    # The server went on for two thousand runs before it was lost; its folder can still be read.
    (forge.dir / "logs/app/2345/slow").mkdir(parents=True)

    new, told = another(forge, kept, "--past", str(forge.dir))

    assert "app: the next run is app/3000" in told
    assert "host key" not in told
    assert (new.dir / "keys/record_ed25519").read_bytes() == (forge.dir / "keys/record_ed25519").read_bytes()


def test_restore_takes_an_empty_folder_and_a_whole_backup_alone(busy):
    forge, _, _ = busy
    kept, place = forge.folder / "kept", forge.folder / "again"
    assert forge.vole("backup", str(kept)).ok
    assert "not empty" in forge.vole("backup", str(kept)).err
    place.mkdir()
    (place / "mine").touch()
    assert "not empty" in forge.vole("restore", str(kept), str(place)).err
    (place / "mine").unlink()
    log = kept / "logs/app/1/quick/1"
    log.write_bytes(log.read_bytes().replace(b"hello", b"jello"))

    said = forge.vole("restore", str(kept), str(place))

    assert (said.status, list(place.iterdir())) == (2, [])
    assert "logs/app/1/quick/1 has other bytes than when the backup was made" in said.err


def test_what_is_removed_while_a_backup_is_made_is_left_out_and_said(busy):
    forge, _, _ = busy
    kept = forge.folder / "kept"

    def removes(what: str, _: int) -> None:
        if what == "logs":
            forge.command("log", "delete", "app/1")
            forge.command("artifact", "delete", "app/1")

    made = back_up(Paths(forge.dir), kept, SystemClock(), removes, keys=False)

    gone = [line.partition(":")[0] for line in made.left_out if "removed while" in line]
    assert len(gone) == 2
    assert "logs/app/1/quick/1" in gone
    assert forge.vole("restore", str(kept), str(forge.folder / "again")).ok


def test_a_restore_that_is_cut_short_leaves_nothing_and_can_be_done_again(busy):
    forge, _, _ = busy
    kept, again = forge.folder / "kept", forge.folder / "again"
    assert forge.vole("backup", str(kept)).ok
    before = sorted(forge.folder.iterdir())

    def cut(what: str, _: int) -> None:
        if what == "the queue":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(kept, again, None, (SystemClock(), SystemEntropy(), cut))

    assert sorted(forge.folder.iterdir()) == before
    assert forge.vole("restore", str(kept), str(again)).ok


def test_a_backup_with_a_missing_object_does_not_count(busy):
    forge, _, _ = busy
    blob = stored.rows(forge.dir, "SELECT workflow_blob FROM runs WHERE number = 1")[0][0]
    (forge.dir / f"repos/app.git/objects/{blob[:2]}/{blob[2:]}").unlink()

    said = forge.vole("backup", str(forge.folder / "kept"))

    assert said.status == 75
    assert "the backup is not whole" in said.err
    assert blob in said.err
    assert not (forge.folder / "kept").exists()
