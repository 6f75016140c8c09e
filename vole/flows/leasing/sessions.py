"""A runner comes, stays as long as its key and its connection do, and goes. Never decides who gets a job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from vole.base import labels, limits
from vole.base.clock import Moment
from vole.base.errors import Denied, Invalid
from vole.base.ids import RepoId, RepoName, SessionId
from vole.base.supervise import carried_through
from vole.flows.leasing.desk import Desk
from vole.jobs import ledger as jobs
from vole.jobs import reads as job_reads
from vole.jobs.index import QueueIndex
from vole.jobs.model import EndCause, Ended, Touched
from vole.people import reads as people
from vole.people.model import Person
from vole.repos import reads as repos
from vole.runners import ledger as runners
from vole.runners.roster import Session
from vole.store.database import Tx, View
from vole.wire import runner
from vole.wire.runner import Hello, Refusal, Refused, Welcome


@dataclass(frozen=True)
class Sessions:
    """Who is connected."""

    desk: Desk

    async def hello(self, person: Person, hello: Hello) -> Session:
        """The session of a runner process, welcomed. In `ping` mode it is on no roster and leases nothing.

        The same key and incarnation is the same process: it comes back to its leases, and its older connection is
        refused as superseded. Raises Denied or Invalid with a code of wire.runner.Refusal.
        """
        check_hello(person, hello)
        gone = partial(self.goodbye, cause="the connection was lost before `welcome`")  # or it is shown for ever
        return await carried_through(self._arrive(person, hello), unheard=gone)

    async def _arrive(self, person: Person, hello: Hello) -> Session:
        now_granted = await self.desk.parts.db.read(_granted, person)
        serves, warnings = _narrowed(person, hello, now_granted)
        entered = Entered(SessionId(0), self.desk.parts.clock.now(), ())
        if hello.mode != "ping":
            claim = runners.Claim(person.name, person.key_fingerprint, hello, frozenset(serves))
            entered = await self.desk.parts.db.write(_connect, claim)
        session = Session(
            id=entered.session,
            account=person.account,
            account_name=person.name,
            key_fingerprint=person.key_fingerprint,
            hello=hello,
            welcome=self._welcome(entered, now_granted, serves, warnings),
            granted=frozenset(now_granted),
            serves=frozenset(serves),
            connected_at=entered.at,
            last_contact=entered.at,
        )
        self._enter(session, entered)
        return session

    async def goodbye(self, session: Session, *, cause: str) -> None:
        """The connection is proven gone: what was given and not started goes back at once, the rest has its TTL."""
        if session.id == 0 or not self.desk.parts.roster.leave(session):
            return
        parts = self.desk.parts
        self.desk.tell(await parts.db.write(_disconnect, parts.index, session, cause))
        parts.bells.ring("runners", "queue")

    async def drain(self, session: Session) -> None:
        """The runner takes no more work; what it has it finishes."""
        if session.draining:
            return
        session.draining = True
        if session.id:
            await self.desk.parts.db.write(runners.note_draining, session.id)
        self.desk.parts.bells.ring("runners", "queue")

    async def recheck(self) -> None:
        """Read again what every connected key may do. A removed key ends its sessions and their leases."""
        parts = self.desk.parts
        sessions = list(parts.roster)
        grants = await parts.db.read(_grants_of, {session.key_fingerprint for session in sessions})
        for session in sessions:
            granted = grants.get(session.key_fingerprint)
            if granted is None:
                await self._end(session)
            elif session.granted != granted.keys():
                serves = frozenset(_serves(session.hello, granted))
                noted = await parts.db.write(runners.note_serves, session.id, serves)
                session.granted, session.serves, session.serves_as = frozenset(granted), serves, noted
                parts.bells.ring("jobs", "runners", "queue")
        for gone in await parts.db.read(job_reads.keyless_holders):  # whose connection was lost before its key
            self.desk.tell(await parts.db.write(_dismiss, parts.index, gone))

    async def _end(self, session: Session) -> None:
        parts = self.desk.parts
        session.order(Refused(Refusal.GRANT, "this key was removed"))
        if parts.roster.leave(session):
            self.desk.tell(await parts.db.write(_remove, parts.index, session))
            parts.bells.ring("runners", "queue")

    def _enter(self, session: Session, entered: Entered) -> None:
        if session.id == 0:
            return
        older = self.desk.parts.roster.enter(session)
        if older is not None:
            older.order(Refused(Refusal.SUPERSEDED, "another connection of this process took its place"))
        for ended in entered.cancelling:
            session.order(self.desk.order_of(ended))
        self.desk.parts.bells.ring("runners", "queue", "jobs")

    def _welcome(
        self, entered: Entered, granted: dict[RepoId, RepoName], serves: Collection[RepoId], warnings: tuple[str, ...]
    ) -> Welcome:
        policy = self.desk.policy
        return Welcome(
            session=str(entered.session),
            ttl_s=policy.ttl_s,
            start_window_s=limits.lease_times(policy.ttl_s).start_window_s,
            grant=tuple(sorted(granted.values())),
            serves=tuple(sorted(granted[repo] for repo in serves)),
            server_version=policy.version,
            server_time_us=self.desk.parts.clock.now(),
            server_url=policy.url,
            warnings=warnings,
        )


@dataclass(frozen=True)
class Entered:
    """What the change of a hello gave."""

    session: SessionId
    at: Moment
    cancelling: tuple[Ended, ...]  # of its leases: what it is told again


def check_hello(person: Person, hello: Hello) -> None:
    """Raises Denied for a key that is no runner's, Invalid for words that break a rule; `code` is a Refusal."""
    if person.key_kind != "runner":
        raise Denied("this key is for git: a runner needs a key of kind `runner`", code=Refusal.GRANT)
    if hello.wire.max < runner.WIRE_MIN or hello.wire.min > runner.WIRE_MAX:
        spoken, ours = f"{hello.wire.min} to {hello.wire.max}", f"{runner.WIRE_MIN} to {runner.WIRE_MAX}"
        raise Invalid(f"the runner speaks wire {spoken}, this server {ours}", code=Refusal.WIRE_UNSUPPORTED)
    texts = (hello.name, hello.incarnation, hello.version, hello.platform, hello.machine)
    if not all(text and text.isprintable() and len(text) <= limits.TEXT_CHARS_MAX for text in texts):
        raise Invalid(
            f"name, incarnation, version, platform and machine are 1 to {limits.TEXT_CHARS_MAX} printable characters",
            code=Refusal.INVALID,
        )
    if not 1 <= hello.slots <= limits.RUNNER_SLOTS_MAX:
        raise Invalid(f"{hello.slots} slots; 1 to {limits.RUNNER_SLOTS_MAX} (RUNNER_SLOTS_MAX)", code=Refusal.INVALID)
    if len(hello.labels) > limits.RUNNER_LABELS_MAX:
        most = limits.RUNNER_LABELS_MAX
        raise Invalid(f"{len(hello.labels)} labels; at most {most} (RUNNER_LABELS_MAX)", code=Refusal.INVALID)
    try:
        labels.parse_all(hello.labels)
    except Invalid as error:
        raise Invalid(error.sentence, code=Refusal.INVALID) from None


