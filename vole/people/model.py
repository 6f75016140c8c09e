"""Who people are: accounts, keys, grants, sessions, tokens. Never knows how they connected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vole.base.clock import Moment
from vole.base.ids import AccountId, AccountName, KeyId, RepoId, RepoName

Level = Literal["read", "write", "run"]
KeyKind = Literal["git", "runner"]
Verb = Literal["read", "start", "status"]  # of a token's scope


@dataclass(frozen=True)
class Bounds:
    """What a token's scope leaves of its account. `repos` None: every repository; empty: its one is gone."""

    verb: Verb
    repos: frozenset[RepoId] | None

    def leave(self, level: Level, repo: RepoId) -> bool:
        """Whether `level` on `repo` is within them; the account's own rights, and the verb, are asked besides."""
        levels = {"read": ("read",), "start": ("read", "write"), "status": ("read", "write")}[self.verb]
        return level in levels and (self.repos is None or repo in self.repos)


@dataclass(frozen=True)
class Person:
    """Who is at the door, with what they may do as of the moment they were read."""

    account: AccountId
    name: AccountName
    admin: bool
    key_fingerprint: str  # "" for web sessions and tokens
    key_kind: KeyKind
    levels: Mapping[RepoId, frozenset[Level]] = field(default_factory=dict)
    bounds: Bounds | None = None  # of a token with a scope


# Whoever may open the state folder is already all that vole could ask for.
OPERATOR = Person(AccountId(0), AccountName("operator"), admin=True, key_fingerprint="", key_kind="git")


@dataclass(frozen=True)
class PublicKey:
    """A public key as it is kept: without options or comment."""

    algorithm: str
    text: str  # algorithm and base64
    fingerprint: str  # SHA256:…, as `ssh-keygen -l` prints it
    comment: str


@dataclass(frozen=True)
class Account:
    id: AccountId
    name: AccountName
    admin: bool
    created_at: Moment


@dataclass(frozen=True)
class Key:
    id: KeyId
    account: AccountId
    account_name: AccountName
    kind: KeyKind
    fingerprint: str
    public_key: str
    comment: str
    created_at: Moment


@dataclass(frozen=True)
class Grant:
    account: AccountId
    account_name: AccountName
    repo: RepoId
    level: Level
    created_at: Moment


@dataclass(frozen=True)
class WebSession:
    id: int
    account: AccountId
    created_at: Moment
    expires_at: Moment


@dataclass(frozen=True)
class Token:
    id: int
    account: AccountId
    name: str
    scope: str | None  # None: all that the account may
    created_at: Moment


@dataclass(frozen=True)
class KeyDocument:
    """A key as `vole-admin.git` has it. Ids are texts there."""

    id: str
    kind: KeyKind
    fingerprint: str
    public_key: str
    comment: str
    created_at: Moment


@dataclass(frozen=True)
class GrantDocument:
    """A grant as `vole-admin.git` has it."""

    repository: RepoName
    level: Level
    created_at: Moment


@dataclass(frozen=True)
class AccountDocument:
    """An account as `vole-admin.git` has it: no session, no token, no secret."""

    id: str
    name: AccountName
    admin: bool
    created_at: Moment
    keys: tuple[KeyDocument, ...]
    grants: tuple[GrantDocument, ...]
