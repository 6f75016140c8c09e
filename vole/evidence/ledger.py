"""The only writer of marks, artifacts, annotations, summaries, gates and statuses. Plain functions of a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import Exhausted, NotFound
from vole.base.ids import AccountName, CommitId, Epoch, JobId, RepoId, RunId
from vole.evidence.gates import Requirement
from vole.evidence.model import Reported, check_file
from vole.store.database import Tx
from vole.wire.documents import GateDocument
from vole.wire.records import AttemptRecord
from vole.wire.runner import ArtifactFile, Finish, Mark

_DAY_S = 86_400
_MARK = """
INSERT INTO marks (job_id, epoch, ordinal, log_offset, at, step, kind, title)
SELECT :job, :epoch, (SELECT COUNT(*) FROM marks WHERE job_id = :job AND epoch = :epoch),
  :offset, :at, :step, :kind, :title
WHERE NOT EXISTS (
  SELECT 1 FROM marks WHERE job_id = :job AND epoch = :epoch AND step = :step AND kind = :kind)"""

_ANNOTATION = """
INSERT INTO annotations (job_id, epoch, run_id, ordinal, level, message, file, line)
VALUES (:job, :epoch, :run, :ordinal, :level, :message, :file, :line)"""
_SUMMARY = "INSERT INTO summaries (job_id, epoch, run_id, markdown) VALUES (:job, :epoch, :run, :text)"
_ARTIFACT = """
INSERT INTO artifacts (job_id, epoch, repo_id, run_id, name, path, size, sha256, created_at, expires_at)
VALUES (:job, :epoch, :repo, :run, :name, :path, :size, :sha256, :at, :expires_at)
ON CONFLICT DO NOTHING"""


@dataclass(frozen=True)
class Attempt:
    """Whose evidence it is."""

    repo: RepoId
    run: RunId
    job: JobId
    epoch: Epoch


def add_marks(tx: Tx, job: JobId, epoch: Epoch, marks: Sequence[Mark]) -> None:
    """Keep where steps begin and end. A border said again, after a lost answer, stays where it was first."""
    tx.run_many(
        _MARK,
        (
            {"job": job, "epoch": epoch, "offset": mark.offset, "at": mark.time_us, "step": mark.step}
            | {"kind": mark.kind, "title": mark.title[: limits.TEXT_CHARS_MAX]}
            for mark in marks
        ),
    )


def add_result(tx: Tx, attempt: Attempt, result: Finish, retention_days: Mapping[str, int | None]) -> None:
    """Keep what an accepted result brought: annotations and summary up to their bounds, and the list of artifacts.

    `retention_days` by artifact name, None for the server's default. Raises Exhausted for too many files.
    """
    key = {"job": attempt.job, "epoch": attempt.epoch, "run": attempt.run}
    tx.run_many(
        _ANNOTATION,
        (
            {**key, "ordinal": at, "level": note.level, "file": note.file[: limits.TEXT_CHARS_MAX], "line": note.line}
            | {"message": note.message[: limits.ANNOTATION_CHARS_MAX]}
            for at, note in enumerate(result.annotations[: limits.ANNOTATIONS_MAX])
        ),
    )
    if result.summary:
        markdown = result.summary.encode()[: limits.SUMMARY_BYTES_MAX].decode(errors="ignore")
        tx.run(_SUMMARY, text=markdown, **key)
    _add_artifacts(tx, attempt, result.artifacts, retention_days)


def restore(tx: Tx, attempt: Attempt, known: AttemptRecord) -> None:
    """What an attempt's record tells of its evidence. Artifacts whose days are over do not come back."""
    add_marks(tx, attempt.job, attempt.epoch, known.marks)
    key = {"job": attempt.job, "epoch": attempt.epoch, "run": attempt.run}
    tx.run_many(_ANNOTATION, ({**key, "ordinal": at, **vars(note)} for at, note in enumerate(known.annotations)))
    if known.summary is not None:
        tx.run(_SUMMARY, text=known.summary, **key)
    tx.run_many(
        _ARTIFACT,
        (
            {**key, **vars(file), "repo": attempt.repo, "at": known.ended_at}
            for file in known.artifacts
            if file.expires_at is None or file.expires_at > tx.now
        ),
    )


def drop_repo(tx: Tx, repo: RepoId) -> None:
    """Forget the evidence of a repository. Its files go after the commit."""
    for table in ("marks", "annotations", "summaries"):
        tx.run(f"DELETE FROM {table} WHERE job_id IN (SELECT id FROM jobs WHERE repo_id = :repo)", repo=repo)
    for table in ("artifacts", "gates", "statuses"):
        tx.run(f"DELETE FROM {table} WHERE repo_id = :repo", repo=repo)