def _narrowed(person: Person, hello: Hello, granted: dict[RepoId, RepoName]) -> tuple[set[RepoId], tuple[str, ...]]:
    """What grant and filter leave, and warnings. Raises Denied for a filter that can never match."""
    serves = _serves(hello, granted)
    outside = [name for name in hello.repos if name not in granted.values()]
    has = ", ".join(sorted(granted.values())) or "nothing"
    for name in outside:
        _check_name(name)
    if hello.repos and not serves:
        raise Denied(
            f"--repos {','.join(hello.repos)} leaves nothing of what {person.name} is granted ({has})",
            code=Refusal.GRANT,
            next_step=f"ask for a grant: ssh git@host grant {person.name} run {hello.repos[0]}",
        )
    warnings = [f"--repos {name}: not granted to {person.name}, so no job of it comes here" for name in outside]
    if not granted:
        warnings.append(f"{person.name} is granted no repository yet; jobs come once it is")
    return serves, tuple(warnings)


def _check_name(name: str) -> None:
    try:
        RepoName.parse(name)
    except Invalid as error:
        raise Denied(f"--repos: {error.sentence}", code=Refusal.GRANT) from None


def _serves(hello: Hello, granted: dict[RepoId, RepoName]) -> set[RepoId]:
    return {repo for repo, name in granted.items() if not hello.repos or name in hello.repos}


async def _granted(view: View, person: Person) -> dict[RepoId, RepoName]:
    grants = await _grants_of(view, {person.key_fingerprint})
    found = grants[person.key_fingerprint]
    if found is None:
        raise Denied("this key is no longer known here", code=Refusal.GRANT)
    return found


async def _grants_of(view: View, fingerprints: set[str]) -> dict[str, dict[RepoId, RepoName] | None]:
    """What each key may run, by repository; None for a key that is gone."""
    names = {repo.id: repo.name for repo in await repos.repos(view)}
    found: dict[str, dict[RepoId, RepoName] | None] = {}
    for fingerprint in fingerprints:
        person = await people.person_of_key(view, fingerprint)
        found[fingerprint] = None
        if person is not None:
            runs = {repo for repo, levels in person.levels.items() if "run" in levels}
            found[fingerprint] = {repo: names[repo] for repo in runs if repo in names}
    return found


def _connect(tx: Tx, claim: runners.Claim) -> Entered:
    session = runners.connect(tx, claim)
    return Entered(session, tx.now, jobs.cancelling(tx, session))


def _disconnect(tx: Tx, index: QueueIndex, session: Session, cause: str) -> Touched:
    if not runners.disconnect(tx, session.id, session.connected_at):
        return Touched()  # the process is back already
    return jobs.disconnect(tx, index, session.id, cause[: limits.TEXT_CHARS_MAX])


def _remove(tx: Tx, index: QueueIndex, session: Session) -> Touched:
    runners.disconnect(tx, session.id, session.connected_at)
    return _dismiss(tx, index, session.id)


def _dismiss(tx: Tx, index: QueueIndex, session: SessionId) -> Touched:
    return jobs.end_session(tx, index, session, EndCause.KEY_REMOVED, "the runner's key was removed")
