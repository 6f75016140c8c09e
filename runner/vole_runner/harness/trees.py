"""The removal of a folder that a job could write in, whatever it did to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path


def remove_tree(path: Path) -> bool:
    """Remove `path` and all below it, read-only files and folders too; links are not followed. False if some stays."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return not os.path.lexists(path)
    for folder, names, _ in os.walk(path):
        _open_up(folder)
        for name in names:
            _open_up(os.path.join(folder, name))
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_up(folder: str) -> None:
    """A folder without w and x for us keeps its contents from being removed."""
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            os.chmod(folder, 0o700)
