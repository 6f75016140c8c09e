"""Statuses of commits in the API, in the shape CI systems already speak: state, context, target_url, description."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from vole.base.errors import Invalid, NotFound
from vole.base.ids import CommitId
from vole.evidence.model import Reported, StatusState, together
from vole.evidence.reads.gates import statuses_of
from vole.git import objects
from vole.web.api import shapes
from vole.web.api.door import answer, sent
from vole.web.api.start import writer
from vole.web.pages.repo import folder
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class StatusBody:
    state: StatusState
    context: str = "default"
    target_url: str | None = None
    description: str | None = None


async def of_commit(visit: Visit) -> Response:
    """What outside systems say of a commit, by context, and what that comes to together."""
    commit, where = _commit(visit), folder(visit)
    await visit.work(lambda _: objects.commit(where, commit))
    found = await visit.read(statuses_of, visit.repo.id, commit)
    return answer({"sha": commit, "state": together(found), "items": [shapes.status(visit, one) for one in found]})


async def set_status(visit: Visit) -> Response:
    """Set the status of one context; what is kept then."""
    person, body, commit = writer(visit), await sent(visit.request, StatusBody), _commit(visit)
    said = Reported.parse(body.state, body.context, body.target_url or "", body.description or "")
    await visit.house.parts.statuses.set(person, visit.repo.name, commit, said)
    found = await visit.read(statuses_of, visit.repo.id, commit)
    return answer(shapes.status(visit, next(one for one in found if one.context == said.context)), status=201)


def _commit(visit: Visit) -> CommitId:
    try:
        return CommitId.parse(visit.request.path_params["commit"])
    except Invalid:
        raise NotFound("there is no such commit") from None
