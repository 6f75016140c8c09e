"""What people decided stands in git, and the database comes back from there: row by row what it was."""

from __future__ import annotations

import subprocess

import pytest

from tests.aio import run
from tests.queueing import a_job, a_result, a_run
from tests.recorded import a_recorder
from tests.unit.evidence.test_junit import PYTEST
from vole.base.clock import seconds
from vole.base.entropy import SeededEntropy
from vole.base.errors import Invalid
from vole.base.ids import AccountName, RepoName, RunNumber
from vole.base.labels import Label
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.gates import Requirement
from vole.evidence.logs import LogStore
from vole.flows.administration import forget_repo
from vole.flows.decided import Decided
from vole.flows.gating import set_gate
from vole.flows.rebuilding import Parts, rebuild
from vole.git.records import ADMIN, RUNS
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.people import ledger as people
from vole.repos import ledger as repos
from vole.runners import ledger as runners
from vole.store.database import Database
from vole.wire import runner
from vole.wire.plan import JUNIT_REPORTS, ArtifactPlan

pytestmark = pytest.mark.needs("git")

# All that is history, and of each what is not queue state.
HISTORY = {
    "accounts": "*",
    "keys": "*",
    "grants": "*",
    "repos": "*",
    "gates": "*",
    "labels": "label, declared_by, created_at",
    "runs": "id, repo_id, number, ref, commit_id, workflow, workflow_path, workflow_blob, event, actor, attempt,"
    " rerun_of, state, conclusion, reason, created_at, finished_at",
    "jobs": "id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost, continue_on_error, state,"
    " conclusion, reason, marked, epoch, losses, enqueued_at, queued_at, started_at, finished_at, carried_of",
    "job_needs": "*",
    "attempts": "job_id, epoch, account, key_fingerprint, runner, runner_version, os, arch, leased_at, started_at,"
    " ended_at, end_cause, end_detail, conclusion, log_declared, log_sha256, log_state, log_truncated, steps",
    "marks": "*",
    "annotations": "*",
    "summaries": "*",
    "reports": "*",
    "artifacts": "*",
}


REPORTS = ArtifactPlan(JUNIT_REPORTS, ("*.xml",))


def history(server):
    return {
        table: [tuple(row) for row in server.rows(f"SELECT {columns} FROM {table} ORDER BY 1, 2")]
        for table, columns in HISTORY.items()
    }


def admin(folder, *words):
    said = subprocess.run(["git", "-C", folder / "vole-admin.git", *words], capture_output=True, check=False)
    return said.stdout.decode()


def names(folder):
    return admin(folder, "ls-tree", "-r", "--name-only", ADMIN).split()


async def back(folder, clock):
    """What `vole index rebuild` does with a folder whose database is gone, and what it says."""
    for file in folder.glob("vole.db*"):
        file.unlink()
    db = await Database.open(folder / "vole.db", clock, SeededEntropy(7))
    storage, said = Storage(folder / "repos"), []
    try:
        found = await rebuild(
            Parts(
                db, storage, LogStore(folder / "logs"), ArtifactStore(folder / "artifacts"), folder / "vole-admin.git"
            ),
            said.append,
        )
    finally:
        storage.close()
        await db.close()
    return found, said


