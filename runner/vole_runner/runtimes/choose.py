"""The runtime that was asked for, made or refused: another one is never taken in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vole.config.runtimes import RuntimeConfig
from vole_runner.harness.environment import listed
from vole_runner.runtimes.container import Engine
from vole_runner.runtimes.local import LocalRuntime
from vole_runner.runtimes.owned import OwnedRuntime
from vole_runner.runtimes.remote import RemoteRuntime, read_token
from vole_runner.runtimes.runtime import Runtime
from vole_runner.runtimes.sandbox import Bubblewrap


async def make(
    config: RuntimeConfig, home: Path, slots: int, environ: Mapping[str, str], hidden: Iterable[Path]
) -> Runtime:
    """The runtime, tried whole. `hidden`: what no job may see. Raises Invalid, naming what is not possible here."""
    if config.kind == "local":
        return LocalRuntime(config.name, home, slots, environ)
    if config.kind == "remote":
        token = None if config.token_file is None else read_token(config.token_file)
        return RemoteRuntime(config.name, config.address, token)
    launcher = (
        Bubblewrap(config, home, listed(environ), hidden)
        if config.kind == "sandbox"
        else Engine(config, home, listed(environ))
    )
    await launcher.check()
    await launcher.sweep()
    return OwnedRuntime(config.name, config.kind, home, launcher, config.network)
