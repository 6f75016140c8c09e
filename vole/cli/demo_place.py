"""Where the demo keeps everything: one folder, keys of its own, and an environment that knows no other."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where the demo keeps everything."""

    root: Path

    @property
    def forge(self) -> Path:
        return self.root / "forge"

    @property
    def ada_key(self) -> Path:
        return self.root / "ada_key"

    @property
    def runner_key(self) -> Path:
        return self.root / "runner_key"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def sample(self) -> Path:
        return self.root / "sample"

    @property
    def ssh(self) -> str:
        """The ssh command of the demo's person: no configuration, no agent, no key but theirs."""
        options = (
            "-F /dev/null -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes "
            f"-o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile='{self.known_hosts}'"
        )
        return f"ssh {options} -i '{self.ada_key}'"

    @property
    def environment(self) -> dict[str, str]:
        """For git and the runner: nothing of the caller's but the path."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": self.ssh,
        }


@contextmanager
def a_place(keep: Path | None) -> Iterator[Place]:
    """A new temporary folder that goes with the block, or `keep`, which stays."""
    if keep is not None:
        yield Place(keep.absolute())
        return
    root = Path(tempfile.mkdtemp(prefix="vole-demo-"))
    try:
        yield Place(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
