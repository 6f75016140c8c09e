"""What a sandbox sees of this machine, as bubblewrap's arguments: what is not listed here is absent in it.

The system's folders and the interpreter, read-only; never the folders that the runner hides, wherever they lie.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import vole
import vole_runner
from vole.base import limits

HOME = "/home/vole"
SOCKETS = "/run/vole"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_IN_MEMORY = ("/tmp", "/dev/shm", HOME)  # noqa: S108  they are the sandbox's own


class Sight:
    """`words` grows from the ground up. `hidden`: what stays out where a folder that is shown has it."""

    def __init__(self, hidden: Iterable[Path], *, resolver: bool) -> None:
        self.words: list[str] = []
        self._hidden = {Path(os.path.realpath(path)) for path in hidden}
        self._blank: list[str] = []
        for path in filter(os.path.lexists, _SYSTEM):
            self._show_system(path)
        self._add("--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var")
        self._add("--symlink", "../tmp", "/var/tmp")  # noqa: S108  likewise
        for folder in _IN_MEMORY:
            self._add("--size", str(limits.SANDBOX_TMP_BYTES), "--tmpfs", folder)
        self._add("--remount-ro", "/dev")
        # Of a runner that is root, the kernel's settings in /proc/sys belong to the sandbox's user.
        self._add("--remount-ro", "/proc")
        found = os.path.realpath("/etc/resolv.conf")
        if resolver and not found.startswith("/etc/"):
            self._add("--ro-bind-try", found, found)
        for path in interpreter():
            self._show(path)

    def complete(self, folder: str, sockets: Path) -> list[str]:
        """All of it, with what is the attempt's own; nothing else can be written."""
        own = ["--bind", folder, folder] if folder else []
        closed = [word for path in (*self._blank, "/") for word in ("--remount-ro", path)]
        return [*self.words, *own, "--bind", str(sockets), SOCKETS, *closed]

    def _show_system(self, path: str) -> None:
        if os.path.islink(path):
            self._add("--symlink", os.readlink(path), path)
            return
        self._show(path)
        if path == "/etc":
            for found in _only_ours(Path(path)):
                self._add(*(("--tmpfs", found) if os.path.isdir(found) else ("--ro-bind", "/dev/null", found)))

    def _show(self, path: str) -> None:
        self._add("--ro-bind", path, path)
        real = Path(os.path.realpath(path))
        for hidden in sorted(self._hidden):
            # A key that lies in /etc itself is hidden alone: without /etc nothing would run.
            if not hidden.is_relative_to(real) or hidden == real:
                continue
            at = os.path.join(path, hidden.relative_to(real))
            if hidden.is_dir():
                self._add("--tmpfs", at)
                self._blank.append(at)
            elif hidden.exists():
                self._add("--ro-bind", "/dev/null", at)

    def _add(self, *words: str) -> None:
        self.words += words


def interpreter() -> list[str]:
    """What a harness is made of beside the system: Python, its libraries, our two packages; by both of their names."""
    found = (sys.base_prefix, sys.prefix, os.path.dirname(vole.__file__), os.path.dirname(vole_runner.__file__))
    named = dict.fromkeys(name for path in found for name in (os.path.realpath(path), os.path.abspath(path)))
    return [path for path in named if not any(Path(path).is_relative_to(folder) for folder in _SYSTEM)]


def _only_ours(folder: Path) -> Iterator[str]:
    """What below `folder` others may not read: as the runner's own user a job could."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                continue
            if not mode & stat.S_IROTH:
                yield entry.path
            elif stat.S_ISDIR(mode):
                yield from _only_ours(Path(entry.path))
