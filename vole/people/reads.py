"""What is known about people. Reads only; never decides what they may do."""

from __future__ import annotations

from collections.abc import Iterable

from vole.base.clock import Moment
from vole.base.entropy import digest
from vole.base.ids import AccountId, AccountName, RepoId
from vole.people import rows
from vole.people.model import (
    Account,
    AccountDocument,
    Grant,
    GrantDocument,
    Key,
    KeyDocument,
    Person,
    Token,
    WebSession,
)
from vole.store.database import View


async def person_of_key(view: View, fingerprint: str) -> Person | None:
    """Whose key that is, with their grants."""
    row = await view.one(f"{rows.KEY} WHERE k.fingerprint = :fingerprint", fingerprint=fingerprint)
    if row is None:
        return None
    key = rows.key(row)
    account = Account(key.account, key.account_name, bool(row["admin"]), key.created_at)
    levels = await view.all(rows.LEVELS, account=key.account)
    return rows.person(account, levels, fingerprint=fingerprint, kind=key.kind)


async def persons_of_keys(view: View, fingerprints: Iterable[str]) -> dict[str, Person]:
    """Whose keys those are; a key that is gone is missing."""
    found = {fingerprint: await person_of_key(view, fingerprint) for fingerprint in fingerprints}
    return {fingerprint: person for fingerprint, person in found.items() if person is not None}


async def person_of_session(view: View, token: str) -> Person | None:
    """Whose live web session `token` is."""
    row = await view.one(rows.SESSION_OWNER, digest=digest(token), now=view.now)
    return None if row is None else await _person(view, rows.account(row))


async def person_of_token(view: View, token: str) -> tuple[Person, str | None] | None:
    """Whose bearer token that is, and its scope (None: all that the account may)."""
    row = await view.one(rows.BEARER, digest=digest(token))
    return None if row is None else (await _person(view, rows.account(row)), row["scope"])


async def person_named(view: View, name: AccountName) -> Person | None:
    """The account of that name as a person without a key."""
    row = await view.one(f"{rows.ACCOUNT} WHERE name = :name", name=name)
    return None if row is None else await _person(view, rows.account(row))


async def accounts(view: View) -> list[Account]:
    """Every account, by name."""
    return [rows.account(row) for row in await view.all(f"{rows.ACCOUNT} ORDER BY name")]


async def keys(view: View, account: AccountId | None = None) -> list[Key]:
    """The keys of an account, or all; oldest first."""
    where = "WHERE :account IS NULL OR k.account_id = :account"
    return [rows.key(row) for row in await view.all(f"{rows.KEY} {where} ORDER BY a.name, k.id", account=account)]


async def grants(view: View, *, account: AccountId | None = None, repo: RepoId | None = None) -> list[Grant]:
    """Grants of an account, of a repository, or all."""
    where = "WHERE (:account IS NULL OR g.account_id = :account) AND (:repo IS NULL OR g.repo_id = :repo)"
    found = await view.all(f"{rows.GRANT} {where} ORDER BY a.name, g.repo_id, g.level", account=account, repo=repo)
    return [rows.grant(row) for row in found]


async def sessions(view: View, account: AccountId) -> list[WebSession]:
    """The live web sessions of an account, newest first."""
    where = "WHERE account_id = :account AND expires_at > :now ORDER BY id DESC"
    return [rows.session(row) for row in await view.all(f"{rows.SESSION} {where}", account=account, now=view.now)]


async def tokens(view: View, account: AccountId) -> list[Token]:
    """The bearer tokens of an account, by name."""
    where = "WHERE account_id = :account ORDER BY name"
    return [rows.token(row) for row in await view.all(f"{rows.BEARERS} {where}", account=account)]


async def _person(view: View, account: Account) -> Person:
    return rows.person(account, await view.all(rows.LEVELS, account=account.id))


async def account_document(view: View, name: AccountName) -> AccountDocument | None:
    """What `vole-admin.git` says of the account; None where there is none of the name."""
    row = await view.one(f"{rows.ACCOUNT} WHERE name = :name", name=name)
    if row is None:
        return None
    account = rows.account(row)
    granted = await view.all(
        "SELECT p.name, g.level, g.created_at FROM grants g JOIN repos p ON p.id = g.repo_id "
        "WHERE g.account_id = :account ORDER BY p.name, g.level",
        account=account.id,
    )
    return AccountDocument(
        str(account.id),
        account.name,
        account.admin,
        account.created_at,
        tuple(
            KeyDocument(str(key.id), key.kind, key.fingerprint, key.public_key, key.comment, key.created_at)
            for key in await keys(view, account.id)
        ),
        tuple(GrantDocument(row["name"], row["level"], Moment(row["created_at"])) for row in granted),
    )