def expire_artifacts(tx: Tx, busy: AbstractSet[RepoId]) -> list[tuple[RepoId, str]]:
    """Forget artifacts whose days are over; the files (repository, SHA-256) that nothing names any more.

    A repository in `busy` waits: a job of it may be counting on bytes that are stored already.
    """
    over = "FROM artifacts WHERE expires_at <= :now"
    found = [RepoId(row["repo_id"]) for row in tx.all(f"SELECT DISTINCT repo_id {over}", now=tx.now)]
    named: dict[tuple[RepoId, str], None] = {}
    for repo in found:
        if repo not in busy:
            gone = tx.all(f"DELETE {over} AND repo_id = :repo RETURNING sha256", now=tx.now, repo=repo)
            named |= dict.fromkeys((repo, row["sha256"]) for row in gone)
    still = "SELECT 1 FROM artifacts WHERE repo_id = :repo AND sha256 = :sha256 LIMIT 1"
    return [(repo, sha256) for repo, sha256 in named if tx.one(still, repo=repo, sha256=sha256) is None]


def set_gate(tx: Tx, repo: RepoId, pattern: str, requires: Sequence[Requirement], by: AccountName) -> None:
    """From now on branches that `pattern` matches demand `requires`, and nothing that it demanded before.

    Raises Exhausted over GATES_MAX.
    """
    others = tx.one("SELECT count(*) AS n FROM gates WHERE repo_id = :r AND pattern <> :p", r=repo, p=pattern)
    if others is not None and others["n"] >= limits.GATES_MAX:
        raise Exhausted(f"a repository has at most {limits.GATES_MAX} gates (GATES_MAX)", next_step="gate remove one")
    tx.run(
        """
        INSERT INTO gates (repo_id, pattern, requires, set_by, set_at)
        VALUES (:repo, :pattern, :requires, :by, :now)
        ON CONFLICT DO UPDATE SET requires = :requires, set_by = :by, set_at = :now""",
        repo=repo,
        pattern=pattern,
        requires=json.dumps([one.text for one in requires]),
        by=by,
        now=tx.now,
    )


def restore_gates(tx: Tx, repo: RepoId, gates: Iterable[GateDocument]) -> None:
    """The gates of a repository as they were."""
    tx.run_many(
        "INSERT INTO gates (repo_id, pattern, requires, set_by, set_at) "
        "VALUES (:repo, :pattern, :requires, :set_by, :set_at)",
        ({**vars(gate), "repo": repo, "requires": json.dumps(gate.requires)} for gate in gates),
    )


def remove_gate(tx: Tx, repo: RepoId, pattern: str) -> None:
    """Raises NotFound."""
    if not tx.run("DELETE FROM gates WHERE repo_id = :repo AND pattern = :pattern", repo=repo, pattern=pattern):
        raise NotFound(f"there is no gate {pattern!r}", next_step="gate list says which there are")


def set_status(tx: Tx, repo: RepoId, commit: CommitId, said: Reported, by: AccountName) -> None:
    """Keep what was said last of a context. Raises Exhausted over STATUS_CONTEXTS_MAX."""
    key = {"repo": repo, "commit": commit, "context": said.context}
    count = "SELECT count(*) AS n FROM statuses WHERE repo_id = :repo AND commit_id = :commit AND context <> :context"
    others = tx.one(count, **key)
    if others is not None and others["n"] >= limits.STATUS_CONTEXTS_MAX:
        most = limits.STATUS_CONTEXTS_MAX
        raise Exhausted(f"a commit has statuses of at most {most} contexts (STATUS_CONTEXTS_MAX)")
    tx.run(
        """
        INSERT INTO statuses
          (repo_id, commit_id, context, state, target_url, description, account, created_at, updated_at)
        VALUES (:repo, :commit, :context, :state, :url, :description, :by, :now, :now)
        ON CONFLICT DO UPDATE
        SET state = :state, target_url = :url, description = :description, account = :by, updated_at = :now""",
        state=said.state,
        url=said.target_url,
        description=said.description,
        by=by,
        now=tx.now,
        **key,
    )


def _add_artifacts(
    tx: Tx, attempt: Attempt, files: Sequence[ArtifactFile], retention_days: Mapping[str, int | None]
) -> None:
    if len(files) > limits.ARTIFACT_FILES_MAX:
        raise Exhausted(f"{len(files)} artifact files; at most {limits.ARTIFACT_FILES_MAX} (ARTIFACT_FILES_MAX)")
    for file in files:
        check_file(file)
        days = retention_days.get(file.name)
        tx.run(
            _ARTIFACT,
            job=attempt.job,
            epoch=attempt.epoch,
            repo=attempt.repo,
            run=attempt.run,
            name=file.name,
            path=file.path,
            size=file.size,
            sha256=file.sha256,
            at=tx.now,
            expires_at=tx.now + seconds(days * _DAY_S) if days else None,  # 0 days: for ever
        )
