"""`vole-harness serve --listen ADDRESS`: serve one harness until told to end. Holds no key, and dials nobody."""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from vole.base import limits, supervise
from vole.base.bell import Bells
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.base.errors import Invalid, VoleError
from vole_runner.harness.blobs import Room
from vole_runner.harness.environment import listed
from vole_runner.harness.listening import SocketPath, checked
from vole_runner.harness.processes import Processes
from vole_runner.harness.service import Base, Context, Harness

READY = b"ready\n"  # on stdout, once the socket answers

_PARTING_S = 0.2  # for what is still on the wire when every attempt has ended

# A second server on one port would bind without an error otherwise.
_SERVER_OPTIONS = (("grpc.so_reuseport", 0),)


class Bearer(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets in who names the token, whatever they call."""

    def __init__(self, token: bytes) -> None:
        self._token = b"Bearer " + token

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], call: grpc.HandlerCallDetails
    ) -> Any:
        given = dict(call.invocation_metadata).get("authorization", "")
        raw = given if isinstance(given, bytes) else given.encode()
        if hmac.compare_digest(raw, self._token):
            return await continuation(call)
        return grpc.stream_stream_rpc_method_handler(_refused)


async def _refused(_frames: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this harness wants its token (token-file)")


class Listener:
    """The service that listens."""

    name = "harness"

    def __init__(self, address: str, harness: Harness, token: bytes | None) -> None:
        self._address = address
        self._harness = harness
        guards = [] if token is None else [Bearer(token)]
        self._server = grpc.aio.server(options=_SERVER_OPTIONS, interceptors=guards)

    async def start(self) -> None:
        """Raises Invalid or Conflict where the address cannot be had."""
        self._harness.add_to(self._server)
        path = Path(self._address.removeprefix("unix://")) if self._address.startswith("unix:") else None
        claim = None if path is None else SocketPath(path)
        try:
            self._server.add_insecure_port(self._address if path is None else f"unix:{path}")
        except RuntimeError:
            raise Invalid(f"{self._address}: it cannot be listened on; is another program there?") from None
        await self._server.start()
        if claim is not None:
            claim.bound()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()

    async def wait(self) -> None:
        # Shielded: a cancelled waiter would cancel the very future that `stop` waits for.
        await asyncio.shield(self._server.wait_for_termination())

    async def drain(self) -> None:
        await self._harness.end()

    async def stop(self) -> None:
        await self._server.stop(grace=_PARTING_S)


async def serve(asked: argparse.Namespace, address: str, token: bytes | None) -> None:
    """Serve until TERM or INT, or until `parent` is not our parent any more."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def watch_parent() -> None:
        if asked.parent is not None and os.getppid() != asked.parent:
            stop.set()

    async with asyncio.TaskGroup() as attempts:
        processes = Processes(loop)
        labels = dict(label.partition("=")[::2] for label in asked.label)
        room = None if asked.root is None else Room(asked.root)
        harness = Harness(processes, SystemClock(), SystemEntropy(), Base(listed(os.environ), labels, room), attempts)
        watch = supervise.Sweep("parent", watch_parent, limits.HARNESS_HEARTBEAT_S)
        await supervise.run([Listener(address, harness, token)], [watch], Bells(), stop)


def main() -> None:
    """The program. Exit 2 for what it cannot do as asked, with one line that says why."""
    parser = _parser()
    asked = parser.parse_args()
    os.umask(0o077)
    try:
        address = checked(asked.listen, plaintext=asked.allow_plaintext)
        token = None if asked.token_file is None else _token(asked.token_file)
        asyncio.run(serve(asked, address, token))
    except* VoleError as refusals:
        parser.exit(2, f"{parser.prog}: {_first(refusals)}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vole-harness", description="Runs the steps of jobs; holds no key.")
    serving = parser.add_subparsers(required=True).add_parser("serve", help="serve one job at a time until TERM")
    serving.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:///path, or host:port")
    serving.add_argument(
        "--label", action="append", default=[], metavar="LABEL", help="NAME or NAME=VALUE; again for more"
    )
    serving.add_argument("--root", type=Path, metavar="DIR", help="for the work of hosts that share no folder")
    serving.add_argument("--token-file", type=Path, metavar="FILE", help="whoever calls has to name what is in it")
    serving.add_argument("--allow-plaintext", action="store_true", help="listen in cleartext beyond this machine")
    serving.add_argument("--parent", type=int, metavar="PID", help="end when this is not the parent process any more")
    return parser


def _token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise Invalid(f"--token-file {path}: {error.strerror}") from None
    if not 16 <= len(token) <= limits.TEXT_CHARS_MAX or not token.isascii():
        raise Invalid(f"--token-file {path}: a token of 16 to {limits.TEXT_CHARS_MAX} ASCII characters is needed")
    return token


def _first(refusals: BaseExceptionGroup[VoleError]) -> str:
    one: BaseException = refusals
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    return str(one)


if __name__ == "__main__":
    main()
