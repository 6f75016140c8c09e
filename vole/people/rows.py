"""SQL text and row-to-value functions of people. Never runs a statement."""

from __future__ import annotations

from collections.abc import Iterable

from vole.base.clock import Moment
from vole.base.ids import AccountId, AccountName, KeyId, RepoId
from vole.people.model import Account, Grant, Key, KeyKind, Level, Person, Token, WebSession
from vole.store.database import Row

ACCOUNT = "SELECT id, name, admin, created_at FROM accounts"
KEY = (
    "SELECT k.id, k.account_id, a.name AS account_name, a.admin, k.kind, k.fingerprint, k.public_key, k.comment, "
    "k.created_at "
    "FROM keys k JOIN accounts a ON a.id = k.account_id"
)
GRANT = (
    "SELECT g.account_id, a.name AS account_name, g.repo_id, g.level, g.created_at "
    "FROM grants g JOIN accounts a ON a.id = g.account_id"
)
LEVELS = "SELECT repo_id, level FROM grants WHERE account_id = :account"
SESSION = "SELECT id, account_id, created_at, expires_at FROM sessions"
BEARERS = "SELECT id, account_id, name, scope, created_at FROM tokens"
SESSION_OWNER = (
    "SELECT a.id, a.name, a.admin, a.created_at FROM sessions s JOIN accounts a ON a.id = s.account_id "
    "WHERE s.token_digest = :digest AND s.expires_at > :now"
)
BEARER = (
    "SELECT a.id, a.name, a.admin, a.created_at, t.scope FROM tokens t JOIN accounts a ON a.id = t.account_id "
    "WHERE t.token_digest = :digest"
)


def account(row: Row) -> Account:
    return Account(AccountId(row["id"]), AccountName(row["name"]), bool(row["admin"]), Moment(row["created_at"]))


def key(row: Row) -> Key:
    return Key(
        KeyId(row["id"]),
        AccountId(row["account_id"]),
        AccountName(row["account_name"]),
        row["kind"],
        row["fingerprint"],
        row["public_key"],
        row["comment"],
        Moment(row["created_at"]),
    )


def grant(row: Row) -> Grant:
    return Grant(
        AccountId(row["account_id"]),
        AccountName(row["account_name"]),
        RepoId(row["repo_id"]),
        row["level"],
        Moment(row["created_at"]),
    )


def session(row: Row) -> WebSession:
    return WebSession(row["id"], AccountId(row["account_id"]), Moment(row["created_at"]), Moment(row["expires_at"]))


def token(row: Row) -> Token:
    return Token(row["id"], AccountId(row["account_id"]), row["name"], row["scope"], Moment(row["created_at"]))


def person(of: Account, levels: Iterable[Row], *, fingerprint: str = "", kind: KeyKind = "git") -> Person:
    """The account `of` with what its grants allow."""
    found: dict[RepoId, frozenset[Level]] = {}
    for row in levels:
        repo = RepoId(row["repo_id"])
        found[repo] = found.get(repo, frozenset()) | {row["level"]}
    return Person(of.id, of.name, of.admin, fingerprint, kind, found)
