"""Branches that demand evidence: set, ask before a push moves them, audit. The order of steps; what is green is
`evidence.gates`' to say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vole.base import globs, limits
from vole.base.bell import Bells
from vole.base.clock import Moment
from vole.base.errors import Exhausted, Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import AccountName, CommitId, RefName, RepoId, RepoName
from vole.evidence import gates, ledger
from vole.evidence.gates import Declared, Demand, Document, Gate, Judged, Move, Requirement, RunSeen
from vole.evidence.model import Status
from vole.evidence.reads import gates as reads
from vole.flows.push.verdicts import Verdicts, declared
from vole.git import storage as git
from vole.git.objects import commits_since
from vole.git.quarantine import Quarantine, Tip
from vole.git.records import Chain, RecordKeys
from vole.git.storage import Storage
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.store.database import Database, Tx, View

_NO_LABELS: frozenset[str] = frozenset()  # with none known, no label is refused: an old commit stays what it was


@dataclass(frozen=True)
class GatingParts:
    """What gates are judged with."""

    db: Database
    bells: Bells
    storage: Storage
    verdicts: Verdicts
    keys: RecordKeys
    url: str


@dataclass(frozen=True)
class Audited:
    """One requirement for one commit of a branch. `tip`: the commit that was judged, where this one came with it."""

    commit: CommitId
    tip: CommitId
    judged: Judged


_Seen = Mapping[tuple[str, CommitId], RunSeen]


class Gating:
    """The gates of every repository."""

    def __init__(self, parts: GatingParts) -> None:
        self._parts = parts

    async def set_gate(self, name: RepoName, pattern: str, requires: Sequence[Requirement], by: AccountName) -> None:
        """Raises NotFound, Exhausted; Invalid for a pattern that is none."""
        globs.check_all([pattern])
        if len(requires) > limits.GATE_REQUIREMENTS_MAX:
            most = limits.GATE_REQUIREMENTS_MAX
            raise Exhausted(f"a gate has at most {most} requirements (GATE_REQUIREMENTS_MAX)")
        await self._parts.db.write(set_gate, name, pattern, requires, by)

    async def remove_gate(self, name: RepoName, pattern: str) -> None:
        """Raises NotFound."""
        await self._parts.db.write(remove_gate, name, pattern)

    async def unmet(self, repo: Repo, gate: Gate) -> list[str]:
        """What the gate demands that no workflow has, for each branch that it guards now: a line each."""
        path = self._parts.storage.path(repo.name)
        branches = [ref for ref in await self._parts.storage.run(git.pushed_refs, path) if ref.kind == "branch"]
        lines = []
        for branch in sorted(filter(gate.guards, branches))[: limits.GATED_REFS_MAX]:
            tip = await self._parts.storage.run(_tip, path, branch)
            found = gates.unmet(gate, await self._declared(tip))
            lines += [f"{visible(branch.short, 80)} {line}" for line in found]
        return lines

    async def demand(self, repo: Repo, found: Sequence[Gate], moves: Sequence[Move]) -> None:
        """Raises Invalid, with a line for each thing that is not green, unless every gate lets every move pass.

        Waits GATE_RECORD_S at most for the record of what has ended already.
        """
        gated = [(move, guards) for move in moves if (guards := [gate for gate in found if gate.guards(move.branch)])]
        if len(gated) > limits.GATED_REFS_MAX:
            raise Exhausted(
                f"{len(gated)} branches with a gate in one push; at most {limits.GATED_REFS_MAX} (GATED_REFS_MAX)",
                next_step="push fewer of them at a time",
            )
        lines = [line for move, guards in gated for line in await self._refusals(repo, move, guards)]
        if lines:
            more = len(lines) - limits.PROBLEMS_SHOWN_MAX
            shown = (*lines[: limits.PROBLEMS_SHOWN_MAX], *([f"… and {more} more"] if more > 0 else []))
            raise Invalid(
                "nothing was pushed: a gate is shut",
                code="gated",
                problems=shown,
                next_step="a commit is judged by its runs: push it to another branch, and here when they are green",
            )

    async def audit(self, repo: Repo, branch: RefName) -> tuple[list[Gate], list[Audited]]:
        """The gates of a branch and, for each of its commits since the oldest of them was set, what opened each.

        The newest commits, GATE_AUDIT_COMMITS_MAX at most; each is judged as of the push that brought it. Raises
        NotFound for a branch that is not there.
        """
        path = self._parts.storage.path(repo.name)
        tip = (await self._parts.storage.run(lambda: git.ref_targets(git.open_repository(path), [branch])))[branch]
        if tip is None:
            raise NotFound(f"{repo.name} has no branch '{visible(branch.short, 80)}'")
        found = [gate for gate in await self._parts.db.read(reads.gates_of, repo.id) if gate.guards(branch)]
        if not found:
            return [], []
        since = Moment(min(gate.set_at for gate in found))
        moves = await self._parts.db.read(reads.moves_of, repo.id, branch, since)
        chain = await self._chain(repo)
        brought = await self._parts.storage.run(_brought, path, tip, moves)
        lines = []
        for commit, (head, at) in brought.items():
            guards = [gate for gate in found if at is None or gate.set_at <= at]
            told = await self._parts.storage.run(_tip_of, path, commit)
            judged = await self._judged(repo, commit, await self._declared(told), _required(guards), chain, at)
            lines += [Audited(commit, head, one) for one in judged]
        return found, lines

    async def _refusals(self, repo: Repo, move: Move, guards: Sequence[Gate]) -> list[str]:
        branch = visible(move.branch.short, 80)
        if move.commit is None or move.forced:
            deed = "deleted" if move.commit is None else "moved back or aside"
            patterns = " ".join(gate.pattern for gate in guards)
            return [f"{branch} has a gate and is not {deed}; an admin opens it: gate remove {repo.name} {patterns}"]
        requires = _required(guards)
        with self._parts.bells.listening("records") as listener:
            judged = await self._judged(repo, move.commit, move.workflows, requires, await self._chain(repo))
            try:
                async with asyncio.timeout(limits.GATE_RECORD_S):
                    while any(one.soon for one in judged):
                        await listener.wait(limits.GATE_RECORD_S)
                        chain = await self._chain(repo)
                        judged = await self._judged(repo, move.commit, move.workflows, requires, chain)
            except TimeoutError:
                pass  # as it was when it was looked at last
        return [self._line(repo, branch, move.commit, one) for one in judged if not one.green]

    async def _judged(
        self,
        repo: Repo,
        commit: CommitId,
        workflows: Sequence[Declared],
        requires: Iterable[Requirement],
        chain: Chain,
        before: Moment | None = None,
    ) -> list[Judged]:
        """Each requirement for this commit. What stands in rows says where to look; records decide."""
        asked: list[Requirement | Demand] = []
        judged: list[Judged] = []
        for requirement in requires:
            try:
                asked += [requirement] if requirement.context is not None else gates.demands(requirement, workflows)
            except Invalid as error:
                judged.append(Judged(requirement.text, why=error.sentence))
        wanted = [one for one in asked if isinstance(one, Demand)]
        seen, statuses = await self._parts.db.read(_facts, repo.id, commit, wanted, before)
        places = {place for one in wanted if (run := _run(seen, one)) and (place := run.place(one.key))}
        documents = await self._parts.storage.run(_documents, chain, places) if places else {}
        for one in asked:
            if isinstance(one, Requirement):
                judged.append(gates.judge_status(one, statuses.get(one.context or "")))
                continue
            run = _run(seen, one)
            place = None if run is None else run.place(one.key)
            judged.append(
                gates.judge(one, gates.Subject(repo.name, commit), run, documents.get(place or "", Document()))
            )
        return judged

    async def _chain(self, repo: Repo) -> Chain:
        """The records as they stand now."""
        path = self._parts.storage.path(repo.name)
        return await self._parts.storage.run(Chain, path, self._parts.keys.signers)

    async def _declared(self, tip: Tip | None) -> tuple[Declared, ...]:
        """Raises Exhausted, Unavailable. Files with problems declare nothing."""
        if tip is None or not tip.files:
            return ()
        verdict = self._parts.verdicts.recalled(tip, _NO_LABELS)
        return declared(verdict or await self._parts.verdicts.of(tip, _NO_LABELS))

    def _line(self, repo: Repo, branch: str, commit: CommitId, one: Judged) -> str:
        said = f"{branch} {one.requirement}: {one.why}"
        if one.evidence and one.remedy != "status":
            number = one.evidence.partition("/")[0]
            said = f"{said}; {repo.name}/{one.evidence} {self._parts.url}/{repo.name}/runs/{number}"
        return said + _REMEDIES[one.remedy].format(
            repo=repo.name, run=one.evidence.partition("/")[0], commit=commit, url=self._parts.url
        )


_REMEDIES = {
    "": "",
    "start": "; start it: git push origin {commit:.10}:refs/heads/try-{commit:.10}",
    "wait": "; push again when it is done",
    "rerun": "; run it again: ssh git@HOST rerun {repo}/{run} --failed",
    "again": "; run it again: ssh git@HOST rerun {repo}/{run}",
    "status": "; who reports it: POST {url}/api/v1/repositories/{repo}/statuses/{commit}",
}


def set_gate(tx: Tx, name: RepoName, pattern: str, requires: Sequence[Requirement], by: AccountName) -> None:
    """The change."""
    ledger.set_gate(tx, repos.named(tx, name).id, pattern, requires, by)


def remove_gate(tx: Tx, name: RepoName, pattern: str) -> None:
    """The change."""
    ledger.remove_gate(tx, repos.named(tx, name).id, pattern)


def _required(guards: Iterable[Gate]) -> list[Requirement]:
    return list(dict.fromkeys(one for gate in guards for one in gate.requires))


def _run(seen: _Seen, demand: Demand) -> RunSeen | None:
    return seen.get((demand.path, demand.blob))


async def _facts(
    view: View, repo: RepoId, commit: CommitId, wanted: Sequence[Demand], before: Moment | None
) -> tuple[_Seen, dict[str, Status]]:
    statuses = await reads.statuses_of(view, repo, commit)
    return await reads.runs_for(view, repo, commit, wanted, before), {one.context: one for one in statuses}


def _documents(chain: Chain, places: Iterable[str]) -> dict[str, Document]:
    """What stands at each place, or why it does not count. Blocks."""
    found = {}
    for place in places:
        try:
            proven = chain.find(place)
            found[place] = Document(proven.data, proven.commit)
        except NotFound:
            continue
        except (Invalid, Exhausted) as error:
            found[place] = Document(why_not=error.sentence)
    return found


def _tip(path: Path, branch: RefName) -> Tip | None:
    target = git.ref_targets(git.open_repository(path), [branch])[branch]
    return None if target is None else _tip_of(path, target)


def _tip_of(path: Path, commit: CommitId) -> Tip | None:
    return Quarantine(path, "").tip(commit)


def _brought(path: Path, tip: CommitId, moves: Sequence[reads.Moved]) -> dict[CommitId, tuple[CommitId, Moment | None]]:
    """The commits that each push brought, newest first, with the one it was judged by and when; without any the tip."""
    found: dict[CommitId, tuple[CommitId, Moment | None]] = {}
    for move in moves:
        room = limits.GATE_AUDIT_COMMITS_MAX - len(found)
        if move.new is not None and room > 0:
            for commit in commits_since(path, move.new, move.old, room):
                found.setdefault(commit, (move.new, move.at))
    return found or {tip: (tip, None)}
