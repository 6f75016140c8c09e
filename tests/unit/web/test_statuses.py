"""Statuses of commits: who may set them, what is kept, where they show."""

from __future__ import annotations

import json

import pytest

from tests import aio
from tests.unit.web.site_to_test import URL, a_site
from vole.base import limits
from vole.base.ids import AccountName, RepoName
from vole.evidence import ledger as evidence
from vole.evidence.gates import Requirement
from vole.flows.administration import forget_repo
from vole.people import reads as people

GOOD = {
    "state": "success", "context": "deploy/try", "target_url": "https://ci.test/1?a=b&c",
    "description": "it <b>runs</b>",
}  # fmt: skip


class Api:
    """A site with the repositories app and other, a commit in each, and ada who may write."""

    def __init__(self, site, commit):
        self.site, self.commit = site, commit
        self.path = f"/api/v1/repositories/app/statuses/{commit}"

    async def token(self, name, scope):
        async def account(view):
            return (await people.person_named(view, name)).account

        administration = self.site.house.parts.administration
        secret = await administration.create_token(await self.site.db.read(account), f"t-{scope}", scope)
        return {"authorization": f"Bearer {secret}"}

    async def post(self, token, body=GOOD, path=None, **headers):
        given = {"content-type": "application/json", **token, **headers}
        return await self.site.client.post(path or self.path, content=json.dumps(body), headers=given)


def story(tmp_path, told):
    async def whole():
        async with a_site(tmp_path) as site:
            commit = (await site.repo("app")).commit({"f": "x"})
            (await site.repo("other", public=False)).commit({"f": "x"})
            await site.person("ada", app="write", other="write")
            await site.person("bob", app="read")
            return await told(Api(site, commit))

    return aio.run(whole())


def test_a_status_is_set_with_a_token_for_it_and_shows_on_commit_and_run(tmp_path):
    async def told(at):
        await at.site.run("app", commit=at.commit)
        before = await at.site.get(f"/app/commit/{at.commit}")
        token = await at.token("ada", "status:app")
        answer = await at.post(token)
        pages = [await at.site.get(path) for path in (f"/app/commit/{at.commit}", "/app/runs/1")]
        twins = [
            (await at.site.get(f"/api/v1/repositories/app/{path}")).json()["statuses"]
            for path in (f"commit/{at.commit}", "runs/1")
        ]
        listed = (await at.site.get(at.path)).json()
        return before, answer, pages, twins, listed

    before, answer, pages, twins, listed = story(tmp_path, told)

    assert answer.status_code == 201, answer.text
    said = answer.json()
    assert {name: said[name] for name in GOOD} == GOOD
    assert said["creator"] == "ada"
    assert "Reported by others" not in before.text
    for page in pages:
        assert 'href="https://ci.test/1?a=b&amp;c" rel="nofollow noopener noreferrer">deploy/try</a>' in page.text
        assert "it &lt;b&gt;runs&lt;/b&gt;" in page.text
    assert [[one["context"] for one in twin] for twin in twins] == [["deploy/try"]] * 2
    assert (listed["state"], listed["items"]) == ("success", [said])
    assert listed["sha"] == said["commit_url"].removeprefix(f"{URL}/app/commit/")


def test_what_was_said_last_of_a_context_counts_and_they_come_together(tmp_path):
    async def told(at):
        token = await at.token("ada", None)
        seen = [(await at.site.get(at.path)).json()["state"]]
        for context, state in (("a", "pending"), ("a", "success"), ("b", "pending"), ("b", "error"), ("b", "success")):
            assert (await at.post(token, {"context": context, "state": state})).status_code == 201
            seen.append((await at.site.get(at.path)).json()["state"])
        items = (await at.site.get(at.path)).json()["items"]
        return seen, items

    seen, items = story(tmp_path, told)

    assert seen == ["pending", "pending", "success", "pending", "failure", "success"]
    assert [(one["context"], one["state"], one["target_url"]) for one in items] == [
        ("a", "success", None), ("b", "success", None),
    ]  # fmt: skip


