"""A person starts a run: of a workflow at the tip of a branch or tag, or of a finished run once more."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vole.base.errors import Conflict, Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import AccountName, CommitId, RepoId, RepoName, RunId, RunNumber
from vole.base.labels import nearest
from vole.base.supervise import carried_through
from vole.flows.starting.tips import Place, StartingParts
from vole.git import storage as git
from vole.jobs import ledger as jobs
from vole.jobs import reads as queue
from vole.jobs.index import QueueIndex
from vole.jobs.model import QueuedRun, RunSource
from vole.people.access import lacking, may
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.repos import reads as hosted
from vole.repos.model import Repo
from vole.runners import reads as runners
from vole.store.database import Tx, View
from vole.wire.plan import RunPlan
from vole.workflows import expand, triggers
from vole.workflows.model import Workflow


@dataclass(frozen=True)
class Wanted:
    """What a person says: the workflow by file, name or path, and its inputs. `ref` None: the default branch."""

    workflow: str
    ref: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Startable:
    """The workflows at a place that people may start."""

    place: Place
    workflows: tuple[Workflow, ...]


@dataclass(frozen=True)
class Begun:
    """A run that was started."""

    repo: RepoName
    run: QueuedRun
    workflow: str


class Starting:
    """All of it takes `write` on the repository: Denied without, NotFound where they may not even read."""

    def __init__(self, parts: StartingParts) -> None:
        self._parts = parts

    async def startable(self, person: Person, name: RepoName, ref: str | None) -> Startable:
        """What `start` would take. Raises NotFound, Denied, Invalid with every problem."""
        repo, known_labels = await self._parts.db.read(_opening, person, name)
        place = await self._parts.place(repo.name, ref)
        found = await self._parts.workflows(place, known_labels)
        return Startable(place, tuple(workflow for workflow in found if workflow.manual is not None))

    async def start(self, person: Person, name: RepoName, wanted: Wanted) -> Begun:
        """Read, check and pin the workflow as a push would, and queue its run.

        Raises NotFound, Denied, Exhausted, Unavailable; Invalid with every problem of the workflows or the inputs.
        """
        repo, known_labels = await self._parts.db.read(_opening, person, name)
        place = await self._parts.place(repo.name, wanted.ref)
        workflow = chosen(await self._parts.workflows(place, known_labels), wanted.workflow, place.ref.short)
        if workflow.manual is None:
            raise Invalid(
                f"{workflow.path} is not started by hand", next_step="write `manual` in its `on`, and push it"
            )
        inputs = triggers.given_inputs(workflow.manual, wanted.inputs)
        event = place.event("manual", person.name, inputs)
        plan = expand.plan(workflow, repo.name, place.tip.commit, place.ref, event, protected=place.protected)
        await self._parts.hold(repo.name, plan.commit)
        change = self._parts.db.write(start_by_hand, self._parts.index, repo.id, person.name, plan)
        return Begun(repo.name, await carried_through(self._begun(change, repo.name, plan.commit)), workflow.name)

    async def rerun(self, person: Person, name: RepoName, number: RunNumber, *, failed: bool) -> Begun:
        """The run once more; `failed`: what failed or was cancelled, and what needs it.

        Raises NotFound, Denied; Conflict for a run that goes on, was run again, or whose commit was let go; Invalid
        where there is nothing to run again.
        """
        old = await self._parts.db.read(_old_run, person, name, number)
        path = self._parts.storage.path(name)
        if not await self._parts.storage.run(git.is_held, path, old.commit):
            raise Conflict(
                f"the commit of {name}/{number} is not kept any more (retention.rerun): it cannot be run again",
                next_step="push the commit again, or start its workflow by hand",
            )
        change = self._parts.db.write(rerun, self._parts.index, old.run, person.name, failed=failed)
        return Begun(name, await carried_through(self._begun(change, name, old.commit, old.run)), old.workflow)

    async def _begun(self, change: Awaitable[QueuedRun], repo: RepoName, commit: CommitId, *others: RunId) -> QueuedRun:
        run = await change
        await self._parts.hold(repo, commit)
        self._parts.tell(run, *others)
        return run


@dataclass(frozen=True)
class _Old:
    run: RunId
    commit: CommitId
    workflow: str


def start_by_hand(tx: Tx, index: QueueIndex, repo: RepoId, account: AccountName, plan: RunPlan) -> QueuedRun:
    """The change: who started it, and the run."""
    source = RunSource(repo, repos.start_by_hand(tx, repo, plan.workflow_path, account))
    return jobs.enqueue_run(tx, index, source, plan, plan.labels)


def rerun(tx: Tx, index: QueueIndex, run: RunId, account: AccountName, *, failed: bool) -> QueuedRun:
    """The change: the next run of the chain."""
    return jobs.rerun_run(tx, index, run, account, failed=failed)


async def _opening(view: View, person: Person, name: RepoName) -> tuple[Repo, frozenset[str]]:
    return await _writable(view, person, name), await runners.known_labels(view)


async def _old_run(view: View, person: Person, name: RepoName, number: RunNumber) -> _Old:
    repo = await _writable(view, person, name)
    found = await queue.run_numbered(view, repo.id, number)
    if found is None:
        raise NotFound(f"there is no run {number}")
    return _Old(found.id, found.commit, found.workflow)


async def _writable(view: View, person: Person, name: RepoName) -> Repo:
    repo = await hosted.repo_named(view, name)
    if repo is None or not may(person, "read", repo):
        raise NotFound(f"there is no repository {name!r} that you may read")
    if not may(person, "write", repo):
        raise lacking(person, "write", repo)
    return repo


def chosen(workflows: Iterable[Workflow], said: str, where: str) -> Workflow:
    """The one that is meant: by path, file name, file name without its ending, or the name that pages show.

    Raises NotFound; Invalid for the name of several.
    """
    names = {workflow.path: _names(workflow) for workflow in workflows}
    for rank in range(4):
        fitting = [workflow for workflow in workflows if names[workflow.path][rank] == said]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            paths = ", ".join(workflow.path for workflow in fitting)
            raise Invalid(f"'{visible(said, 80)}' is the name of several: {paths}", next_step="name the file")
    files = [file for _, file, _, _ in names.values()]
    close = nearest(said, [*files, *(stem for _, _, stem, _ in names.values())])
    there = f"did you mean '{close}'?" if close else f"there are: {', '.join(files)}" if files else "it has none"
    raise NotFound(f"{visible(where, 80)} has no workflow '{visible(said, 80)}'; {there}")


def _names(workflow: Workflow) -> tuple[str, str, str, str]:
    path = PurePosixPath(workflow.path)
    return workflow.path, path.name, path.stem, workflow.name
