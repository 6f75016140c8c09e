"""Starting a run by hand, and running one again. Every deed is a flow's, which asks for `write`."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.responses import Response

from vole.base import limits
from vole.base.errors import Denied, Invalid, NotFound
from vole.flows.starting import Begun, Wanted
from vole.people.model import Person
from vole.web.api.door import answer, sent
from vole.web.api.shapes import Shape, url
from vole.web.pages import links
from vole.web.pages.timeline import run_number
from vole.web.pages.visit import Visit
from vole.workflows.model import Input


@dataclass(frozen=True)
class StartBody:
    """`ref` left out: the default branch. Inputs are texts, as they are written on a command line."""

    workflow: str
    ref: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RerunBody:
    failed: bool = False


async def startable(visit: Visit) -> Response:
    """The workflows of the default branch that a person may start, with what each asks for; else why there are none."""
    try:
        found = await visit.house.parts.starting.startable(writer(visit), visit.repo.name, None)
    except (Invalid, NotFound) as error:  # the repository is there: something stands in it that cannot be started
        return answer({"ref": None, "items": [], "problems": list(error.lines[: limits.PROBLEMS_SHOWN_MAX + 2])})
    items = [
        {"name": one.name, "path": one.path, "inputs": [_input(asked) for asked in one.manual or ()]}
        for one in found.workflows
    ]
    return answer({"ref": found.place.ref, "items": items, "problems": []})


async def start(visit: Visit) -> Response:
    """Start a workflow; the run that began."""
    person, body = writer(visit), await sent(visit.request, StartBody)
    try:
        begun = await visit.house.parts.starting.start(
            person, visit.repo.name, Wanted(body.workflow, body.ref, body.inputs)
        )
    except NotFound as error:  # the repository is there; what is missing is named
        raise Invalid(error.sentence, next_step=error.next_step) from None
    return _begun(visit, begun)


async def rerun(visit: Visit) -> Response:
    """Run all of a finished run again, or what failed of it; the run that began."""
    person, body = writer(visit), await sent(visit.request, RerunBody)
    starting, number = visit.house.parts.starting, run_number(visit)
    return _begun(visit, await starting.rerun(person, visit.repo.name, number, failed=body.failed))


def writer(visit: Visit) -> Person:
    """Who asks. Raises Denied for nobody: whether a person may is the flow's to say."""
    if visit.person is None:
        raise Denied("that takes `write`", next_step="send a token of an account that has it")
    return visit.person


def _begun(visit: Visit, begun: Begun) -> Response:
    number = begun.run.number
    address = f"{begun.repo}/{number}"
    return answer({"address": address, "number": number, "url": url(visit, links.run(begun.repo, number))})


def _input(one: Input) -> Shape:
    return {
        "name": one.name,
        "type": one.type,
        "description": one.description,
        "required": one.required,
        "default": one.default,
        "options": list(one.options),
    }