async def every_ending(server):
    """A success with all its evidence, a failure run again in part, losses, a hand-back, a cancellation, a skip."""
    await server.account("mac-1", "app")
    await server.account("ada", "app", kind="git")
    await server.db.write(runners.declare_label, Label("linux"), AccountName("ada"))
    await server.db.write(set_gate, RepoName("app"), "main", [Requirement.parse("ci")], AccountName("ada"))
    session = await server.connects("mac-1", ("linux",), slots=2)
    good = a_job("good", runs_on=("linux",), artifacts=(REPORTS,))
    first = await server.enqueues(a_run(good, a_job("bad"), a_job("last", needs=("bad",))))
    for key in ("good", "bad"):
        job = await server.takes(session, key)
        mark = runner.Mark(0, server.clock.now(), 1, "begin", "make")
        await server.leasing.marks(session, runner.Marks(job.lease.job, job.lease.epoch, (mark,)))
        more = {"annotations": (runner.Annotation("warning", "odd", "a.c", 3),), "summary": "# all"}
        more |= {"steps": (runner.StepOutcome(1, "success", "make", 0),)}
        if key == "good":
            await server.offload.start()
            more |= {"artifacts": (await server.stores(session, job, REPORTS.name, "a.xml", PYTEST.encode()),)}
        await server.leasing.finish(
            session, a_result(job.lease.job, job.lease.epoch, "success" if key == "good" else "failure", **more)
        )
    again = await server.db.write(jobs.rerun_run, server.index, first.id, "ada", failed=True)
    assert again.number == 2
    job = await server.gets(session, "back")
    await server.leasing.handback(session, runner.Handback(job.lease.job, job.lease.epoch, "busy"))
    await server.db.write(jobs.cancel_run, server.index, again.id, "cancelled by ada")
    await server.enqueues(a_run(a_job("lost", on_lost="fail")), push=3)
    await server.takes(session, "lost")
    for _ in range(80):
        server.clock.advance(seconds(1))
        await server.upkeep.once()
    await server.enqueues(a_run(skipped="filter"), push=4)


