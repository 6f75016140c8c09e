"""Places of bubblewrap: namespaces that end with their first process, in a control group where bounds are asked for.

Own user, mount, pid, ipc, uts and cgroup namespaces, no network unless asked for, no capability, no further namespaces.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import select
import shutil
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Invalid, Unavailable
from vole.config.runtimes import RuntimeConfig
from vole_runner.runtimes.cgroup import Group, Hierarchy
from vole_runner.runtimes.child import Child, is_ready, program, spawn
from vole_runner.runtimes.sight import HOME, SOCKETS, Sight

_log = log.get("vole_runner.runtimes")

_NOBODY = 65534
_NEXT = "install bubblewrap 0.8 or newer and allow user namespaces, or choose another runtime"


class Bubblewrap:
    """Makes places of one configuration. `home` names its control groups; `environ`: the listed few, HOME apart."""

    def __init__(self, config: RuntimeConfig, home: Path, environ: Mapping[str, str], hidden: Iterable[Path]) -> None:
        self._config = config
        self._environ = {**environ, "HOME": HOME}
        self._hidden = tuple(hidden)
        self._hierarchy = Hierarchy.found()
        self._prefix = f"vole-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}-"
        self._numbers = count(1)

    async def start(self, sockets: Path, folder: str) -> Place:
        group = self._group()
        info, info_in = os.pipe()
        held_out, held = os.pipe()
        argv = self._words(sockets, folder)
        argv += ["--info-fd", str(info_in), "--block-fd", str(held_out)]
        argv += ["--", *program(), "serve", "--listen", f"unix://{SOCKETS}/h.sock"]
        try:
            child = await spawn(argv, sockets / "h.sock", self._environ, pass_fds=(info_in, held_out))
        except BaseException:
            os.close(info)
            os.close(held)
            if group is not None:
                group.drop()
            raise
        finally:
            os.close(info_in)
            os.close(held_out)
        place = Place(child, await _first_process(info), group)
        try:
            if place.init is not None and group is not None:
                group.take(place.init[0])
        except Unavailable:
            os.close(held)
            await place.end()
            raise
        os.close(held)  # goes on
        try:
            ready = await is_ready(child, limits.HARNESS_ANSWER_S)
        except asyncio.CancelledError:
            await place.end()
            raise
        if not ready:
            why = child.last_words
            await place.end()
            raise Unavailable(f"the harness did not start: {why or 'it said nothing'}")
        return place

    async def sweep(self) -> None:
        self._hierarchy.sweep(self._prefix)

    async def check(self) -> None:
        """Try it whole, without a job. Raises Invalid, naming what this machine lacks and what to do."""
        if shutil.which("bwrap") is None:
            raise Invalid(f"the runtime {self._config.name!r} is not possible here: no bwrap", next_step=_NEXT)
        try:
            if (group := self._group()) is not None:
                group.drop()
        except Unavailable as error:
            next_step = "give the runner a control group of its own (systemd: Delegate=yes), or leave limits out"
            raise Invalid(f"the runtime {self._config.name!r}: {error.sentence}", next_step=next_step) from None
        process = await asyncio.create_subprocess_exec(
            *self._words(Path("/dev/shm"), ""),  # noqa: S108  any folder: it binds nothing there
            *("--", *program(), "--help"),
            env=self._environ,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        if process.returncode != 0:
            words = said.decode("utf-8", "replace").strip()[-limits.PROBLEM_CHARS_MAX :] or "bwrap failed"
            raise Invalid(f"the runtime {self._config.name!r} is not possible here: {words}", next_step=_NEXT)

    def _group(self) -> Group | None:
        bounds = self._config.bounds
        return self._hierarchy.make(f"{self._prefix}{next(self._numbers)}", bounds) if bounds else None

    def _words(self, sockets: Path, folder: str) -> list[str]:
        words = ["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--hostname", "vole"]
        words += ["--uid", str(_NOBODY), "--gid", str(_NOBODY)] if os.getuid() == 0 else []
        isolated = self._config.network == "none"
        words += ["--unshare-net"] if isolated else []
        return [*words, *Sight(self._hidden, resolver=not isolated).complete(folder, sockets)]


@dataclass(frozen=True)
class Place:
    """A namespace. `init`: the pid of its first process and a descriptor of it; when that has ended, all have."""

    child: Child
    init: tuple[int, int] | None
    group: Group | None

    @property
    def address(self) -> str:
        return self.child.address

    @property
    def alive(self) -> bool:
        return self.child.alive

    async def end(self) -> None:
        """The kernel ends a pid namespace with its first process, and that one ends last of all (SR-31)."""
        if self.init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init[1], signal.SIGKILL)
        elif self.child.alive:
            self.child.process.kill()
        await self.child.process.wait()
        if self.init is not None:
            while not await asyncio.to_thread(_ended, self.init[1]):
                _log.error("a sandbox does not end; its slot stays taken", pid=self.init[0])
            os.close(self.init[1])
        if self.group is not None:
            await self.group.remove()
        await asyncio.to_thread(shutil.rmtree, self.child.socket.parent, True)


async def _first_process(info: int) -> tuple[int, int] | None:
    """The namespace's first process, as bubblewrap tells it; None where it did not come so far."""

    def read() -> bytes:
        with os.fdopen(info, "rb") as said:
            return said.read(limits.PROBLEM_CHARS_MAX)

    with suppress(ValueError, KeyError, OSError):
        pid = int(json.loads(await asyncio.to_thread(read))["child-pid"])
        return pid, os.pidfd_open(pid)
    return None


def _ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], limits.STEP_KILL_S)[0])
