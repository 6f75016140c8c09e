"""Harnesses as child processes of the keeper, one a running job, kept warm between jobs. Isolates nothing.

A step under `local` runs as the runner's own user: docs/security.md says what it can reach.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Invalid, Unavailable, VoleError
from vole.config.runtimes import Kind
from vole_runner.harness.environment import listed
from vole_runner.harness.processes import adopt_orphans, below, signal_groups
from vole_runner.runtimes.child import Child, described, is_ready, program, spawn
from vole_runner.runtimes.dial import target
from vole_runner.runtimes.runtime import (
    ComputeState,
    Descriptor,
    ForkOpts,
    Incarnation,
    JobSpec,
    RuntimeCapabilities,
    SnapshotKind,
    SnapshotRef,
)

_log = log.get("vole_runner.runtimes")


class LocalRuntime:
    """`home` is a private folder with a short path; at most `idle_max` harnesses wait in it between jobs."""

    kind: Kind = "local"
    describes_live_harness = False
    shares_folder = True

    def __init__(self, name: str, home: Path, idle_max: int, environ: Mapping[str, str]) -> None:
        """Raises Invalid where a socket in `home` would be over the bound. `environ`: the listed few are passed on."""
        self.name = name
        self._home = home
        self._idle_max = idle_max
        self._environ = listed(environ)
        self._numbers = count(1)
        self._idle: list[Child] = []
        self._used: dict[str, tuple[Child, str]] = {}  # by uid, with the attempt's folder
        target(f"unix://{home / 'h-999999.sock'}")
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        for old in home.glob("h-*.*"):
            old.unlink()
        # A harness that is killed leaves its step's processes to us, not to init.
        adopt_orphans()

    def capabilities(self) -> RuntimeCapabilities:
        return RuntimeCapabilities()

    async def prestart(self, wanted: int = 1) -> None:
        """Have `wanted` harnesses waiting, so that no job waits for Python to start. Raises Unavailable."""
        self._idle = [child for child in self._idle if child.alive]
        while len(self._idle) < min(wanted, self._idle_max):
            self._idle.append(await self._start())

    async def describe(self) -> Descriptor:
        """What a waiting harness says. Raises Unavailable."""
        child = await self._take()
        try:
            return await described(child.address)
        finally:
            self._idle.append(child)

    async def create(self, spec: JobSpec) -> Incarnation:
        """A harness of its own for the attempt, warm where one waits. Raises Unavailable, Invalid for no uid."""
        if not spec.uid:
            raise Invalid("an attempt without a uid gets no harness")
        if spec.uid in self._used:
            raise Invalid(f"{spec.uid!r} has a harness already")
        child = await self._take()
        self._used[spec.uid] = (child, spec.folder)
        return Incarnation(id=spec.uid, address=child.address, runtime=self.name, kind=self.kind)

    async def snapshot(self, inc: Incarnation, kind: SnapshotKind) -> SnapshotRef:
        """The name of the run: what is durable is the journal. Raises Invalid for a warm snapshot."""
        if kind is not SnapshotKind.EXTERNAL:
            raise Invalid("local keeps no warm snapshot: the journal is the durable state")
        return SnapshotRef(local=inc.id)

    async def restore(self, ref: SnapshotRef) -> Incarnation:
        return await self.create(JobSpec(uid=ref.local, folder=""))

    async def fork(self, ref: SnapshotRef, opts: ForkOpts) -> Incarnation:  # noqa: ARG002
        return await self.create(JobSpec(uid=opts.child_uid, folder=""))

    async def stop(self, inc: Incarnation) -> None:
        """Take the harness back: it waits for the next job, or ends with all it runs where it is not idle."""
        if inc.id not in self._used:
            return
        child, folder = self._used[inc.id]
        reuse = len(self._idle) < self._idle_max and await _reusable(child)
        if self._used.pop(inc.id, None) is None:
            return
        if reuse:
            self._idle.append(child)
        else:
            await self._end(child, folder)

    async def status(self, inc: Incarnation) -> ComputeState:
        used = self._used.get(inc.id)
        return ComputeState.LIVE if used is not None and used[0].alive else ComputeState.TERMINATED

    async def aclose(self) -> None:
        """End every harness, and what it runs."""
        children = [*((child, "") for child in self._idle), *self._used.values()]
        self._idle, self._used = [], {}
        for child, folder in children:
            await self._end(child, folder)

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            await self._end(child)
        return await self._start()

    async def _start(self) -> Child:
        socket = self._home / f"h-{next(self._numbers)}.sock"
        words = (*program(), "serve", "--listen", f"unix://{socket}", "--parent", str(os.getpid()))
        child = await spawn(words, socket, self._environ)
        if not await is_ready(child, limits.HARNESS_ANSWER_S):
            why = child.last_words
            await self._end(child)
            raise Unavailable(f"the local harness did not start: {why or 'it said nothing'}")
        return child

    async def _end(self, child: Child, folder: str = "") -> None:
        """TERM, and KILL for a harness that does not go; then nothing of its step may be left."""
        if child.alive:  # asyncio would reap it here, and then miss its end
            child.process.terminate()
        try:
            async with asyncio.timeout(limits.CANCEL_GRACE_S + limits.STEP_KILL_S):
                await child.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                child.process.kill()
            await child.process.wait()
        if child.process.returncode != 0:
            await _end_abandoned(folder)
        for path in self._home.glob(f"{child.socket.stem}.*"):
            path.unlink()


async def _reusable(child: Child) -> bool:
    try:
        said = await described(child.address)
    except VoleError:
        return False
    return said.max_jobs > 0 and said.running_jobs == 0


async def _end_abandoned(folder: str) -> None:
    """Kill what a harness that was killed left to us, known by the RUNNER_TEMP of its attempt."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + limits.STEP_KILL_S
    while folder and loop.time() < give_up:
        abandoned = {pid: living for pid, living in below(os.getpid()).items() if _belongs(pid, folder)}
        if not abandoned:
            return
        signal_groups(abandoned, signal.SIGKILL)
        _log.warning("killed what a lost harness left", count=len(abandoned))
        for pid in abandoned:
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, pid, 0)


def _belongs(pid: int, folder: str) -> bool:
    with suppress(OSError):
        return f"RUNNER_TEMP={folder}/temp".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
