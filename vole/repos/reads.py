"""What is hosted and what was pushed. Reads only; never opens a repository."""

from __future__ import annotations

from vole.base import limits
from vole.base.clock import Moment
from vole.base.ids import RepoId, RepoName, RunNumber
from vole.repos import rows
from vole.repos.model import OpenIntent, OwedDocument, Repo, RepositoryDocument, Schedule, SeenRef, UnreadSchedules
from vole.store.database import View
from vole.wire import codec
from vole.wire.documents import GateDocument


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


async def schedules_of(view: View, repo: RepoId) -> list[Schedule]:
    """When the workflows of a repository start by themselves, the next first."""
    found = await view.all(f"{rows.SCHEDULE} WHERE s.repo_id = :repo ORDER BY s.next_at, s.workflow_path", repo=repo)
    return [rows.schedule(row) for row in found]


async def schedules(view: View) -> list[Schedule]:
    """Every schedule there is."""
    return [rows.schedule(row) for row in await view.all(rows.SCHEDULE)]


async def due_schedules(view: View, now: Moment) -> list[Schedule]:
    """The schedules whose next time has come, oldest first; at most SWEEP_ROWS_MAX."""
    due = f"{rows.SCHEDULE} WHERE s.next_at <= :now ORDER BY s.next_at, s.repo_id LIMIT :most"
    return [rows.schedule(row) for row in await view.all(due, now=now, most=limits.SWEEP_ROWS_MAX)]


async def unread_schedules(view: View) -> list[UnreadSchedules]:
    """The repositories whose schedules are to be read again; at most SWEEP_ROWS_MAX."""
    found = await view.all(f"{rows.UNREAD} ORDER BY m.repo_id LIMIT :most", most=limits.SWEEP_ROWS_MAX)
    return [UnreadSchedules(RepoId(row["repo_id"]), RepoName(row["repo_name"]), row["marked"]) for row in found]


async def admin_owed(view: View, most: int) -> list[OwedDocument]:
    """What people decided and `vole-admin.git` does not say yet, oldest first."""
    found = await view.all("SELECT id, kind, name FROM admin_outbox ORDER BY id LIMIT :most", most=most)
    return [OwedDocument(row["id"], row["kind"], row["name"]) for row in found]


async def repository_document(view: View, name: RepoName) -> RepositoryDocument | None:
    """What `vole-admin.git` says of the repository; None where there is none of the name. Gates are evidence's."""
    repo = await repo_named(view, name)
    if repo is None:
        return None
    row = await view.one("SELECT next FROM run_numbers WHERE repo_id = :repo", repo=repo.id)
    number = RunNumber(1 if row is None else row["next"])
    gates = await view.all("SELECT * FROM gates WHERE repo_id = :repo ORDER BY pattern", repo=repo.id)
    return RepositoryDocument(
        str(repo.id),
        repo.name,
        repo.public,
        repo.description,
        repo.created_at,
        number,
        tuple(
            GateDocument(gate["pattern"], tuple(codec.parse(gate["requires"])), gate["set_by"], Moment(gate["set_at"]))
            for gate in gates
        ),
    )
