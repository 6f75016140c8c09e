"""The buttons: who sees them, what each does, what a refusal says; nothing is done without a proof of origin."""

from __future__ import annotations

import re

import pytest

from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import URL, a_site
from vole.base.ids import CommitId
from vole.git import storage as git
from vole.people import reads as people
from vole.repos import ledger as repos
from vole.repos.model import UnreadSchedules

JOBS = "jobs:\n  test:\n    steps:\n      - run: make test\n"
DEPLOY = f"""\
name: Ship it
on:
  manual:
    inputs:
      to: {{type: choice, options: [test, live], default: test, description: where to}}
      where: {{type: choice, options: [a, b]}}
      dry: {{type: boolean, default: true}}
      note: {{required: true}}
{JOBS}"""
DEEDS = ["/app/runs/1/cancel", "/app/runs/1/rerun", "/app/runs/1/test/cancel", "/app/start"]


async def a_repo(site, *, ends=None, files=None):
    """A repository with a run of one job, which has ended as `ends`; the session of who may write."""
    repo = await site.repo("app")
    tip = repo.commit(files or {".vole/workflows/deploy.yml": DEPLOY, ".vole/workflows/ci.yml": JOBS})
    git.keep(git.open_repository(site.house.parts.storage.path(site.repos["app"].name)), [CommitId(tip)])
    mac = await site.runner("mac", grant=("app",))
    await site.run("app", a_job(), commit=tip)
    if ends is not None:
        await site.finishes(mac, await site.takes(mac), ends)
    return await site.person("ada", app="write")


def buttons(page) -> list[str]:
    main = page.text.partition("<main")[2]
    return re.findall(r"<button[^>]*>([^<]*)</button>", main)


async def told(site, path, session, **fields):
    return await site.post(path, session, fields=fields, origin=URL)


@pytest.mark.parametrize(
    ("ends", "seen"),
    [(None, ["Cancel the run"]), ("success", ["Run all again"]),
     ("failure", ["Run again what failed", "Run all again"])],
)  # fmt: skip
def test_who_may_write_sees_the_buttons_that_do_something_now_and_others_none(tmp_path, ends, seen):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site, ends=ends)
            reader = await site.person("bob", app="read")
            pages = [await site.get("/app/runs/1", who) for who in (ada, reader, None)]
            job = await site.get("/app/runs/1/test", ada)
            return [buttons(page) for page in pages], ["/app/start" in page.text for page in pages], buttons(job)

    found, links, of_job = aio.run(story())

    assert found == [seen, [], []]
    assert links == [True, False, False]
    assert of_job == (["Cancel the job"] if ends is None else [])


@pytest.mark.parametrize("path", ["/app/runs/1/cancel", "/app/runs/1/test/cancel"])
def test_cancel_ends_the_job_and_leads_back(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site)
            answer = await told(site, path, ada)
            return answer, (await site.get("/app/runs/1", ada)).text

    answer, page = aio.run(story())

    assert (answer.status_code, answer.headers["location"]) == (303, URL + path.removesuffix("/cancel"))
    assert "cancelled by ada" in page


def test_run_again_leads_to_the_new_run_and_the_two_name_each_other(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site, ends="failure")
            answer = await told(site, "/app/runs/1/rerun", ada, failed="true")
            again = await told(site, "/app/runs/1/rerun", ada)
            old, new = [(await site.get(f"/app/runs/{number}", ada)) for number in (1, 2)]
            return answer, again, old, new

    answer, again, old, new = aio.run(story())

    assert (answer.status_code, answer.headers["location"]) == (303, f"{URL}/app/runs/2")
    assert (again.status_code, "app/1 was run again already, as app/2" in again.text) == (409, True)
    assert 'run again as <a href="/app/runs/2">app/2</a>' in old.text
    assert buttons(old) == []
    assert "ada, app/1 again" in new.text
    assert '<a href="/app/runs/1">app/1</a>, as attempt 2' in new.text


