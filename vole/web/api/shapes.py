"""What things look like in the API. Names are those of the glossary; times are ISO 8601 in UTC; absent is null.

A field that was given once stays: programs hang on it. What a page shows beyond these is how it shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vole.base.clock import Moment, iso
from vole.evidence.model import Status
from vole.evidence.reads import AttemptTests, Note, StoredArtifact
from vole.evidence.reads.stored import RemovedLog
from vole.git.objects import Commit, Signature
from vole.jobs.explain import Explained
from vole.jobs.rows.shown import AttemptRow, Depth, JobRow, RunRow, WaitingRow
from vole.repos.model import Repo
from vole.web.pages import links
from vole.web.pages.runs import RunFacts
from vole.web.pages.visit import Visit
from vole.wire import codec

Shape = dict[str, Any]


def moment(at: Moment | None) -> str | None:
    return None if at is None else iso(at)


def url(visit: Visit, path: str) -> str:
    """The address of a page, of the configured one of the server."""
    return visit.house.parts.url + path


def repository(visit: Visit, repo: Repo, last: RunRow | None) -> Shape:
    parts = visit.house.parts
    return {
        "name": repo.name,
        "public": repo.public,
        "description": repo.description,
        "created_at": moment(repo.created_at),
        "clone": {
            "ssh": f"{parts.ssh_url}/{repo.name}.git",
            "http": f"{parts.url}/git/{repo.name}.git" if repo.public else None,
        },
        "last_run": None if last is None else run(visit, repo, last),
        "url": url(visit, links.repo(repo.name)),
    }


def run(visit: Visit, repo: Repo, row: RunRow) -> Shape:
    return {
        "address": f"{repo.name}/{row.number}",
        "repository": repo.name,
        "number": row.number,
        "state": row.state,
        "conclusion": row.conclusion,
        "marked": row.marked,
        "reason": row.reason,
        "workflow": row.workflow,
        "workflow_path": row.workflow_path,
        "workflow_blob": row.workflow_blob,
        "ref": row.ref,
        "commit": row.commit,
        "event": row.event.name,
        "message": row.event.message,
        "actor": row.actor,
        "attempt": row.attempt,
        "rerun_of": None if row.older is None else f"{repo.name}/{row.older}",
        "created_at": moment(row.created_at),
        "finished_at": moment(row.finished_at),
        "url": url(visit, links.run(repo.name, row.number)),
    }


def job(visit: Visit, facts: RunFacts, row: JobRow, why: Sequence[str], attempts: Sequence[AttemptRow]) -> Shape:
    """A job with its attempts, newest first, and why it waits, runner by runner."""
    name, of, removed = visit.repo.name, facts.run, facts.removed
    return {
        "address": f"{name}/{of.number}/{row.key}",
        "key": row.key,
        "job": row.job,
        "name": row.name,
        "state": row.state,
        "conclusion": row.conclusion,
        "marked": row.marked,
        "reason": row.reason,
        "why": list(why),
        "needs": list(row.needs),
        "labels": list(row.labels),
        "continue_on_error": row.continue_on_error,
        "timeout_s": row.timeout_us // 1_000_000,
        "timeout_from": row.timeout_from,
        "enqueued_at": moment(row.enqueued_at),
        "started_at": moment(row.started_at),
        "finished_at": moment(row.finished_at),
        "set_aside": row.set_aside,
        "attempts": [attempt(visit, of, row, one, removed.get((row.id, one.epoch))) for one in attempts],
        "url": url(visit, links.job(name, of.number, row.key)),
    }


def attempt(visit: Visit, of: RunRow, job: JobRow, row: AttemptRow, removed: RemovedLog | None) -> Shape:
    name = visit.repo.name
    return {
        "address": f"{name}/{of.number}/{job.key}@{row.epoch}",
        "epoch": row.epoch,
        "runner": row.runner,
        "account": row.account,
        "key_fingerprint": row.key_fingerprint,
        "runner_version": row.runner_version,
        "os": row.os,
        "arch": row.arch,
        "leased_at": moment(row.leased_at),
        "started_at": moment(row.started_at),
        "ended_at": moment(row.ended_at),
        "end_cause": row.end_cause,
        "end_detail": row.end_detail,
        "conclusion": row.conclusion,
        "log_state": row.log_state,
        "log_truncated": row.log_truncated,
        "log_removed_at": None if removed is None else iso(removed.at),
        "log_removed_why": None if removed is None else removed.why,
        "log_url": url(visit, links.job(name, of.number, job.key, row.epoch, raw=1)),
        "steps": [
            {"number": one.number, "name": one.name, "conclusion": one.conclusion, "continued": one.continued}
            for one in row.steps
        ],
    }


def waiting(visit: Visit, row: WaitingRow) -> Shape:
    return {
        "address": f"{row.repo_name}/{row.run}/{row.key}",
        "repository": row.repo_name,
        "run": row.run,
        "key": row.key,
        "state": row.state,
        "labels": list(row.labels),
        "reason": row.reason,
        "runner": row.runner,
        "event": row.event,
        "actor": row.actor,
        "rerun_of": None if row.older is None else f"{row.repo_name}/{row.older}",
        "enqueued_at": moment(row.enqueued_at),
        "since": moment(row.since),
        "url": url(visit, links.job(row.repo_name, row.run, row.key)),
    }


def depth(row: Depth, why: str | None) -> Shape:
    return {
        "labels": list(row.labels),
        "count": row.count,
        "oldest": f"{row.repo_name}/{row.run}/{row.key}",
        "oldest_since": moment(row.since),
        "why": why,
    }


def explained(one: Explained, prospect: str) -> Shape:
    """A job and every connected runner: `reason` is null where that runner would get it now."""
    return {
        "address": one.address,
        "state": one.demand.state,
        "conclusion": one.conclusion,
        "labels": sorted(one.demand.labels),
        "prospect": prospect,
        "runners": [
            {
                "runner": verdict.runner,
                "reason": None
                if verdict.reason is None
                else {
                    "code": verdict.reason.code,
                    "detail": verdict.reason.detail,
                    "sentence": verdict.reason.sentence,
                },
            }
            for verdict in one.verdicts
        ],
    }


def artifact(visit: Visit, of: RunRow, job: JobRow, row: StoredArtifact) -> Shape:
    path = links.artifact(visit.repo.name, of.number, job.key, row.epoch, row.sha256, row.path)
    return {
        "job": job.key,
        "epoch": row.epoch,
        "name": row.name,
        "path": row.path,
        "size": row.size,
        "sha256": row.sha256,
        "expires_at": moment(row.expires_at),
        "removed_at": moment(row.removed_at),
        "removed_why": row.removed_why or None,
        "url": url(visit, path),
    }


def note(job: JobRow, row: Note) -> Shape:
    place = {"file": row.file or None, "line": row.line or None}
    return {"job": job.key, "epoch": row.epoch, "level": row.level, "message": row.message, **place}


def tests(job: JobRow, row: AttemptTests) -> Shape:
    told: Shape = codec.to_json(row.told)
    return {"job": job.key, "epoch": row.epoch, "took_s": told.pop("time_us") / 1_000_000, **told}


def commit(visit: Visit, row: Commit) -> Shape:
    return {
        "id": row.id,
        "parents": list(row.parents),
        "author": _signature(row.author),
        "committer": _signature(row.committer),
        "message": row.message,
        "url": url(visit, links.commit(visit.repo.name, row.id)),
    }


def status(visit: Visit, row: Status) -> Shape:
    return {
        "context": row.context,
        "state": row.state,
        "target_url": row.target_url or None,
        "description": row.description or None,
        "creator": row.account,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
        "commit_url": url(visit, links.commit(visit.repo.name, row.commit)),
    }


def _signature(one: Signature) -> Shape:
    return {"name": one.name, "email": one.email, "at": moment(one.at)}
