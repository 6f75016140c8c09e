"""The server in the API: what there is, who you are to it, the repositories, its status."""

from __future__ import annotations

from starlette.responses import Response

from vole.base.ids import RepoId
from vole.jobs import reads as jobs
from vole.jobs.rows.shown import RunRow
from vole.people.model import Person
from vole.repos.model import Repo
from vole.store.database import View
from vole.web.api import shapes
from vole.web.api.door import BASE, answer
from vole.web.api.paging import asked
from vole.web.pages import site
from vole.web.pages.home import readable
from vole.web.pages.visit import Visit


async def index(visit: Visit) -> Response:
    """Where to begin, and whom the token or session is taken for."""
    person = visit.person
    bounds = None if person is None or person.bounds is None else person.bounds.verb
    parts = ("queue", "repositories", "runners", "runs", "status")
    return answer(
        {
            "version": visit.house.parts.version,
            "account": None if person is None else person.name,
            "scope": bounds,
            "addresses": {part: shapes.url(visit, f"{BASE}/{part}") for part in parts},
        }
    )


async def repositories(visit: Visit) -> Response:
    """The repositories that the person may read, by name, each with its last run."""
    page = asked(visit, "repositories", str)
    after = "" if page.after is None else str(page.after[0])
    found, last = await visit.read(_repositories, visit.person)
    rest = [repo for repo in found if repo.name > after]
    shown = rest[: page.limit]
    more = (str(shown[-1].name),) if len(rest) > len(shown) else None
    return answer(
        {"items": [shapes.repository(visit, repo, last.get(repo.id)) for repo in shown], "next": page.next(more)}
    )


async def status(visit: Visit) -> Response:
    """As the page has it: what a sweep stumbled over is for admins alone."""
    facts = await site.facts_of(visit)
    return answer(
        {
            "version": facts.version,
            "runners": facts.runners,
            "streams": facts.streams,
            "sweeps": [
                {"name": one.name, "failures": one.failures, "error": one.error or None} for one in facts.sweeps
            ],
            "set_aside": [{"address": address, "reason": reason} for address, reason in facts.set_aside],
        }
    )


async def _repositories(view: View, person: Person | None) -> tuple[list[Repo], dict[RepoId, RunRow]]:
    mine = await readable(view, person)
    return mine, await jobs.last_runs(view) if mine else {}
