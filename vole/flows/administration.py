"""What people decide, by command: accounts, keys, grants, logins, tokens, repositories, labels. Holds no rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from vole.base.bell import Bells
from vole.base.entropy import Entropy, digest
from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.base.ids import AccountId, AccountName, RefName, RepoName
from vole.base.labels import Label
from vole.base.supervise import carried_through
from vole.evidence import ledger as evidence
from vole.evidence.logs import LogStore
from vole.git import storage as git
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs.index import QueueIndex
from vole.people import ledger as people
from vole.people.model import Key, KeyKind, Level, PublicKey
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.runners import ledger as runners
from vole.store.database import Database, Tx

T = TypeVar("T")

DESCRIPTION_CHARS_MAX = 200  # one line of a list


@dataclass(frozen=True)
class Parts:
    """What the commands work on."""

    db: Database
    bells: Bells
    entropy: Entropy
    storage: Storage
    index: QueueIndex
    logs: LogStore
    repository_removed: Callable[[Repo], Awaitable[object]]  # tells runners, removes logs and artifacts


class Administration:
    """The commands that change something. After each, the bell of whoever holds a connection open rings."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._db = parts.db

    async def add_user(self, name: AccountName, *, admin: bool) -> AccountId:
        """Raises Conflict for a name that is taken."""
        return await self._db.write(people.add_account, name, admin=admin)

    async def remove_user(self, name: AccountName) -> list[Key]:
        """Forget an account; the keys that went with it. Raises NotFound."""
        return await self._told(self._db.write(_remove_user, name))

    async def add_key(self, user: AccountName, key: PublicKey, kind: KeyKind) -> None:
        """Raises NotFound for the user, Conflict for a key that is known."""
        await self._told(self._db.write(_add_key, user, key, kind))

    async def remove_key(self, fingerprint: str, owner: AccountId | None, kind: KeyKind | None = None) -> Key:
        """Remove a key (of `owner`, of `kind`, where given). Its open connections end within seconds."""
        return await self._told(self._db.write(_remove_key, fingerprint, owner, kind))

    async def grant(self, user: AccountName, repo: RepoName, level: Level) -> None:
        """Raises NotFound for the user or the repository."""
        await self._told(self._db.write(_grant, user, repo, level))

    async def revoke_grant(self, user: AccountName, repo: RepoName, level: Level | None) -> None:
        """Take back a level, or all of them. Raises NotFound where there is nothing to take."""
        await self._told(self._db.write(_revoke_grant, user, repo, level))

    async def make_login_link(self, account: AccountId) -> str:
        """The secret of a new link; it is kept as a digest only."""
        secret = self._parts.entropy.token()
        await self._db.write(people.make_login_link, account, digest(secret))
        return secret

    async def log_in(self, link_token: str) -> str:
        """The token of a new browser session. Raises Denied for a used, late or unknown link."""
        secret = self._parts.entropy.token()
        await self._db.write(_log_in, link_token, digest(secret))
        return secret

    async def log_out(self, session_token: str) -> None:
        """End the session that holds `session_token`, if there is one."""
        await self._db.write(people.close_session_of, session_token)

    async def close_session(self, account: AccountId, session: int) -> None:
        """Raises NotFound for a session that is not theirs."""
        await self._told(self._db.write(people.close_session, account, session))

    async def create_token(self, account: AccountId, name: str, scope: str | None) -> str:
        """A new token's secret, shown this once. Raises Conflict for a name that is taken."""
        secret = self._parts.entropy.token()
        await self._db.write(people.add_token, account, name, digest(secret), scope)
        return secret

    async def revoke_token(self, account: AccountId, name: str) -> None:
        """Raises NotFound."""
        await self._db.write(people.revoke_token, account, name)

    async def create_repo(self, name: RepoName, *, public: bool, description: str) -> Repo:
        """Raises Conflict for a name that is taken, in the store or on the disk."""
        return await carried_through(self._create(name, public=public, description=_line(description)))

    async def _create(self, name: RepoName, *, public: bool, description: str) -> Repo:
        repo = await self._db.write(repos.create_repo, name, public=public, description=description)
        try:
            # Leftovers of a removal that was cut short must not show under the new repository's runs.
            self._parts.logs.remove_repo(name)
            await self._parts.storage.run(self._parts.storage.create, name)
        except BaseException:
            await self._db.write(repos.remove_repo, repo.id)
            raise
        return repo

    async def remove_repo(self, name: RepoName) -> None:
        """Forget a repository: rows first, so that whatever is left of a removal cut short is only files."""
        await self._told(self._remove(name))

    async def change_repo(self, name: RepoName, *, public: bool | None, description: str | None) -> Repo:
        """The repository as it is then; None leaves a setting as it is. Raises NotFound."""
        return await self._db.write(
            _change_repo, name, public=public, description=None if description is None else _line(description)
        )

    async def default_branch(self, name: RepoName) -> RefName:
        """The branch that a clone checks out. Raises NotFound."""
        path = self._parts.storage.path(name)
        return await self._parts.storage.run(lambda: git.default_branch(git.open_repository(path)))

    async def set_default_branch(self, name: RepoName, branch: RefName) -> None:
        """Raises NotFound for a repository or a branch that is not there."""
        await carried_through(self._lead(name, branch))

    async def declare_label(self, label: Label, by: AccountName) -> None:
        """From now on workflows may ask for `label`."""
        await self._db.write(runners.declare_label, label, by)

    async def _remove(self, name: RepoName) -> None:
        repo = await self._db.write(forget_repo, self._parts.index, name)
        await self._parts.repository_removed(repo)
        await self._parts.storage.run(self._parts.storage.remove, name)

    async def _lead(self, name: RepoName, branch: RefName) -> None:
        await self._parts.storage.run(git.set_default_branch, self._parts.storage.path(name), branch)
        await self._db.write(move_schedules, name)
        self._parts.bells.ring("schedules")

    async def _told(self, change: Coroutine[Any, Any, T]) -> T:
        """What `change` comes to, made known to whoever holds a connection open."""

        async def told() -> T:
            done = await change
            self._parts.bells.ring("people")
            return done

        return await carried_through(told())


