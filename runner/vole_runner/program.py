"""Builds a runner from its settings and lets it run. The only module that knows every class of the keeper's side."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import platform
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vole
from vole.base.clock import BootClock
from vole.base.entropy import SystemEntropy
from vole.base.errors import VoleError
from vole.config.runtimes import RuntimeConfig
from vole.wire import runner
from vole_runner.folders import Folders
from vole_runner.keeper import Keeper, Manner
from vole_runner.link import HostKeys, Target
from vole_runner.placer import Placer
from vole_runner.refusals import exit_code
from vole_runner.runtimes.choose import make
from vole_runner.settings import Settings, machine, platform_name, resolve
from vole_runner.uplink import Uplink


def start(flags: Mapping[str, Any]) -> int:
    """The exit code of the program. Refusals go to stderr, a line each."""
    try:
        return asyncio.run(run(resolve(flags, os.environ, Path.cwd())))
    except VoleError as error:
        for line in error.lines:
            print(f"vole-runner: {line}", file=sys.stderr, flush=True)
        return exit_code(error)


async def run(settings: Settings) -> int:
    """The exit code of a runner of these settings. Raises what it is refused for before it connects."""
    logging.basicConfig(level=logging.WARNING, format="vole-runner: %(message)s %(fields)s")
    clock, entropy = BootClock(), SystemEntropy()
    folders = await asyncio.to_thread(Folders.claim, settings.work)
    try:
        _introduce(settings)
        target = Target(
            settings.host,
            settings.port,
            settings.key,
            HostKeys(settings.host_key, settings.known_hosts, settings.trust_on_first_use),
        )
        impatient = settings.once or settings.exit_on_refusal
        uplink = Uplink(target, hello(settings, entropy.token()), entropy, impatient=impatient)
        hidden = (Path.home(), settings.key.parent, settings.key, settings.work)
        runtime = await make(settings.runtime, folders.sockets, settings.slots, os.environ, hidden)
        placer = Placer(
            runtime,
            folders.fresh,
            spare=settings.runtime.kind != "remote",  # what waits there would keep a slot of somebody else's
            pinned_id=settings.runtime.descriptor_id,
        )
        keeper = Keeper(_manner(settings), uplink, folders, placer, clock, entropy)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, keeper.terminate)
        loop.add_signal_handler(signal.SIGINT, keeper.interrupt)
        return await keeper.run()
    finally:
        await asyncio.to_thread(folders.release)


def hello(settings: Settings, incarnation: str) -> runner.Hello:
    """What this process says it is."""
    return runner.Hello(
        version=vole.__version__,
        wire=runner.Wire(runner.WIRE_MIN, runner.WIRE_MAX),
        platform=platform_name(),
        machine=machine(),
        python=platform.python_version(),
        name=settings.name,
        incarnation=incarnation,
        slots=settings.slots,
        mode="once" if settings.once else "daemon",
        labels=settings.labels,
        repos=settings.repos,
        only=settings.only,
    )


def _manner(settings: Settings) -> Manner:
    return Manner(
        name=settings.name,
        forge=settings.forge,
        slots=settings.slots,
        once=settings.once,
        idle_timeout_s=settings.idle_timeout_s,
        min_free=settings.min_free,
    )


def _introduce(settings: Settings) -> None:
    labels = ", ".join(settings.labels) or "none: it takes jobs that ask for none"
    only = ", only jobs that ask for one of them" if settings.only else ""
    lines = (
        f"{vole.__version__} on {platform_name()} {machine()}, named {settings.name}, slots {settings.slots}",
        f"labels: {labels}{only}",
        _reach(settings.runtime),
    )
    for line in lines:
        print(f"vole-runner: {line}", flush=True)


def _reach(runtime: RuntimeConfig) -> str:
    """What a step can reach there (SR-29)."""
    match runtime.kind:
        case "local":
            user = _user()
            return (
                f"runtime {runtime.name}: a step runs as {user} and can reach what {user} can: files, keys, the network"
            )
        case "remote":
            return f"runtime {runtime.name}: steps run at {runtime.address}, whose operator says what they can reach"
    network = "this machine's network, services on loopback too" if runtime.network == "host" else "no network"
    return f"runtime {runtime.name}: a step has a {runtime.kind} of its own, with its work folder and {network}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
