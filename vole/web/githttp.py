"""Read-only git over smart HTTP, for public repositories and without credentials. Stores nothing, changes nothing."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from vole.base import limits
from vole.base.errors import Denied, Exhausted, Invalid
from vole.git.service import http_upload_pack
from vole.web.pages.visit import Visit

_ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
_REQUEST = "application/x-git-upload-pack-request"
_RESULT = "application/x-git-upload-pack-result"
_NO_PUSH = "git over HTTP is read-only here; push over SSH"


async def advertise(visit: Visit) -> Response:
    """What there is to fetch. Raises Denied for a push, Invalid for the old dumb protocol."""
    service = visit.request.query_params.get("service")
    if service == "git-receive-pack":
        raise Denied(
            _NO_PUSH, next_step=f"git remote set-url --push origin {visit.house.parts.ssh_url}/{visit.repo.name}"
        )
    if service != "git-upload-pack":
        raise Invalid("only the smart protocol is served: git 1.6.6 or newer")
    protocol = visit.request.headers.get("git-protocol")
    # With protocol 2 there is no head line; a client of protocol 0 or 1 waits for it.
    head = b"" if protocol == "version=2" else b"001e# service=git-upload-pack\n0000"
    async with _place(visit) as stack:
        process = await stack.enter_async_context(http_upload_pack(_path(visit), protocol, "advertise"))
        return _Fetch(process, b"", head, stack.pop_all(), _ADVERTISEMENT)


async def upload_pack(visit: Visit) -> Response:
    """One round of a fetch."""
    if visit.request.headers.get("content-type") != _REQUEST:
        raise Invalid(f"a fetch is sent as {_REQUEST}")
    protocol = visit.request.headers.get("git-protocol")
    async with _place(visit) as stack:
        sent = await _body(visit.request)
        process = await stack.enter_async_context(http_upload_pack(_path(visit), protocol, "rpc"))
        return _Fetch(process, sent, b"", stack.pop_all(), _RESULT)


async def receive_pack(visit: Visit) -> Response:
    """Raises Denied, whatever is sent."""
    raise Denied(_NO_PUSH, next_step=f"git remote set-url --push origin {visit.house.parts.ssh_url}/{visit.repo.name}")


class _Fetch(StreamingResponse):
    """What git says. The program has ended when the client has all of it, or has left."""

    def __init__(
        self, process: asyncio.subprocess.Process, sent: bytes, head: bytes, stack: AsyncExitStack, media_type: str
    ) -> None:
        super().__init__(_pump(process, head), media_type=media_type)
        self._process = process
        self._sent = sent
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._process.stdin is not None
        async with self._stack:
            feeding = asyncio.ensure_future(_feed(self._process.stdin, self._sent))
            try:
                await super().__call__(scope, receive, send)
            finally:
                feeding.cancel()


async def _pump(process: asyncio.subprocess.Process, head: bytes) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    if head:
        yield head
    while data := await process.stdout.read(limits.PUMP_READ_BYTES):
        yield data


def _path(visit: Visit) -> Path:
    return visit.house.parts.storage.path(visit.repo.name)


@asynccontextmanager
async def _place(visit: Visit) -> AsyncIterator[AsyncExitStack]:
    """A place for one git program, given back with the stack."""
    async with AsyncExitStack() as stack:
        places = visit.house.git_places
        places.take(visit.client)
        stack.callback(places.give_back, visit.client)
        yield stack


async def _feed(stdin: asyncio.StreamWriter, sent: bytes) -> None:
    try:
        stdin.write(sent)
        await stdin.drain()
        stdin.close()
    except ConnectionError:
        return  # it has heard enough


async def _body(request: Request) -> bytes:
    """The request's body, inflated. Raises Exhausted over UPLOAD_PACK_BODY_BYTES_MAX, Invalid for bad gzip."""
    coding = request.headers.get("content-encoding", "identity")
    if coding not in ("identity", "gzip", "x-gzip"):
        raise Invalid("a body is sent plain or with gzip")
    inflater = None if coding == "identity" else zlib.decompressobj(wbits=31)
    body = bytearray()
    try:
        async for chunk in request.stream():
            room = limits.UPLOAD_PACK_BODY_BYTES_MAX + 1 - len(body)
            body += chunk if inflater is None else inflater.decompress(chunk, room)
            if len(body) > limits.UPLOAD_PACK_BODY_BYTES_MAX:
                most = limits.UPLOAD_PACK_BODY_BYTES_MAX
                raise Exhausted(f"a fetch asks for more than {most} bytes hold (UPLOAD_PACK_BODY_BYTES_MAX)")
    except zlib.error:
        raise Invalid("the body is no gzip") from None
    except ClientDisconnect:
        raise Invalid("the body ended early") from None
    return bytes(body)
