"""Branches, tags and the commits of a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from vole.base import limits
from vole.base.errors import NotFound
from vole.base.ids import RepoName
from vole.git import objects
from vole.web.pages import links
from vole.web.pages.code import EmptyPage, clone_of
from vole.web.pages.repo import CommitLine, RepoHead, commit_line, folder, head, place
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class RefLine:
    name: str
    href: str
    tip: CommitLine
    default: bool


@dataclass(frozen=True)
class RefList:
    """Branches or tags, those of this page."""

    heading: str
    lines: tuple[RefLine, ...]
    total: int


@dataclass(frozen=True)
class RefsPage:
    template: ClassVar[str] = "repos/refs.html"
    repo: RepoHead
    lists: tuple[RefList, ...]
    next_href: str | None

    @property
    def title(self) -> str:
        return f"Branches and tags · {self.repo.name}"


@dataclass(frozen=True)
class CommitsPage:
    template: ClassVar[str] = "repos/commits.html"
    repo: RepoHead
    place: str
    commits: tuple[CommitLine, ...]
    newer_href: str | None
    older_href: str | None

    @property
    def title(self) -> str:
        return f"Commits of {self.place} · {self.repo.name}"


async def refs(visit: Visit) -> Response:
    page, most = visit.number("page", 1, 1_000) or 1, limits.LIST_MAX
    where, skip = folder(visit), (page - 1) * most
    branches, tags, default = await visit.work(
        lambda _: (
            objects.refs(where, "branch", most=most, skip=skip),
            objects.refs(where, "tag", most=most, skip=skip),
            objects.default_branch(where),
        )
    )
    name = visit.repo.name
    lists = (_list(name, "Branches", branches, default), _list(name, "Tags", tags, None))
    more = max(branches.total, tags.total) > skip + most
    return visit.page(RefsPage(head(visit, "refs"), lists, links.refs(name, page + 1) if more else None))


async def commits(visit: Visit) -> Response:
    try:
        there = await place(visit)
    except NotFound:
        if visit.request.path_params["place"] != "HEAD":
            raise
        return visit.page(EmptyPage(head(visit, "commits"), clone_of(visit)))
    page = visit.number("page", 1, 100_000) or 1
    where, skip, name = folder(visit), (page - 1) * limits.LIST_MAX, visit.repo.name
    found, more = await visit.work(lambda going: objects.history(where, there.commit, skip=skip, going=going))
    return visit.page(
        CommitsPage(
            head(visit, "commits"),
            there.name,
            tuple(commit_line(name, commit) for commit in found),
            links.commits(name, there.name, page - 1) if page > 1 else None,
            links.commits(name, there.name, page + 1) if more else None,
        )
    )


def _list(repo: RepoName, heading: str, found: objects.Refs, default: str | None) -> RefList:
    lines = (
        RefLine(ref.name, links.tree(repo, ref.name), commit_line(repo, ref.commit), ref.name == default)
        for ref in found.shown
    )
    return RefList(heading, tuple(lines), found.total)
