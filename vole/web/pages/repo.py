"""What every page of a repository has: its head, the place in it that an address names, and its commits in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from vole.base.ids import RepoName
from vole.git import objects
from vole.git.objects import Commit, Place
from vole.web.pages import links
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class RepoHead:
    """What stands at the top of every page of a repository."""

    name: RepoName
    description: str
    public: bool
    here: str  # which of its parts this page is
    may_write: bool

    @property
    def tabs(self) -> tuple[tuple[str, str, str], ...]:
        """Part, words, address."""
        return (
            ("code", "Code", links.repo(self.name)),
            ("commits", "Commits", links.commits(self.name, "HEAD")),
            ("refs", "Branches", links.refs(self.name)),
            ("runs", "Runs", links.runs(self.name)),
            *((("start", "Start", links.start(self.name)),) if self.may_write else ()),
        )

    @property
    def href(self) -> str:
        return links.repo(self.name)


@dataclass(frozen=True)
class CommitLine:
    """A commit in a list or above a tree."""

    commit: Commit
    href: str

    @property
    def short(self) -> str:
        return self.commit.id[:10]

    @property
    def subject(self) -> str:
        return self.commit.subject or "(no message)"


def head(visit: Visit, here: str) -> RepoHead:
    return RepoHead(visit.repo.name, visit.repo.description, visit.repo.public, here, visit.may_write)


def folder(visit: Visit) -> Path:
    """Where the repository lies."""
    return visit.house.parts.storage.path(visit.repo.name)


def commit_line(repo: RepoName, commit: Commit) -> CommitLine:
    return CommitLine(commit, links.commit(repo, commit.id))


async def place(visit: Visit) -> Place:
    """The revision and path that the address names, by its bytes: names need not be UTF-8. Raises NotFound."""
    raw: bytes = visit.request.scope["raw_path"]
    address = unquote_to_bytes(raw.split(b"/", 3)[3]).rstrip(b"/")
    where = folder(visit)
    return await visit.work(lambda _: objects.locate(where, address))


def as_text(name: bytes) -> str:
    """Bytes of a name as text; those that are no UTF-8 are shown as what they are."""
    return name.decode("utf-8", "surrogateescape")
