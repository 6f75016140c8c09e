"""The first page: the repositories that a person may read, each with its last run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from vole.jobs import reads as jobs
from vole.people.access import may
from vole.people.model import Person
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.store.database import View
from vole.web.pages import links
from vole.web.pages.shown import RunLine, run_line, ssh_command
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class RepoLine:
    name: str
    href: str
    public: bool
    description: str
    last: RunLine | None


@dataclass(frozen=True)
class HomePage:
    template: ClassVar[str] = "repos/home.html"
    title: ClassVar[str] = "Repositories"
    repos: tuple[RepoLine, ...]
    ssh_url: str
    host_key: str

    @property
    def create(self) -> str:
        return ssh_command(self.ssh_url, "repo create NAME")


async def repositories(visit: Visit) -> Response:
    lines = await visit.read(_lines, visit.person)
    return visit.page(HomePage(lines, visit.house.parts.ssh_url, visit.house.parts.host_key))


async def readable(view: View, person: Person | None) -> list[Repo]:
    """The repositories that `person` may read, by name."""
    return [repo for repo in await repos.repos(view) if may(person, "read", repo)]


async def _lines(view: View, person: Person | None) -> tuple[RepoLine, ...]:
    mine = await readable(view, person)
    last = await jobs.last_runs(view) if mine else {}
    return tuple(
        RepoLine(
            repo.name,
            links.repo(repo.name),
            repo.public,
            repo.description,
            run_line(repo.name, last[repo.id]) if repo.id in last else None,
        )
        for repo in mine
    )
