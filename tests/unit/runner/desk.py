"""A runner for tests: the real keeper, its link to a test forge, real harnesses."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.runner.forge import Forge
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.wire import runner
from vole_runner.folders import Folders
from vole_runner.keeper import Keeper, Manner
from vole_runner.link import HostKeys, Link, Target
from vole_runner.placer import Placer
from vole_runner.runtimes.local import LocalRuntime
from vole_runner.runtimes.runtime import Runtime
from vole_runner.uplink import Uplink


@dataclass
class Running:
    keeper: Keeper
    folders: Folders
    ended: asyncio.Task[int]


def a_target(forge: Forge, **host_keys: object) -> Target:
    known = {"fingerprint": forge.host_key, "files": (forge.known_hosts,), "trust_on_first_use": False, **host_keys}
    return Target("127.0.0.1", forge.port, forge.key, HostKeys(**known))


def a_hello(**changes: object) -> runner.Hello:
    said = {
        "version": "1.0",
        "wire": runner.Wire(1, 1),
        "platform": "linux",
        "machine": "x64",
        "python": "3.11",
        "name": "mac-1",
        "incarnation": "i-1",
        "slots": 1,
        **changes,
    }
    return runner.Hello(**said)


@asynccontextmanager
async def a_runner(forge: Forge, runtime: Runtime | None = None, **manner: object) -> AsyncIterator[Running]:
    """A keeper that works for `forge` until the block ends, on local harnesses where `runtime` names no others."""
    how = Manner(
        **{
            "name": "mac-1",
            "forge": forge.address,
            "slots": 1,
            "once": False,
            "idle_timeout_s": None,
            "min_free": 0,
            **manner,
        }
    )
    folders = Folders.claim(forge.root / "work")
    clock, entropy = SystemClock(), SystemEntropy()
    hello = a_hello(slots=how.slots, mode="once" if how.once else "daemon")
    uplink = Uplink(a_target(forge), hello, entropy, impatient=how.once)
    placer = Placer(
        runtime or LocalRuntime("local", folders.sockets, how.slots, os.environ), folders.fresh, spare=runtime is None
    )
    keeper = Keeper(how, uplink, folders, placer, clock, entropy)
    ended = asyncio.create_task(keeper.run())
    try:
        yield Running(keeper, folders, ended)
    finally:
        keeper.interrupt()
        with contextlib.suppress(Exception):
            await ended
        folders.release()


@asynccontextmanager
async def a_link(forge: Forge, **said: object) -> AsyncIterator[Link]:
    """A connection that has been welcomed, so that bulk channels are served."""
    link = await Link.connect(a_target(forge))
    try:
        control = await link.channel(runner.Open("control"))
        control.send(runner.FROM_RUNNER.encode(a_hello(**said)))
        assert await control.line() is not None
        yield link
    finally:
        link.close()
        await link.lost()


async def leased(forge: Forge, *steps: str, **plan: object) -> runner.LeaseRef:
    """A live lease that no runner knows of."""
    lease = forge.offer(*steps, **plan)
    forge.queue.live[lease] = forge.queue.offered.get_nowait()
    return lease


def log_of(forge: Forge, lease: runner.LeaseRef) -> str:
    return bytes(forge.queue.logs[lease]).decode()


def folder_names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())
