"""Serving an ASGI application over TCP: set-up, deadlines and sizes of requests. The only importer of uvicorn.

uvicorn waits for a request, and for a client that reads nothing, as long as it takes; the protocol below does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vole.base import limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Deadlines:
    """Seconds. Tests take shorter ones."""

    headers_s: float = limits.HTTP_HEADERS_S
    body_s: float = limits.HTTP_BODY_S
    unread_s: float = limits.HTTP_UNREAD_S


@dataclass(frozen=True)
class Certificate:
    """Two PEM files."""

    cert: Path
    key: Path


class HttpServer:
    """Serves on a bound socket, and closes it. `wait` returns only on failure; `drain`, then `stop`."""

    def __init__(
        self,
        application: Application,
        bound: socket.socket,
        certificate: Certificate | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        """Without a `certificate` it is plain HTTP."""
        self._bound = bound
        protocol = partial(_BoundedProtocol, deadlines=deadlines or Deadlines())
        self._config = uvicorn.Config(
            application,
            http=protocol,  # type: ignore[arg-type]  # anything that makes a protocol does
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.HTTP_CONNECTIONS_MAX,
            timeout_graceful_shutdown=limits.STOP_S,
            ssl_certfile=None if certificate is None else certificate.cert,
            ssl_keyfile=None if certificate is None else certificate.key,
        )
        self._server = uvicorn.Server(self._config)

    async def start(self) -> None:
        """Returns once it listens."""
        # Connections inherit it. asyncio sets it only where it made the listener; without it each answer waits 40 ms.
        self._bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[self._bound])

    async def wait(self) -> None:
        """Keep the `Date` header true. Ends when it is cancelled."""
        while True:
            await self._server.on_tick(0)
            await asyncio.sleep(1.0)

    async def drain(self) -> None:
        """No new connections."""
        for listener in self._server.servers:
            listener.close()

    async def stop(self) -> None:
        """Answers that are under way get STOP_S to end; then they are cut."""
        await self._server.shutdown()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for listener in self._server.servers:
            await listener.wait_closed()


class _BoundedProtocol(HttpToolsProtocol):
    """A connection whose requests arrive in time and in measure (SR-52), and whose answers are read."""

    def __init__(self, *args: Any, deadlines: Deadlines, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines = deadlines
        self._allowed: float | None = None  # seconds for what has to come next
        self._changed = False  # `_allowed` was set anew
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._head_open = False
        self._head_bytes = 0  # of the fields seen
        self._head_came = 0  # of all that was received
        self._refusal = b"400 Bad Request"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._await(self._deadlines.headers_s)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self._set_deadline()
        self._resumed()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._await(self._deadlines.headers_s)  # blank lines before a request begin no message
        was_open = self._head_open
        super().data_received(data)
        if self._head_open:  # the parser gathers one field unseen: what came in counts too
            self._head_came = len(data) + (self._head_came if was_open else 0)
            if self._head_came > 2 * limits.HTTP_HEADERS_BYTES_MAX:
                self._refuse(b"431 Request Header Fields Too Large")
        self._set_deadline()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0
        self._await(self._deadlines.headers_s)

    def on_url(self, url: bytes) -> None:
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measure(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._await(self._deadlines.body_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._await(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  ours says which bound it was
        if not self.transport.is_closing():
            self._refuse(self._refusal)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._deadlines.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed()

    def _measure(self, count: int) -> None:
        """An error in a callback of the parser becomes `send_400_response`."""
        self._head_bytes += count
        if self._head_bytes > limits.HTTP_HEADERS_BYTES_MAX or len(self.headers) >= limits.HTTP_HEADERS_MAX:
            self._refusal = b"431 Request Header Fields Too Large"
            raise ValueError("the head of the request is over its bound")

    def _await(self, seconds: float | None) -> None:
        self._allowed, self._changed = seconds, True

    def _set_deadline(self) -> None:
        """Once what came is read: most requests come whole, and need no timer."""
        if not self._changed:
            return
        self._changed = False
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if self._allowed is None else self.loop.call_later(self._allowed, self._late)

    def _late(self) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
        else:
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        with contextlib.suppress(AttributeError):  # no request yet
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        text = status + b"\n"
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        self.transport.write(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, head, len(text), text))
        self.transport.close()

    def _resumed(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