@pytest.mark.proves("SR-46a")
def test_a_status_token_sets_statuses_of_its_repository_and_does_nothing_else(tmp_path):
    async def told(at):
        token = await at.token("ada", "status:app")
        others = at.path.replace("/app/", "/other/")
        wrong = [
            (await at.post(await at.token(who, scope))).status_code
            for who, scope in (
                ("ada", "read"), ("ada", "start:app"), ("ada", "status:other"), ("bob", None), ("bob", "status:app"),
            )
        ]  # fmt: skip
        reads = [
            (await at.site.get(path, **token)).status_code
            for path in ("/api/v1", "/api/v1/repositories", "/api/v1/repositories/app", at.path)
        ]
        more = [
            (await at.post(token, {"workflow": "ci"}, "/api/v1/repositories/app/start")).status_code,
            (await at.post(token, GOOD, others)).status_code,
            (await at.post({})).status_code,
            (await at.post(token)).status_code,
        ]
        return wrong, reads, more, (await at.site.get(at.path)).json()["items"]

    wrong, reads, more, items = story(tmp_path, told)

    assert wrong == [403, 403, 404, 403, 403]
    assert reads == [403] * 4
    assert more == [403, 404, 403, 201]
    assert len(items) == 1


@pytest.mark.proves("SR-44")
def test_statuses_of_what_is_private_or_missing_answer_alike(tmp_path):
    async def told(at):
        token = await at.token("bob", None)
        paths = [at.path.replace("/app/", f"/{name}/") for name in ("other", "missing")]
        gets = [await at.site.get(path, **token) for path in paths]
        posts = [await at.post(token, path=path) for path in paths]
        ada = await at.token("ada", None)
        nowhere = [await at.post(ada, path=at.path.replace(at.commit, name)) for name in ("1" * 40, "main")]
        return gets, posts, nowhere

    gets, posts, nowhere = story(tmp_path, told)

    assert gets[0].text == gets[1].text
    assert posts[0].text == posts[1].text
    assert [one.status_code for one in (*gets, *posts, *nowhere)] == [404] * 6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "green"}, "state"),
        ({"state": None}, "state"),
        ({"context": ""}, "context"),
        ({"context": "a\u202eb"}, "context"),
        ({"context": "x" * 201}, "context"),
        ({"target_url": "javascript:alert(1)"}, "target_url"),
        ({"target_url": "https://"}, "target_url"),
        ({"target_url": "https://a/\n"}, "target_url"),
        ({"target_url": "https://" + "a" * limits.STATUS_URL_CHARS_MAX}, "STATUS_URL_CHARS_MAX"),
        ({"description": "x" * 201}, "description"),
        ({"avatar_url": "x"}, "avatar_url"),
    ],
)
def test_what_is_no_status_is_refused_by_name(tmp_path, change, why):
    async def told(at):
        return await at.post(await at.token("ada", None), GOOD | change), (await at.site.get(at.path)).json()["items"]

    answer, items = story(tmp_path, told)

    assert answer.status_code == 400
    assert why in answer.json()["detail"]
    assert items == []


def test_a_commit_has_a_bounded_number_of_contexts(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STATUS_CONTEXTS_MAX", 2)

    async def told(at):
        token = await at.token("ada", None)
        return [await at.post(token, GOOD | {"context": context}) for context in "abca"]

    answers = story(tmp_path, told)

    assert [one.status_code for one in answers] == [201, 201, 429, 201]
    assert "STATUS_CONTEXTS_MAX" in answers[2].text


def test_statuses_and_gates_go_with_their_repository(tmp_path):
    async def told(at):
        await at.post(await at.token("ada", None))
        repo, requires = at.site.repos["app"].id, [Requirement.parse("ci")]
        await at.site.db.write(evidence.set_gate, repo, "main", requires, AccountName("ole"))
        before = await at.site.db.read(left)
        await at.site.db.write(forget, at.site.index)
        return before, await at.site.db.read(left)

    assert story(tmp_path, told) == (2, 0)


def forget(tx, index):
    forget_repo(tx, index, RepoName("app"))


async def left(view):
    return (await view.one("SELECT (SELECT count(*) FROM statuses) + (SELECT count(*) FROM gates) AS n"))["n"]
