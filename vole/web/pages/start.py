"""Buttons and what they do: start a workflow by hand, cancel, run again. Every deed is a flow's.

A deed answers with a redirect to what it made, so that a reload does nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse, Response

from vole.base import limits
from vole.base.errors import Invalid, NotFound
from vole.base.ids import JobKey
from vole.flows.starting import Wanted
from vole.people.model import Person
from vole.repos import reads as repos
from vole.repos.model import Schedule
from vole.web.pages import links
from vole.web.pages.repo import RepoHead, head
from vole.web.pages.timeline import run_number
from vole.web.pages.visit import Visit
from vole.workflows.model import Input, Workflow

_FORM = "application/x-www-form-urlencoded"
_FIELDS_MAX = 2 * limits.INPUTS_MAX + 4  # more is no form of ours


@dataclass(frozen=True)
class Field:
    """One input of a form. `options`: what may be chosen; empty where anything may be written."""

    id: str
    input: Input

    @property
    def options(self) -> tuple[str, ...]:
        if self.input.type == "boolean":
            return ("true", "false")
        return self.input.options if self.input.default else ("", *self.input.options) if self.input.options else ()


@dataclass(frozen=True)
class Form:
    """A workflow that may be started."""

    name: str
    path: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class StartPage:
    template: ClassVar[str] = "jobs/start.html"
    repo: RepoHead
    ref: str  # as people say it; empty where there is none
    full_ref: str
    forms: tuple[Form, ...]
    problems: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    most: int = limits.INPUT_CHARS_MAX

    @property
    def title(self) -> str:
        return f"Start a run · {self.repo.name}"


async def form(visit: Visit) -> Response:
    """What can be started at the branch or tag of the query, else of the default branch."""
    said = visit.request.query_params.get("ref", "")[: limits.REF_NAME_BYTES_MAX]
    ref = full_ref = said
    forms: tuple[Form, ...] = ()
    problems: tuple[str, ...] = ()
    try:
        found = await visit.house.parts.starting.startable(_person(visit), visit.repo.name, said or None)
        ref, full_ref = found.place.ref.short, str(found.place.ref)
        forms = tuple(_form(at, workflow) for at, workflow in enumerate(found.workflows))
    except (Invalid, NotFound) as error:
        problems = error.lines[: limits.PROBLEMS_SHOWN_MAX + 2]
    schedules = await visit.read(repos.schedules_of, visit.repo.id)
    return visit.page(StartPage(head(visit, "start"), ref, full_ref, forms, problems, tuple(schedules)))


async def start(visit: Visit) -> Response:
    """Start what the form says. Raises Invalid with every problem."""
    said = await _fields(visit)
    inputs = {name.removeprefix("input."): value for name, value in said.items() if name.startswith("input.")}
    wanted = Wanted(said.get("workflow", ""), said.get("ref") or None, inputs)
    try:
        begun = await visit.house.parts.starting.start(_person(visit), visit.repo.name, wanted)
    except NotFound as error:  # the repository is there; what is missing is named
        raise Invalid(error.sentence, next_step=error.next_step) from None
    return _see(visit, links.run(visit.repo.name, begun.run.number))


async def rerun(visit: Visit) -> Response:
    """Run all of it again, or what failed; leads to the new run."""
    failed = (await _fields(visit)).get("failed") == "true"
    starting, number = visit.house.parts.starting, run_number(visit)
    begun = await starting.rerun(_person(visit), visit.repo.name, number, failed=failed)
    return _see(visit, links.run(visit.repo.name, begun.run.number))


async def cancel(visit: Visit) -> Response:
    """Cancel the run, or the job that the address names; leads back to it."""
    name, number, key = visit.repo.name, run_number(visit), visit.request.path_params.get("job")
    job = None if key is None else JobKey(key)
    await visit.house.parts.leasing.cancel(_person(visit), name, number, job, "")
    return _see(visit, links.run(name, number) if job is None else links.job(name, number, job))


def _person(visit: Visit) -> Person:
    assert visit.person is not None, "the route takes `write`, which nobody has without a session"
    return visit.person


def _form(at: int, workflow: Workflow) -> Form:
    fields = tuple(Field(f"f{at}-{number}", one) for number, one in enumerate(workflow.manual or ()))
    return Form(workflow.name, workflow.path, fields)


async def _fields(visit: Visit) -> Mapping[str, str]:
    """What the form of the request says. Raises Invalid for what is no form of ours."""
    body = await visit.request.body()
    if body and visit.request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise Invalid(f"a form is sent as {_FORM}")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
    except ValueError:
        raise Invalid("the form cannot be read") from None
    return dict(pairs)


def _see(visit: Visit, path: str) -> Response:
    return RedirectResponse(visit.house.parts.url + path, status_code=303)
