"""What is kept and what is not: `vole doctor` and `vole du`, which write nothing, and removing by command."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import stored
from tests.endtoend.actors import Forge, prepared, program

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(90)]

WORKFLOW = """\
on: push
jobs:
  one:
    artifacts: [{name: out, paths: [made]}]
    steps: [{run: echo hello | tee made}]
"""


@pytest.fixture
def forge_and_ada(tmp_path):
    """`app/1` is green, and nobody is at work any more."""
    forge, ada, rui = prepared(tmp_path)
    try:
        forge.starts()
        runner = forge.runner(rui)
        assert ada.pushes("app", {".vole/workflows/ci.yml": WORKFLOW}, options=("ci.wait",)).ok
        forge.records_what_it_owes()
        runner.stop()
        yield forge, ada
    finally:
        forge.ends()


@pytest.fixture
def forge(forge_and_ada):
    return forge_and_ada[0]


def files(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with what changes when it is written. Shared memory is no file of the store's: every reader has it."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm"]
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in found
    }


def settle(folder: Path) -> None:
    """Bring everything into the database's one file, as whoever copies a folder may have it."""
    with closing(sqlite3.connect(folder / "vole.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def bad(forge: Forge) -> list[str]:
    """The lines that doctor begins with `bad`; its status says whether there are any."""
    said = forge.vole("doctor")
    lines = [line for line in said.out.splitlines() if line.startswith("bad")]
    # A machine of tests may be short of space, which is no fault of the folder.
    assert said.status == (1 if lines else 0), said.out + said.err
    return [line for line in lines if line.split()[1] != "disk"]


def test_a_forge_that_is_well_is_found_so_and_nothing_is_written(forge):
    before = files(forge.dir)
    assert bad(forge) == []
    du = json.loads(forge.command("du", "--json"))
    assert files(forge.dir) == before

    forge.kill()
    for settled in (False, True):
        if settled:
            settle(forge.dir)
        before = files(forge.dir)
        assert bad(forge) == []
        forge.command("du")
        assert files(forge.dir) == before
    assert not (forge.dir / "vole.db-shm").exists()

    (app,) = du["repositories"]
    assert (app["records_number"], app["runs"], app["freed"]) == (2, {"kept": 1, "pruned": 0}, {"files": 0, "bytes": 0})
    assert (app["artifacts"], app["logs"]) == (6, (forge.dir / "logs/app/1/one/1").stat().st_size)
    assert du["total"] >= app["git"] + du["database"]


def test_what_is_wrong_is_found(forge):
    app = forge.dir / "repos/app.git"
    assert program("git", "update-ref", "refs/heads/mine", "refs/heads/main", folder=app).ok
    (forge.dir / "logs/app/1/one/1").unlink()
    (forge.dir / "keys/record_signers").write_text("")
    sha256 = stored.rows(forge.dir, "SELECT sha256 FROM artifacts")[0][0]
    (found,) = (forge.dir / "artifacts").glob(f"*/*/{sha256}")
    found.rename(found.with_name("f" * 64))

    said = bad(forge)

    assert len(said) == 4, said
    for text in ("is not the last key", "refs/heads/mine stands where no push put it", "logs/app/1/one/1", sha256):
        assert any(text in line for line in said), (text, said)
    assert "1 artifact (6 B) that no row names" in forge.vole("doctor").out


def test_a_repository_that_is_gone_and_a_database_that_is_damaged_are_found(forge):
    forge.server.stop()
    (forge.dir / "repos/app.git").rename(forge.dir / "elsewhere")
    assert any("app: the repository is not there" in line for line in bad(forge))
    settle(forge.dir)
    data = bytearray((forge.dir / "vole.db").read_bytes())
    data[4096 * 3 : 4096 * 8] = bytes(4096 * 5)
    (forge.dir / "vole.db").write_bytes(data)

    assert any(line.split()[1] == "store" for line in bad(forge))


def test_what_is_removed_by_command_is_told_counted_and_missed_by_nobody(forge_and_ada):
    forge, ada = forge_and_ada
    log = (forge.dir / "logs/app/1/one/1").stat().st_size

    assert ada.says("log", "delete", "app/1").out == f"app/1: 1 log removed, {log} B freed\n"
    assert ada.says("artifact", "delete", "app/1/one", "--name", "out").out == "app/1/one: 1 file removed, 6 B freed\n"

    again = ada.says("log", "delete", "app/1/one")
    assert (again.status, "no log to remove" in again.err) == (1, True)
    assert "the log of app/1/one was removed by ada, on" in ada.says("log", "app/1/one").err
    assert forge.page("/app/runs/1").shows("the log was removed by ada", "removed by ada")
    assert json.loads(forge.command("du", "--json"))["repositories"][0]["freed"] == {"files": 2, "bytes": log + 6}
    assert bad(forge) == []

    assert ada.says("run", "prune", "app", "2100-01-01", "--yes").status == 1
    assert "would be forgotten" in forge.vole("run", "prune", "app", "2100-01-01").err
    assert forge.command("run", "prune", "app", "2100-01-01", "--yes") == "1 run of app forgotten, 0 B freed\n"
    gone = forge.page("/app/runs/1")
    assert gone.status == 410
    assert gone.shows("run 1 was forgotten", "refs/vole/runs:runs/000/001/run.json")
    assert bad(forge) == []
    stored.check(forge.dir)
    assert forge.vole("backup", str(forge.folder / "kept")).ok


def test_a_rebuilt_database_tells_what_is_gone_and_is_found_well(forge_and_ada):
    forge, ada = forge_and_ada
    assert ada.says("log", "delete", "app/1").ok
    assert ada.says("artifact", "delete", "app/1").ok
    forge.server.stop()
    for file in forge.dir.glob("vole.db*"):
        file.unlink()

    said = forge.vole("index", "rebuild")

    assert "1 logs and 1 artifacts are told of, and are not here" in said.out + said.err
    assert bad(forge) == []
    forge.restarts()
    assert forge.page("/app/runs/1").shows("the log was removed before the database was rebuilt")
    assert bad(forge) == []
    assert forge.vole("backup", str(forge.folder / "kept")).ok
