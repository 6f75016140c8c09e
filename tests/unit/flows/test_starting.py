"""Starting by hand and again: who may, what is read, what is pinned and held, and what a refusal says."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.aio import run
from tests.starting import APP, DEPLOY, JOBS, NIGHTLY, a_house
from vole.base.errors import Conflict, Denied, Invalid, NotFound, VoleError
from vole.base.ids import CommitId, RepoName, RunNumber
from vole.flows.starting import Wanted
from vole.git import storage as git
from vole.people.model import OPERATOR

pytestmark = pytest.mark.needs("git")
GOOD = {"deploy.yml": DEPLOY, "ci.yml": JOBS}


def held(house, commit):
    return git.is_held(house.storage.path(APP), CommitId(commit))


@pytest.mark.parametrize("said", [".vole/workflows/deploy.yml", "deploy.yml", "deploy", "Ship it"])
def test_a_workflow_is_started_at_the_tip_of_the_default_branch_and_pinned(tmp_path, said):
    async def story():
        async with a_house(tmp_path) as house:
            commit = await house.pushed(GOOD)
            with house.bells.listening("jobs") as listener:
                begun = await house.starting.start(house.person(), APP, Wanted(said, None, {"note": "now"}))
                assert await listener.wait(1)
            house.check()

            (row,) = house.rows("SELECT * FROM runs")
            event = json.loads(row["event"])
            assert (begun.run.number, begun.workflow, row["actor"], row["state"]) == (1, "Ship it", "ada", "queued")
            assert (row["commit_id"], row["ref"], event["name"]) == (commit, "refs/heads/main", "manual")
            assert event["inputs"] == {"to": "test", "note": "now"}
            document = json.loads(house.rows("SELECT document FROM job_documents")[0]["document"])
            assert document["event"]["inputs"] == event["inputs"]
            (start,) = house.rows("SELECT * FROM starts")
            assert (start["id"], start["account"], start["due_at"]) == (row["push_id"], "ada", None)
            assert held(house, commit)
            assert house.index.queued == 1

    run(story())


def test_each_start_is_a_run_of_its_own(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed(GOOD)
            wanted = Wanted("deploy", None, {"note": "x"})
            numbers = [(await house.starting.start(OPERATOR, APP, wanted)).run.number for _ in range(3)]
            house.check()
            assert numbers == [1, 2, 3]

    run(story())


@pytest.mark.parametrize(
    ("ref", "expected"),
    [("topic", "refs/heads/topic"), ("refs/heads/topic", "refs/heads/topic"), ("v1", "refs/tags/v1"),
     ("both", "refs/heads/both"), ("refs/tags/both", "refs/tags/both")],
)  # fmt: skip
def test_a_ref_is_a_branch_or_a_tag_and_a_branch_goes_first(tmp_path, ref, expected):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"ci.yml": JOBS})
            tip = await house.pushed(GOOD, branch="topic")
            for words in (("branch", "both", tip), ("tag", "both", tip)):
                subprocess.run(["git", "-C", house.storage.path(APP), *words], check=True)
            tag = ["-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "one", "v1", tip]
            subprocess.run(["git", "-C", house.storage.path(APP), *tag], check=True)

            await house.starting.start(house.person(), APP, Wanted("deploy", ref, {"note": "x"}))

            (row,) = house.rows("SELECT ref, commit_id, event ->> '$.ref_type' AS kind FROM runs")
            assert (row["ref"], row["commit_id"]) == (expected, tip)
            assert row["kind"] == ("tag" if "tags" in expected else "branch")

    run(story())


REFUSALS = [
    (Wanted("deploy"), Invalid, "input note: it is required"),
    (Wanted("deploy", None, {"note": "x", "to": "prod"}), Invalid, "input to: 'prod' is none of test, live"),
    (Wanted("ci"), Invalid, ".vole/workflows/ci.yml is not started by hand"),
    (Wanted("depoly"), NotFound, "did you mean 'deploy'?"),
    (Wanted("deploy", "nowhere"), NotFound, "there is no branch or tag 'nowhere'"),
    (Wanted("deploy", "a..b"), NotFound, "there is no branch or tag 'a..b'"),
    (Wanted("deploy", "\x1b[2J"), NotFound, r"'\x1b[2J'"),
    (Wanted("deploy", "broken"), Invalid, "ci.yml:2:1 W011 unknown key 'jbos'"),
]


@pytest.mark.parametrize(("wanted", "kind", "sentence"), REFUSALS, ids=[sentence for _, _, sentence in REFUSALS])
def test_a_refusal_says_what_is_wrong_and_starts_nothing(tmp_path, wanted, kind, sentence):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed(GOOD)
            await house.pushed({"ci.yml": "on: manual\njbos: {}\n"}, branch="broken")
            with pytest.raises(kind) as refused:
                await house.starting.start(house.person(), APP, wanted)
            assert sentence in "\n".join(refused.value.lines)
            assert house.rows("SELECT id FROM runs UNION SELECT id FROM starts") == []

    run(story())


@pytest.mark.parametrize("deed", ["start", "rerun", "startable"])
def test_it_takes_write_and_who_may_not_read_learns_nothing(tmp_path, deed):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed(GOOD)
            await house.starting.start(house.person(), APP, Wanted("deploy", None, {"note": "x"}))
            await house.ends()

            async def does(person, repo=APP):
                if deed == "start":
                    return await house.starting.start(person, repo, Wanted("deploy", None, {"note": "x"}))
                if deed == "rerun":
                    return await house.starting.rerun(person, repo, RunNumber(1), failed=False)
                return await house.starting.startable(person, repo, None)

            with pytest.raises(Denied, match="takes `write`"):
                await does(house.person("bob", "read"))
            hidden, missing = [await _sentence(does, house.person("eve", "run"), name) for name in (APP, "nope")]
            assert hidden == missing.replace("nope", "app")
            await does(house.person())

    async def _sentence(does, person, name):
        with pytest.raises(NotFound) as refused:
            await does(person, RepoName(name))
        return refused.value.sentence

    run(story())


def test_what_can_be_started_is_what_says_manual(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed(GOOD)
            found = await house.starting.startable(house.person(), APP, None)
            assert [workflow.path for workflow in found.workflows] == [".vole/workflows/deploy.yml"]
            assert found.place.ref == "refs/heads/main"

    run(story())


def test_a_rerun_needs_its_commit_to_be_held_and_holds_it_on(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            commit = await house.pushed(GOOD)
            await house.starting.start(house.person(), APP, Wanted("deploy", None, {"note": "x"}))
            await house.ends()
            git.let_go(house.storage.path(APP), [commit])
            with pytest.raises(Conflict, match=r"retention\.rerun"):
                await house.starting.rerun(house.person(), APP, RunNumber(1), failed=False)
            git.keep(git.open_repository(house.storage.path(APP)), [CommitId(commit)])

            with house.bells.listening(f"run:{house.rows('SELECT id FROM runs')[0]['id']}") as listener:
                begun = await house.starting.rerun(house.person("bob"), APP, RunNumber(1), failed=True)
                assert await listener.wait(1)  # the page of the old run names the new one

            house.check()
            assert begun.run.number == 2
            rows = house.rows("SELECT actor, attempt, event FROM runs ORDER BY number")
            assert [(row["actor"], row["attempt"]) for row in rows] == [("ada", 1), ("bob", 2)]
            assert rows[0]["event"] == rows[1]["event"]
            assert held(house, commit)

    run(story())


def test_a_rerun_of_what_is_not_there_or_goes_on_is_refused(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed(GOOD | {"nightly.yml": NIGHTLY})
            await house.starting.start(house.person(), APP, Wanted("deploy", None, {"note": "x"}))
            for number, kind in ((1, Conflict), (9, NotFound)):
                with pytest.raises(kind) as refused:
                    await house.starting.rerun(house.person(), APP, RunNumber(number), failed=False)
                assert isinstance(refused.value, VoleError)
            assert len(house.runs()) == 1

    run(story())
