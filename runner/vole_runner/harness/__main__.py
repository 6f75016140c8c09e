"""`vole-harness --listen unix:///path`: serve one harness until told to end. Reads no file, opens no port."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc.aio

from vole.base import limits, supervise
from vole.base.bell import Bells
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.base.errors import Invalid
from vole_runner.harness.environment import listed
from vole_runner.harness.processes import Processes
from vole_runner.harness.service import Harness

READY = b"ready\n"  # on stdout, once the socket answers

_PARTING_S = 0.2  # for what is still on the wire when every attempt has ended

# A second server on one port would bind without an error otherwise.
_SERVER_OPTIONS = (("grpc.so_reuseport", 0),)


def socket_path(address: str) -> Path:
    """The path in `unix:///path`. Raises Invalid for another form, a long path, or one where something stands."""
    path = Path(address.removeprefix("unix://"))
    if not address.startswith("unix:///") or len(bytes(path)) > limits.SOCKET_PATH_BYTES_MAX:
        most = limits.SOCKET_PATH_BYTES_MAX
        raise Invalid(f"--listen {address[:160]!r}: unix:///path with at most {most} bytes of path is needed")
    if os.path.lexists(path):
        raise Invalid(f"--listen {address!r}: something stands there; gRPC would take the address over unseen")
    return path


class Socket:
    """The service that listens."""

    name = "harness"

    def __init__(self, path: Path, harness: Harness) -> None:
        self._path = path
        self._harness = harness
        self._server = grpc.aio.server(options=_SERVER_OPTIONS)

    async def start(self) -> None:
        self._harness.add_to(self._server)
        self._server.add_insecure_port(f"unix:{self._path}")
        await self._server.start()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()

    async def wait(self) -> None:
        # Shielded: a cancelled waiter would cancel the very future that `stop` waits for.
        await asyncio.shield(self._server.wait_for_termination())

    async def drain(self) -> None:
        await self._harness.end()

    async def stop(self) -> None:
        await self._server.stop(grace=_PARTING_S)


async def serve(path: Path, parent: int | None) -> None:
    """Serve until TERM or INT, or until `parent` is not our parent any more."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def watch_parent() -> None:
        if parent is not None and os.getppid() != parent:
            stop.set()

    async with asyncio.TaskGroup() as attempts:
        processes = Processes(loop)
        harness = Harness(processes, SystemClock(), SystemEntropy(), listed(os.environ), attempts)
        watch = supervise.Sweep("parent", watch_parent, limits.HARNESS_HEARTBEAT_S)
        await supervise.run([Socket(path, harness)], [watch], Bells(), stop)


def main() -> None:
    """The program. Exit 2 for an address that cannot be served."""
    parser = argparse.ArgumentParser(prog="vole-harness", description="Runs the steps of jobs; holds no key.")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:///path, in a private folder")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this is not the parent process any more")
    asked = parser.parse_args()
    os.umask(0o077)
    try:
        path = socket_path(asked.listen)
    except Invalid as refusal:
        parser.error(refusal.sentence)
    asyncio.run(serve(path, asked.parent))


if __name__ == "__main__":
    main()
