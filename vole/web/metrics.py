"""The door of metrics: one address for a scraper, on a socket of its own. Off unless `metrics.listen` says where.

What can be read is read when it is asked for, so that nothing is counted for nobody.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from vole.base.clock import Clock, Moment, in_seconds
from vole.http import HttpServer, Receive, Scope, Send
from vole.jobs.reads import history, listing
from vole.runners import reads as runners
from vole.runners.roster import Roster
from vole.store.database import Database, View
from vole.telemetry import MEDIA_TYPE, Metrics, Reading


@dataclass(frozen=True)
class MetricsParts:
    """What is measured. `folder` lies on the disk whose free bytes are told."""

    bound: socket.socket
    metrics: Metrics
    db: Database
    roster: Roster
    clock: Clock
    folder: Path


class MetricsDoor:
    """A service of the server."""

    name = "metrics"

    def __init__(self, parts: MetricsParts) -> None:
        self._parts = parts
        self._told = 0  # id of the last event whose lease is counted
        self._turn = asyncio.Lock()
        self._server = HttpServer(self, parts.bound)

    async def start(self) -> None:
        self._told = await self._parts.db.read(history.newest)
        await self._server.start()

    async def wait(self) -> None:
        await self._server.wait()

    async def drain(self) -> None:
        await self._server.drain()

    async def stop(self) -> None:
        await self._server.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if request.url.path != "/metrics":
            answer: Response = PlainTextResponse("metrics are at /metrics\n", 404)
        elif request.method not in ("GET", "HEAD"):
            answer = PlainTextResponse("only GET\n", 405, {"allow": "GET, HEAD"})
        else:
            # One scrape at a time: each lease is counted once.
            async with self._turn:
                body = self._parts.metrics.text(await self._read())
            answer = Response(body, 200, {"content-type": MEDIA_TYPE, "x-content-type-options": "nosniff"})
        await answer(scope, receive, send)

    async def _read(self) -> Reading:
        parts = self._parts
        free = await asyncio.to_thread(lambda: shutil.disk_usage(parts.folder).free)
        jobs, waits, seen = await parts.db.read(_facts, self._told)
        if waits:
            self._told = waits[-1].event
        now = parts.clock.now()
        # The newest contact of an account's runners is the last one written.
        for session in sorted(parts.roster, key=lambda one: one.last_contact):
            seen[session.account_name] = session.last_contact
        return Reading(
            jobs=jobs,
            waits_s=[in_seconds(wait.span) for wait in waits],
            last_seen_s={account: max(0.0, in_seconds(now - at)) for account, at in seen.items()},
            disk_free_bytes=free,
        )


async def _facts(view: View, told: int) -> tuple[dict[str, int], list[history.Wait], dict[str, Moment]]:
    return await listing.counts(view), await history.waits(view, told), await runners.last_seen(view)
