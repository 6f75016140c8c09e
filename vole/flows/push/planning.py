"""What a push would mean: its tips, the runs they start as pinned documents, and what to say. Writes nothing.

`glance`, `look` and `plan` block on git: they run in a thread, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vole.base import limits
from vole.base.errors import Exhausted
from vole.base.escape import visible
from vole.base.ids import CommitId, PushId, RefName
from vole.evidence.gates import Move
from vole.flows.push.verdicts import declared
from vole.git import storage as git
from vole.git.quarantine import Quarantine, Tip
from vole.jobs.model import QueuedRun
from vole.people.model import Level, Person
from vole.repos.model import OpenIntent, PinnedRun, Repo, RunDocument
from vole.wire import codec
from vole.wire.hook import Question, RefUpdate
from vole.wire.plan import EventFacts, RunPlan
from vole.workflows import expand, triggers
from vole.workflows.model import ChangedPaths, Checked, Workflow
from vole.workflows.triggers import PushOptions

_ONLY_GITHUB = "there is .github/workflows and no .vole/workflows: vole reads the latter (docs/workflow.md)"


@dataclass(frozen=True)
class StartedRun:
    """A run that a push started."""

    run: QueuedRun
    plan: RunPlan


@dataclass(frozen=True)
class Meant:
    """What a push means to do, written down as `push`."""

    push: PushId
    updates: tuple[RefUpdate, ...]
    runs: tuple[PinnedRun, ...]
    scheduled: bool = True  # a tip has times at which a workflow starts by itself, or it is not known

    @classmethod
    def of(cls, intent: OpenIntent) -> Meant:
        """What was meant by a push that died."""
        return cls(intent.push, intent.updates, intent.runs)

    def started(self, moved: frozenset[RefName]) -> tuple[PinnedRun, ...]:
        """The runs of the refs that moved."""
        return tuple(pinned for pinned in self.runs if pinned.plan.ref in moved)

    def needed(self, moved: frozenset[RefName]) -> set[CommitId]:
        """The commits that jobs of these runs need."""
        return {pinned.plan.commit for pinned in self.started(moved) if pinned.plan.jobs}


@dataclass(eq=False)
class OpenGit:
    """One git service on its way. Of a push, also what it means and whether its repository is locked by it."""

    person: Person
    repo: Repo
    path: Path
    level: Level
    known_labels: frozenset[str]  # when it was opened
    options: PushOptions = field(default_factory=PushOptions)
    locked: asyncio.Lock | None = None
    meant: Meant | None = None
    runs: tuple[StartedRun, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One ref update that may start runs."""

    update: RefUpdate
    tip: Tip
    forced: bool


@dataclass(frozen=True)
class Sight:
    """What was seen of a push: the updates that may start runs, and what to say about the others."""

    quarantine: Quarantine
    candidates: list[Candidate]
    lines: list[str]

    @property
    def tips(self) -> tuple[Tip, ...]:
        """Those with workflow files, each once."""
        return tuple({one.tip.commit: one.tip for one in self.candidates if one.tip.files}.values())


@dataclass
class Planned:
    """The runs that a push starts, in the pusher's order, and lines to show."""

    plans: list[RunPlan] = field(default_factory=list)
    documents: list[RunDocument] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    scheduled: bool = False


def glance(
    push: OpenGit, question: Question, recalled: Callable[[Tip, frozenset[str]], Checked | None]
) -> tuple[Sight, Mapping[CommitId, Checked], Planned | None]:
    """`look`, and `plan` too when every verdict is `recalled`: in one turn of a thread, as most pushes are."""
    sight = look(push, question)
    verdicts: dict[CommitId, Checked] = {}
    for tip in sight.tips:
        verdict = recalled(tip, push.known_labels)
        if verdict is None:
            return sight, {}, None
        verdicts[tip.commit] = verdict
    return sight, verdicts, plan(push, sight, verdicts)


def look(push: OpenGit, question: Question) -> Sight:
    """What a push brings. Raises Invalid, Exhausted."""
    quarantine = Quarantine(push.path, question.quarantine)
    quarantine.check_sizes()
    lines = [line for update in question.updates if update.new is None for line in _deletion_lines(push, update)]
    tips: dict[CommitId, Tip | None] = {}
    candidates = []
    for update in question.updates:
        if update.new is None or update.ref.kind == "other":
            continue
        if update.new not in tips:
            tips[update.new] = quarantine.tip(update.new)
        if (tip := tips[update.new]) is not None:
            forced = update.ref.kind == "branch" and quarantine.is_forced(update.old, update.new)
            candidates.append(Candidate(update, tip, forced))
    return Sight(quarantine, candidates, lines + [_ONLY_GITHUB for tip in tips.values() if tip and tip.only_github][:1])


