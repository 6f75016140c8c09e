"""The only writer of accounts, keys, grants, login links, sessions and tokens. Plain functions of a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from vole.base import limits
from vole.base.clock import after, seconds
from vole.base.entropy import digest
from vole.base.errors import Conflict, Denied, Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import AccountId, AccountName, KeyId, RepoId, RepoName
from vole.people import rows
from vole.people.model import Account, AccountDocument, Key, KeyKind, Level, PublicKey
from vole.store.database import Tx

TOKEN_NAME_CHARS_MAX = 64  # fits a column of `token list`


def add_account(tx: Tx, name: AccountName, *, admin: bool) -> AccountId:
    """Raises Conflict for a name that is taken."""
    if tx.one("SELECT 1 FROM accounts WHERE name = :name", name=name):
        raise Conflict(f"there is an account {name!r} already")
    account = AccountId(tx.ident())
    tx.run(
        "INSERT INTO accounts (id, name, admin, created_at) VALUES (:id, :name, :admin, :now)",
        id=account,
        name=name,
        admin=int(admin),
        now=tx.now,
    )
    return account


def account_named(tx: Tx, name: AccountName) -> Account:
    """Raises NotFound."""
    row = tx.one(f"{rows.ACCOUNT} WHERE name = :name", name=name)
    if row is None:
        raise NotFound(f"there is no account {visible(name, 80)!r}")
    return rows.account(row)


def remove_account(tx: Tx, name: AccountName) -> list[Key]:
    """Forget an account with its keys, grants, sessions and tokens; the keys that went. Raises NotFound."""
    account = account_named(tx, name)
    gone = [rows.key(row) for row in tx.all(f"{rows.KEY} WHERE k.account_id = :account", account=account.id)]
    tx.run("DELETE FROM accounts WHERE id = :id", id=account.id)
    return gone


def add_key(tx: Tx, account: AccountId, key: PublicKey, kind: KeyKind) -> KeyId:
    """Raises Conflict for a key that is known: a key belongs to exactly one account and is for one kind of work."""
    row = tx.one(f"{rows.KEY} WHERE k.fingerprint = :fingerprint", fingerprint=key.fingerprint)
    if row is not None:
        raise Conflict(
            f"key {key.fingerprint} is the {row['kind']} key of {row['account_name']!r} already",
            next_step="make another key for this: ssh-keygen -t ed25519",
        )
    ident = KeyId(tx.ident())
    tx.run(
        "INSERT INTO keys (id, account_id, kind, fingerprint, public_key, comment, created_at) "
        "VALUES (:id, :account, :kind, :fingerprint, :text, :comment, :now)",
        id=ident,
        account=account,
        kind=kind,
        fingerprint=key.fingerprint,
        text=key.text,
        comment=key.comment,
        now=tx.now,
    )
    return ident


def remove_key(tx: Tx, fingerprint: str, account: AccountId | None = None) -> Key:
    """The key that went. `account` restricts it to keys of theirs. Raises NotFound."""
    where = "WHERE k.fingerprint = :fingerprint AND (:account IS NULL OR k.account_id = :account)"
    row = tx.one(f"{rows.KEY} {where}", fingerprint=fingerprint, account=account)
    if row is None:
        raise NotFound(f"there is no key {visible(fingerprint, 80)!r}")
    tx.run("DELETE FROM keys WHERE id = :id", id=row["id"])
    return rows.key(row)


def grant(tx: Tx, account: AccountId, repo: RepoId, level: Level) -> None:
    """Granting twice is granting once."""
    tx.run(
        "INSERT OR IGNORE INTO grants (account_id, repo_id, level, created_at) VALUES (:account, :repo, :level, :now)",
        account=account,
        repo=repo,
        level=level,
        now=tx.now,
    )


def revoke_grant(tx: Tx, account: AccountId, repo: RepoId, level: Level | None = None) -> None:
    """Take back one level, or all of them. Raises NotFound where there is nothing to take back."""
    where = "account_id = :account AND repo_id = :repo AND (:level IS NULL OR level = :level)"
    if not tx.run(f"DELETE FROM grants WHERE {where}", account=account, repo=repo, level=level):
        raise NotFound("there is no such grant")


def drop_repo_grants(tx: Tx, repo: RepoId) -> None:
    """Part of forgetting a repository."""
    tx.run("DELETE FROM grants WHERE repo_id = :repo", repo=repo)


def runner_keys(tx: Tx, account: AccountId) -> list[str]:
    """The fingerprints of the account's runner keys, as of this transaction."""
    found = tx.all("SELECT fingerprint FROM keys WHERE account_id = :account AND kind = 'runner'", account=account)
    return [row["fingerprint"] for row in found]


def run_grants(tx: Tx) -> dict[AccountName, tuple[list[str], frozenset[RepoId]]]:
    """Runner keys and run grants of every account that has such a key, as of this transaction."""
    found = tx.all(
        "SELECT DISTINCT a.id, a.name FROM accounts a JOIN keys k ON k.account_id = a.id AND k.kind = 'runner'"
    )
    ids = {AccountName(row["name"]): AccountId(row["id"]) for row in found}
    return {name: (runner_keys(tx, account), run_grant(tx, account)) for name, account in ids.items()}


