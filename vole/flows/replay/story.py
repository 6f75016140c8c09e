"""What is told again, and the store in memory that it is told to: the real ledgers, the real index. Decides nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from vole.base.clock import Moment
from vole.base.entropy import SeededEntropy
from vole.base.errors import Fenced
from vole.base.ids import AccountId, AccountName, JobId, RepoId, RepoName, SessionId
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import replaying
from vole.jobs.match import Ask
from vole.jobs.model import Holder, Told
from vole.people import ledger as people
from vole.people.model import PublicKey
from vole.repos import ledger as repos
from vole.runners.ledger import Fleet
from vole.runners.reads import FleetTold
from vole.store.scratch import Scratch


@dataclass(frozen=True)
class Story:
    """Both logs of a span, with what led to it: of a job all that happened, of the fleet everything."""

    since: Moment
    until: Moment
    jobs: tuple[Told, ...]
    fleet: tuple[FleetTold, ...]
    needs: Mapping[JobId, tuple[JobId, ...]]

    def __iter__(self) -> Iterator[Told | FleetTold]:
        """Both in the order in which they happened: ids of both sort by it."""
        return heapq.merge(self.jobs, self.fleet, key=lambda told: told.id)


@dataclass
class Runner:
    """A runner process as the log tells it."""

    session: SessionId
    name: str
    key: str
    labels: frozenset[str]
    slots: int
    only: bool
    serves: frozenset[RepoId] | None  # ids of the scratch store; None: whatever its key may run
    hello_serves: frozenset[RepoId] | None
    connected: bool = True
    draining: bool = False


@dataclass
class Book:
    """The state of the queue at one place of the story."""

    index: QueueIndex = field(default_factory=QueueIndex)
    runners: dict[SessionId, Runner] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = Moment(0)
        self.scratch = Scratch(SeededEntropy())
        self._repos: dict[RepoId, RepoId] = {}
        self._serves: dict[int, frozenset[RepoId]] = {}  # by the fleet event that said so
        self._rights: dict[str, tuple[AccountId, frozenset[str], frozenset[RepoId]]] = {}

    def repo(self, repo: RepoId) -> RepoId:
        """The repository's id in the scratch store."""
        if repo not in self._repos:
            name = RepoName(f"r{len(self._repos)}")
            self._repos[repo] = self.scratch.change(self.now, repos.create_repo, name, public=False).id
        return self._repos[repo]

    def every_repo(self) -> frozenset[RepoId]:
        return frozenset(self._repos.values())

    def tell(self, told: Told) -> bool:
        """A job's event happens; False where the job is not in the state in which it could."""
        try:
            self.scratch.change(told.at, replaying.tell, self.index, told, self.repo(told.repo))
        except Fenced:
            return False
        return True

    def tell_lease(self, told: Told) -> None:
        """A lease is given as it was."""
        session = SessionId(told.detail["session"])
        self.scratch.change(told.at, replaying.told_lease, self.index, told, session)

    def tell_fleet(self, told: FleetTold) -> None:
        """Who is there, and what they may run."""
        self.now, detail = told.at, told.detail
        if told.kind == Fleet.HELLO:
            serves = None if detail["serves"] is None else self._mapped(detail["serves"])
            labels = frozenset(detail["labels"])
            facts = (told.session, detail["name"], detail["key"], labels, detail["slots"], detail["only"])
            self.runners.pop(told.session, None)  # it is the newest connection now
            self.runners[told.session] = Runner(*facts, serves, serves)
        elif told.kind == Fleet.NOBODY:
            for runner in self.runners.values():
                runner.connected = False
        elif told.kind == Fleet.RIGHTS:
            self.allow(detail["account"], frozenset(detail["keys"]), self._mapped(detail["repos"]))
        elif told.kind == Fleet.SERVES:
            self._serves[told.id] = self._mapped(detail["serves"])
        self._of_runner(told)

    def _of_runner(self, told: FleetTold) -> None:
        runner = self.runners.get(told.session)
        if runner is None:
            return
        if told.kind == Fleet.GOODBYE:
            runner.connected = False
        elif told.kind == Fleet.DRAINING:
            runner.draining = True
        elif told.kind == Fleet.SERVES:
            runner.serves = self._serves[told.id]

    def allow(self, account: str, keys: frozenset[str], granted: frozenset[RepoId]) -> None:
        """From now on the runner keys of `account` may run jobs of `granted`, ids of the scratch store."""
        change = self.scratch.change
        if account not in self._rights:
            made = change(self.now, people.add_account, AccountName(account), admin=False)
            self._rights[account] = (made, frozenset(), frozenset())
        ident, had_keys, had = self._rights[account]
        for key in sorted(had_keys - keys):
            change(self.now, people.remove_key, key)
        for key in sorted(keys - had_keys):
            change(self.now, people.add_key, ident, PublicKey("", key, key, ""), "runner")
        for repo in sorted(had - granted):
            change(self.now, people.revoke_grant, ident, repo, "run")
        for repo in sorted(granted - had):
            change(self.now, people.grant, ident, repo, "run")
        self._rights[account] = (ident, keys, granted)

    def ask(self, runner: Runner, token: str, serves_as: int | None = None) -> Ask:
        """What the runner asks for: as it served when the event `serves_as` said so (0: its hello), or serves now."""
        serves = runner.serves
        if serves_as is not None:
            serves = self._serves[serves_as] if serves_as else runner.hello_serves
        return Ask(
            holder=Holder(runner.session, "", runner.key, runner.name, "", "", ""),
            labels=runner.labels,
            filter=frozenset(),  # what a filter leaves is in `serves` already
            serves=self.every_repo() if serves is None else serves,
            slots=runner.slots,
            only=runner.only,
            draining=runner.draining,
            token=token,
            first_look=False,
        )

    def _mapped(self, found: Iterable[int]) -> frozenset[RepoId]:
        return frozenset(self.repo(RepoId(repo)) for repo in found)
