"""The table of checks: every route, what it answers, and what a person needs to get there.

A route that is not in the table does not exist; one that changes something says that it needs a proof of origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from vole.web import githttp, login
from vole.web.pages import code, commit, fleet, history, home, jobs, runs, site, start
from vole.web.pages.visit import Visit

Answer = Callable[[Visit], Awaitable[Response]]
# `anyone`: nothing of a repository, or only what the page itself has sifted. `read`: the repository `repo` of the path.
# `write`: the same, of who may push to it. `public`: as `read`, without a person: git over HTTP has no credentials.
Needs = Literal["anyone", "read", "write", "public"]


@dataclass(frozen=True)
class Route:
    path: str
    needs: Needs
    answer: Answer
    method: Literal["GET", "POST"] = "GET"
    origin: Literal["proven", "any"] = "any"  # `any` only where nothing changes
    text: bool = False  # refusals as plain text, for programs


ROUTES: tuple[Route, ...] = (
    Route("/", "anyone", home.repositories),
    Route("/queue", "anyone", fleet.queue),
    Route("/runners", "anyone", fleet.runners),
    Route("/status", "anyone", site.status),
    Route("/healthz", "anyone", site.healthz, text=True),
    Route("/readyz", "anyone", site.readyz, text=True),
    Route("/robots.txt", "anyone", site.robots, text=True),
    Route("/favicon.ico", "anyone", site.favicon, text=True),
    Route("/login", "anyone", login.how),
    Route("/login/{token}", "anyone", login.link),
    Route("/login/{token}", "anyone", login.enter, "POST", "proven"),
    Route("/logout", "anyone", login.leave, "POST", "proven"),
    Route("/git/{repo}.git/info/refs", "public", githttp.advertise, text=True),
    Route("/git/{repo}.git/git-upload-pack", "public", githttp.upload_pack, "POST", text=True),
    Route("/git/{repo}.git/git-receive-pack", "public", githttp.receive_pack, "POST", text=True),
    Route("/{repo}", "read", code.front),
    Route("/{repo}/refs", "read", history.refs),
    Route("/{repo}/tree/{place:path}", "read", code.tree),
    Route("/{repo}/file/{place:path}", "read", code.file),
    Route("/{repo}/raw/{place:path}", "read", code.raw, text=True),
    Route("/{repo}/commits/{place:path}", "read", history.commits),
    Route("/{repo}/commit/{commit}", "read", commit.commit),
    Route("/{repo}/start", "write", start.form),
    Route("/{repo}/start", "write", start.start, "POST", "proven"),
    Route("/{repo}/runs", "read", runs.runs),
    Route("/{repo}/runs/{run}", "read", runs.run),
    Route("/{repo}/runs/{run}/cancel", "write", start.cancel, "POST", "proven"),
    Route("/{repo}/runs/{run}/rerun", "write", start.rerun, "POST", "proven"),
    Route("/{repo}/runs/{run}/{job}", "read", jobs.job),
    Route("/{repo}/runs/{run}/{job}/cancel", "write", start.cancel, "POST", "proven"),
    Route("/{repo}/runs/{run}/{job}/artifacts/{place:path}", "read", jobs.artifact, text=True),
)

# First segments that later routes will have: a repository must not take them before.
LATER = frozenset({"api", "atom", "badges", "keys", "metrics", "nodes", "settings", "static"})