def test_a_job_that_is_not_run_again_leads_to_the_one_that_ran(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site, ends="success")
            mac = await site.runner("two", grant=("app",), slots=2)
            tip = await site.db.read(_commit)
            await site.run("app", a_job("build"), a_job("test"), commit=tip)
            for _ in range(2):
                job = await site.takes(mac)
                await site.finishes(mac, job, "failure" if job.key == "test" else "success")
            await told(site, "/app/runs/2/rerun", ada, failed="true")
            return [(await site.get(f"/app/runs/3{path}", ada)).text for path in ("", "/build")]

    async def _commit(view):
        return (await view.one("SELECT commit_id FROM runs"))["commit_id"]

    for page in aio.run(story()):
        assert '<a href="/app/runs/2/build">not run again: this is the result of app/2/build</a>' in page


def test_the_form_asks_for_each_input_and_what_is_said_starts_the_run(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site)
            await site.db.write(repos.mark_schedules, site.repos["app"].id, declared=True)
            unread = UnreadSchedules(site.repos["app"].id, site.repos["app"].name, 1)
            await site.db.write(repos.set_schedules, unread, {".vole/workflows/n.yml": ("0 3 * * *",)})
            page = await site.get("/app/start", ada)
            said = {"workflow": ".vole/workflows/deploy.yml", "ref": "refs/heads/main", "input.to": "live",
                    "input.dry": "false", "input.note": "now <b>", "input.where": ""}  # fmt: skip
            answer = await told(site, "/app/start", ada, **said)
            return page.text, answer, (await site.get("/app/runs/2", ada)).text

    page, answer, run = aio.run(story())

    assert page.count("<section") == 1
    assert re.findall(r'name="(input\.\w+)"( required)?', page) == [
        ("input.to", ""), ("input.where", ""), ("input.dry", ""), ("input.note", ""),
    ]  # fmt: skip
    assert re.findall(r'<option value="(\w*)"( selected)?', page) == [
        ("test", " selected"), ("live", ""), ("", " selected"), ("a", ""), ("b", ""), ("true", " selected"),
        ("false", ""),
    ]  # fmt: skip
    assert 'maxlength="1000" required' in page
    assert "n.yml at <code>0 3 * * *</code> UTC, next 2027-" in page
    assert (answer.status_code, answer.headers["location"]) == (303, f"{URL}/app/runs/2")
    assert "ada, by hand" in run
    assert "dry: false, note: now &lt;b&gt;, to: live, where: " in run


def test_a_form_with_problems_is_refused_with_all_of_them_and_starts_nothing(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site)
            said = {"workflow": ".vole/workflows/deploy.yml", "input.to": "prod", "input.odd": "<script>"}
            answers = [
                await told(site, "/app/start", ada, **said),
                await told(site, "/app/start", ada, workflow="nope"),
                await told(site, "/app/start", ada, workflow="deploy", ref="nowhere"),
                await told(site, "/app/start", ada, **{f"input.{at}": "" for at in range(99)}),
            ]
            return answers, (await site.get("/app/runs/2", ada)).status_code

    (inputs, workflow, ref, many), second = aio.run(story())

    assert {answer.status_code for answer in (inputs, workflow, ref, many)} == {400}
    for text in ("input to: &#39;prod&#39; is none of test, live", "input note: it is required", "input odd: there is"):
        assert text in inputs.text
    assert "main has no workflow &#39;nope&#39;" in workflow.text
    assert "there is no branch or tag &#39;nowhere&#39;" in ref.text
    assert "the form cannot be read" in many.text
    assert second == 404


@pytest.mark.parametrize("query", ["?ref=nowhere", "?ref=%1b%5b2J", "?ref=broken"])
def test_the_form_says_what_is_wrong_with_a_branch(tmp_path, query):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site)
            files = {".vole/workflows/ci.yml": "on: <b>\n"}
            from tests.unit.git.gitrepo import GitRepo  # noqa: PLC0415

            GitRepo(site.house.parts.storage.path(site.repos["app"].name)).commit(files, branch="broken")
            return await site.get(f"/app/start{query}", ada)

    page = aio.run(story())

    assert page.status_code == 200
    assert "there is no branch or tag" in page.text or "ci.yml:1:5 W016 on: &#39;&lt;b&gt;&#39; is none of" in page.text
    assert "\x1b" not in page.text
    assert buttons(page) == ["Show"]


