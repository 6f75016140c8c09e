"""A small asyncssh client, run as a process of its own: many handshakes, or connections held idle. The same for both.

python -m tests.bench.loadgen handshakes COUNT AT_ONCE PORT USER KEY KNOWN_HOSTS   prints seconds
python -m tests.bench.loadgen idle       COUNT RUNNER  PORT USER KEY KNOWN_HOSTS   prints `held`, ends with its input
"""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from dataclasses import dataclass

import asyncssh

from vole.wire import runner as wire

GATHER_S = 120.0


@dataclass(frozen=True)
class Door:
    port: int
    user: str
    key: str
    known_hosts: str

    async def connect(self) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            "127.0.0.1",
            self.port,
            username=self.user,
            client_keys=[self.key],
            known_hosts=self.known_hosts,
            config=None,
            agent_path=None,
            encryption_algs=["aes128-gcm@openssh.com"],
            kex_algs=["curve25519-sha256"],
        )


async def handshakes(door: Door, count: int, at_once: int) -> None:
    """`count` log-ins, each closed at once, never more than `at_once` of them open."""
    left = iter(range(count))

    async def one_after_another() -> None:
        for _ in left:
            connection = await door.connect()
            connection.close()
            await connection.wait_closed()

    await (await door.connect()).__aexit__(None, None, None)
    begin = time.perf_counter()
    async with asyncio.timeout(GATHER_S), asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_another())
    print(time.perf_counter() - begin, flush=True)


async def idle(door: Door, count: int, *, as_runner: bool) -> None:
    """`count` connections held until standard input ends; each parks a request for work if it is a runner's."""
    async with asyncio.timeout(GATHER_S):
        held = [await door.connect() for _ in range(count)]
        channels = [await _park(connection, number) for number, connection in enumerate(held) if as_runner]
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for channel in channels:
        channel.close()
    for connection in held:
        connection.close()


async def _park(connection: asyncssh.SSHClientConnection, number: int) -> asyncssh.SSHWriter[bytes]:
    writer, reader, _ = await connection.open_session(subsystem=wire.SUBSYSTEM, encoding=None)
    hello = wire.Hello(
        version="0",
        wire=wire.Wire(wire.WIRE_MIN, wire.WIRE_MAX),
        platform="linux",
        machine="x64",
        python=platform.python_version(),
        name=f"idle-{number}",
        incarnation=f"idle-{number}",
        slots=1,
        labels=("idle",),
    )
    writer.write(wire.opening(wire.Open("control")) + wire.FROM_RUNNER.encode(hello))
    welcome = wire.FROM_SERVER.decode(await reader.readline(), strict=False)
    if not isinstance(welcome, wire.Welcome):
        raise SystemExit(f"not welcome: {welcome}")
    writer.write(wire.FROM_RUNNER.encode(wire.Want(slot=0, token=f"t{number}")))
    return writer


def main(words: list[str]) -> None:
    what, count, option, port, user, key, known_hosts = words
    door = Door(int(port), user, key, known_hosts)
    if what == "handshakes":
        asyncio.run(handshakes(door, int(count), int(option)))
    else:
        asyncio.run(idle(door, int(count), as_runner=option == "runner"))


if __name__ == "__main__":
    main(sys.argv[1:])
