"""Who is at the web door: sessions by cookie, login links, and the proof that a change was asked for on our own page.

A link is used by its button, never by opening it: what looks at links before people do must not use them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from vole.base import limits
from vole.base.errors import Denied
from vole.web.pages.shown import ssh_command
from vole.web.pages.visit import Visit

_DAY_S = 86_400


@dataclass(frozen=True)
class LoginPage:
    """The button that uses the link, or how to get a link."""

    template: ClassVar[str] = "people/login.html"
    title: ClassVar[str] = "Log in"
    token: str | None  # None: the page that says how to get one
    person: str | None  # who is logged in already
    ssh_url: str

    @property
    def command(self) -> str:
        return ssh_command(self.ssh_url, "login")


async def how(visit: Visit) -> Response:
    """How to get a link: there are no passwords."""
    return visit.page(LoginPage(None, visit.person.name if visit.person else None, visit.house.parts.ssh_url))


async def link(visit: Visit) -> Response:
    """The page of a link. It says nothing about whether the link is good: only using it does."""
    token = visit.request.path_params["token"]
    return visit.page(LoginPage(token, visit.person.name if visit.person else None, visit.house.parts.ssh_url))


async def enter(visit: Visit) -> Response:
    """Use the link; the browser has a new session then. Raises Denied for a used, late or unknown one."""
    administration = visit.house.parts.administration
    former = session_of(visit.request, visit.house.parts.url)
    session = await administration.log_in(visit.request.path_params["token"])
    if former is not None:
        await administration.log_out(former)
    answer = RedirectResponse(f"{visit.house.parts.url}/", status_code=303)
    _set_cookie(answer, visit.house.parts.url, session, limits.SESSION_DAYS * _DAY_S)
    return answer


async def leave(visit: Visit) -> Response:
    """End the session, here and in the store."""
    session = session_of(visit.request, visit.house.parts.url)
    if session is not None:
        await visit.house.parts.administration.log_out(session)
    answer = RedirectResponse(f"{visit.house.parts.url}/", status_code=303)
    _set_cookie(answer, visit.house.parts.url, "", 0)
    return answer


def session_of(request: Request, url: str) -> str | None:
    """The session's token that the browser sent."""
    return request.cookies.get(_cookie(url)) or None


def prove_same_origin(request: Request, url: str) -> None:
    """Raises Denied unless the browser says that one of our own pages asked.

    `Sec-Fetch-Site` cannot be set by a page; a browser without it sends `Origin` with every form.
    """
    site = request.headers.get("sec-fetch-site")
    ours = site == "same-origin" if site is not None else request.headers.get("origin") == url
    if not ours:
        raise Denied(
            "the request does not come from a page of this server",
            code="cross_origin",
            next_step=f"open {url} and try again there",
        )


def _cookie(url: str) -> str:
    """`__Host-`: a browser takes it over https from this very host only."""
    return "__Host-vole" if url.startswith("https:") else "vole"


def _set_cookie(answer: Response, url: str, value: str, seconds: int) -> None:
    answer.set_cookie(
        _cookie(url), value, max_age=seconds, path="/", secure=url.startswith("https:"), httponly=True, samesite="lax"
    )