@pytest.mark.proves("SR-45")
@pytest.mark.parametrize("path", DEEDS)
def test_a_deed_takes_write_and_who_may_not_read_learns_nothing(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            await a_repo(site, ends="failure")
            await site.repo("secret", public=False)
            reader = await site.person("bob", app="read")
            denied = [await told(site, path, who) for who in (reader, None)]
            hidden = [await told(site, path.replace("app", name), reader) for name in ("secret", "missing")]
            return denied, hidden, (await site.db.read(_count))

    async def _count(view):
        return (await view.one("SELECT COUNT(*) AS n FROM runs"))["n"]

    (to_bob, to_nobody), (hidden, missing), count = aio.run(story())

    assert (to_bob.status_code, to_nobody.status_code) == (403, 403)
    assert "bob may not do that in app: it takes `write`" in to_bob.text
    assert "log in" in to_nobody.text
    assert (hidden.status_code, hidden.content) == (404, missing.content)
    assert count == 1


@pytest.mark.proves("SR-46")
@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.test"}, {"sec_fetch_site": "cross-site"},
                                     {"sec_fetch_site": "same-site", "origin": URL}])  # fmt: skip
@pytest.mark.parametrize("path", DEEDS)
def test_a_deed_that_no_page_of_ours_asked_for_is_not_done(tmp_path, path, headers):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await a_repo(site, ends="failure")
            answer = await site.post(path, ada, fields={"workflow": "deploy", "input.note": "x"}, **headers)
            return answer.status_code, (await site.get("/app/runs/2", ada)).status_code

    assert aio.run(story()) == (403, 404)


V1 = "/api/v1/repositories/app"


def test_the_api_starts_and_runs_again_for_a_token_that_may(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await a_repo(site, ends="failure")
            await site.person("bob", app="read")
            ada, reader = await _bearer(site, "ada", "start:app"), await _bearer(site, "ada", "read:app")
            bob = await _bearer(site, "bob", None)
            wanted = {"workflow": "deploy", "inputs": {"to": "live", "note": "now"}}
            return [
                await site.get(f"{V1}/start", **ada),
                await site.client.post(f"{V1}/start", json=wanted, headers=ada),
                await site.client.post(f"{V1}/start", json={"workflow": "deploy"}, headers=ada),
                await site.client.post(f"{V1}/start", json=wanted | {"when": "now"}, headers=ada),
                await site.client.post(f"{V1}/start", json={}, headers=ada),
                await site.client.post(f"{V1}/rerun/1", json={"failed": True}, headers=ada),
                await site.client.post(f"{V1}/rerun/1", headers=ada),
                await site.client.post(f"{V1}/start", json=wanted, headers=reader),
                await site.client.post(f"{V1}/start", json=wanted, headers=bob),
                await site.client.post(f"{V1}/rerun/1"),
                await site.get(f"{V1}/start", **bob),
            ]

    answers = aio.run(story())

    assert [answer.status_code for answer in answers] == [200, 200, 400, 400, 400, 200, 409, 403, 403, 403, 403]
    asked = answers[0].json()["items"][0]["inputs"]
    assert [one["name"] for one in asked] == ["to", "where", "dry", "note"]
    assert answers[1].json()["address"] == "app/2"
    assert "note" in answers[2].text
    assert "'when'" in answers[3].json()["detail"]
    assert "'workflow'" in answers[4].json()["detail"]
    assert answers[5].json()["number"] == 3
    assert "app/3" in answers[6].json()["detail"]


async def _bearer(site, name, scope):
    account = next(one.id for one in await site.db.read(people.accounts) if one.name == name)
    return {
        "authorization": f"Bearer {await site.house.parts.administration.create_token(account, f't{scope}', scope)}"
    }
