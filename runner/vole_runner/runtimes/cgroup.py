"""Bounds on what an attempt's processes take together, by the kernel's control groups, versions 1 and 2.

Only where the runner's own group may be written; where not, that is said and nothing is bounded in silence.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Unavailable
from vole.config.runtimes import Bounds

_log = log.get("vole_runner.runtimes")
_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_LOOK_S = 0.02


@dataclass(frozen=True)
class Hierarchy:
    """Where groups are made: the runner's own folder for each controller. Version 2 has one folder for all."""

    folders: Mapping[str, Path]
    unified: bool

    @classmethod
    def found(cls, root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> Hierarchy:
        """This process's own. Empty where there is none."""
        paths: dict[str, str] = {}
        with suppress(OSError):
            for line in own.read_text("utf-8").splitlines():
                _, names, path = line.split(":", 2)
                paths.update(dict.fromkeys(names.split(","), path.lstrip("/")))
        if (root / "cgroup.controllers").is_file():
            folder = root / paths.get("", "")
            return cls(dict.fromkeys((folder / "cgroup.controllers").read_text().split(), folder), unified=True)
        return cls({name: root / name / path for name, path in paths.items() if (root / name).is_dir()}, unified=False)

    def make(self, name: str, bounds: Bounds) -> Group:
        """A group of that name with these bounds. Raises Unavailable, naming what stands in the way."""
        settings = _unified(bounds) if self.unified else _split(bounds)
        wanted = sorted({key.partition(".")[0] for key in settings})
        group = Group(tuple(dict.fromkeys(self._folder(controller) / name for controller in wanted)))
        try:
            if self.unified:
                self._delegate(wanted)
            for folder in group.folders:
                folder.mkdir(exist_ok=True)
            for key, value in settings.items():
                self._write(self._folder(key.partition(".")[0]) / name / key, value)
        except OSError as error:
            group.drop()
            raise Unavailable(f"limits need a writable control group: {error.filename}: {error.strerror}") from None
        return group

    def sweep(self, prefix: str) -> None:
        """Remove the empty groups whose names begin so: those of a runner that was killed."""
        for parent in set(self.folders.values()):
            Group(tuple(parent.glob(f"{prefix}*"))).drop()

    def _folder(self, controller: str) -> Path:
        if controller not in self.folders:
            raise Unavailable(f"limits need the control group controller {controller!r}, which this machine has not")
        return self.folders[controller]

    def _delegate(self, wanted: list[str]) -> None:
        """Version 2 bounds children only of a group without processes: ours go into a group beside them."""
        own = self._folder(wanted[0])
        given = (own / "cgroup.subtree_control").read_text().split()
        if set(wanted) <= set(given):
            return
        (own / "vole-runner").mkdir(exist_ok=True)
        for pid in (own / "cgroup.procs").read_text().split():
            (own / "vole-runner" / "cgroup.procs").write_text(pid)
        (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))

    @staticmethod
    def _write(path: Path, value: str) -> None:
        try:
            path.write_text(value)
        except FileNotFoundError:
            if ".memsw." not in path.name:  # a kernel without the accounting of swap
                raise


@dataclass(frozen=True)
class Group:
    """One group, in each hierarchy that it needs."""

    folders: tuple[Path, ...]

    def take(self, pid: int) -> None:
        """Put a process in, and with it all that it will start. Raises Unavailable."""
        for folder in self.folders:
            try:
                (folder / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise Unavailable(f"{folder}: process {pid} could not be put in: {error.strerror}") from None

    def drop(self) -> bool:
        """Whether it is gone; one with processes in it stays."""
        for folder in self.folders:
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno == errno.EBUSY:
                    return False
        return True

    async def remove(self) -> None:
        """Returns when it is gone. The kernel lets go of the dead a little later than they end."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + limits.STEP_KILL_S
        while not self.drop():
            if loop.time() > give_up:
                _log.warning("a control group stays", folder=str(self.folders[0]))
                return
            await asyncio.sleep(_LOOK_S)


def _split(bounds: Bounds) -> dict[str, str]:
    """Version 1: the file for each bound. Swap is bounded with memory, after it."""
    settings: dict[str, str] = {}
    if bounds.memory is not None:
        settings |= dict.fromkeys(("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), str(bounds.memory))
    if bounds.pids is not None:
        settings["pids.max"] = str(bounds.pids)
    if bounds.cpu is not None:
        settings |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(round(bounds.cpu * _PERIOD_US))}
    return settings


def _unified(bounds: Bounds) -> dict[str, str]:
    settings: dict[str, str] = {}
    if bounds.memory is not None:
        settings |= {"memory.max": str(bounds.memory), "memory.swap.max": "0"}
    if bounds.pids is not None:
        settings["pids.max"] = str(bounds.pids)
    if bounds.cpu is not None:
        settings["cpu.max"] = f"{round(bounds.cpu * _PERIOD_US)} {_PERIOD_US}"
    return settings
