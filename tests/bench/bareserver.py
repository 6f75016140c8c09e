"""`vole serve` whose git runs no hook: the same door, pumps and git settings, without policy, intent or run."""

from __future__ import annotations

from pathlib import Path

import vole.app
from vole.cli import main
from vole.git.service import GitPrograms

NO_HOOKS = Path("/dev/null")


def _without_hooks(_hooks: Path, lock: Path) -> GitPrograms:
    return GitPrograms(NO_HOOKS, lock)


if __name__ == "__main__":
    vole.app.GitPrograms = _without_hooks  # type: ignore
    main()
