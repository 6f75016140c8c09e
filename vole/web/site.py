"""The web door: builds the site from the table of checks and serves it. Shows through reads, changes through flows."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Router

from vole.base.errors import NotFound
from vole.base.offload import Offload
from vole.git.objects import Held
from vole.http import HttpServer, Receive, Scope, Send
from vole.people.model import Level
from vole.web import live, login
from vole.web.api.door import Endpoint, enter
from vole.web.api.problems import missing, problem, within_api
from vole.web.edge import Edge, Rate
from vole.web.pages.access import admit
from vole.web.pages.kept import Kept
from vole.web.pages.parts import WebParts
from vole.web.pages.visit import GitPlaces, House, Streams, Visit, Workshop
from vole.web.refusals import Left, refusal
from vole.web.render import Renderer
from vole.web.routes import ROUTES, Route

__all__ = ["WebDoor", "WebParts"]


class WebDoor:
    """A service of the server. What it is built with is the caller's to close."""

    name = "web"

    def __init__(self, parts: WebParts) -> None:
        self._house = House(
            parts=parts,
            renderer=Renderer(parts.templates),
            offload=Offload("vole.web.pages.markup", what="the highlighter", may_read=True),
            workshop=Workshop(),
            git_places=GitPlaces(),
            streams=Streams(),
            kept=Kept(parts.db, parts.clock),
            held=Held(),
            closing=asyncio.Event(),
        )
        self._server = HttpServer(application(self._house), parts.bound, parts.certificate)

    async def start(self) -> None:
        await self._house.offload.start()
        await self._server.start()

    async def wait(self) -> None:
        await self._server.wait()

    async def drain(self) -> None:
        self._house.closing.set()
        self._house.parts.bells.ring(live.CLOSING)
        await self._server.drain()

    async def stop(self) -> None:
        self._house.closing.set()
        await self._server.stop()
        self._house.workshop.close()
        self._house.held.close()
        await self._house.offload.close()


def application(house: House) -> Edge:
    """The whole site as an ASGI application."""
    router = Router(
        [Endpoint(route.path, _Answers(house, route), methods=[route.method]) for route in ROUTES],
        redirect_slashes=False,  # it would redirect to the host that the request names
        default=_Nowhere(house),
    )
    networks = tuple(ipaddress.ip_network(text) for text in house.parts.trusted_proxies)
    return Edge(router, house.renderer.assets, house.kept, Rate(house.parts.clock), networks)


@dataclass(frozen=True)
class _Answers:
    """A route as an ASGI application: what it raises is a refusal here, so nothing around it need look for one."""

    house: House
    route: Route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await _answer(self.house, self.route, request)
        except Left:
            answer = Response(status_code=499)
        except Exception as error:
            if self.route.api:
                answer = problem(error, self.house.parts.entropy, request.scope["path"])
            else:
                answer = await _refused(self.house, request, error, text=self.route.text)
        await answer(scope, receive, send)


async def _answer(house: House, route: Route, request: Request) -> Response:
    if route.api or route.token:
        return await route.answer(await enter(house, route, request))
    if route.origin == "proven":
        login.prove_same_origin(request, house.parts.url)
    session = None if route.needs == "public" else login.session_of(request, house.parts.url)
    name = None if route.needs == "anyone" else request.path_params["repo"]
    level: Level = "write" if route.needs == "write" else "read"
    person, repo = house.parts.db.glance(admit, session, name, level)
    return await route.answer(Visit(request, house, request.state.client, session, person, repo))


async def _refused(house: House, request: Request, error: Exception, *, text: bool) -> Response:
    page = refusal(error, house.parts.entropy, request.scope["path"])
    if text:
        return PlainTextResponse(page.text, page.status, page.headers)
    # Who is logged in stands on this page too; if even that cannot be read, nobody is.
    try:
        session = login.session_of(request, house.parts.url)
        person, _ = await house.parts.db.read(admit, session, None, "read")
    except Exception:
        person = None
    answer = Visit(request, house, request.state.client, None, person, None).page(page, status=page.status)
    answer.headers.update(page.headers)
    return answer


class _Nowhere:
    """What is on no route is not there, in the same words as everything else that is not."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if within_api(scope["path"]):
            await missing()(scope, receive, send)
            return
        answer = await _refused(self._house, request, NotFound("there is no such page"), text=False)
        await answer(scope, receive, send)
