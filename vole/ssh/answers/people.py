"""Answers about accounts, keys, grants, logins and tokens."""

from __future__ import annotations

from typing import get_args

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.ids import AccountName, RepoName
from vole.people import keys, reads
from vole.people.model import Level
from vole.people.scopes import Scope
from vole.repos import reads as repos
from vole.ssh.answers.counter import Cell, Counter, described, when


async def user_add(at: Counter) -> None:
    name = AccountName.parse(at.call["NAME"])
    await at.desk.administration.add_user(name, admin=at.call.has("--admin"))
    await at.say(f"{name} is an account now; give it a key: key add {name} < KEY.pub")


async def user_list(at: Counter) -> None:
    found = await at.desk.db.read(reads.accounts)
    rows = [(account.name, account.admin, when(account.created_at)) for account in found]
    await at.table(("name", "admin", "since"), rows, empty="no accounts yet: user add NAME")


async def user_remove(at: Counter) -> None:
    gone = await at.desk.administration.remove_user(AccountName.parse(at.call["NAME"]))
    await at.say(f"{at.call['NAME']} is forgotten, with {len(gone)} keys")


async def key_add(at: Counter) -> None:
    user = await at.account(at.call["USER"])
    key = keys.parse(await at.read_text())
    kind = "runner" if at.call.has("--runner") else "git"
    await at.desk.administration.add_key(user.name, key, "runner" if kind == "runner" else "git")
    await at.say(f"{key.fingerprint} is a {kind} key of {user.name} now")


async def key_list(at: Counter) -> None:
    name = at.call.get("USER") or (None if at.person.admin else at.person.name)
    owner = None if name is None else (await at.account(name)).account
    rows = [
        (key.account_name, key.kind, key.fingerprint, key.comment, when(key.created_at))
        for key in await at.desk.db.read(reads.keys, owner)
    ]
    await at.table(("user", "kind", "fingerprint", "comment", "since"), rows, empty="no keys: key add USER < KEY.pub")


async def key_remove(at: Counter) -> None:
    owner = None if at.person.admin else at.person.account
    key = await at.desk.administration.remove_key(at.call["FINGERPRINT"], owner)
    await at.say(f"{key.fingerprint} of {key.account_name} is removed")


async def runner_revoke(at: Counter) -> None:
    key = await at.desk.administration.remove_key(at.call["FINGERPRINT"], None, "runner")
    await at.say(f"{key.fingerprint} of {key.account_name} is removed; its runner loses its jobs within seconds")


async def grant(at: Counter) -> None:
    user, repo, level = (at.call.get(name) for name in ("USER", "REPO", "LEVEL"))
    if user is None or repo is None:
        await _list_grants(at, user)
    elif at.call.has("--remove"):
        wanted = None if level is None else _level(level)
        await at.desk.administration.revoke_grant(AccountName.parse(user), RepoName.parse(repo), wanted)
        await at.say(f"{user} has no {level or 'right'} on {repo} any more")
    else:
        await at.desk.administration.grant(AccountName.parse(user), RepoName.parse(repo), _level(level))
        await at.say(f"{user} has {level} on {repo}")


async def login(at: Counter) -> None:
    person = await at.subject()
    secret = await at.desk.administration.make_login_link(person.account)
    await at.say(f"{at.desk.url}/login/{secret}")
    await at.streams.err(f"valid once, for {limits.LOGIN_LINK_S // 60} minutes, for {person.name}\n".encode())


async def sessions(at: Counter) -> None:
    found = await at.desk.db.read(reads.sessions, (await at.subject()).account)
    rows = [(session.id, when(session.created_at), when(session.expires_at)) for session in found]
    await at.table(("id", "since", "until"), rows, empty="no open sessions")


async def sessions_revoke(at: Counter) -> None:
    ident = at.call["ID"]
    if not (ident.isascii() and ident.isdigit() and len(ident) < 20):
        raise Invalid(f"{ident!r} is no session's id; `sessions` lists them")
    await at.desk.administration.close_session((await at.subject()).account, int(ident))
    await at.say(f"session {ident} is ended")


async def token_create(at: Counter) -> None:
    scope = at.call.get("--scope")
    if scope is not None:
        wanted = Scope.parse(scope)
        if wanted.repo is not None:
            await at.repo(wanted.repo)
    secret = await at.desk.administration.create_token((await at.subject()).account, at.call["NAME"], scope)
    await at.say(secret)
    await at.streams.err(b"shown this once; kept as a digest only\n")


async def token_list(at: Counter) -> None:
    found = await at.desk.db.read(reads.tokens, (await at.subject()).account)
    rows = [(token.name, token.scope, when(token.created_at)) for token in found]
    await at.table(("name", "scope", "since"), rows, empty="no tokens")


async def token_revoke(at: Counter) -> None:
    await at.desk.administration.revoke_token((await at.subject()).account, at.call["NAME"])
    await at.say(f"token {at.call['NAME']} is ended")


async def ping(at: Counter) -> None:
    names = {repo.id: repo.name for repo in await at.desk.db.read(repos.repos)}
    rights = {names[repo]: sorted(levels) for repo, levels in at.person.levels.items() if repo in names}
    facts: dict[str, Cell] = {
        "version": at.desk.version,
        "url": at.desk.url,
        "account": at.person.name,
        "admin": at.person.admin,
    }
    if at.call.json:
        await at.json({**facts, "rights": rights})
        return
    shown = ", ".join(f"{repo} ({' '.join(levels)})" for repo, levels in sorted(rights.items()))
    everything = "every repository" if at.person.admin else "public repositories"
    await at.say(*described({**facts, "rights": shown or everything}))


async def _list_grants(at: Counter, user: str | None) -> None:
    owner = None if user is None else (await at.account(user)).account
    names = {repo.id: repo.name for repo in await at.desk.db.read(repos.repos)}
    rows = [
        (grant.account_name, names.get(grant.repo, RepoName("-")), grant.level, when(grant.created_at))
        for grant in await at.desk.db.read(reads.grants, account=owner)
    ]
    await at.table(("user", "repository", "level", "since"), rows, empty="no grants: grant USER REPO read|write|run")


def _level(text: str | None) -> Level:
    for level in get_args(Level):
        if text == level:
            return level  # type: ignore[no-any-return]
    raise Invalid(f"{text!r} is no level; there are: {', '.join(get_args(Level))}")
