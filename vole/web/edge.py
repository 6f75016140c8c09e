"""The outermost part: which requests come in at all, how often, and what every answer says about itself.

Odd hosts, paths and methods end here, before anything looks at them. Asks no store and knows no page.
"""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from vole.base import limits
from vole.base.clock import Clock, Moment
from vole.http import Application, Receive, Scope, Send
from vole.web.api import problems
from vole.web.pages.kept import Kept
from vole.web.refusals import RETRY_AFTER_S
from vole.web.render import Asset

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # Not `no-referrer`: a form would then say `Origin: null`, and prove nothing.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-cache",
    b"vary": b"Cookie",
}
_CODES = {400: "invalid", 405: "method", 413: "exhausted", 429: "exhausted"}
_FOR_EVER = b"public, max-age=31536000, immutable"
_METHODS = ("GET", "HEAD", "POST")
_HOST = re.compile(rb"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_RAW_PATH = re.compile(rb"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})|%2[Ff]|%00")
_CLIENTS_MAX = 10_000  # remembered; the one that was quiet longest is forgotten first

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass
class _Bucket:
    tokens: float
    at: Moment


class Rate:
    """RATE_PER_MINUTE requests of one client, as many at once; then as they come back, one by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, client: str) -> bool:
        """Whether the client may ask once more now."""
        now, most = self._clock.now(), limits.RATE_PER_MINUTE
        bucket = self._clients.pop(client, None) or _Bucket(most, now)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.at) * most / 60_000_000)
        bucket.at = now
        self._clients[client] = bucket
        if len(self._clients) > _CLIENTS_MAX:
            self._clients.popitem(last=False)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


@dataclass(frozen=True)
class Edge:
    """Everything that is not odd goes on to `inner`, with the client's address in `scope["state"]["client"]`."""

    inner: Application
    assets: Mapping[str, Asset]
    kept: Kept
    rate: Rate
    proxies: tuple[Network, ...] = field(default=())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if (fault := _fault(scope)) is not None:
            await _plain(send, scope["path"], *fault)
            return
        asset = self.assets.get(scope["path"])
        if asset is not None:
            await _answer(
                send, 200, {b"content-type": asset.media_type.encode(), b"cache-control": _FOR_EVER}, asset.content
            )
            return
        headers = dict(scope["headers"])
        if b"cookie" not in headers and not scope["query_string"] and scope["method"] == "GET":
            page = self.kept.unasked(scope["path"])
            if page is not None:
                await _answer(send, 200, {b"content-type": b"text/html; charset=utf-8"}, page)
                return
        client = self.client(scope, headers)
        if client is not None and not self.rate.take(client):
            await _plain(
                send, scope["path"], 429, f"more than {limits.RATE_PER_MINUTE} requests a minute (RATE_PER_MINUTE)"
            )
            return
        scope.setdefault("state", {})["client"] = client or "local"
        await self.inner(scope, receive, _Dressed(send))

    def client(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        """Who asks, as limits count: an IPv4 address or an IPv6 network of 64 bits; None for this machine itself."""
        text = scope["client"][0] if scope.get("client") else ""
        forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
        hops = [hop.strip() for hop in forwarded if hop.strip()][-8:]
        while self._is_proxy(text) and hops:
            text = hops.pop()
        address = _address(text)
        if address is None:
            return "unknown"
        if address.is_loopback and not self._is_proxy(text):
            return None
        if address.version == 6:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)

    def _is_proxy(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self.proxies)


@lru_cache(maxsize=1024)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _fault(scope: Scope) -> tuple[int, str] | None:
    if scope["method"] not in _METHODS:
        return 405, f"only {', '.join(_METHODS)}"
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return 400, "a request has one plain Host"
    bound = "UPLOAD_PACK_BODY_BYTES_MAX" if scope["path"].endswith("/git-upload-pack") else "HTTP_BODY_BYTES_MAX"
    most = limits.UPLOAD_PACK_BODY_BYTES_MAX if bound.startswith("UPLOAD") else limits.HTTP_BODY_BYTES_MAX
    if any(name == b"content-length" and int(value) > most for name, value in scope["headers"] if value.isdigit()):
        return 413, f"a body has at most {most} bytes ({bound})"
    raw: bytes = scope["raw_path"]
    if not _RAW_PATH.fullmatch(raw) or _BAD_ESCAPE.search(raw):
        return 400, "that is no path"
    segments = unquote_to_bytes(raw[1:]).split(b"/")
    if any(segment in (b".", b"..") for segment in segments) or b"" in segments[:-1]:
        return 400, "a path has no empty or dotted parts"
    return None


class _Dressed:
    """Sends on, with the headers that every answer has unless it says them itself."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message["headers"])
            message["headers"] = [*given, *_missing(dict(given))]
        await self._send(message)


def _missing(given: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in _HEADERS.items() if name not in given]


async def _plain(send: Send, path: str, status: int, text: str) -> None:
    more = {b"allow": ", ".join(_METHODS).encode()} if status == 405 else {}
    if status == 429:
        more = {b"retry-after": b"%d" % RETRY_AFTER_S}
    if problems.within_api(path):
        body, form = problems.body(status, _CODES[status], text), problems.MEDIA_TYPE.encode()
    else:
        body, form = text.encode() + b"\n", b"text/plain; charset=utf-8"
    await _answer(send, status, {b"content-type": form, **more}, body)


async def _answer(send: Send, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
    dressed = _HEADERS | headers | {b"content-length": b"%d" % len(body)}
    await send({"type": "http.response.start", "status": status, "headers": list(dressed.items())})
    await send({"type": "http.response.body", "body": body})
