"""What ends becomes a record in git: once, after it is durable, and as database and page have it."""

from __future__ import annotations

import hashlib

import pytest

from tests.aio import run
from tests.queueing import EVENT, a_job, a_result, a_run
from tests.recorded import a_recorder, commits, documents, git
from vole.base import limits
from vole.base.clock import seconds
from vole.base.ids import RepoName
from vole.flows.administration import forget_repo
from vole.flows.retention import expire_artifacts
from vole.git.records import RUNS
from vole.jobs import ledger
from vole.store.database import Database
from vole.wire import runner

pytestmark = pytest.mark.needs("git")
TEST, RUN = "runs/000/001/test/1.json", "runs/000/001/run.json"


async def a_result_is_taken(server, conclusion="success", **more):
    """app/1/test@1."""
    await server.account("mac-1", "app")
    await server.enqueues(a_run(a_job("test", runs_on=("linux",))))
    session = await server.connects("mac-1", ("linux", "fast"))
    job = await server.takes(session)
    await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch, conclusion, **more))
    return job


@pytest.mark.proves("I-36", "SR-40")
def test_an_attempt_and_its_run_become_one_signed_commit(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            job = await a_result_is_taken(server, "failure", reason="exit 1", summary="# no")
            await server.enqueues(a_run(a_job("waits")), push=2)
            before = documents(tmp_path)

            await recording.once()

            found = documents(tmp_path)
            assert (before, commits(tmp_path)) == ({}, ["2 records of app"])
            assert server.rows("SELECT * FROM record_outbox") == []
            return job, found

    job, found = run(story())
    assert set(found) == {TEST, RUN}
    attempt, whole = found[TEST], found[RUN]
    assert [attempt[key] for key in ("repository", "run", "job", "attempt")] == ["app", 1, "test", 1]
    assert [attempt[key] for key in ("labels", "conclusion", "summary")] == [["linux"], "failure", "# no"]
    assert (attempt["commit"], attempt["job_digest"]) == (EVENT.after, job.digest)
    assert attempt["runner"] == {
        "account": "mac-1", "key": "SHA256:mac-1", "name": "mac-1", "version": "0", "os": "linux", "arch": "x64",
    }  # fmt: skip
    assert attempt["outcome"] == whole["jobs"][0]["outcome"] == {
        "conclusion": "failure", "reason": "exit 1", "marked": False
    }  # fmt: skip
    assert (whole["conclusion"], whole["jobs"][0]["epochs"], whole["actor"]) == ("failure", [1], "ada")


class Forgetful(Database):
    """A store that dies before or after it hears that records stand in git."""

    dies = ""

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        if change is not ledger.mark_recorded or not self.dies:
            return await super().write(change, *args, **kwargs)
        if self.dies == "after":
            await super().write(change, *args, **kwargs)
        raise KeyboardInterrupt


@pytest.mark.proves("I-36", "I-38")
@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_death_around_the_last_step_leaves_one_record(tmp_path, monkeypatch, dies):
    async def first_life():
        async with a_recorder(tmp_path, store=Forgetful) as (server, recording):
            await a_result_is_taken(server)
            monkeypatch.setattr(Forgetful, "dies", dies)
            with pytest.raises(KeyboardInterrupt):
                await recording.once()

    async def next_life():
        async with a_recorder(tmp_path) as (server, recording):
            await recording.once()
            return server.rows("SELECT * FROM record_outbox")

    run(first_life())
    tip = git(tmp_path, "app", "rev-parse", RUNS)
    assert run(next_life()) == []
    assert git(tmp_path, "app", "rev-parse", RUNS) == tip
    assert set(documents(tmp_path)) == {TEST, RUN}


@pytest.mark.proves("I-37")
def test_a_lost_attempt_has_the_log_that_is_stored_and_the_job_goes_on(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app")
            await server.enqueues(a_run())
            session = await server.connects("mac-1")
            job = await server.takes(session)
            await server.leasing.append_log(session, job.lease.job, job.lease.epoch, 0, b"half a li")
            for _ in range(80):
                server.clock.advance(seconds(1))
                await server.upkeep.once()
            await recording.once()
            return documents(tmp_path)

    found = run(story())
    assert set(found) == {TEST}
    assert (found[TEST]["conclusion"], found[TEST]["cause"], "outcome" in found[TEST]) == ("lost", "expired", False)
    assert found[TEST]["log"] == {
        "bytes": 9, "sha256": hashlib.sha256(b"half a li").hexdigest(), "state": "incomplete", "truncated": False,
    }  # fmt: skip


@pytest.mark.proves("I-37")
def test_a_log_with_other_bytes_than_declared_is_told_with_both(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app")
            await server.enqueues(a_run())
            session = await server.connects("mac-1")
            job = await server.takes(session)
            await server.leasing.append_log(session, job.lease.job, job.lease.epoch, 0, b"half a li")
            seal = runner.LogSeal(12, "f" * 64)
            await server.leasing.finish(session, runner.Finish(job.lease.job, job.lease.epoch, "success", seal))
            await recording.once()
            return documents(tmp_path)[TEST]

    record = run(story())
    assert (record["detail"], record["conclusion"]) == ("log incomplete: 9 of 12 bytes", "success")
    assert record["log"] == {
        "bytes": 9, "sha256": hashlib.sha256(b"half a li").hexdigest(), "state": "incomplete", "truncated": False,
        "declared_bytes": 12, "declared_sha256": "f" * 64,
    }  # fmt: skip


@pytest.mark.proves("I-36")
def test_what_never_ran_stands_in_the_record_of_its_run_alone(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app")
            await server.enqueues(a_run(a_job("test"), a_job("after", needs=("test",))))
            session = await server.connects("mac-1")
            job = await server.gets(session)
            await server.leasing.handback(session, runner.Handback(job.lease.job, job.lease.epoch, "busy"))
            queued = server.rows("SELECT run_id FROM jobs")[0]["run_id"]
            await server.db.write(ledger.cancel_run, server.index, queued, "cancelled by ada")
            await server.enqueues(a_run(skipped="filter"), push=2)
            await recording.once()
            return documents(tmp_path)

    found = run(story())
    assert set(found) == {RUN, "runs/000/002/run.json"}
    test, after = found[RUN]["jobs"]
    assert [job["outcome"]["conclusion"] for job in (test, after)] == ["cancelled", "cancelled"]
    assert (test["epochs"], [lease["cause"] for lease in test["leases"]], after["leases"]) == ([], ["handed_back"], [])
    assert (found["runs/000/002/run.json"]["conclusion"], found["runs/000/002/run.json"]["reason"]) == (
        "skipped", "filter",
    )  # fmt: skip


def test_sessions_grants_and_variables_are_not_told(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app", "secret-repository")
            event = runner_event(variables={"TOKEN": "hunter2"}, inputs={"to": "live", "count": 1.5})
            plan = a_run(a_job("test", event=event))
            await server.enqueues(type(plan)(**{**vars(plan), "event": event}))
            session = await server.connects("mac-1")
            job = await server.takes(session)
            await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
            await recording.once()
            return git(tmp_path, "app", "cat-file", "blob", f"{RUNS}:{RUN}"), documents(tmp_path)[RUN]

    def runner_event(**more):
        return type(EVENT)(**{**vars(EVENT), **more})

    text, record = run(story())
    assert record["event"]["inputs"] == {"to": "live", "count": "1.5"}
    assert [event["detail"]["runner"] for event in record["events"] if event["kind"] == "leased"] == ["mac-1"]
    for secret in ("hunter2", "secret-repository", "session", "SHA256:mac-1"):
        assert secret not in text, secret


@pytest.mark.proves("I-20")
def test_a_row_that_cannot_be_read_is_set_aside_and_stops_no_other(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            job = await a_result_is_taken(server)
            await server.db.write(lambda tx: tx.run("UPDATE attempts SET steps = '[{\"odd\":1}]'"))
            await recording.once()
            (row,) = server.rows("SELECT job_id, set_aside FROM record_outbox")
            assert (row["job_id"], "unknown field 'odd'" in row["set_aside"]) == (job.lease.job, True)
            assert set(documents(tmp_path)) == {RUN}
            await recording.once()

    run(story())


def test_a_repository_that_takes_no_records_is_let_alone_for_a_while_and_stops_no_other(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.repo("gone")
            await a_result_is_taken(server)
            await server.enqueues(a_run(skipped="filter"), repo="gone", push=9)

            await recording.once()

            assert set(documents(tmp_path)) == {TEST, RUN}
            recording.storage.create(RepoName("gone"))
            await recording.once()
            assert documents(tmp_path, "gone") == {}
            server.clock.advance(seconds(limits.RECORDS_REST_S + 1))
            await recording.once()
            assert set(documents(tmp_path, "gone")) == {RUN}

    run(story())


def test_a_batch_is_bounded_and_a_run_stands_behind_its_attempts(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "RECORDS_AT_ONCE", 2)

    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app")
            await server.enqueues(a_run(*(a_job(f"j{n}") for n in range(3))))
            session = await server.connects("mac-1", slots=3)
            for token in ("a", "b", "c"):
                job = await server.takes(session, token)
                await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
            await recording.once()
            return commits(tmp_path), git(tmp_path, "app", "ls-tree", "-r", "--name-only", f"{RUNS}~1")

    subjects, before = run(story())
    assert subjects == ["2 records of app"] * 2
    assert "run.json" not in before


def test_a_removed_repository_is_owed_nothing(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await a_result_is_taken(server)
            await server.db.write(forget_repo, server.index, RepoName("app"))
            assert server.rows("SELECT * FROM record_outbox") == []
            await recording.once()

    run(story())


def test_an_artifact_is_kept_until_its_attempt_is_recorded(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            job = await a_result_is_taken(server)
            await server.db.write(lambda tx: tx.run(
                "INSERT INTO artifacts "
                "(job_id, epoch, repo_id, run_id, name, path, size, sha256, created_at, expires_at) "
                "VALUES (:job, 1, (SELECT repo_id FROM jobs), 1, 'out', 'made', 3, :sha, 1, 2)",
                job=job.lease.job, sha="a" * 64,
            ))  # fmt: skip

            early = await server.db.write(expire_artifacts, server.index)
            await recording.once()
            late = await server.db.write(expire_artifacts, server.index)

            assert (early, len(late)) == ([], 1)
            assert documents(tmp_path)[TEST]["artifacts"] == [
                {"name": "out", "path": "made", "size": 3, "sha256": "a" * 64, "expires_at": 2}
            ]

    run(story())


def test_a_rotation_between_two_records_shows_in_the_second(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.enqueues(a_run(skipped="filter"), push=1)
            await recording.once()
            server.clock.advance(seconds(5))
            signer = await recording.rotate()
            await server.enqueues(a_run(skipped="filter"), push=2)
            await recording.once()
            lists = [git(tmp_path, "app", "show", f"{at}:record-signers") for at in (f"{RUNS}~1", RUNS)]
            assert [text.count("\n") for text in lists] == [1, 2]
            assert signer.key in lists[1]

    run(story())


@pytest.mark.parametrize(
    ("number", "folder"), [(1, "000/001"), (999, "000/999"), (1_000, "001/000"), (1_234_567, "1234/567")]
)
def test_a_run_number_is_padded_to_six_digits_and_cut(tmp_path, number, folder):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            repo = await server.repo("app")
            given = "INSERT INTO run_numbers (repo_id, next) VALUES (:r, :n)"
            await server.db.write(lambda tx: tx.run(given, r=repo.id, n=number))
            await server.enqueues(a_run(skipped="filter"))
            await recording.once()
            return set(documents(tmp_path))

    assert run(story()) == {f"runs/{folder}/run.json"}
