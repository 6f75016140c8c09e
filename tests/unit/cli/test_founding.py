"""`vole init`: what the folder of a new server holds."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from vole.base.errors import Conflict
from vole.cli.founding import found
from vole.config import server
from vole.config.server import Paths
from vole.ssh.hostkey import host_key_fingerprint


def test_a_new_folder_is_private_and_whole(tmp_path: Path) -> None:
    folder = tmp_path / "forge"

    fingerprint = found(folder, server.template())

    paths = Paths(folder)
    assert host_key_fingerprint(paths.host_key) == fingerprint
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths.folders} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (paths.host_key, paths.settings)} == {0o600}
    assert len(paths.deployment_id.read_text().strip()) == 32
    assert server.load(folder).paths == paths


def test_a_folder_that_holds_anything_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(Conflict, match="is not empty"):
        found(tmp_path, server.template())

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
