"""A request on its way to a page: who asks, for which repository, and what pages may work with."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from vole.base import limits
from vole.base.errors import Exhausted, NotFound
from vole.base.offload import Offload
from vole.git.objects import Going, Held
from vole.people.access import may
from vole.people.model import Person
from vole.repos.model import Repo
from vole.store.database import View
from vole.web.pages.access import admit
from vole.web.pages.kept import Kept
from vole.web.pages.parts import WebParts
from vole.web.refusals import Left
from vole.web.render import Frame, Page, Renderer

P = ParamSpec("P")
T = TypeVar("T")

_LISTEN_AFTER_S = 0.05


@dataclass(frozen=True)
class House:
    """What every page of one server works with."""

    parts: WebParts
    renderer: Renderer
    offload: Offload  # highlights and Markdown
    workshop: Workshop
    git_places: GitPlaces
    streams: Streams
    kept: Kept
    held: Held
    closing: asyncio.Event


@dataclass(frozen=True)
class Visit:
    """One request. `hosted` is set where the route is about a repository that the person may read."""

    request: Request
    house: House
    client: str
    session: str | None
    person: Person | None
    hosted: Repo | None

    @property
    def repo(self) -> Repo:
        assert self.hosted is not None, "the route has no repository"
        return self.hosted

    @property
    def may_write(self) -> bool:
        """Whether buttons are for them."""
        return self.hosted is not None and may(self.person, "write", self.hosted)

    @property
    def frame(self) -> Frame:
        parts = self.house.parts
        return Frame(self.person.name if self.person else None, parts.clock.now(), parts.version)

    def page(self, page: Page, *, status: int = 200) -> Response:
        """The page as an answer."""
        body = self.house.renderer.render(page, self.frame)
        return Response(body, status, media_type="text/html; charset=utf-8")

    async def read(
        self, query: Callable[Concatenate[View, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `query(view, …)` returns, from one snapshot."""
        return await self.house.parts.db.read(query, *args, **kwargs)

    async def work(self, deed: Callable[[Going], T]) -> T:
        """What the costly `deed` returns. Raises Left when the client leaves, Exhausted when it takes too long."""
        return await self.house.workshop.run(self.client, self.request, deed)

    async def still_admitted(self) -> None:
        """Raises NotFound when the person may not see the repository any more."""
        name = None if self.hosted is None else self.hosted.name
        _, repo = await self.read(admit, self.session, name, "read")
        if repo is not None and repo.id != self.repo.id:
            raise NotFound("there is no such repository")

    def number(self, name: str, least: int, most: int) -> int | None:
        """The whole number in the query's `name`, brought within bounds; None where there is none."""
        text = self.request.query_params.get(name, "")
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            return None
        return min(max(int(text), least), most)


@dataclass
class _Client:
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(limits.PAGE_RENDERS_PER_CLIENT_MAX))
    waiting: int = 0


class Workshop:
    """Costly work for pages, on threads of its own: pushes and leases never wait for it.

    At most PAGE_RENDERS_MAX at once, PAGE_RENDERS_PER_CLIENT_MAX for one client. It stops when the client leaves.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(limits.PAGE_RENDERS_MAX, thread_name_prefix="pages")
        self._places = asyncio.Semaphore(limits.PAGE_RENDERS_MAX)
        self._clients: dict[str, _Client] = {}

    async def run(self, client: str, request: Request, deed: Callable[[Going], T]) -> T:
        left = threading.Event()
        with _Listening(request, left):
            return await self._in_turn(client, left, deed)

    def close(self) -> None:
        """Take nothing more. What runs ends at its next look."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, client: str, left: threading.Event, deed: Callable[[Going], T]) -> T:
        mine = self._clients.setdefault(client, _Client())
        mine.waiting += 1
        try:
            await _take(mine.turn)
            try:
                await _take(self._places)
                try:
                    return await self._on_thread(left, deed)
                finally:
                    self._places.release()
            finally:
                mine.turn.release()
        finally:
            mine.waiting -= 1
            if not mine.waiting:
                self._clients.pop(client, None)

    async def _on_thread(self, left: threading.Event, deed: Callable[[Going], T]) -> T:
        loop = asyncio.get_running_loop()
        late_at = loop.time() + limits.PAGE_RENDER_S

        def going() -> None:
            if left.is_set():
                raise Left
            if loop.time() > late_at:
                raise Exhausted(f"the page took more than {limits.PAGE_RENDER_S} s (PAGE_RENDER_S)")

        thread = loop.run_in_executor(self._threads, deed, going)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            left.set()
            # The place is free only when the thread is.
            with contextlib.suppress(Exception):
                await thread
            raise


class Streams:
    """How many live pages are open."""

    def __init__(self) -> None:
        self.open = 0

    def take(self) -> None:
        """Raises Exhausted over EVENT_STREAMS_MAX. Give back what was taken."""
        if self.open >= limits.EVENT_STREAMS_MAX:
            raise Exhausted(
                f"{limits.EVENT_STREAMS_MAX} live pages are open (EVENT_STREAMS_MAX); reload to see what is new"
            )
        self.open += 1

    def give_back(self) -> None:
        self.open -= 1


class GitPlaces:
    """How many git programs the web door runs at once, and for one client."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}

    def take(self, client: str) -> None:
        """Raises Exhausted. Give back what was taken."""
        if sum(self._running.values()) >= limits.HTTP_GIT_MAX:
            raise Exhausted(f"{limits.HTTP_GIT_MAX} fetches over HTTP run already (HTTP_GIT_MAX)")
        if self._running.get(client, 0) >= limits.HTTP_GIT_PER_CLIENT_MAX:
            most = limits.HTTP_GIT_PER_CLIENT_MAX
            raise Exhausted(f"{most} fetches of yours run already (HTTP_GIT_PER_CLIENT_MAX)")
        self._running[client] = self._running.get(client, 0) + 1

    def give_back(self, client: str) -> None:
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]


class _Listening:
    """Cancels what is done in it when the client leaves, and raises Left then.

    It begins to listen after a moment: most pages are made by then, and a task for each costs more than it saves.
    """

    def __init__(self, request: Request, left: threading.Event) -> None:
        self._request = request
        self._left = left

    def __enter__(self) -> None:
        self._caller = asyncio.current_task()
        self._listener: asyncio.Task[None] | None = None
        self._soon = asyncio.get_running_loop().call_later(_LISTEN_AFTER_S, self._listen)
        self._over = False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over = True
        self._soon.cancel()
        heard = self._listener is not None and self._listener.done()
        if self._listener is not None:
            self._listener.cancel()
        if kind is asyncio.CancelledError and heard:
            assert self._caller is not None
            self._caller.uncancel()
            raise Left from None

    def _listen(self) -> None:
        self._listener = asyncio.ensure_future(_gone(self._request))
        self._listener.add_done_callback(self._heard)

    def _heard(self, _: object) -> None:
        if not self._over and self._caller is not None:
            self._left.set()
            self._caller.cancel()


async def _take(places: asyncio.Semaphore) -> None:
    """A place, within PAGE_WAIT_S. Release it."""
    if not places.locked():
        await places.acquire()  # at once
        return
    try:
        async with asyncio.timeout(limits.PAGE_WAIT_S):
            await places.acquire()
    except TimeoutError:
        raise Exhausted(f"no page could be made within {limits.PAGE_WAIT_S} s (PAGE_RENDERS_MAX)") from None


async def _gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
