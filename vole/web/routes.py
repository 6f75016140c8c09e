"""The table of checks: every route, what it answers, and what a person needs to get there.

A route that is not in the table does not exist; one that changes something says that it needs a proof of origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from vole.people.model import Verb
from vole.web import githttp, login
from vole.web.api import code as code_api
from vole.web.api import fleet as fleet_api
from vole.web.api import runs as runs_api
from vole.web.api import site as site_api
from vole.web.api import start as start_api
from vole.web.api import statuses as statuses_api
from vole.web.api.door import BASE
from vole.web.pages import code, commit, feeds, fleet, history, home, jobs, runs, site, start, timeline
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
    token: bool = False  # outside the API: a bearer token counts, and parameters are strict, as in it
    twin: str | None = None  # of a page: the route of the API that says the same; None where a page says nothing
    query: tuple[str, ...] = ()  # of the API, and with `token`: the parameters there are; others are refused
    scope: Verb = "read"  # of the API: what a token's scope must be for

    @property
    def api(self) -> bool:
        """Whether it is for programs: tokens, problems, strict parameters."""
        return self.path == BASE or self.path.startswith(BASE + "/")

    @property
    def about_repo(self) -> bool:
        return self.needs != "anyone"


_REPOSITORY = BASE + "/repositories/{repo}"
_PAGES = ("limit", "cursor")
_SIFT = ("repository", "state", "labels", "runner")


ROUTES: tuple[Route, ...] = (
    Route("/", "anyone", home.repositories, twin=BASE + "/repositories"),
    Route("/queue", "anyone", fleet.queue, twin=BASE + "/queue"),
    Route("/runners", "anyone", fleet.runners, twin=BASE + "/runners"),
    Route("/status", "anyone", site.status, twin=BASE + "/status"),
    Route("/healthz", "anyone", site.healthz, text=True),
    Route("/readyz", "anyone", site.readyz, text=True),
    Route("/keys/record-signers", "anyone", site.record_signers, text=True),
    Route("/robots.txt", "anyone", site.robots, text=True),
    Route("/favicon.ico", "anyone", site.favicon, text=True),
    Route("/login", "anyone", login.how),
    Route("/login/{token}", "anyone", login.link),
    Route("/login/{token}", "anyone", login.enter, "POST", "proven"),
    Route("/logout", "anyone", login.leave, "POST", "proven"),
    Route("/git/{repo}.git/info/refs", "public", githttp.advertise, text=True),
    Route("/git/{repo}.git/git-upload-pack", "public", githttp.upload_pack, "POST", text=True),
    Route("/git/{repo}.git/git-receive-pack", "public", githttp.receive_pack, "POST", text=True),
    Route("/{repo}", "read", code.front, twin=_REPOSITORY),
    Route("/{repo}/refs", "read", history.refs, twin=_REPOSITORY + "/refs"),
    Route("/{repo}/tree/{place:path}", "read", code.tree, twin=_REPOSITORY + "/tree/{place:path}"),
    Route("/{repo}/file/{place:path}", "read", code.file, twin=_REPOSITORY + "/file/{place:path}"),
    Route("/{repo}/raw/{place:path}", "read", code.raw, text=True),
    Route("/{repo}/commits/{place:path}", "read", history.commits, twin=_REPOSITORY + "/commits/{place:path}"),
    Route("/{repo}/commit/{commit}", "read", commit.commit, twin=_REPOSITORY + "/commit/{commit}"),
    Route("/{repo}/start", "write", start.form, twin=_REPOSITORY + "/start"),
    Route("/{repo}/start", "write", start.start, "POST", "proven"),
    Route("/{repo}/runs", "read", runs.runs, twin=_REPOSITORY + "/runs"),
    Route("/{repo}/runs/{run}", "read", runs.run, twin=_REPOSITORY + "/runs/{run}"),
    Route("/{repo}/runs/{run}/cancel", "write", start.cancel, "POST", "proven"),
    Route("/{repo}/runs/{run}/rerun", "write", start.rerun, "POST", "proven"),
    Route("/{repo}/runs/{run}/{job}", "read", jobs.job, twin=_REPOSITORY + "/runs/{run}/{job}"),
    Route("/{repo}/runs/{run}/{job}/cancel", "write", start.cancel, "POST", "proven"),
    Route("/{repo}/runs/{run}/{job}/artifacts/{place:path}", "read", jobs.artifact, text=True),
    Route("/{repo}/events/{run}", "read", timeline.events, twin=_REPOSITORY + "/events/{run}"),
    Route("/badges/{repo}.svg", "read", feeds.badge, text=True, token=True, query=("branch", "workflow")),
    Route("/atom/{repo}.xml", "read", feeds.runs, text=True, token=True),
    # The API: a twin for each page, and what has none.
    Route(BASE, "anyone", site_api.index),
    Route(BASE + "/repositories", "anyone", site_api.repositories, query=_PAGES),
    Route(BASE + "/runs", "anyone", runs_api.everywhere, query=_PAGES),
    Route(BASE + "/queue", "anyone", fleet_api.queue, query=(*_PAGES, *_SIFT)),
    Route(BASE + "/runners", "anyone", fleet_api.runners),
    Route(BASE + "/status", "anyone", site_api.status),
    Route(_REPOSITORY, "read", code_api.front),
    Route(_REPOSITORY + "/refs", "read", code_api.refs, query=(*_PAGES, "kind")),
    Route(_REPOSITORY + "/tree/{place:path}", "read", code_api.tree),
    Route(_REPOSITORY + "/file/{place:path}", "read", code_api.file),
    Route(_REPOSITORY + "/commits/{place:path}", "read", code_api.commits, query=_PAGES),
    Route(_REPOSITORY + "/commit/{commit}", "read", code_api.commit),
    Route(_REPOSITORY + "/statuses/{commit}", "read", statuses_api.of_commit),
    Route(_REPOSITORY + "/statuses/{commit}", "read", statuses_api.set_status, "POST", "proven", scope="status"),
    Route(_REPOSITORY + "/runs", "read", runs_api.of_repo, query=_PAGES),
    Route(_REPOSITORY + "/runs/{run}", "read", runs_api.run),
    Route(_REPOSITORY + "/runs/{run}/{job}", "read", runs_api.job),
    Route(_REPOSITORY + "/events/{run}", "read", runs_api.events, query=_PAGES),
    Route(_REPOSITORY + "/why/{run}", "read", runs_api.why),
    Route(_REPOSITORY + "/why/{run}/{job}", "read", runs_api.why),
    Route(_REPOSITORY + "/start", "write", start_api.startable, scope="start"),
    Route(_REPOSITORY + "/start", "read", start_api.start, "POST", "proven", scope="start"),
    Route(_REPOSITORY + "/rerun/{run}", "read", start_api.rerun, "POST", "proven", scope="start"),
    Route(_REPOSITORY + "/cancel/{run}", "read", runs_api.cancel, "POST", "proven", scope="start"),
    Route(_REPOSITORY + "/cancel/{run}/{job}", "read", runs_api.cancel, "POST", "proven", scope="start"),
)

# First segments that later routes will have: a repository must not take them before.
LATER = frozenset({"metrics", "nodes", "settings", "static"})
