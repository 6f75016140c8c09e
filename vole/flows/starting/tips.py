"""What stands at the tip of a branch or tag: its workflows, by the same check as a push. Changes nothing but holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vole.base import limits
from vole.base.bell import Bells
from vole.base.clock import Clock
from vole.base.errors import Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import CommitId, RefName, RepoName, RunId
from vole.flows.push.verdicts import Verdicts
from vole.git import storage as git
from vole.git.quarantine import Quarantine, Tip
from vole.git.storage import Storage
from vole.jobs.index import QueueIndex
from vole.jobs.model import QueuedRun, Touched
from vole.store.database import Database
from vole.wire.plan import EventFacts, Scalar
from vole.workflows.model import Workflow


@dataclass(frozen=True)
class Place:
    """A branch or tag, where it points (a tag may be an object of its own), and what is there."""

    ref: RefName
    target: CommitId
    tip: Tip
    protected: bool  # no newer run cancels one of here, unless its file says so

    def event(self, name: Literal["manual", "schedule"], actor: str, inputs: Mapping[str, Scalar]) -> EventFacts:
        """What starts a run here, as it is pinned."""
        return EventFacts(
            name=name,
            ref=self.ref,
            ref_name=self.ref.short,
            ref_type="branch" if self.ref.kind == "branch" else "tag",
            before=None,
            after=self.target,
            actor=actor,
            message=visible(self.tip.message.lstrip("\n").partition("\n")[0], limits.TEXT_CHARS_MAX),
            inputs=dict(inputs),
        )


@dataclass(frozen=True)
class StartingParts:
    """What starting works with."""

    db: Database
    bells: Bells
    clock: Clock
    storage: Storage
    index: QueueIndex
    verdicts: Verdicts
    ended: Callable[[Touched], None]  # makes known what a newer run of a concurrency group cancelled

    async def place(self, repo: RepoName, ref: str | None) -> Place:
        """Raises NotFound for a branch or tag that is not there; None is the default branch."""
        return await self.storage.run(find, self.storage.path(repo), ref)

    async def workflows(self, place: Place, known_labels: frozenset[str]) -> tuple[Workflow, ...]:
        """The workflows there. Raises Invalid with every problem, Exhausted, Unavailable."""
        verdict = self.verdicts.recalled(place.tip, known_labels)
        if verdict is None:
            verdict = await self.verdicts.of(place.tip, known_labels)
        if verdict.problems:
            where = visible(place.ref.short, 80)
            raise Invalid(f"nothing was started: the workflows of {where} have problems", problems=verdict.lines)
        return verdict.workflows

    async def hold(self, repo: RepoName, commit: CommitId) -> None:
        """From before its job exists the commit stays. Said again after: retention may have looked in between."""
        await self.storage.run(lambda: git.keep(git.open_repository(self.storage.path(repo)), [commit]))

    def tell(self, begun: QueuedRun, *others: RunId) -> None:
        """There is work, and these runs are not what they were."""
        self.bells.ring("jobs", "queue", *(f"run:{run}" for run in (begun.id, *others)))
        self.ended(begun.touched)


def find(path: Path, wanted: str | None) -> Place:
    """The place that a person names: `main`, `v1.0`, `refs/tags/v1.0`; a branch goes before a tag. Blocks.

    Raises NotFound.
    """
    repository = git.open_repository(path)
    refs = [git.default_branch(repository)] if wanted is None else _meant(wanted)
    try:
        targets = git.ref_targets(repository, refs)
    except ValueError:  # git takes no such name
        targets = {}
    for ref in refs:
        target = targets.get(ref)
        tip = None if target is None else Quarantine(path, "").tip(target)
        if target is not None and tip is not None:
            protected = ref.kind == "tag" or ref == git.default_branch(repository)
            return Place(ref, target, tip, protected)
    if wanted is None:
        raise NotFound(f"the default branch {visible(refs[0].short, 80)} was not pushed yet")
    raise NotFound(f"there is no branch or tag '{visible(wanted, 80)}' with a commit", next_step="push it first")


def _meant(wanted: str) -> list[RefName]:
    if wanted.startswith(("refs/heads/", "refs/tags/")):
        return [RefName.parse(wanted)]
    return [RefName.parse(f"refs/heads/{wanted}"), RefName.parse(f"refs/tags/{wanted}")]
