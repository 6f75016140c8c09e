"""The only writer of repositories, pushes, their intents, and starts without a push.

Plain functions of a transaction; never reads git.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from vole.base import limits
from vole.base.clock import Moment
from vole.base.cron import first_after
from vole.base.errors import Conflict, NotFound, Unavailable
from vole.base.ids import AccountName, CommitId, PushId, RefName, RepoId, RepoName, StartId
from vole.repos import rows
from vole.repos.model import Intent, Origin, Repo, RepositoryDocument, Schedule, UnreadSchedules
from vole.store.database import Tx
from vole.wire.hook import RefUpdate


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


def forget_told(tx: Tx, row: int) -> None:
    """`vole-admin.git` says what was owed up to this row of its outbox."""
    tx.run("DELETE FROM admin_outbox WHERE id <= :row", row=row)


# ---- What a rebuild brings back


def restore_repo(tx: Tx, known: RepositoryDocument) -> Repo:
    """A repository as it was. Its schedules are to be read again."""
    repo = Repo(RepoId(int(known.id)), known.name, known.public, known.description, known.created_at)
    tx.run(
        "INSERT INTO repos (id, name, public, description, created_at) "
        "VALUES (:id, :name, :public, :description, :created_at)",
        **vars(repo),
    )
    mark_schedules(tx, repo.id, declared=True)
    return repo


def adopt_refs(tx: Tx, repo: RepoId, refs: Mapping[RefName, CommitId]) -> None:
    """Where the refs of a repository stand is where pushes put them: nobody knows better any more."""
    push = tx.ident()
    _restore_push(tx, repo, push, "", tx.now)
    tx.run_many(
        "INSERT INTO push_updates (push_id, ordinal, ref, new, moved) VALUES (:push, :at, :ref, :new, 1)",
        ({"push": push, "at": at, "ref": ref, "new": new} for at, (ref, new) in enumerate(refs.items())),
    )


def restore_origin(tx: Tx, origin: Origin) -> None:
    """What a run came from: a push, a person, a minute. Restored once, however many runs it started."""
    if origin.pushed:
        _restore_push(tx, origin.repo, origin.id, origin.account or "", origin.at)
        return
    tx.run(
        "INSERT OR IGNORE INTO starts (id, repo_id, workflow_path, account, due_at, started_at) "
        "VALUES (:id, :repo, :path, :account, :due, :at)",
        id=origin.id,
        repo=origin.repo,
        path=origin.workflow_path,
        account=origin.account,
        due=origin.due_at,
        at=origin.at,
    )


def _restore_push(tx: Tx, repo: RepoId, push: int, account: str, at: Moment) -> None:
    tx.run(
        "INSERT OR IGNORE INTO pushes (id, repo_id, account, key_fingerprint, options, state, received_at, settled_at) "
        "VALUES (:id, :repo, :account, '', '[]', 'confirmed', :at, :at)",
        id=push,
        repo=repo,
        account=account,
        at=at,
    )


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


def note_moved(tx: Tx, repo: RepoId, by: AccountName, updates: Iterable[RefUpdate]) -> None:
    """Refs stand elsewhere than any push said, and that is known: a restore found them so. They start no run."""
    push = tx.ident()
    _restore_push(tx, repo, push, by, tx.now)
    tx.run_many(
        "INSERT INTO push_updates (push_id, ordinal, ref, old, new, moved) VALUES (:push, :at, :ref, :old, :new, 1)",
        (
            {"push": push, "at": at, "ref": update.ref, "old": update.old, "new": update.new}
            for at, update in enumerate(updates)
        ),
    )


# ---- Starts without a push


def start_by_hand(tx: Tx, repo: RepoId, path: str, account: AccountName) -> StartId:
    """Write down that a person starts a workflow. Raises NotFound when the repository is gone."""
    if not tx.one("SELECT 1 FROM repos WHERE id = :repo", repo=repo):
        raise NotFound("the repository was removed just now")
    start = StartId(tx.ident())
    tx.run(
        "INSERT INTO starts (id, repo_id, workflow_path, account, started_at) "
        "VALUES (:id, :repo, :path, :account, :now)",
        id=start,
        repo=repo,
        path=path,
        account=account,
        now=tx.now,
    )
    return start


def start_by_clock(tx: Tx, due: Schedule) -> StartId | None:
    """Take a schedule's time, and move it on to its next one; None when that minute started the workflow before.

    None, too, when the schedule is another one or gone meanwhile.
    """
    if not _move_on(tx, due, ""):
        return None
    start = StartId(tx.ident())
    taken = tx.run(
        "INSERT INTO starts (id, repo_id, workflow_path, due_at, started_at) "
        "VALUES (:id, :repo, :path, :due, :now) ON CONFLICT (repo_id, workflow_path, due_at) DO NOTHING",
        id=start,
        repo=due.repo,
        path=due.path,
        due=due.next_at,
        now=tx.now,
    )
    return start if taken else None


def pass_time(tx: Tx, due: Schedule, problem: str) -> None:
    """The time has come and starts nothing, for this reason."""
    _move_on(tx, due, problem[: limits.PROBLEM_CHARS_MAX])


def put_back(tx: Tx, schedule: Schedule) -> None:
    """The clock went back: the next time is the first from now. Minutes that had their run keep it."""
    tx.run(
        "UPDATE schedules SET next_at = :next WHERE repo_id = :repo AND workflow_path = :path AND next_at > :next",
        next=first_after(schedule.times, tx.now),
        repo=schedule.repo,
        path=schedule.path,
    )


def mark_schedules(tx: Tx, repo: RepoId, *, declared: bool) -> None:
    """The default branch may have moved: read the schedules again. `declared`: there may be some where none were."""
    marked = tx.run("UPDATE schedule_reads SET marked = marked + 1 WHERE repo_id = :repo", repo=repo)
    if declared and not marked:
        tx.run("INSERT INTO schedule_reads (repo_id) SELECT id FROM repos WHERE id = :repo", repo=repo)


def set_schedules(tx: Tx, unread: UnreadSchedules, found: Mapping[str, tuple[str, ...]]) -> None:
    """These are the times of the repository's workflows, by path. One whose lines are the same keeps its next time.

    Nothing happens when the branch has moved again since it was read.
    """
    named = {"repo": unread.repo, "marked": unread.marked}
    if not tx.run("UPDATE schedule_reads SET seen = :marked WHERE repo_id = :repo AND marked = :marked", **named):
        return
    known = {row["workflow_path"]: row for row in tx.all(f"{rows.SCHEDULE} WHERE s.repo_id = :repo", repo=unread.repo)}
    for path in known.keys() - found.keys():
        tx.run("DELETE FROM schedules WHERE repo_id = :repo AND workflow_path = :path", repo=unread.repo, path=path)
    for path, times in found.items():
        if path in known and tuple(json.loads(known[path]["times"])) == times:
            continue
        tx.run(
            "INSERT INTO schedules (repo_id, workflow_path, times, next_at) VALUES (:repo, :path, :times, :next) "
            "ON CONFLICT (repo_id, workflow_path) DO UPDATE SET times = :times, next_at = :next, problem = ''",
            repo=unread.repo,
            path=path,
            times=json.dumps(times),
            next=first_after(times, tx.now),
        )
    if not found:
        tx.run("DELETE FROM schedule_reads WHERE repo_id = :repo", repo=unread.repo)


def _move_on(tx: Tx, due: Schedule, problem: str) -> bool:
    """Past every time that has come: those that were missed have one run together."""
    return bool(
        tx.run(
            "UPDATE schedules SET next_at = :next, problem = :problem "
            "WHERE repo_id = :repo AND workflow_path = :path AND next_at = :due AND times = :times",
            next=first_after(due.times, max(tx.now, due.next_at)),
            problem=problem,
            repo=due.repo,
            path=due.path,
            due=due.next_at,
            times=json.dumps(due.times),
        )
    )
