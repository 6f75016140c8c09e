"""One SSH connection to the forge and its channels. The only importer of asyncssh here; never says what is on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import asyncssh

from vole.base import limits
from vole.base.errors import Denied, Exhausted, Invalid, Unavailable
from vole.wire import runner

_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"  # twice as fast as the others where the CPU has AES
_READ_BYTES = limits.PUMP_READ_BYTES


@dataclass(frozen=True)
class HostKeys:
    """What proves that the forge is the forge. A fingerprint, if given, is the whole of it."""

    fingerprint: str | None
    files: tuple[Path, ...]  # of known hosts, in OpenSSH's form; the first one is ours to write
    trust_on_first_use: bool


@dataclass(frozen=True)
class Target:
    """Where the forge is, and as whom to come."""

    host: str
    port: int
    key: Path
    host_keys: HostKeys

    @property
    def address(self) -> str:
        return f"ssh://git@{self.host}:{self.port}"


def parse_server(text: str) -> tuple[str, int]:
    """Host and port of `ssh://git@forge:2222`. Raises Invalid for anything else."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port or 22
    except ValueError:
        host, port, url = None, 0, urlsplit("")
    if url.scheme != "ssh" or not host or url.username not in (None, "git") or url.password or url.path.strip("/"):
        raise Invalid(f"{text[:200]!r} is no forge; write it as ssh://git@forge.example:2222")
    return host, port


class Bytes:
    """One channel: lines and bytes, both ways. Raises Unavailable once the connection is gone."""

    def __init__(self, writer: asyncssh.SSHWriter[bytes], reader: asyncssh.SSHReader[bytes]) -> None:
        self._writer = writer
        self._reader = reader
        self._rest = bytearray()

    async def line(self) -> bytes | None:
        """The next line without its end, None at the end of the stream."""
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > limits.FRAME_BYTES_MAX:
                raise Exhausted(f"the forge sent a line of more than {limits.FRAME_BYTES_MAX} bytes (FRAME_BYTES_MAX)")
            data = await self._read(_READ_BYTES)
            if not data:
                return None
            self._rest += data
        found = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return found

    async def some(self, most: int = _READ_BYTES) -> bytes:
        """What has arrived, at most `most` bytes; empty at the end of the stream."""
        if self._rest:
            data = bytes(self._rest[:most])
            del self._rest[:most]
            return data
        return await self._read(most)

    def send(self, data: bytes) -> None:
        """Queue `data`, without waiting."""
        with _losing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until there is room to send."""
        with _losing():
            await self._writer.drain()

    def end(self) -> None:
        """Nothing more is sent."""
        with contextlib.suppress(OSError, asyncssh.Error):
            self._writer.write_eof()

    def close(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._writer.close()

    async def _read(self, most: int) -> bytes:
        with _losing():
            return await self._reader.read(most)


class Link:
    """A connection that has been let in."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, target: Target) -> Self:
        """Raises Unavailable (not reached), Denied (key or host key refused), Invalid (our own key unreadable)."""
        client = _Client(target)
        try:
            connection = await _connect(target, client)
        except asyncssh.HostKeyNotVerifiable:
            raise client.not_verified() from None
        except asyncssh.PermissionDenied:
            raise Denied(
                f"{target.address} does not let the key {target.key} in",
                next_step=f"have it added there as a runner key: vole key add ACCOUNT --runner < {target.key}.pub",
            ) from None
        except (OSError, asyncssh.Error, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"{target.address} cannot be reached: {why[:200]}") from None
        return cls(connection)

    async def channel(self, opening: runner.Open) -> Bytes:
        """A new channel, its opening said. Raises Unavailable when the connection is gone or has no more."""
        with _losing():
            writer, reader, _ = await self._connection.open_session(
                subsystem=runner.SUBSYSTEM, encoding=None, send_env=(), env=()
            )
        channel = Bytes(writer, reader)
        channel.send(runner.opening(opening))
        return channel

    async def lost(self) -> None:
        """Returns when the connection is gone."""
        await self._connection.wait_closed()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        """Drop the connection without a word: the peer may be dead."""
        self._connection.abort()


class _Client(asyncssh.SSHClient):
    def __init__(self, target: Target) -> None:
        self._target = target
        self._seen: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        """Asked only about a key that no known-hosts file names."""
        self._seen = key
        keys = self._target.host_keys
        if keys.fingerprint is not None:
            return key.get_fingerprint() == keys.fingerprint
        if not keys.trust_on_first_use or _knows(_known_hosts(keys), self._target):
            return False
        self._remember(keys.files[0], key)
        return True

    def not_verified(self) -> Denied:
        seen = "another" if self._seen is None else self._seen.get_fingerprint()
        keys = self._target.host_keys
        if keys.fingerprint is not None or _knows(_known_hosts(keys), self._target):
            return Denied(
                f"{self._target.address} shows the host key {seen}, which is not the one that is pinned",
                next_step="if the forge was given a new key, pin that one; if not, someone stands in between",
            )
        return Denied(
            f"the host key of {self._target.address} is not known yet; it shows {seen}",
            next_step=f"compare it with the server's, then give --host-key {seen} (or --trust-on-first-use)",
        )

    def _remember(self, file: Path, key: asyncssh.SSHKey) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        name = self._target.host if self._target.port == 22 else f"[{self._target.host}]:{self._target.port}"
        with file.open("ab") as known:
            known.write(name.encode() + b" " + key.export_public_key("openssh").split(b"\n")[0] + b"\n")


async def _connect(target: Target, client: _Client) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(
        target.host,
        target.port,
        username="git",
        config=None,
        client_factory=lambda: client,
        client_keys=[_key(target.key)],
        agent_path=None,
        preferred_auth="publickey",
        known_hosts=_known_hosts(target.host_keys),
        encryption_algs=_CIPHERS,
        compression_algs=None,
        keepalive_interval=limits.SSH_KEEPALIVE_S,
        keepalive_count_max=limits.SSH_KEEPALIVE_MISSES,
        connect_timeout=limits.SSH_LOGIN_S,
        login_timeout=limits.SSH_LOGIN_S,
        client_version="vole-runner",
    )


def _key(path: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(str(path))
    except OSError as error:
        raise Invalid(f"the key {path} cannot be read: {error.strerror}") from None
    except asyncssh.KeyEncryptionError:
        raise Invalid(f"the key {path} has a passphrase; a runner needs one without: ssh-keygen -N ''") from None
    except asyncssh.KeyImportError as error:
        raise Invalid(f"{path} is no private key: {error}") from None


def _known_hosts(keys: HostKeys) -> asyncssh.SSHKnownHosts:
    if keys.fingerprint is not None:
        return asyncssh.import_known_hosts("")
    texts = [file.read_text("utf-8", "replace") for file in keys.files if file.is_file()]
    try:
        return asyncssh.import_known_hosts("\n".join(texts))
    except ValueError as error:
        raise Invalid(f"{', '.join(map(str, keys.files))}: {error}") from None


def _knows(known: asyncssh.SSHKnownHosts, target: Target) -> bool:
    return bool(known.match(target.host, "", target.port)[0])


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except (OSError, asyncssh.Error) as error:
        raise Unavailable(f"the connection to the forge is gone: {str(error)[:200] or 'closed'}") from None
