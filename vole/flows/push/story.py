"""A push from its opening to its runs. The order of steps, and the edges of its two changes; no rule, no SQL.

It is *meant* before git moves a ref (`check` writes the intent) and *confirmed* after (`confirm` starts the runs of
the refs that moved). From one to the other the repository is locked for other pushes, so that "the ref equals new" is
proof. What dies in between is settled by `settle_left`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits
from vole.base.bell import Bells
from vole.base.errors import Denied, Exhausted, Invalid, NotFound, Unavailable
from vole.base.escape import visible
from vole.base.ids import PushId, RefName, RepoId, RepoName, RunId
from vole.base.supervise import carried_through
from vole.evidence.gates import Gate, Move
from vole.evidence.reads.gates import gates_of
from vole.flows.push import planning
from vole.flows.push.planning import Meant, OpenGit, Planned, StartedRun
from vole.flows.push.verdicts import Verdicts
from vole.git import storage as git
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs import reads as queue
from vole.jobs.index import QueueIndex
from vole.jobs.model import QueuedRun, RunSource, Touched
from vole.people.access import lacking, may
from vole.people.model import Level, Person
from vole.repos import ledger as repos
from vole.repos import reads as hosted
from vole.repos.model import Intent, OpenIntent, PinnedRun, Repo
from vole.runners import reads as runners
from vole.store.database import Database, Tx, View
from vole.wire.hook import Question, RefUpdate
from vole.wire.plan import RunPlan
from vole.workflows import triggers

INTERNAL = "refs/vole/"


@dataclass(frozen=True)
class PushParts:
    """What pushes are made of."""

    db: Database
    bells: Bells
    storage: Storage
    verdicts: Verdicts
    index: QueueIndex
    prospects: Callable[[RunId, int], Awaitable[list[str]]]  # why a run's jobs wait, by the function that leases
    ended: Callable[[Touched], None]  # makes known what a newer run of a concurrency group cancelled
    demand: Callable[[Repo, Sequence[Gate], Sequence[Move]], Awaitable[None]]  # raises where a gate is shut
    url: str


class Pushes:
    """Every push of this server, and who may read for a clone."""

    def __init__(self, parts: PushParts) -> None:
        self._parts = parts
        self._locks: dict[RepoId, asyncio.Lock] = {}

    async def open(self, person: Person, name: str, level: Level) -> OpenGit:
        """The repository `name` for `person`. Raises NotFound, in one shape for missing and private; Denied."""
        repo, known_labels = self._parts.db.glance(_opening, RepoName(name))
        if repo is None or not may(person, "read", repo):
            raise NotFound(
                f"there is no repository {visible(name, 80)!r} that you may read; nothing was created",
                next_step="an admin makes one: ssh git@HOST repo create NAME",
            )
        if not may(person, level, repo):
            raise lacking(person, level, repo)
        return OpenGit(person, repo, self._parts.storage.path(repo.name), level, known_labels)

    async def check(self, push: OpenGit, question: Question, *, atomic_with: Collection[bytes] = ()) -> list[str]:
        """Judge a push and write down what it means; the lines to show. `atomic_with`: the refs of an atomic push.

        Raises Invalid with every problem, Exhausted, Unavailable: the push is refused whole and nothing is written.
        From here on, unless it raises, the repository is locked until `confirm`.
        """
        _refuse_internal(atomic_with)
        updates = tuple(update for update in question.updates if not update.ref.startswith(INTERNAL))
        push.options = triggers.push_options(question.options)
        try:
            async with asyncio.timeout(limits.PUSH_CHECK_S):
                planned = await self._planned(push, question)
        except TimeoutError:
            raise Exhausted(f"the check took more than {limits.PUSH_CHECK_S} s (PUSH_CHECK_S)") from None
        await carried_through(self._mean(push, question.options, updates, planned))
        return planned.lines[: limits.PUSH_NOTICES_MAX]

    async def confirm(self, push: OpenGit) -> list[str]:
        """When git has reported, or ended however: start the runs of the refs that moved, and unlock. Lines to show."""
        if push.locked is None or push.meant is None:
            return []
        try:
            push.runs, default = await carried_through(self._settle(push.repo, push.meant))
            return planning.default_lines(default) + [
                line
                for started in push.runs
                for line in planning.run_lines(push, started, await self._prospects(started), self._parts.url)
            ]
        finally:
            push.locked.release()
            push.locked = None

    async def watch(self, push: OpenGit, wanted: Callable[[], bool]) -> AsyncIterator[str]:
        """The states of a push's runs as they change, until all are finished or nobody wants to know."""
        pending = {started.run.id: f"{push.repo.name}/{started.run.number}" for started in push.runs}
        said: dict[RunId, str] = {}
        with self._parts.bells.listening(*(f"run:{run}" for run in pending)) as listener:
            while pending and wanted():
                for run, state in (await self._parts.db.read(queue.run_states, tuple(pending))).items():
                    if said.get(run) != state.text:
                        said[run] = state.text
                        yield f"{pending[run]}  {state.text}"
                    if state.finished:
                        del pending[run]
                if pending:
                    await listener.wait(limits.LOOK_S)

    async def settle_left(self, intent: OpenIntent) -> None:
        """Confirm or drop an intent that its push could not settle. Done twice is done once."""
        lock = await self._lock(intent.repo)
        try:
            repo = await self._parts.db.read(hosted.repo_named, intent.repo_name)
            if repo is not None:
                await self._settle(repo, Meant.of(intent))
        finally:
            lock.release()

    async def _planned(self, push: OpenGit, question: Question) -> Planned:
        run = self._parts.storage.run
        known = self._parts.verdicts
        sight, verdicts, planned = await run(planning.glance, push, question, known.recalled)
        if planned is None:
            verdicts = {tip.commit: await known.of(tip, push.known_labels) for tip in sight.tips}
            if problems := next((verdict.lines for verdict in verdicts.values() if verdict.problems), None):
                raise Invalid("nothing was pushed: the workflows above have problems", problems=problems)
            planned = await run(planning.plan, push, sight, verdicts)
        if gates := self._parts.db.glance(gates_of, push.repo.id):
            await self._parts.demand(push.repo, gates, planning.moves(question, sight, verdicts))
        notices = [notice for verdict in verdicts.values() for notice in verdict.notices]
        planned.lines = list(dict.fromkeys([*push.options.notices, *sight.lines, *notices, *planned.lines]))
        return planned

    async def _mean(
        self, push: OpenGit, options: tuple[str, ...], updates: tuple[RefUpdate, ...], planned: Planned
    ) -> None:
        who, documents = push.person, tuple(planned.documents)
        intent = Intent(push.repo.id, who.name, who.key_fingerprint, options, updates, documents)
        lock = await self._lock(push.repo.id)
        try:
            written = await self._parts.db.write(intend_push, intent)
        except BaseException:
            lock.release()
            raise
        pinned = tuple(PinnedRun(ordinal, plan) for ordinal, plan in enumerate(planned.plans))
        push.locked, push.meant = lock, Meant(written, updates, pinned, planned.scheduled)

    async def _lock(self, repo: RepoId) -> asyncio.Lock:
        lock = self._locks.setdefault(repo, asyncio.Lock())
        try:
            async with asyncio.timeout(limits.PUSH_LOCK_S):
                await lock.acquire()
        except TimeoutError:
            raise Unavailable("another push to this repository is not over yet", next_step="push again") from None
        return lock

    async def _settle(self, repo: Repo, meant: Meant) -> tuple[tuple[StartedRun, ...], RefName | None]:
        """Compare the refs with what was meant, and make it so: the one step that both confirm and recovery take."""
        moved, default = await self._parts.storage.run(_moved, self._parts.storage.path(repo.name), meant)
        runs = await self._parts.db.write(confirm_push, self._parts.index, repo.id, meant, moved)
        for started in runs:
            self._parts.ended(started.run.touched)
        self._parts.bells.ring("jobs", "queue", *(f"run:{started.run.id}" for started in runs))
        if meant.scheduled:
            self._parts.bells.ring("schedules")
        return runs, default

    async def _prospects(self, started: StartedRun) -> list[str]:
        run = started.run
        return [] if run.skipped else await self._parts.prospects(run.id, len(run.jobs))