@pytest.mark.proves("I-39")
def test_every_row_of_history_is_what_it_was(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await every_ending(server)
            await recording.once()
            await Decided(recording, tmp_path / "vole-admin.git").once()
            before, clock = history(server), server.clock
        found, said = await back(tmp_path, clock)
        async with a_recorder(tmp_path, clock=clock) as (server, recording):
            assert history(server) == before
            assert {len(rows) > 0 for rows in before.values()} == {True}
            for queue_state in ("run_labels", "job_documents", "group_places", "record_outbox", "runners"):
                assert server.rows(f"SELECT 1 FROM {queue_state}") == [], queue_state
            run_3 = server.rows("SELECT id FROM runs WHERE number = 3")[0]["id"]
            with pytest.raises(Invalid, match="app/3 came back from its record"):
                await server.db.write(jobs.rerun_run, server.index, run_3, "ada", failed=False)
            queued = await server.enqueues(a_run(), push=9)
            assert queued.number == found[0].next_run == 100
            assert any("its next run is app/100" in line for line in said)

    run(story())


@pytest.mark.proves("SR-80")
@pytest.mark.parametrize(("seen", "following"), [(0, 100), (99, 100), (100, 200), (250, 300)])
def test_the_next_number_is_a_full_hundred_beyond_all_that_were_seen(tmp_path, seen, following):
    async def story():
        async with a_recorder(tmp_path) as (server, _):
            repo = await server.repo("app")
            return await server.db.write(jobs.restore_numbers, repo.id, [RunNumber(seen)])

    assert run(story()) == following


@pytest.mark.proves("SR-80")
def test_numbers_of_runs_that_left_nothing_are_not_given_again(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            decided = Decided(recording, tmp_path / "vole-admin.git")
            await server.repo("app")
            await decided.once()
            for push in range(130):  # all of them still queued
                await server.enqueues(a_run(), push=push)
            await decided.once()
            clock = server.clock
        found, _ = await back(tmp_path, clock)
        assert found[0].next_run == 200
        async with a_recorder(tmp_path, clock=clock) as (server, recording):
            await server.enqueues(a_run(), push=1)  # 200
            await Decided(recording, tmp_path / "vole-admin.git").once()
        found, _ = await back(tmp_path, clock)
        assert found[0].next_run == 300

    run(story())


def test_what_is_not_whole_is_said_and_the_rest_comes_back(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.account("mac-1", "app")
            session = await server.connects("mac-1")
            await server.enqueues(a_run(a_job("one"), a_job("two")))
            job = await server.takes(session)
            await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
            await recording.once()
            clock = server.clock
        Storage(tmp_path / "repos").create(RepoName("unknown"))
        found, said = await back(tmp_path, clock)
        assert [(one.repo.name, one.runs, one.documents) for one in found] == [("app", 0, 1), ("unknown", 0, 0)]
        text = "\n".join(said)
        assert "app: 1 runs were not finished and do not come back: app/1" in text
        assert "unknown: vole-admin.git does not name it: it is private now" in text

    run(story())


def test_a_record_of_another_repository_is_refused_by_name(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.repo("app")
            await server.enqueues(a_run(skipped="filter"))
            await recording.once()
            clock = server.clock
        (tmp_path / "repos/app.git").rename(tmp_path / "repos/other.git")
        with pytest.raises(Invalid, match=r"other: runs/000/001/run.json is the record app/1 skipped"):
            await back(tmp_path, clock)

    run(story())


@pytest.mark.proves("I-39")
def test_records_from_before_there_was_a_key_are_read(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            await server.repo("app")
            await server.enqueues(a_run(skipped="filter"))
            await recording.once()
            before, clock = history(server), server.clock
            await Decided(recording, tmp_path / "vole-admin.git").once()
        bare = tmp_path / "repos/app.git"
        as_committer = ["-c", "user.name=x", "-c", "user.email=x@y"]
        plain = subprocess.run(
            ["git", "-C", bare, *as_committer, "commit-tree", "-m", "unsigned", f"{RUNS}^{{tree}}"],
            capture_output=True, check=True,
        )  # fmt: skip
        subprocess.run(["git", "-C", bare, "update-ref", RUNS, plain.stdout.decode().strip()], check=True)
        await back(tmp_path, clock)
        async with a_recorder(tmp_path, clock=clock) as (server, _):
            assert history(server) == before

    run(story())


def test_what_people_decide_is_a_signed_document_and_goes_when_they_take_it_back(tmp_path):
    async def story():
        async with a_recorder(tmp_path) as (server, recording):
            decided = Decided(recording, tmp_path / "vole-admin.git")
            await server.account("ada", "app", kind="git")
            await server.account("eve", kind="git")
            await decided.once()
            first = names(tmp_path)
            assert first == ["accounts/ada.json", "accounts/eve.json", "record-signers", "repositories/app.json"]
            ada = admin(tmp_path, "cat-file", "blob", f"{ADMIN}:accounts/ada.json")
            assert '"purpose":"vole account"' in ada
            assert '"level":"write","repository":"app"' in ada
            tip = admin(tmp_path, "rev-parse", ADMIN)
            await decided.once()
            assert admin(tmp_path, "rev-parse", ADMIN) == tip

            await server.db.write(people.remove_account, AccountName("eve"))
            await server.db.write(forget_repo, server.index, RepoName("app"))
            await server.db.write(repos.create_repo, RepoName("new"), public=True)
            await decided.once()
            assert names(tmp_path) == ["accounts/ada.json", "record-signers", "repositories/new.json"]
            assert '"grants":[]' in admin(tmp_path, "cat-file", "blob", f"{ADMIN}:accounts/ada.json")
            signers = f"gpg.ssh.allowedSignersFile={tmp_path / 'record_signers'}"
            for commit in admin(tmp_path, "rev-list", ADMIN).split():
                words = ["git", "-C", tmp_path / "vole-admin.git", "-c", signers, "verify-commit", commit]
                assert subprocess.run(words, capture_output=True, check=False).returncode == 0

    run(story())


class Forgetful(Database):
    """A store that dies before or after it hears that the documents stand in git."""

    dies = ""

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        if change is not repos.forget_told or not self.dies:
            return await super().write(change, *args, **kwargs)
        if self.dies == "after":
            await super().write(change, *args, **kwargs)
        raise KeyboardInterrupt


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_death_around_the_last_step_makes_no_second_commit(tmp_path, monkeypatch, dies):
    async def first_life():
        async with a_recorder(tmp_path, store=Forgetful) as (server, recording):
            await server.account("ada", "app", kind="git")
            monkeypatch.setattr(Forgetful, "dies", dies)
            with pytest.raises(KeyboardInterrupt):
                await Decided(recording, tmp_path / "vole-admin.git").once()

    async def next_life():
        async with a_recorder(tmp_path) as (server, recording):
            await Decided(recording, tmp_path / "vole-admin.git").once()
            return server.rows("SELECT * FROM admin_outbox")

    run(first_life())
    tip = admin(tmp_path, "rev-parse", ADMIN)
    assert run(next_life()) == []
    assert admin(tmp_path, "rev-parse", ADMIN) == tip
