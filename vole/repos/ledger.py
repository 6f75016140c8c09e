"""The only writer of repositories, pushes and their intents. Plain functions of a transaction; never reads git."""

from __future__ import annotations

import json
from collections.abc import Collection

from vole.base.errors import Conflict, NotFound, Unavailable
from vole.base.ids import PushId, RefName, RepoId, RepoName
from vole.repos import rows
from vole.repos.model import Intent, Repo
from vole.store.database import Tx


def create_repo(tx: Tx, name: RepoName, *, public: bool, description: str = "") -> Repo:
    """Raises Conflict for a name that is taken."""
    if tx.one("SELECT 1 FROM repos WHERE name = :name", name=name):
        raise Conflict(f"there is a repository {name!r} already")
    repo = Repo(RepoId(tx.ident()), name, public, description, tx.now)
    tx.run(
        "INSERT INTO repos (id, name, public, description, created_at) "
        "VALUES (:id, :name, :public, :description, :now)",
        id=repo.id,
        name=name,
        public=int(public),
        description=description,
        now=tx.now,
    )
    return repo


def named(tx: Tx, name: RepoName) -> Repo:
    """Raises NotFound."""
    row = tx.one(f"{rows.REPO} WHERE name = :name", name=name)
    if row is None:
        raise NotFound(f"there is no repository {name!r}")
    return rows.repo(row)


def remove_repo(tx: Tx, repo: RepoId) -> None:
    """Forget a repository with its pushes. The other rooms drop theirs in the same change. Raises NotFound."""
    if not tx.run("DELETE FROM repos WHERE id = :repo", repo=repo):
        raise NotFound("there is no such repository")


def set_public(tx: Tx, repo: RepoId, *, public: bool) -> None:
    """Raises NotFound."""
    if not tx.run("UPDATE repos SET public = :public WHERE id = :repo", public=int(public), repo=repo):
        raise NotFound("there is no such repository")


def set_description(tx: Tx, repo: RepoId, description: str) -> None:
    """Raises NotFound."""
    if not tx.run("UPDATE repos SET description = :text WHERE id = :repo", text=description, repo=repo):
        raise NotFound("there is no such repository")


def intend(tx: Tx, intent: Intent) -> PushId:
    """Write down what a push means to do, before git moves a ref.

    Raises NotFound when the repository is gone, Unavailable while another intent of it is open: "the ref equals
    new" would prove nothing then.
    """
    if not tx.one("SELECT 1 FROM repos WHERE id = :repo", repo=intent.repo):
        raise NotFound("the repository was removed during the push")
    if tx.one("SELECT 1 FROM pushes WHERE repo_id = :repo AND state = 'intended'", repo=intent.repo):
        raise Unavailable("an earlier push to this repository is not settled yet", next_step="push again in a moment")
    push = PushId(tx.ident())
    tx.run(
        "INSERT INTO pushes (id, repo_id, account, key_fingerprint, options, state, received_at) "
        "VALUES (:id, :repo, :account, :key, :options, 'intended', :now)",
        id=push,
        repo=intent.repo,
        account=intent.account,
        key=intent.key_fingerprint,
        options=json.dumps(intent.options),
        now=tx.now,
    )
    tx.run_many(
        "INSERT INTO push_updates (push_id, ordinal, ref, old, new) VALUES (:push, :at, :ref, :old, :new)",
        (
            {"push": push, "at": at, "ref": update.ref, "old": update.old, "new": update.new}
            for at, update in enumerate(intent.updates)
        ),
    )
    tx.run_many(
        "INSERT INTO push_runs (push_id, ordinal, ref, document) VALUES (:push, :at, :ref, :document)",
        ({"push": push, "at": at, "ref": run.ref, "document": run.text} for at, run in enumerate(intent.runs)),
    )
    return push


def confirm(tx: Tx, push: PushId, moved: Collection[RefName]) -> bool:
    """Settle an intent whose refs `moved` now stand where it meant; whether it was open until now.

    With no ref moved this drops it. One that is settled already, or went with its repository, is left alone.
    """
    if not tx.run(
        "UPDATE pushes SET state = :state, settled_at = :now WHERE id = :push AND state = 'intended'",
        state="confirmed" if moved else "dropped",
        now=tx.now,
        push=push,
    ):
        return False
    tx.run_many(
        "UPDATE push_updates SET moved = :moved WHERE push_id = :push AND ordinal = :at",
        [
            {"moved": int(row["ref"] in moved), "push": push, "at": row["ordinal"]}
            for row in tx.all(rows.UPDATES, push=push)
        ],
    )
    tx.run("DELETE FROM push_runs WHERE push_id = :push", push=push)
    return True