async def _opening(view: View, name: RepoName) -> tuple[Repo | None, frozenset[str]]:
    return await hosted.repo_named(view, name), await runners.known_labels(view)


def intend_push(tx: Tx, intent: Intent) -> PushId:
    """The change before git moves a ref."""
    return repos.intend(tx, intent)


def confirm_push(
    tx: Tx, index: QueueIndex, repo: RepoId, meant: Meant, moved: frozenset[RefName]
) -> tuple[StartedRun, ...]:
    """The change after git moved refs: the push is settled and its runs are queued, both or neither."""
    if not repos.confirm(tx, meant.push, moved):
        return ()
    if moved:
        repos.mark_schedules(tx, repo, declared=meant.scheduled)
    return tuple(
        StartedRun(_enqueue(tx, index, RunSource(repo, meant.push, pinned.ordinal), pinned.plan), pinned.plan)
        for pinned in meant.started(moved)
    )


def _enqueue(tx: Tx, index: QueueIndex, source: RunSource, plan: RunPlan) -> QueuedRun:
    return jobs.enqueue_run(tx, index, source, plan, plan.labels)


def _refuse_internal(atomic_with: Collection[bytes]) -> None:
    """git refuses internal refs one by one, but lets the others of an atomic push go on without them."""
    if any(ref.startswith(INTERNAL.encode()) for ref in atomic_with):
        raise Denied(f"{INTERNAL}* is the server's own, and an atomic push moves all of its refs or none")


def _moved(path: Path, meant: Meant) -> tuple[frozenset[RefName], RefName | None]:
    """The refs that stand where they were meant to, their commits held; the default branch if there is one now. Blocks.

    Held before the change: from the moment a job exists, its commit stays.
    """
    try:
        repository = git.open_repository(path)
    except NotFound:
        return frozenset(), None  # the repository was removed
    targets = git.ref_targets(repository, [update.ref for update in meant.updates])
    moved = [update for update in meant.updates if update.old != update.new and targets[update.ref] == update.new]
    refs = frozenset(update.ref for update in moved)
    git.keep(repository, meant.needed(refs))
    git.pack_refs(repository)
    branches = [update.ref for update in moved if update.new and update.ref.kind == "branch"]
    return refs, git.adopt_default_branch(repository, branches) if branches else None
