"""The TCP manners of one SSH connection: quick acks, a bound on what waits to be sent, the ciphers on offer.

Knows no session and no person.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import cast

import asyncssh
from asyncssh.constants import MSG_CHANNEL_DATA, MSG_IGNORE
from asyncssh.packet import SSHPacket, SSHPacketLogger

from vole.base import limits
from vole.people.keys import fingerprint

# The client's order decides in SSH, and OpenSSH puts AES-GCM last though all of it since 6.2 has it: 0.9 of the time
# of a clone. So it is offered nothing else; clients of other make, which may lack it, get the list.
GCM = (b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com")
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr",
           "aes192-ctr", "aes128-ctr")  # fmt: skip
# dropbear takes the first of ours that it knows, and knows few.
KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256", "ecdh-sha2-nistp384",
       "ecdh-sha2-nistp521", "diffie-hellman-group16-sha512", "diffie-hellman-group14-sha256")  # fmt: skip
_ENV_BYTES_MAX = 64  # `version=2`
_LENGTH = struct.Struct(">I")
_DATA_HEAD = struct.Struct(">BBII")  # padding, type, channel, length (RFC 4253 6, RFC 4254 5.2)
_PADDING_BYTES_MAX = 32  # three and a block
_WITH_GCM = (b"SSH-2.0-OpenSSH_", b"SSH-2.0-AsyncSSH_")


class ServerChannel(asyncssh.SSHServerChannel[bytes]):
    """A session channel that keeps nothing of a client's environment but GIT_PROTOCOL.

    asyncssh keeps whatever a client sends, without a bound.
    """

    def _process_env_request(self, packet: SSHPacket) -> bool:
        name, value = packet.get_string(), packet.get_string()
        packet.check_end()
        if name != b"GIT_PROTOCOL" or len(value) > _ENV_BYTES_MAX:
            return False
        self._env = {name: value}
        return True

    def _flush_send_buf(self) -> None:
        """What is left for the library: what the window has no room for, errors, the end, and telling of room."""
        connection = cast("Transport", self._conn)
        while self._send_buf and self._send_window and self._send_buf[0][1] is None:
            data = self._send_buf[0][0]
            with memoryview(data) as view, view[: self._send_window] as fitting:
                sent = connection.send_data(self._send_chan, fitting, self._send_pktsize)
            if not sent:
                break
            del data[:sent]
            if not data:
                del self._send_buf[0]
            self._send_buf_len -= sent
            self._send_window -= sent
        super()._flush_send_buf()

    def log_sent_packet(self, pkttype: int, pktid: int | None, packet: object, note: str = "") -> None:
        """Nothing: asyncssh would word a line for every packet, whether anyone reads it or not."""

    def log_received_packet(self, pkttype: int, pktid: int | None, packet: object, note: str = "") -> None:
        """Nothing, as above."""


class Transport(asyncssh.SSHServerConnection):
    """An SSH connection that answers packets at once and knows when the peer reads slower than we write."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: asyncssh.SSHServerConnectionOptions,
        *,
        may_enter: Callable[[str], bool],
    ) -> None:
        """`may_enter(address)` is asked before the first byte is looked at."""
        super().__init__(loop, options)
        self._may_enter = may_enter
        self._heard = False
        self.proven = ""  # fingerprint of the key whose signature was verified
        self.writable = asyncio.Event()
        self.writable.set()
        self.watchers: set[Callable[[], None]] = set()  # called when `writable` changes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        tcp = cast("asyncio.Transport", transport)
        if not self._may_enter(peer[0] if isinstance(peer, tuple) else "local"):
            self._cancel_login_timer()
            tcp.abort()
            return
        tcp.set_write_buffer_limits(high=limits.PUMP_BUFFER_BYTES_MAX)
        self._socket = cast("socket.socket", transport.get_extra_info("socket"))
        self._over_tcp = self._socket.family in (socket.AF_INET, socket.AF_INET6)
        super().connection_made(transport)

    async def validate_public_key(self, username: str, key_data: bytes, msg: bytes, signature: bytes) -> bool:
        good = await super().validate_public_key(username, key_data, msg, signature)
        if good and signature:
            self.proven = fingerprint(key_data)
        return good

    def session_channel(self, packet: int = limits.SSH_PACKET_BYTES) -> ServerChannel:
        """A channel for a session, in bytes, with our window, that takes packets of at most `packet` bytes."""
        window = limits.PUMP_BUFFER_BYTES_MAX
        return ServerChannel(self, self._loop, False, False, False, 0, 0, None, "strict", window, packet)

    def send_packet(self, pkttype: int, *args: bytes, handler: SSHPacketLogger | None = None) -> None:
        """All but the empty packet that asyncssh puts before each: it guards CBC ciphers, which we do not offer."""
        if pkttype != MSG_IGNORE:
            super().send_packet(pkttype, *args, handler=handler)

    def send_data(self, channel: int | None, data: memoryview, most: int) -> int:
        """Send `data` on a channel in packets of at most `most` bytes of it: how much went, 0 when the library has to.

        asyncssh's own way costs five copies and a write for each packet.
        """
        if channel is None or not self._may_send_data():
            return 0
        parts: list[bytes] = []
        padding = os.urandom(_PADDING_BYTES_MAX)
        for at in range(0, len(data), most):
            with data[at : at + most] as piece:
                length = _DATA_HEAD.size - 1 + len(piece)
                pad = -(self._send_enchdrlen + length) % self._send_blocksize
                pad += self._send_blocksize if pad < 4 else 0
                head = _DATA_HEAD.pack(pad, MSG_CHANNEL_DATA, channel, len(piece))
                packet = b"".join((head, piece, padding[:pad]))
            assert self._send_encryption is not None
            parts += self._send_encryption.encrypt_packet(self._send_seq, _LENGTH.pack(len(packet)), packet)
            self._send_seq = (self._send_seq + 1) & 0xFFFFFFFF
            self._rekey_bytes_sent += len(packet)
        self._send(b"".join(parts))
        return len(data)

    def _may_send_data(self) -> bool:
        """Whether nothing but data is due. A new key is begun, and waited for, by the library."""
        return (
            self._auth_complete
            and self._kex_complete
            and self._compressor is None
            and self._send_encryption is not None
            and self._rekey_bytes_sent < self._rekey_bytes
            and (not self._rekey_seconds or self._loop.time() < self._rekey_time)
        )

    def log_sent_packet(self, pkttype: int, pktid: int | None, packet: object, note: str = "") -> None:
        """Nothing, as a channel's."""

    def log_received_packet(self, pkttype: int, pktid: int | None, packet: object, note: str = "") -> None:
        """Nothing, as a channel's."""

    def data_received(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        if not self._heard:
            self._heard = True
            if data.startswith(_WITH_GCM):
                self._enc_algs = list(GCM)
        super().data_received(data, datatype)
        # Without a terminal OpenSSH keeps Nagle on: its second small packet waits for our ack, which Linux delays by
        # 40 ms. The kernel forgets this at each ack.
        if self._over_tcp and self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def pause_writing(self) -> None:
        self.writable.clear()
        self._tell()

    def resume_writing(self) -> None:
        self.writable.set()
        self._tell()

    def _tell(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()
