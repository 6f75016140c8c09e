"""A step's process, and the end of everything that came of it. Knows no step, no log, no job.

The harness is a child subreaper and runs one job at a time, so each descendant of it belongs to the step at hand,
also one that called setsid: when the harness has no child left, nothing of the step is left. Without a subreaper
(macOS) only the process group is seen.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.02  # between two looks at a tree that KILL has not emptied
_NATURAL_S = 0.1  # what ends by itself with the step (`> >(tee log)`) may write its last line first


@dataclass(frozen=True)
class Command:
    """What to execute. `output` is the descriptor that gets stdout and stderr."""

    executable: str
    argv: Sequence[str]
    folder: Path
    env: Mapping[str, str]
    output: int


@dataclass(frozen=True)
class Leftover:
    """A process that did not end with its step."""

    pid: int
    name: str
    killed: bool  # TERM was not enough


def adopt_orphans() -> bool:
    """Make this process the parent of every orphan below it. False where the kernel has no such thing."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


@dataclass(frozen=True)
class Living:
    """A process as /proc shows it."""

    name: str
    group: int
    session: int


def below(root: int) -> dict[int, Living]:
    """Every living descendant of `root` by pid. Empty where there is no /proc."""
    seen: dict[int, Living] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            head, _, rest = (entry / "stat").read_bytes().rpartition(b")")
            state, parent, group, session, *_ = rest.split()
            pid = int(entry.name)
            children.setdefault(int(parent), []).append(pid)
            if state not in (b"Z", b"X"):
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                seen[pid] = Living(name, int(group), int(session))
    found: dict[int, Living] = {}
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        todo += children.get(pid, ())
        if pid in seen:
            found[pid] = seen[pid]
    return found


def signal_groups(found: Mapping[int, Living], number: signal.Signals) -> None:
    """Signal every process of `found` through its group: a group is signalled at one stroke, its forks included."""
    for group in {living.group for living in found.values()}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


class Processes:
    """Starts children and learns of every end by SIGCHLD. One per process: it takes every exit status there is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._changed = asyncio.Event()
        self._adopts = adopt_orphans()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def spawn(self, command: Command) -> Child:
        """Start `command` in a session of its own, with no stdin and no descriptor of ours. Raises OSError."""
        process = subprocess.Popen(
            command.argv,
            executable=command.executable,
            cwd=command.folder,
            env=dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=command.output,
            stderr=command.output,
            close_fds=True,
            start_new_session=True,
            umask=0o022,
        )
        process.returncode = 0  # the reaper takes the status; Popen would wait for it a second time
        end = self._ends[process.pid] = self._loop.create_future()
        return Child(process.pid, end)

    async def end_leftovers(self, child: Child) -> tuple[Leftover, ...]:
        """End what `child`, which has ended, left behind. Returns what had to be told to."""
        if await self._empty_by(child, self._loop.time() + _NATURAL_S):
            return ()
        return await self.end_tree(child, self._loop.time() + limits.LEFTOVER_GRACE_S)

    async def end_tree(self, child: Child, kill_at: float) -> tuple[Leftover, ...]:
        """TERM for everything now, KILL for what is left at `kill_at` (loop time). Returns what was found."""
        told = self._signal_all(child, signal.SIGTERM)
        if await self._empty_by(child, kill_at):
            return _leftovers(told, frozenset())
        killed: dict[int, Living] = {}
        give_up = self._loop.time() + limits.STEP_KILL_S
        while not self.empty(child) and self._loop.time() < give_up:
            killed |= self._signal_all(child, signal.SIGKILL)
            await self._empty_by(child, self._loop.time() + _LOOK_S)
        return _leftovers(told | killed, frozenset(killed))

    def empty(self, child: Child) -> bool:
        """Nothing of the step is left: the proof, not an assumption."""
        self._reap()
        if not self._adopts:
            return child.ended.done() and not _group_lives(child.pid)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    async def _empty_by(self, child: Child, deadline: float) -> bool:
        while not self.empty(child):
            self._changed.clear()
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            # Without a subreaper nobody tells us about a grandchild: look again.
            with suppress(TimeoutError):
                async with asyncio.timeout(left if self._adopts else min(left, _LOOK_S)):
                    await self._changed.wait()
        return True

    def _signal_all(self, child: Child, number: signal.Signals) -> dict[int, Living]:
        alone = {child.pid: Living("the step's group", child.pid, child.pid)}
        found = below(os.getpid()) if self._adopts else alone
        signal_groups(found, number)
        return found

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            end = self._ends.pop(pid, None)
            if end is not None and not end.done():
                end.set_result(os.waitstatus_to_exitcode(status))
        self._changed.set()


@dataclass(frozen=True)
class Child:
    """A process that was started. `ended` holds its exit code, negative for a signal."""

    pid: int
    ended: asyncio.Future[int]


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _leftovers(found: Mapping[int, Living], killed: frozenset[int]) -> tuple[Leftover, ...]:
    shown = sorted(found)[: limits.PROBLEMS_SHOWN_MAX]
    return tuple(Leftover(pid, found[pid].name, pid in killed) for pid in shown)
