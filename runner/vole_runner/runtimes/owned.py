"""Runtimes that own the place a job runs in: a fresh one with a harness in it for every attempt, gone with it.

How a place is made and ended is its launcher's: bubblewrap, or a container engine. Nothing of a place is used twice,
since a job can do to the harness beside it whatever it likes. `describe` asks one that never sees a job.
"""

from __future__ import annotations

import asyncio
import shutil
from itertools import count
from pathlib import Path
from typing import Protocol

from vole.base import log
from vole.base.errors import Invalid, Unavailable
from vole.config.runtimes import Kind, Network
from vole_runner.runtimes.child import described
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


class Place(Protocol):
    """One place with a harness in it."""

    @property
    def address(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    async def end(self) -> None:
        """Kill all there is in it. Returns when nothing is left, however often called."""


class Launcher(Protocol):
    """Makes places."""

    async def start(self, sockets: Path, folder: str) -> Place:
        """A place whose harness listens in `sockets`, its only bind besides `folder` ("": none). Raises Unavailable."""

    async def sweep(self) -> None:
        """End what a runner of this home that was killed left."""


class OwnedRuntime:
    """`home` is a private folder with a short path, this runtime's alone."""

    describes_live_harness = False
    shares_folder = True

    def __init__(self, name: str, kind: Kind, home: Path, launcher: Launcher, network: Network) -> None:
        """Raises Invalid where a socket in `home` would be over the bound."""
        self.name = name
        self.kind: Kind = kind
        self._home = home
        self._launcher = launcher
        self._isolated = network == "none"
        self._numbers = count(1)
        self._door: Place | None = None
        self._opening = asyncio.Lock()
        self._used: dict[str, Place] = {}
        target(f"unix://{home / '999999' / 'h.sock'}")
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)

    def capabilities(self) -> RuntimeCapabilities:
        return RuntimeCapabilities(owns_sandbox=True, network_isolated=self._isolated)

    async def sweep(self) -> None:
        await self._launcher.sweep()

    async def describe(self) -> Descriptor:
        """What a harness in such a place says now. Raises Unavailable."""
        async with self._opening:
            if self._door is not None and not self._door.alive:
                await self._door.end()
                self._door = None
            if self._door is None:
                self._door = await self._start("")
            return await described(self._door.address)

    async def create(self, spec: JobSpec) -> Incarnation:
        """A place of its own for the attempt. Raises Unavailable, Invalid for no uid or one that is taken."""
        if not spec.uid:
            raise Invalid("an attempt without a uid gets no harness")
        if spec.uid in self._used:
            raise Invalid(f"{spec.uid!r} has a harness already")
        place = await self._start(spec.folder)
        if spec.uid in self._used:
            await place.end()
            raise Invalid(f"{spec.uid!r} has a harness already")
        self._used[spec.uid] = place
        return Incarnation(id=spec.uid, address=place.address, runtime=self.name, kind=self.kind)

    async def snapshot(self, inc: Incarnation, kind: SnapshotKind) -> SnapshotRef:
        """The name of the run: what is durable is the journal. Raises Invalid for a warm snapshot."""
        if kind is not SnapshotKind.EXTERNAL:
            raise Invalid(f"{self.kind} keeps no warm snapshot: the journal is the durable state")
        return SnapshotRef(local=inc.id)

    async def restore(self, ref: SnapshotRef) -> Incarnation:
        return await self.create(JobSpec(uid=ref.local, folder=""))

    async def fork(self, ref: SnapshotRef, opts: ForkOpts) -> Incarnation:  # noqa: ARG002
        return await self.create(JobSpec(uid=opts.child_uid, folder=""))

    async def stop(self, inc: Incarnation) -> None:
        """End the place. Returns when nothing of it is left."""
        if (place := self._used.pop(inc.id, None)) is not None:
            await place.end()

    async def status(self, inc: Incarnation) -> ComputeState:
        place = self._used.get(inc.id)
        return ComputeState.LIVE if place is not None and place.alive else ComputeState.TERMINATED

    async def aclose(self) -> None:
        places = [*self._used.values(), *([self._door] if self._door else [])]
        self._used, self._door = {}, None
        for place in places:
            await place.end()

    async def _start(self, folder: str) -> Place:
        sockets = self._home / str(next(self._numbers))
        sockets.mkdir(mode=0o700)
        try:
            return await self._launcher.start(sockets, folder)
        except Unavailable as error:
            shutil.rmtree(sockets, ignore_errors=True)
            raise Unavailable(f"the runtime {self.name}: {error.sentence}", code=error.code) from None
