"""What outlives a server in a simulation: its database, its repositories. And one life of the server on them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.sim.clocks import ProcessClock, Time
from tests.sim.loop import Loop
from tests.sim.store import Store
from tests.sim.workload import Known
from vole.base import limits, supervise
from vole.base.bell import Bells
from vole.base.entropy import SeededEntropy
from vole.base.errors import NotFound
from vole.base.ids import CommitId, RefName
from vole.base.offload import Offload
from vole.base.supervise import Sweep
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.administration import Administration
from vole.flows.administration import Parts as AdministrationParts
from vole.flows.leasing import Leasing, LeasingParts
from vole.flows.push import Pushes, PushParts, planning, story
from vole.flows.push.planning import Planned, Sight
from vole.flows.recovery import Recovery
from vole.flows.starting import Schedules, Starting, StartingParts, by_hand, tips
from vole.flows.starting.tips import Place
from vole.flows.upkeep import Upkeep, UpkeepParts
from vole.git.quarantine import Tip
from vole.jobs.index import QueueIndex
from vole.jobs.model import Policy
from vole.runners.roster import Roster
from vole.ssh.runner_session import RunnerDoor
from vole.wire.hook import Question

Refs = dict[str, str]
MAIN = "refs/heads/main"  # the default branch


class Git:
    """Repositories as a push sees them: refs that are moved by git, and commits that are kept. Outlives servers."""

    def __init__(self) -> None:
        self.refs: defaultdict[str, Refs] = defaultdict(dict)
        self.kept: defaultdict[str, set[str]] = defaultdict(set)
        self.reflog: defaultdict[str, list[tuple[str, str | None]]] = defaultdict(list)  # (ref, new) in order

    def move(self, repo: str, ref: str, old: str | None, new: str | None) -> bool:
        """As git moves a ref: only from where it is believed to be."""
        if repo not in self.refs or self.refs[repo].get(ref) != old:
            return False
        if new is None:
            del self.refs[repo][ref]
        else:
            self.refs[repo][ref] = new
        self.reflog[repo].append((ref, new))
        return True

    # ---- the part of vole.git.storage that pushes and reruns ask

    def open_repository(self, path: str) -> str:
        if path not in self.refs:
            raise NotFound(f"there is no repository {path}")
        return path

    def ref_targets(self, repo: str, refs: Iterable[RefName]) -> dict[RefName, str | None]:
        return {ref: self.refs[repo].get(ref) for ref in refs}

    def keep(self, repo: str, commits: Iterable[str]) -> None:
        self.kept[repo].update(commits)

    def is_held(self, path: str, commit: str) -> bool:
        return commit in self.kept[path]

    def pack_refs(self, repo: str) -> None: ...

    def adopt_default_branch(self, repo: str, branches: list[RefName]) -> None:
        return None


class Storage:
    """vole.git.storage.Storage over `Git`: blocking calls are made at once."""

    def __init__(self, git: Git, plans: dict[str, Planned]) -> None:
        self.git, self._plans = git, plans

    def path(self, name: str) -> str:
        return str(name)

    async def run(self, deed: Callable[..., Any], *args: Any) -> Any:
        if deed is planning.glance:
            return Sight(None, [], []), {}, self._planned(args[1])  # type: ignore[arg-type]
        if deed is tips.find:
            return self._place(*args)
        return deed(*args)

    def create(self, name: str) -> None:
        self.git.refs[name] = {}

    def remove(self, name: str) -> None:
        self.git.refs.pop(name, None)
        self.git.kept.pop(name, None)

    def _planned(self, question: Question) -> Planned:
        planned = self._plans[question.quarantine]
        return Planned(list(planned.plans), list(planned.documents), [], scheduled=True)

    def _place(self, repo: str, wanted: str | None) -> Place:
        """The tip of a branch, whose files are those of the workload."""
        ref = RefName(wanted or MAIN)
        target = self.git.refs.get(repo, {}).get(ref)
        if target is None:
            raise NotFound(f"there is no branch {ref}")
        return Place(ref, CommitId(target), Tip(CommitId(target), "a change", (), False), ref == MAIN)


class Playing:
    """While it lasts, the flows look at simulated repositories. One at a time in a process."""

    PLACES: tuple[Any, ...] = (story, by_hand, tips)

    def __init__(self, git: Git) -> None:
        self._git = git

    def __enter__(self) -> None:
        self._real = [place.git for place in self.PLACES]
        for place in self.PLACES:
            place.git = self._git

    def __exit__(self, *_: object) -> None:
        for place, real in zip(self.PLACES, self._real, strict=True):
            place.git = real


class Life:
    """A server from its start to its death, without sockets: the real rooms, flows and the runner door."""

    def __init__(  # noqa: PLR0917 - what outlives it, one by one
        self,
        time: Time,
        rng: Random,
        connection: sqlite3.Connection,
        storage: Storage,
        folder: Path,
        policy: Policy,
        seen: Callable[[str], None],
    ) -> None:
        self.loop = Loop(lambda: time.now_us)
        self.clock = ProcessClock(time)
        self.entropy = SeededEntropy(rng.getrandbits(32))
        self.store = Store(connection, self.clock, self.entropy, rng, seen)
        self.bells, self.index, self.roster = Bells(), QueueIndex(), Roster()
        self.logs, self.artifacts = LogStore(folder / "logs"), ArtifactStore(folder / "artifacts")
        self.leasing = Leasing(
            LeasingParts(
                self.store,
                self.bells,
                self.index,
                self.roster,
                self.logs,
                self.artifacts,
                Offload(),
                self.entropy,
                self.clock,
            ),
            policy,
        )
        parts = PushParts(
            self.store, self.bells, storage, Known(), self.index,  # type: ignore[arg-type]
            self.leasing.prospects, self.leasing.ended, None, policy.url,
        )  # fmt: skip
        self.pushes = Pushes(parts)
        starts = StartingParts(
            self.store, self.bells, self.clock, storage, self.index, Known(), self.leasing.ended,  # type: ignore[arg-type]
        )  # fmt: skip
        self.starting, self.schedules = Starting(starts), Schedules(starts)
        self.upkeep = Upkeep(
            UpkeepParts(self.store, self.index, self.artifacts, self.leasing.ended, self.leasing.waits, self.clock),
            policy,
        )
        self.recovery = Recovery(self.store, storage, self.pushes.settle_left)  # type: ignore[arg-type]
        self.administration = Administration(
            AdministrationParts(
                self.store, self.bells, self.entropy, storage, self.index, self.logs,  # type: ignore[arg-type]
                self.leasing.repository_removed,
            )
        )  # fmt: skip
        self.door = RunnerDoor(self.leasing, storage, self.clock)  # type: ignore[arg-type]
        self.up = False
        self.sweeps = [  # as App._sweeps; what needs git or lasts an hour is left out
            Sweep("leases", self.upkeep.once, 1.0),
            Sweep("dispatch", self.leasing.look, limits.LOOK_S, ("jobs", "want"), self.leasing.rest_s),
            Sweep("grants", self.leasing.recheck, limits.LOOK_S, topics=("people",)),
            Sweep("pushes", self.recovery.settle_pushes, limits.LOOK_S),
            Sweep("schedules", self.schedules.once, limits.LOOK_S, ("schedules",)),
        ]

    def begin(self) -> None:
        self.loop.create_task(self._begin())

    async def _begin(self) -> None:
        await self.upkeep.on_start()
        await self.recovery.settle_pushes()
        for sweep in self.sweeps:
            self.loop.create_task(supervise.repeat(sweep, self.bells))
        await asyncio.sleep(0)
        self.up = True

    def die(self) -> None:
        """kill -9: what is durable stays, everything else is gone."""
        self.up = False
        self.store.dead = True
        self.loop.abandon()
        self.logs.close()