def forget_repo(tx: Tx, index: QueueIndex, name: RepoName) -> Repo:
    """Every room drops what it holds of the repository, in one change."""
    repo = repos.named(tx, name)
    jobs.drop_repo(tx, index, repo.id)
    evidence.drop_repo(tx, repo.id)
    people.drop_repo_grants(tx, repo.id)
    repos.remove_repo(tx, repo.id)
    return repo


def move_schedules(tx: Tx, name: RepoName) -> None:
    """Another branch is the default one: its workflows say what the clock starts."""
    repos.mark_schedules(tx, repos.named(tx, name).id, declared=True)


def _add_key(tx: Tx, user: AccountName, key: PublicKey, kind: KeyKind) -> None:
    people.add_key(tx, people.account_named(tx, user).id, key, kind)
    _note_rights(tx, user)


def _remove_user(tx: Tx, name: AccountName) -> list[Key]:
    gone = people.remove_account(tx, name)
    runners.note_rights(tx, name, (), ())
    return gone


def _remove_key(tx: Tx, fingerprint: str, owner: AccountId | None, kind: KeyKind | None) -> Key:
    key = people.remove_key(tx, fingerprint, owner)
    if kind is not None and key.kind != kind:
        raise Invalid(f"{key.fingerprint} is a {key.kind} key, not a {kind} key", next_step="use `key remove`")
    _note_rights(tx, key.account_name)
    return key


def _grant(tx: Tx, user: AccountName, repo: RepoName, level: Level) -> None:
    people.grant(tx, people.account_named(tx, user).id, repos.named(tx, repo).id, level)
    _note_rights(tx, user)


def _revoke_grant(tx: Tx, user: AccountName, repo: RepoName, level: Level | None) -> None:
    people.revoke_grant(tx, people.account_named(tx, user).id, repos.named(tx, repo).id, level)
    _note_rights(tx, user)


def _note_rights(tx: Tx, user: AccountName) -> None:
    """What decides who gets a job is in the log of the fleet: the queue can be replayed."""
    account = people.account_named(tx, user).id
    runners.note_rights(tx, user, people.runner_keys(tx, account), people.run_grant(tx, account))


def _log_in(tx: Tx, link_token: str, session_digest: str) -> None:
    people.open_session(tx, people.use_login_link(tx, link_token), session_digest)


def _change_repo(tx: Tx, name: RepoName, *, public: bool | None, description: str | None) -> Repo:
    repo = repos.named(tx, name)
    if public is not None:
        repos.set_public(tx, repo.id, public=public)
    if description is not None:
        repos.set_description(tx, repo.id, description)
    return repos.named(tx, name)


def _line(text: str) -> str:
    if len(text) > DESCRIPTION_CHARS_MAX or visible(text, DESCRIPTION_CHARS_MAX) != text:
        raise Invalid(f"a description is one line of at most {DESCRIPTION_CHARS_MAX} printable characters")
    return text
