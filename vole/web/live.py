"""Live pages: server-sent events that say what changed. A page is whole without them.

A bell only wakes; what is sent was read again, and so was whether the person may still see it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from vole.base import limits
from vole.base.bell import Listener
from vole.base.clock import Moment, seconds
from vole.base.errors import VoleError
from vole.web.pages.visit import Visit

CLOSING = "web:closing"  # the bell that ends every stream
_REST_S = 0.1  # between two looks: ten a second is live enough


@dataclass(frozen=True)
class Event:
    """One event. `id` is what a browser names when it comes back."""

    name: str
    data: object = ""
    id: int | None = None

    def encode(self) -> bytes:
        head = "" if self.id is None else f"id: {self.id}\n"
        return f"{head}event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


Look = Callable[[], Awaitable[tuple[list[Event], bool]]]
"""One look: what to send, and whether there may be more at once. Ends the stream with an event `end`."""


class Stream(StreamingResponse):
    """Events until the page has ended, the client leaves, the right to see it goes, or the server stops."""

    def __init__(self, visit: Visit, topics: tuple[str, ...], look: Look) -> None:
        admitted_at = visit.house.parts.clock.now()
        super().__init__(_events(visit, admitted_at, topics, look), media_type="text/event-stream")
        self.headers["x-accel-buffering"] = "no"
        self._places = visit.house.streams
        self._places.take()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._places.give_back()


def mark_of(facts: object) -> str:
    """A short name of what a page was made from; its stream begins with what changed since."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def changes(visit: Visit, topics: tuple[str, ...], facts: Callable[[], Awaitable[tuple[object, bool]]]) -> Stream:
    """A stream that says `changed` whenever `facts` (and whether that was all) are other than before."""
    seen = [visit.request.query_params["live"]]

    async def look() -> tuple[list[Event], bool]:
        found, ended = await facts()
        mark = mark_of(found)
        events = [Event("changed")] if mark != seen[0] else []
        seen[0] = mark
        return [*events, Event("end")] if ended else events, False

    return Stream(visit, topics, look)


async def _events(visit: Visit, admitted_at: Moment, topics: tuple[str, ...], look: Look) -> AsyncIterator[bytes]:
    house = visit.house
    with house.parts.bells.listening(*topics, CLOSING) as bell:
        while not house.closing.is_set():
            try:
                if house.parts.clock.now() - admitted_at > seconds(limits.LOOK_S / 2):
                    await visit.still_admitted()
                    admitted_at = house.parts.clock.now()
                events, more = await look()
            except VoleError:
                return
            yield b"".join(event.encode() for event in events) or b": still here\n\n"
            if any(event.name == "end" for event in events):
                return
            await _rest(bell, more=more)


async def _rest(bell: Listener, *, more: bool) -> None:
    await asyncio.sleep(_REST_S)
    if not more:
        await bell.wait(limits.LOOK_S)
