from __future__ import annotations

import dataclasses

import pytest

from tests.queueing import Queue, a_result
from vole.base import limits
from vole.base.errors import Exhausted
from vole.base.ids import Epoch, JobId, RunId
from vole.evidence import ledger
from vole.wire.runner import Annotation, ArtifactFile, Mark

FILE = ArtifactFile("dist", "a.txt", 1, "0" * 64)


@pytest.fixture
def queue():
    return Queue(checked=False)


def an_attempt(queue):
    job = queue.job()
    run = queue.one("SELECT run_id FROM jobs")["run_id"]
    return ledger.Attempt(queue.repo("app"), RunId(run), job, Epoch(1))


def test_a_mark_said_twice_stays_where_it_was_first(queue):
    first, second = Mark(0, 10, 1, "begin", "build"), Mark(99, 20, 1, "begin", "build")

    queue.write(ledger.add_marks, JobId(5), Epoch(1), [first])
    queue.write(ledger.add_marks, JobId(5), Epoch(1), [second, Mark(7, 30, 1, "end")])

    assert [(row["ordinal"], row["log_offset"], row["kind"]) for row in queue.all("SELECT * FROM marks")] == [
        (0, 0, "begin"), (1, 7, "end"),
    ]  # fmt: skip


@pytest.mark.proves("SR-34")
def test_annotations_and_summary_are_kept_up_to_their_bounds(queue):
    attempt = an_attempt(queue)
    notes = (Annotation("error", "m" * 5_000, "a.py", 3),) * (limits.ANNOTATIONS_MAX + 9)
    result = dataclasses.replace(
        a_result(attempt.job, attempt.epoch), annotations=notes, summary="é" * limits.SUMMARY_BYTES_MAX
    )

    queue.write(ledger.add_result, attempt, result, {})

    found = queue.all("SELECT * FROM annotations")
    assert (len(found), len(found[0]["message"])) == (limits.ANNOTATIONS_MAX, limits.ANNOTATION_CHARS_MAX)
    assert len(queue.one("SELECT markdown FROM summaries")[0].encode()) <= limits.SUMMARY_BYTES_MAX


def test_an_artifact_has_the_days_that_its_job_was_pinned_with(queue):
    attempt = an_attempt(queue)
    result = dataclasses.replace(
        a_result(attempt.job, attempt.epoch), artifacts=(FILE, dataclasses.replace(FILE, name="docs"))
    )

    queue.write(ledger.add_result, attempt, result, {"dist": 2, "docs": None})

    expires = {row["name"]: row["expires_at"] for row in queue.all("SELECT * FROM artifacts")}
    assert expires == {"dist": queue.clock.now() + 2 * 86_400_000_000, "docs": None}


def test_too_many_artifact_files_are_refused_by_the_bounds_name(queue, monkeypatch):
    monkeypatch.setattr(limits, "ARTIFACT_FILES_MAX", 1)
    attempt = an_attempt(queue)
    result = dataclasses.replace(a_result(attempt.job, attempt.epoch), artifacts=(FILE, FILE))

    with pytest.raises(Exhausted, match="ARTIFACT_FILES_MAX"):
        queue.write(ledger.add_result, attempt, result, {})


def test_a_forgotten_repository_leaves_no_evidence(queue):
    attempt = an_attempt(queue)
    result = dataclasses.replace(
        a_result(attempt.job, attempt.epoch), artifacts=(FILE,), summary="x", annotations=(Annotation("notice", "m"),)
    )
    queue.write(ledger.add_marks, attempt.job, attempt.epoch, [Mark(0, 10, 1, "begin")])
    queue.write(ledger.add_result, attempt, result, {})

    queue.write(ledger.drop_repo, attempt.repo)

    for table in ("marks", "annotations", "summaries", "artifacts"):
        assert queue.all(f"SELECT * FROM {table}") == []
