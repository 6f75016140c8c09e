"""The only writer of what is known of evidence: what attempts left, gates, statuses, and what of it was removed.

Plain functions of a transaction.
"""

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
from vole.store.database import Row, Tx
from vole.wire import codec
from vole.wire.documents import GateDocument
from vole.wire.records import AttemptRecord, ReportedTests
from vole.wire.runner import ArtifactFile, Finish, Mark

_DAY_S = 86_400
_OVER = """
UPDATE artifacts
SET removed_at = max(expires_at, created_at),
  removed_why = 'after ' || ((expires_at - created_at) / 86400000000) || ' days'
WHERE expires_at <= :now AND removed_at IS NULL"""
_OF_JOBS = ("marks", "annotations", "summaries", "reports")
_EACH_RUN = "SELECT value FROM json_each(:runs)"

Stored = tuple[RepoId, str]
"""A file of an artifact: its repository and its SHA-256."""
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
_REPORTS = "INSERT INTO reports (job_id, epoch, run_id, document) VALUES (:job, :epoch, :run, :document)"
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


def add_tests(tx: Tx, attempt: Attempt, tests: ReportedTests) -> None:
    """Keep what the attempt's test reports say."""
    document = codec.canonical(tests).decode()
    tx.run(_REPORTS, job=attempt.job, epoch=attempt.epoch, run=attempt.run, document=document)


def restore(tx: Tx, attempt: Attempt, known: AttemptRecord) -> None:
    """What an attempt's record tells of its evidence. The bytes of artifacts whose days are over are gone."""
    add_marks(tx, attempt.job, attempt.epoch, known.marks)
    key = {"job": attempt.job, "epoch": attempt.epoch, "run": attempt.run}
    tx.run_many(_ANNOTATION, ({**key, "ordinal": at, **vars(note)} for at, note in enumerate(known.annotations)))
    if known.summary is not None:
        tx.run(_SUMMARY, text=known.summary, **key)
    if known.tests is not None:
        add_tests(tx, attempt, known.tests)
    tx.run_many(
        _ARTIFACT,
        ({**key, **vars(file), "repo": attempt.repo, "at": known.ended_at} for file in known.artifacts),
    )
    tx.run(f"{_OVER} AND job_id = :job AND epoch = :epoch", now=tx.now, job=attempt.job, epoch=attempt.epoch)


def drop_repo(tx: Tx, repo: RepoId) -> None:
    """Forget the evidence of a repository. Its files go after the commit."""
    for table in (*_OF_JOBS, "removed_logs"):
        tx.run(f"DELETE FROM {table} WHERE job_id IN (SELECT id FROM jobs WHERE repo_id = :repo)", repo=repo)
    for table in ("artifacts", "gates", "statuses"):
        tx.run(f"DELETE FROM {table} WHERE repo_id = :repo", repo=repo)


def drop_runs(tx: Tx, runs: Iterable[RunId]) -> list[Stored]:
    """Forget the evidence of runs before the runs themselves go; the files that nothing names any more."""
    these = {"runs": json.dumps(list(runs))}
    for table in (*_OF_JOBS, "removed_logs"):
        jobs = f"SELECT id FROM jobs WHERE run_id IN ({_EACH_RUN})"
        tx.run(f"DELETE FROM {table} WHERE job_id IN ({jobs})", **these)
    gone = tx.all(f"DELETE FROM artifacts WHERE run_id IN ({_EACH_RUN}) RETURNING repo_id, sha256", **these)
    return _unnamed(tx, gone)


def expire_artifacts(tx: Tx, busy: AbstractSet[RepoId]) -> list[Stored]:
    """The bytes of artifacts whose days are over go, and their rows say so; the files that nothing names any more.

    A repository in `busy` waits: a job of it may be counting on bytes that are stored already.
    """
    over = "FROM artifacts WHERE expires_at <= :now AND removed_at IS NULL"
    found = [RepoId(row["repo_id"]) for row in tx.all(f"SELECT DISTINCT repo_id {over}", now=tx.now)]
    gone: list[Row] = []
    for repo in found:
        if repo not in busy:
            gone += tx.all(
                f"{_OVER} AND repo_id = :repo RETURNING repo_id, sha256",
                now=tx.now,
                repo=repo,
            )
    return _unnamed(tx, gone)


def remove_artifacts(tx: Tx, run: RunId, job: JobId | None, name: str | None, why: str) -> tuple[int, list[Stored]]:
    """The bytes of a run's artifacts go, of one job or one name where given: how many, and the files as above."""
    gone = tx.all(
        "UPDATE artifacts SET removed_at = :now, removed_why = :why "
        "WHERE run_id = :run AND coalesce(:job, job_id) = job_id AND coalesce(:name, name) = name "
        "AND removed_at IS NULL RETURNING repo_id, sha256",
        now=tx.now,
        run=run,
        job=job,
        name=name,
        why=why,
    )
    return len(gone), _unnamed(tx, gone)


def note_lost_artifacts(tx: Tx, lost: Iterable[Stored], why: str) -> None:
    """The bytes of these files are not there any more."""
    tx.run_many(
        "UPDATE artifacts SET removed_at = :now, removed_why = :why "
        "WHERE repo_id = :repo AND sha256 = :sha256 AND removed_at IS NULL",
        ({"now": tx.now, "why": why, "repo": repo, "sha256": sha256} for repo, sha256 in lost),
    )


def note_removed_logs(tx: Tx, removed: Mapping[tuple[JobId, Epoch], int], why: str) -> None:
    """The files of these logs are gone; of each how many bytes it had. Said twice it stays as it was first."""
    tx.run_many(
        "INSERT INTO removed_logs (job_id, epoch, removed_at, bytes, why) "
        "VALUES (:job, :epoch, :now, :bytes, :why) ON CONFLICT DO NOTHING",
        (
            {"job": job, "epoch": epoch, "now": tx.now, "bytes": count, "why": why}
            for (job, epoch), count in removed.items()
        ),
    )


def _unnamed(tx: Tx, gone: Iterable[Row]) -> list[Stored]:
    named = dict.fromkeys((RepoId(row["repo_id"]), str(row["sha256"])) for row in gone)
    still = "SELECT 1 FROM artifacts WHERE repo_id = :repo AND sha256 = :sha256 AND removed_at IS NULL LIMIT 1"
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
