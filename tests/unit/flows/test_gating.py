"""Gates on real runs and real records: what opens them, what does not, and in which words."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
from contextlib import asynccontextmanager

import pytest

from tests.aio import run
from tests.queueing import BLOB, COMMIT, a_job, a_result, a_run
from tests.recorded import a_recorder, git
from tests.unit.web.site_to_test import InProcess
from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.base.ids import AccountName, CommitId, JobKey, RefName, RepoName
from vole.evidence import ledger as evidence
from vole.evidence.gates import Declared, Move, Requirement
from vole.evidence.model import Reported
from vole.evidence.reads.gates import gates_of
from vole.flows.gating import Gating, GatingParts
from vole.flows.push.verdicts import Verdicts
from vole.git.records import RUNS
from vole.jobs import ledger

MAIN, APP = RefName("refs/heads/main"), RepoName("app")
CI = Declared(".vole/workflows/ci.yml", BLOB, "Checks", (("test", JobKey("test")), ("build", JobKey("build"))))


class House:
    """A server that writes records, and its gates."""

    def __init__(self, server, recording, folder):
        self.server, self.recording, self.folder = server, recording, folder
        verdicts = Verdicts(InProcess())
        self.gating = Gating(
            GatingParts(server.db, server.bells, recording.storage, verdicts, recording.keys, "http://forge")
        )
        self.pushes = 0

    async def gate(self, *requires, pattern="main"):
        await self.gating.set_gate(APP, pattern, [Requirement.parse(one) for one in requires], AccountName("ole"))

    async def runs(self, *ends, record=True, skipped=None, plan=None):
        """A run of the commit whose jobs `test` and `build` end so; None: a runner has it still."""
        self.pushes += 1
        jobs = [a_job(key) for key, _ in zip(("test", "build"), ends, strict=False)]
        plan = plan or a_run(*jobs, skipped=skipped)
        queued = await self.server.enqueues(plan, push=self.pushes)
        for at, end in enumerate(ends):
            if end is None:
                continue
            job = await self.server.takes(self.session, f"{self.pushes}-{at}")
            await self.server.leasing.finish(self.session, a_result(job.lease.job, job.lease.epoch, end))
        if record:
            await self.recording.once()
        return queued

    async def pushed(self, *workflows, branch=MAIN, commit=COMMIT, forced=False):
        """What the gates say of a push: the lines of a refusal, none where it may pass."""
        repo = await self.server.repo("app")
        found = await self.server.db.read(gates_of, repo.id)
        try:
            await self.gating.demand(repo, found, [Move(branch, commit, forced, workflows or (CI,))])
        except Invalid as error:
            return [*error.problems] if error.code == "gated" else [str(error)]
        return []


@asynccontextmanager
async def a_house(folder):
    async with a_recorder(folder) as (server, recording):
        await server.account("mac-1", "app")
        house = House(server, recording, folder)
        house.session = await server.connects("mac-1", slots=8)
        yield house


def story(tmp_path, told):
    async def whole():
        async with a_house(tmp_path) as house:
            await told(house)

    run(whole())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(limits, "GATE_RECORD_S", 0.01)


@pytest.mark.proves("I-40")
@pytest.mark.parametrize("requirement", ["ci", "ci/test", "Checks/test", "Checks"])
def test_a_gate_opens_for_a_recorded_success_of_the_commit(tmp_path, requirement):
    async def told(house):
        await house.gate(requirement)
        assert "has no run of this commit" in (await house.pushed())[0]

        await house.runs("success")
        assert await house.pushed() == []

        # Of another commit, or of another text of the workflow, it is no evidence.
        assert "no run" in (await house.pushed(commit=CommitId("3" * 40)))[0]
        assert "no run" in (await house.pushed(dataclasses.replace(CI, blob=CommitId("4" * 40))))[0]

    story(tmp_path, told)


@pytest.mark.proves("I-40")
def test_a_red_job_a_running_one_and_a_cancelled_one_open_nothing_and_the_refusal_says_which(tmp_path):
    async def told(house):
        await house.gate("ci/test", "ci/build", "ci")
        await house.runs("failure", None)

        test, build, whole = await house.pushed()

        url = "http://forge/app/runs/1"
        assert test == (
            f"main ci/test: it is red: failure; app/1/test@1 {url}; run it again: ssh git@HOST rerun app/1 --failed"
        )
        assert build == f"main ci/build: it is queued; app/1/build {url}; push again when it is done"
        assert whole == f"main ci: it is running; app/1 {url}; push again when it is done"
        run_id = house.server.rows("SELECT id FROM runs")[0]["id"]
        await house.server.db.write(ledger.cancel_run, house.server.index, run_id, "enough")
        await house.recording.once()
        assert [line.partition(";")[0] for line in await house.pushed()] == [
            "main ci/test: it is red: failure",
            "main ci/build: it is red: cancelled",
            "main ci: it is red: failure",
        ]

    story(tmp_path, told)


@pytest.mark.proves("I-40")
def test_success_in_the_store_alone_opens_nothing(tmp_path):
    async def told(house):
        await house.gate("ci/test", "ci")
        await house.runs("success", record=False)

        lines = await house.pushed()

        assert [line.partition(";")[0] for line in lines] == [
            "main ci/test: its record is not written yet",
            "main ci: its record is not written yet",
        ]

    story(tmp_path, told)


def test_a_push_waits_for_the_record_of_what_has_just_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "GATE_RECORD_S", 10)

    async def told(house):
        await house.gate("ci/test")
        await house.runs("success", record=False)

        pushing = asyncio.ensure_future(house.pushed())
        await asyncio.wait([pushing], timeout=0.05)
        assert not pushing.done()
        await house.recording.once()

        async with asyncio.timeout(5):
            assert await pushing == []

    story(tmp_path, told)


@pytest.mark.proves("I-40")
def test_a_record_with_another_byte_another_key_or_no_signature_opens_nothing(tmp_path):
    async def told(house):
        await house.gate("ci/test")
        await house.runs("failure")
        place = "runs/000/001/test/1.json"
        raw = git(tmp_path, "app", "cat-file", "blob", f"{RUNS}:{place}")
        forged = raw.replace('"conclusion":"failure"', '"conclusion":"success"')
        assert forged != raw
        house.server.db._glancing = None  # nothing of this is read from the store
        for text, signed in ((forged, False), (raw.replace("failure", "success", 1), True)):
            _put(tmp_path, place, text, house.recording.keys if signed else None)
            line = (await house.pushed())[0]
            assert ("is not signed" in line) is not signed, line
            assert line.startswith("main ci/test: ")

    story(tmp_path, told)


@pytest.mark.proves("I-40")
@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ('"repository":"app"', '"repository":"apps"', "of another repository, commit or workflow"),
        (f'"commit":"{COMMIT}"', f'"commit":"{"3" * 40}"', "of another repository, commit or workflow"),
        (f'"workflow_blob":"{BLOB}"', f'"workflow_blob":"{"3" * 40}"', "of another repository, commit or workflow"),
        ('"job":"test"', '"job":"build"', "of another attempt"),
        ('"run":1', '"run":2', "of another attempt"),
        ('"attempt":1', '"attempt":2', "of another attempt"),
        ('"outcome":{"conclusion":"success"', '"outcome":{"conclusion":"lost"', "it is red: lost"),
        ('"v":1}', '"v":2}', "cannot be read"),
        ('"v":1}', '"v":1} ', "cannot be read"),
        ('"cause":', '"caused":', "cannot be read"),
        ("vole attempt record", "vole run record", "cannot be read"),
    ],
)
def test_a_record_of_something_else_opens_nothing_however_well_it_is_signed(tmp_path, said, instead, why):
    async def told(house):
        await house.gate("ci/test")
        await house.runs("success")
        place = "runs/000/001/test/1.json"
        raw = git(tmp_path, "app", "cat-file", "blob", f"{RUNS}:{place}")
        _put(tmp_path, place, raw, house.recording.keys)
        assert await house.pushed() == []

        assert said in raw
        _put(tmp_path, place, raw.replace(said, instead), house.recording.keys)

        assert why in (await house.pushed())[0]

    story(tmp_path, told)


def _put(folder, place, text, keys):
    """Rewrite the chain with this text in place of the record, signed or not."""
    bare = folder / "repos" / "app.git"
    env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent", "GIT_INDEX_FILE": str(folder / "index")}

    def said(*words, given=b""):
        done = subprocess.run(["git", "-C", bare, *words], input=given, check=True, env=env, capture_output=True)
        return done.stdout.decode().strip()

    blob = said("hash-object", "-w", "--stdin", given=text.encode())
    said("read-tree", RUNS)
    said("update-index", "--add", "--cacheinfo", f"100644,{blob},{place}")
    who = "vole <records@x> 1800000000 +0000"
    head = f"tree {said('write-tree')}\nauthor {who}\ncommitter {who}\n"
    body = f"{head}\nx\n".encode()
    signature = "" if keys is None else "gpgsig " + keys.sign(body).replace("\n", "\n ") + "\n"
    commit = said("hash-object", "-w", "-t", "commit", "--stdin", given=f"{head}{signature}\nx\n".encode())
    said("update-ref", RUNS, commit)


def test_the_newest_run_decides_and_a_run_again_counts_with_what_it_carried_over(tmp_path):
    async def told(house):
        await house.gate("ci/test", "ci/build", "ci")
        first = await house.runs("success", "failure")
        assert [line.partition(":")[0] for line in await house.pushed()] == ["main ci/build", "main ci"]

        await house.server.db.write(ledger.rerun_run, house.server.index, first.id, "ada", failed=True)
        job = await house.server.takes(house.session, "again")
        await house.server.leasing.finish(house.session, a_result(job.lease.job, job.lease.epoch))
        await house.recording.once()
        assert await house.pushed() == []

        await house.runs("failure", "success")
        assert [line.partition(":")[0] for line in await house.pushed()] == ["main ci/test", "main ci"]

    story(tmp_path, told)


@pytest.mark.proves("I-40")
def test_what_its_filter_left_out_is_open_until_a_run_with_jobs_says_otherwise(tmp_path):
    async def told(house):
        await house.gate("ci/test", "ci")
        await house.runs(skipped="skip_ci")
        assert ["as asked, which opens no gate" in line for line in await house.pushed()] == [True, True]

        await house.runs(skipped="filter", record=False)
        assert "not written yet" in (await house.pushed())[0]
        await house.recording.once()
        assert await house.pushed() == []

        await house.runs("failure")
        await house.runs(skipped="filter")
        await house.runs(skipped="skip_ci")
        assert ["it is red: failure" in line for line in await house.pushed()] == [True, True]

    story(tmp_path, told)


def test_every_job_of_a_matrix_is_demanded_or_the_one_that_is_named(tmp_path):
    async def told(house):
        matrix = Declared(CI.path, BLOB, "ci", (("test", JobKey("test.1")), ("test", JobKey("test.2"))))
        plan = a_run(a_job("test.1"), a_job("test.2"))
        await house.runs("success", "failure", plan=plan)

        await house.gate("ci/test")
        assert [line.partition(":")[0] for line in await house.pushed(matrix)] == ["main ci/test"]
        await house.gate("ci/test.1")
        assert await house.pushed(matrix) == []

    story(tmp_path, told)


def test_a_job_that_no_workflow_has_is_said_at_once(tmp_path):
    async def told(house):
        await house.gate("ci/tset", "cii", "ci/deploy-to-live", "other")

        assert await house.pushed() == [
            "main ci/tset: the workflow of this commit has no such job; did you mean 'ci/test'?",
            "main cii: no workflow of this commit is called so; did you mean 'ci'?",
            "main ci/deploy-to-live: the workflow of this commit has no such job; there are: ci/test, ci/build",
            "main other: no workflow of this commit is called so; there are: ci",
        ]

    story(tmp_path, told)


def test_a_guarded_branch_is_neither_deleted_nor_moved_back_and_others_are_free(tmp_path):
    async def told(house):
        await house.gate("ci", pattern="release/*")
        await house.runs("success")
        release = RefName("refs/heads/release/1")

        assert await house.pushed() == []
        assert await house.pushed(branch=release) == []
        for commit, forced in ((None, False), (COMMIT, True)):
            (line,) = await house.pushed(branch=release, commit=commit, forced=forced)
            assert line.endswith("an admin opens it: gate remove app release/*")
        await house.gating.remove_gate(APP, "release/*")
        assert await house.pushed(branch=release, commit=None) == []

    story(tmp_path, told)


def test_a_status_counts_where_a_gate_names_its_context_and_nowhere_else(tmp_path):
    async def told(house):
        repo = await house.server.repo("app")

        async def reported(state, context="deploy/try"):
            said = Reported(state, context, "", "")
            await house.server.db.write(evidence.set_status, repo.id, COMMIT, said, AccountName("bot"))

        await house.gate("status:deploy/try")
        assert "nobody has set this status" in (await house.pushed())[0]
        for state in ("pending", "failure", "error"):
            await reported(state)
            assert f"it is {state}" in (await house.pushed())[0]
        await reported("success", "deploy/other")
        assert await house.pushed()
        await reported("success")
        assert await house.pushed() == []
        await reported("success", "ci / test")
        await house.gate("ci/test")
        assert "has no run" in (await house.pushed())[0]

    story(tmp_path, told)


def test_a_long_refusal_ends_with_a_count(tmp_path):
    async def told(house):
        await house.gate(*(f"w{number}" for number in range(limits.PROBLEMS_SHOWN_MAX + 2)))
        lines = await house.pushed()
        assert len(lines) == limits.PROBLEMS_SHOWN_MAX + 1
        assert lines[-1] == "… and 2 more"

    story(tmp_path, told)


def test_bounds_are_held(tmp_path, monkeypatch):
    async def told(house):
        repo = await house.server.repo("app")
        monkeypatch.setattr(limits, "GATES_MAX", 1)
        monkeypatch.setattr(limits, "GATE_REQUIREMENTS_MAX", 1)
        monkeypatch.setattr(limits, "GATED_REFS_MAX", 1)
        await house.gate("ci", pattern="**")
        await house.gate("ci/test", pattern="**")
        with pytest.raises(Exhausted, match="GATES_MAX"):
            await house.gate("ci")
        with pytest.raises(Exhausted, match="GATE_REQUIREMENTS_MAX"):
            await house.gate("ci", "ci/test", pattern="**")
        found = await house.server.db.read(gates_of, repo.id)
        moves = [Move(RefName(f"refs/heads/b{n}"), COMMIT, False, (CI,)) for n in range(2)]
        with pytest.raises(Exhausted, match="GATED_REFS_MAX"):
            await house.gating.demand(repo, found, moves)

    story(tmp_path, told)


@pytest.mark.parametrize("text", ["", "/test", "ci/", "ci/te st", "status:", "ci\n", "x" * 201, "a/b/c"])
def test_what_is_no_requirement_is_refused(text):
    with pytest.raises(Invalid):
        Requirement.parse(text)
