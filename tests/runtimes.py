"""Every runtime that this machine has, each with a home in the test's folder; and an image made here, from nothing."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.harness_host import a_harness
from vole.config.runtimes import Bounds, RuntimeConfig
from vole_runner.harness.environment import listed
from vole_runner.runtimes import choose
from vole_runner.runtimes.container import Engine
from vole_runner.runtimes.owned import OwnedRuntime
from vole_runner.runtimes.remote import RemoteRuntime
from vole_runner.runtimes.runtime import Runtime
from vole_runner.runtimes.sandbox import Bubblewrap

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")

# What the machine of .ci/run needs of podman.
PODMAN = ("--cgroup-manager=cgroupfs", "--runtime", "runc")
ULIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


FREE = Bounds()


@asynccontextmanager
async def local(folder: Path, **_: object) -> AsyncIterator[Runtime]:
    async with _closed(await choose.make(RuntimeConfig("here", "local"), folder / "home", 2, os.environ, ())) as it:
        yield it


@asynccontextmanager
async def sandbox(
    folder: Path, bounds: Bounds = FREE, hidden: tuple[Path, ...] = (), environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Runtime]:
    config = RuntimeConfig("here", "sandbox", bounds=bounds)
    launcher = Bubblewrap(config, folder / "home", listed(environ), hidden)
    async with _closed(OwnedRuntime("here", "sandbox", folder / "home", launcher, "none")) as it:
        yield it


@asynccontextmanager
async def container(folder: Path, bounds: Bounds = FREE, **_: object) -> AsyncIterator[Runtime]:
    launcher = Engine(container_config(bounds), folder / "home", listed(os.environ))
    async with _closed(OwnedRuntime("here", "container", folder / "home", launcher, "none")) as it:
        yield it


def container_config(bounds: Bounds = FREE) -> RuntimeConfig:
    """An image of one busybox, and the machine's own libraries for the harness's Python."""
    shared = [word for path in ("/usr", "/lib", "/lib64") for word in ("--volume", f"{path}:{path}:ro")]
    return RuntimeConfig(
        "here",
        "container",
        bounds=bounds,
        image=image(),
        engine="podman",
        engine_arguments=PODMAN,
        run_arguments=(*ULIMITS, *shared),
    )


@asynccontextmanager
async def remote(folder: Path, **_: object) -> AsyncIterator[Runtime]:
    """A harness that is there already, and goes on when the runtime is closed."""
    folder.mkdir(exist_ok=True)
    with a_harness(folder) as (address, _):
        async with _closed(RemoteRuntime("here", address)) as it:
            yield it


OWNED = [
    pytest.param(sandbox, id="sandbox", marks=pytest.mark.needs("bwrap", "userns")),
    pytest.param(container, id="container", marks=pytest.mark.needs("podman")),
]
OF_THIS_MACHINE = [pytest.param(local, id="local"), *OWNED]
EVERY = [*OF_THIS_MACHINE, pytest.param(remote, id="remote")]


@asynccontextmanager
async def _closed(runtime: Runtime) -> AsyncIterator[Runtime]:
    try:
        yield runtime
    finally:
        await runtime.aclose()


@cache
def image() -> str:
    """A local image with a shell; it goes with this process."""
    name = f"localhost/vole-test-{os.getpid()}:1"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr", "lib", "lib64", "run", "home"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(str(shutil.which("busybox")), "bin/busybox")
        for program in ("sh", "bash"):
            entry = tarfile.TarInfo(f"bin/{program}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "/usr/bin/bash"
            tar.addfile(entry)
    subprocess.run(["podman", *PODMAN, "import", "-", name], input=packed.getvalue(), capture_output=True, check=True)
    atexit.register(subprocess.run, ["podman", *PODMAN, "rmi", "--force", name], capture_output=True, check=False)
    return name


def living(marker: str) -> list[int]:
    """Processes of this machine, in whatever namespace, with `marker` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found
