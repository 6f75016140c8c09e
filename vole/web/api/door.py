"""How a request enters the API: its parameters, its token or session, its body. Everything odd is refused by name."""

from __future__ import annotations

import json
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from vole.base import limits
from vole.base.errors import Denied, Exhausted, Invalid
from vole.base.escape import visible
from vole.people.model import Level, Verb
from vole.web import login
from vole.web.api.problems import BASE, MEDIA_TYPE, UNKNOWN_TOKEN, body, within_api
from vole.web.pages.access import admit, admit_bearer
from vole.web.pages.visit import House, Visit
from vole.wire import codec

__all__ = ["BASE", "Endpoint", "Entry", "answer", "enter", "sent"]


T = TypeVar("T")


class Endpoint(StarletteRoute):
    """A route of the site. What it is asked by another method is refused in the form of its kind."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in (self.methods or ()) or not within_api(scope["path"]):
            await super().handle(scope, receive, send)
            return
        allowed = {"allow": ", ".join(sorted(self.methods or ()))}
        refused = body(405, "method", f"there is only {allowed['allow']}")
        await Response(refused, 405, allowed, MEDIA_TYPE)(scope, receive, send)


class Entry(Protocol):
    """What the table of checks says of a route."""

    @property
    def needs(self) -> str: ...

    @property
    def method(self) -> str: ...

    @property
    def about_repo(self) -> bool: ...

    @property
    def query(self) -> tuple[str, ...]: ...

    @property
    def scope(self) -> Verb: ...


async def enter(house: House, route: Entry, request: Request) -> Visit:
    """The request as a visit, for a person who may read what it is about. Raises the refusal otherwise.

    With a token no cookie counts, so no page of others can make a browser send it; without one a change needs a proof
    of origin beside the session.
    """
    _refuse_unknown(route, request)
    name = request.path_params["repo"] if route.about_repo else None
    token = _bearer(request)
    db, url = house.parts.db, house.parts.url
    level: Level = "write" if route.needs == "write" else "read"
    if token is not None:
        bearer, repo = await db.read(admit_bearer, token, name, (route.scope, level))
        return Visit(request, house, request.state.client, None, bearer, repo)
    if route.method == "POST":
        login.prove_same_origin(request, url)
    session = login.session_of(request, url)
    person, repo = await db.read(admit, session, name, level)
    return Visit(request, house, request.state.client, session, person, repo)


def answer(value: object, *, status: int = 200) -> Response:
    """`value` as JSON. Names and texts of others may hold any code point: what is sent is ASCII."""
    headers = {"vary": "Cookie, Authorization", "cache-control": "private, no-cache"}
    return Response(json.dumps(value, indent=1).encode() + b"\n", status, headers, "application/json")


async def sent(request: Request, form: type[T]) -> T:
    """The JSON object in the body as a `form`; an empty one where there is none. Raises Invalid, Exhausted."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > limits.API_BODY_BYTES_MAX:
            raise Exhausted(f"a body has at most {limits.API_BODY_BYTES_MAX} bytes (API_BODY_BYTES_MAX)")
    if data and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Invalid("a body is JSON, and says so: Content-Type: application/json")
    return codec.from_json(form, codec.parse(data) if data else {}, where="body")


def _refuse_unknown(route: Entry, request: Request) -> None:
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in route.query:
            known = f"there are: {', '.join(route.query)}" if route.query else "it takes none"
            raise Invalid(f"'{visible(name, 80)}' is no parameter here; {known}", code="unknown_parameter")
        if given.count(name) > 1:
            raise Invalid(f"'{name}' is given twice", code="unknown_parameter")


def _bearer(request: Request) -> str | None:
    """The token of the request. Raises Denied for credentials of another kind, which nobody here can check."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip() or len(request.headers.getlist("authorization")) > 1:
        raise Denied("send one token: Authorization: Bearer TOKEN", code=UNKNOWN_TOKEN)
    return token.strip()