def run_grant(tx: Tx, account: AccountId) -> frozenset[RepoId]:
    """The repositories whose jobs the account's runners may take, as of this transaction."""
    found = tx.all("SELECT repo_id FROM grants WHERE account_id = :account AND level = 'run'", account=account)
    return frozenset(RepoId(row["repo_id"]) for row in found)


def runner_key_stands(tx: Tx, fingerprint: str) -> bool:
    """Whether that key is still a runner key, as of this transaction."""
    found = tx.one("SELECT 1 FROM keys WHERE fingerprint = :fingerprint AND kind = 'runner'", fingerprint=fingerprint)
    return found is not None


def restore_account(tx: Tx, known: AccountDocument, repos: Mapping[RepoName, RepoId]) -> None:
    """An account as it was, with its keys and its grants on `repos`; a repository that is not among them has none."""
    tx.run(
        "INSERT INTO accounts (id, name, admin, created_at) VALUES (:id, :name, :admin, :at)",
        id=int(known.id),
        name=known.name,
        admin=int(known.admin),
        at=known.created_at,
    )
    tx.run_many(
        "INSERT INTO keys (id, account_id, kind, fingerprint, public_key, comment, created_at) "
        "VALUES (:id, :account, :kind, :fingerprint, :public_key, :comment, :created_at)",
        ({**vars(key), "id": int(key.id), "account": int(known.id)} for key in known.keys),
    )
    tx.run_many(
        "INSERT INTO grants (account_id, repo_id, level, created_at) VALUES (:account, :repo, :level, :at)",
        (
            {"account": int(known.id), "repo": repos[grant.repository], "level": grant.level, "at": grant.created_at}
            for grant in known.grants
            if grant.repository in repos
        ),
    )


def make_login_link(tx: Tx, account: AccountId, token_digest: str) -> None:
    """A link that opens one session, once, within LOGIN_LINK_S. Dead links go."""
    tx.run("DELETE FROM login_links WHERE expires_at <= :now OR used_at IS NOT NULL", now=tx.now)
    tx.run(
        "INSERT INTO login_links (token_digest, account_id, expires_at) VALUES (:digest, :account, :expires_at)",
        digest=token_digest,
        account=account,
        expires_at=after(tx.now, seconds(limits.LOGIN_LINK_S)),
    )


def use_login_link(tx: Tx, token: str) -> AccountId:
    """Whose link that was. Raises Denied, in one shape, for an unknown, used or late one."""
    where = "token_digest = :digest AND used_at IS NULL AND expires_at > :now"
    row = tx.one(f"SELECT account_id FROM login_links WHERE {where}", digest=digest(token), now=tx.now)
    if row is None:
        raise Denied("this login link is not valid, or not any more", next_step="ask for a new one: ssh git@host login")
    tx.run("UPDATE login_links SET used_at = :now WHERE token_digest = :digest", digest=digest(token), now=tx.now)
    return AccountId(row["account_id"])


def open_session(tx: Tx, account: AccountId, token_digest: str) -> int:
    """A web session of SESSION_DAYS; its id. Dead sessions go."""
    tx.run("DELETE FROM sessions WHERE expires_at <= :now", now=tx.now)
    ident = tx.ident()
    tx.run(
        "INSERT INTO sessions (id, token_digest, account_id, created_at, expires_at) "
        "VALUES (:id, :digest, :account, :now, :expires_at)",
        id=ident,
        digest=token_digest,
        account=account,
        now=tx.now,
        expires_at=after(tx.now, seconds(limits.SESSION_DAYS * 86_400)),
    )
    return ident


def close_session(tx: Tx, account: AccountId, session: int) -> None:
    """Raises NotFound for a session that is not theirs."""
    if not tx.run("DELETE FROM sessions WHERE id = :id AND account_id = :account", id=session, account=account):
        raise NotFound(f"there is no session {session}")


def close_session_of(tx: Tx, token: str) -> None:
    """Log out the session that holds `token`; nothing happens when there is none."""
    tx.run("DELETE FROM sessions WHERE token_digest = :digest", digest=digest(token))


def add_token(tx: Tx, account: AccountId, name: str, token_digest: str, scope: str | None) -> int:
    """A bearer token kept as its digest; its id. Raises Conflict for a name that is taken, Invalid for a bad one."""
    if not name or len(name) > TOKEN_NAME_CHARS_MAX or visible(name) != name:
        raise Invalid(f"a token's name is 1 to {TOKEN_NAME_CHARS_MAX} printable characters")
    if tx.one("SELECT 1 FROM tokens WHERE account_id = :account AND name = :name", account=account, name=name):
        raise Conflict(f"there is a token {name!r} already", next_step="revoke it first, or choose another name")
    ident = tx.ident()
    tx.run(
        "INSERT INTO tokens (id, token_digest, account_id, name, scope, created_at) "
        "VALUES (:id, :digest, :account, :name, :scope, :now)",
        id=ident,
        digest=token_digest,
        account=account,
        name=name,
        scope=scope,
        now=tx.now,
    )
    return ident


def revoke_token(tx: Tx, account: AccountId, name: str) -> None:
    """Raises NotFound."""
    if not tx.run("DELETE FROM tokens WHERE account_id = :account AND name = :name", account=account, name=name):
        raise NotFound(f"there is no token {visible(name, 80)!r}")
