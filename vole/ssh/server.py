"""The SSH door: who is let in, how many at once, and what ends their connections. Serves nothing itself."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncssh

from vole.base import limits, log
from vole.people import reads as people
from vole.people.keys import fingerprint
from vole.people.model import Person
from vole.ssh.connection import Connection
from vole.ssh.git_session import GitDoor
from vole.ssh.session import CommandDoor, Doors, Inner, Session
from vole.ssh.transport import CIPHERS, KEX, ServerChannel, Transport
from vole.store.database import Database

_log = log.get("vole.ssh")

USER = "git"


@dataclass(frozen=True)
class DoorParts:
    """What the door is made of."""

    db: Database
    git: GitDoor
    commands: CommandDoor
    runners: Callable[[Connection], Inner]
    host_key: asyncssh.SSHKey


class SshDoor:
    """The service `ssh`, on a socket that is bound already."""

    name = "ssh"

    def __init__(self, parts: DoorParts, sock: socket.socket) -> None:
        self._db = parts.db
        self._doors = Doors(parts.git, parts.commands, parts.runners, self._spawn)
        self._host_key = parts.host_key
        self._sock = sock
        self._server: asyncio.Server | None = None
        self._failed: asyncio.Future[None] | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._guests: set[Guest] = set()
        self._per_address: Counter[str] = Counter()

    async def start(self) -> None:
        options = await asyncssh.SSHServerConnectionOptions.construct(
            server_factory=lambda: Guest(self),
            server_host_keys=[self._host_key],
            public_key_auth=True,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            allow_pty=False,
            line_editor=False,
            x11_forwarding=False,
            agent_forwarding=False,
            allow_scp=False,
            encoding=None,
            compression_algs=["none"],
            encryption_algs=CIPHERS,
            kex_algs=KEX,
            login_timeout=limits.SSH_LOGIN_S,
            keepalive_interval=limits.SSH_KEEPALIVE_S,
            keepalive_count_max=limits.SSH_KEEPALIVE_MISSES,
            window=limits.PUMP_BUFFER_BYTES_MAX,
        )
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        self._server = await loop.create_server(
            lambda: Transport(loop, options, may_enter=self.may_enter), sock=self._sock, backlog=128
        )

    async def wait(self) -> None:
        assert self._failed is not None
        await asyncio.shield(self._failed)

    async def drain(self) -> None:
        """Take no new connection; let git sessions end by themselves for at most STOP_S."""
        if self._server is not None:
            self._server.close()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=limits.STOP_S)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._sock.close()
        for guest in tuple(self._guests):
            guest.leave("the server is stopping")
        while self._sessions:
            await asyncio.wait(self._sessions)

    async def people_changed(self) -> None:
        """End connections of keys that are gone, and channels whose right or repository is gone."""
        known = [guest for guest in self._guests if guest.connection is not None]
        if not known:
            return
        found = await self._db.read(people.persons_of_keys, {guest.proven for guest in known})
        for guest in known:
            await guest.look_again(found.get(guest.proven))

    async def person_of(self, username: str, proven: str) -> Person | None:
        """Whose key that is, for the one user there is. Takes the same way whether it is known or not."""
        person = await self._db.read(people.person_of_key, proven)
        return person if username == USER else None

    def may_enter(self, address: str) -> bool:
        """Whether one more connection from `address` is let in, before a byte of it is looked at."""
        unproven = sum(guest.connection is None for guest in self._guests)
        return (
            len(self._guests) < limits.SSH_CONNECTIONS_MAX
            and unproven < limits.SSH_CONNECTIONS_UNAUTHENTICATED_MAX
            and self._per_address[address] < limits.SSH_CONNECTIONS_PER_ADDRESS_MAX
        )

    def entered(self, guest: Guest) -> None:
        self._guests.add(guest)
        self._per_address[guest.address] += 1

    def left(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.discard(guest)
            self._per_address[guest.address] -= 1
            if not self._per_address[guest.address]:
                del self._per_address[guest.address]

    def session(self, connection: Connection) -> Session:
        return Session(self._doors, connection)

    def _spawn(self, life: Awaitable[None]) -> None:
        task = asyncio.ensure_future(life)
        self._sessions.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sessions.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("session failed", trace=error)


class Guest(asyncssh.SSHServer):
    """One connection, from its first byte. Only a public key of an account, as user `git`, makes it more than that."""

    def __init__(self, door: SshDoor) -> None:
        self._door = door
        self._tries = 0
        self._owners: dict[str, Person] = {}  # of the keys offered
        self.address = ""
        self.proven = ""
        self.connection: Connection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        peer = conn.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else "local"
        self._door.entered(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._door.left(self)

    def leave(self, reason: str) -> None:
        self._conn.disconnect(asyncssh.DISC_BY_APPLICATION, reason)

    async def look_again(self, person: Person | None) -> None:
        """Who the owner of the key is now; None: the key is gone."""
        assert self.connection is not None
        if person is None:
            _log.info("connection of a removed key ended", account=self.connection.person.name, key=self.proven)
            self.leave("this key was removed")
            return
        self.connection.person = person
        for channel in tuple(self.connection.watched):
            await channel.look_again(person)

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._tries += 1
        if self._tries > limits.SSH_LOGIN_ATTEMPTS_MAX:
            self.leave(f"more than {limits.SSH_LOGIN_ATTEMPTS_MAX} keys tried")
            return False
        asked = fingerprint(key.public_data)
        person = await self._door.person_of(username, asked)
        if person is not None:
            self._owners[asked] = person
        return person is not None

    def auth_completed(self) -> None:
        # Plain, not a coroutine: the client has been told already and opens its channel.
        assert isinstance(self._conn, Transport)
        self.proven = self._conn.proven
        person = self._owners[self.proven]
        self.connection = Connection(person, self.address, self._conn)
        _log.info("connected", account=person.name, key=self.proven, address=self.address)

    def session_requested(self) -> tuple[ServerChannel, Session] | bool:
        if self.connection is None or self.connection.open_channels >= limits.SSH_CHANNELS_MAX:
            return False
        assert isinstance(self._conn, Transport)
        of_runner = self.connection.person.key_kind == "runner"
        packet = limits.SSH_PACKET_RUNNER_BYTES if of_runner else limits.SSH_PACKET_BYTES
        return self._conn.session_channel(packet), self._door.session(self.connection)