def plan(push: OpenGit, sight: Sight, verdicts: Mapping[CommitId, Checked]) -> Planned:
    """What the candidates start; `verdicts` by commit. Raises Exhausted beyond PUSH_PLAN_BYTES_MAX."""
    planned, size = Planned(), 0
    for candidate in sight.candidates:
        for workflow in verdicts.get(candidate.tip.commit, Checked()).workflows:
            planned.scheduled = planned.scheduled or bool(workflow.schedule)
            run, notice = _decided(sight, push, candidate, workflow)
            planned.lines += [notice] if notice else []
            if run is None:
                continue
            planned.plans.append(run)
            planned.documents.append(RunDocument(run.ref, codec.canonical(run).decode()))
            size += len(planned.documents[-1].text)
            if size > limits.PUSH_PLAN_BYTES_MAX:
                raise Exhausted(
                    f"the jobs of this push need more than {limits.PUSH_PLAN_BYTES_MAX} bytes (PUSH_PLAN_BYTES_MAX)",
                    next_step="push fewer refs at a time",
                )
    return planned


def moves(question: Question, sight: Sight, verdicts: Mapping[CommitId, Checked]) -> list[Move]:
    """Where branches are to go, as gates judge it."""
    seen = {candidate.update.ref: candidate for candidate in sight.candidates}
    found = []
    for update in question.updates:
        if update.ref.kind != "branch":
            continue
        candidate = seen.get(update.ref)
        verdict = Checked() if candidate is None else verdicts.get(candidate.tip.commit, Checked())
        forced = candidate is not None and candidate.forced
        found.append(Move(update.ref, update.new, forced, declared(verdict)))
    return found


def run_lines(push: OpenGit, started: StartedRun, prospects: Sequence[str], url: str) -> list[str]:
    """What the pusher sees of one run: number, address, prospects; with `ci.verbose` each job."""
    address = f"{push.repo.name}/{started.run.number}"
    first, *rest = [_SKIPPED[started.run.skipped]] if started.run.skipped else prospects or ["queued"]
    lines = [f"{address}  {started.plan.workflow}  {url}/{push.repo.name}/runs/{started.run.number}  {first}"]
    lines += [f"  {line}" for line in rest]
    if push.options.verbose:
        lines += [_job_line(address, job.key, job.runs_on, job.needs) for job in started.plan.jobs]
    return [visible(line, limits.PROBLEM_CHARS_MAX) for line in lines]


def default_lines(branch: RefName | None) -> list[str]:
    """What to say when a push gave the repository its default branch."""
    return [] if branch is None else [f"the default branch is now {visible(branch.short, 80)}, the first pushed"]


_SKIPPED = {"filter": "skipped by its filter", "skip_ci": "skipped as asked; this opens no gate"}


def _decided(
    sight: Sight, push: OpenGit, candidate: Candidate, workflow: Workflow
) -> tuple[RunPlan | None, str | None]:
    event = _event(push, candidate)
    decision = triggers.decide(workflow, event, lambda: _changed(sight.quarantine, push, candidate))
    if decision.outcome == "none":
        return None, decision.notice
    tip = candidate.tip
    protected = workflow.has_groups and _protected(push, sight, candidate.update.ref)
    run = expand.plan(workflow, push.repo.name, tip.commit, candidate.update.ref, event, protected=protected)
    if decision.outcome == "skip":
        return replace(run, skipped="filter", jobs=()), decision.notice
    if event.ref_type == "branch" and (push.options.skip or triggers.skip_ci(tip.message)):
        return replace(run, skipped="skip_ci", jobs=()), decision.notice
    return run, decision.notice


def _event(push: OpenGit, candidate: Candidate) -> EventFacts:
    update = candidate.update
    assert update.new is not None
    return EventFacts(
        name="push",
        ref=update.ref,
        ref_name=update.ref.short,
        ref_type="branch" if update.ref.kind == "branch" else "tag",
        before=update.old,
        after=update.new,
        actor=push.person.name,
        forced=candidate.forced,
        message=visible(candidate.tip.message.lstrip("\n").partition("\n")[0], limits.TEXT_CHARS_MAX),
        variables=push.options.variables,
    )


def _protected(push: OpenGit, sight: Sight, ref: RefName) -> bool:
    """Whether no newer run cancels one of this ref, unless its file says so."""
    branches = [one.update.ref for one in sight.candidates if one.update.ref.kind == "branch"]
    return ref.kind == "tag" or ref == git.default_with(git.open_repository(push.path), branches)


def _changed(quarantine: Quarantine, push: OpenGit, candidate: Candidate) -> ChangedPaths:
    repository = git.open_repository(push.path)
    default = git.default_branch(repository)
    tip = git.ref_targets(repository, [default])[default]
    changes = quarantine.changes(candidate.update.old, candidate.tip.commit, tip)
    if changes.base is not None and changes.base == candidate.update.old:
        return ChangedPaths(changes.paths)
    against = f"commit {changes.base[:12]}, the merge base with {default.short}" if changes.base else "nothing"
    return ChangedPaths(changes.paths, f"paths of {visible(candidate.update.ref.short, 80)} compared with {against}")


def _deletion_lines(push: OpenGit, update: RefUpdate) -> list[str]:
    if update.ref != git.default_branch(git.open_repository(push.path)):
        return []
    settings = f"ssh git@HOST repo settings {push.repo.name} --default-branch OTHER"
    return [f"{update.ref.short} is the default branch: name another one first: {settings}"]


def _job_line(address: str, key: str, labels: Sequence[str], needs: Sequence[str]) -> str:
    wants = f"runs on {', '.join(labels)}" if labels else "runs on any runner"
    return f"  {address}/{key}  {wants}" + (f", needs {', '.join(needs)}" if needs else "")
