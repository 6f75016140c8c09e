"""Making the folder of a new server. Never touches one that holds anything."""

from __future__ import annotations

import os
from pathlib import Path

from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy, digest
from vole.base.errors import Conflict
from vole.config.server import Paths, deployment
from vole.git.records import RecordKeys
from vole.ssh.hostkey import make_host_key


def found(folder: Path, settings: str) -> str:
    """Make `folder` with `settings` as its vole.yaml; the host key's fingerprint.

    Raises Conflict for a folder that is not empty.
    """
    paths = Paths(folder.absolute())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder} is not empty; nothing was changed", next_step="name a folder that does not exist yet")
    for path in paths.folders:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    fingerprint = make_host_key(paths.host_key)
    _write(paths.deployment_id, digest(SystemEntropy().token())[:32] + "\n")
    RecordKeys.open(paths.record_key, deployment(paths), SystemClock().now())
    _write(paths.settings, settings)
    return fingerprint


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
