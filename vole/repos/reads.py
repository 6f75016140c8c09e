"""What is hosted and what was pushed. Reads only; never opens a repository."""

from __future__ import annotations

from vole.base.clock import Moment
from vole.base.ids import RepoId, RepoName
from vole.repos import rows
from vole.repos.model import OpenIntent, Repo, SeenRef
from vole.store.database import View


async def repo_named(view: View, name: RepoName) -> Repo | None:
    """The repository of that name."""
    row = await view.one(f"{rows.REPO} WHERE name = :name", name=name)
    return None if row is None else rows.repo(row)


async def repos(view: View) -> list[Repo]:
    """Every repository, by name."""
    return [rows.repo(row) for row in await view.all(f"{rows.REPO} ORDER BY name")]


async def open_intents(view: View) -> list[OpenIntent]:
    """Pushes that are neither confirmed nor dropped, oldest first."""
    found = []
    for row in await view.all(f"{rows.OPEN} ORDER BY p.id"):
        updates = await view.all(rows.UPDATES, push=row["id"])
        found.append(rows.intent(row, updates, await view.all(rows.RUNS, push=row["id"])))
    return found


async def last_moment(view: View) -> Moment:
    """When the newest push was received; 0 where there is none."""
    row = await view.one("SELECT received_at FROM pushes ORDER BY id DESC LIMIT 1")
    return Moment(0 if row is None else row["received_at"])


async def seen_refs(view: View, repo: RepoId) -> list[SeenRef]:
    """Where each ref of a repository was after the last push that moved it."""
    return [rows.seen(row) for row in await view.all(rows.SEEN, repo=repo)]
