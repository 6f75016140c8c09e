"""The runtime that was asked for, made or refused: another one is never taken in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vole.base.errors import Invalid
from vole.config.runtimes import RuntimeConfig
from vole_runner.harness.environment import listed
from vole_runner.runtimes.container import Engine
from vole_runner.runtimes.local import LocalRuntime
from vole_runner.runtimes.owned import OwnedRuntime
from vole_runner.runtimes.runtime import Runtime
from vole_runner.runtimes.sandbox import Bubblewrap


async def make(
    config: RuntimeConfig, home: Path, slots: int, environ: Mapping[str, str], hidden: Iterable[Path]
) -> Runtime:
    """The runtime, tried whole. `hidden`: what no job may see. Raises Invalid, naming what is not possible here."""
    if config.kind == "local":
        return LocalRuntime(config.name, home, slots, environ)
    if config.kind == "remote":
        raise Invalid(f"the runtime {config.name!r}: a harness by address is not driven yet")
    launcher = (
        Bubblewrap(config, home, listed(environ), hidden)
        if config.kind == "sandbox"
        else Engine(config, home, listed(environ))
    )
    await launcher.check()
    await launcher.sweep()
    return OwnedRuntime(config.name, config.kind, home, launcher, config.network)
