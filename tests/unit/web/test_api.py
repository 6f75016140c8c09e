"""The API, asked in process: who may, what is refused and how, pages of lists, and that every page has its twin."""

from __future__ import annotations

import base64
import json
import re

import pytest
from markupsafe import escape

from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import URL, a_site
from tests.unit.web.test_pages import EVIL, NAME, _everything
from vole.base import limits
from vole.flows.recording import Recording
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.people.scopes import FORMS
from vole.web.routes import ROUTES

V1 = "/api/v1"
APP = f"{V1}/repositories/app"
SECRET = f"{V1}/repositories/secret"
API = [route for route in ROUTES if route.api]
# They say nothing of the server: a form, what machines ask, bytes as they are, and the API itself.
WITHOUT_TWIN = {
    "/healthz", "/readyz", "/keys/record-signers", "/robots.txt", "/favicon.ico", "/login", "/login/{token}",
    "/{repo}/raw/{place:path}",
    "/{repo}/runs/{run}/{job}/artifacts/{place:path}", "/git/{repo}.git/info/refs",
    "/badges/{repo}.svg", "/atom/{repo}.xml",
}  # fmt: skip


async def _token(site, user, scope=None):
    account = next(one.id for one in await site.db.read(people_reads.accounts) if one.name == user)
    secret = await site.house.parts.administration.create_token(account, f"t{scope}", scope)
    return {"authorization": f"Bearer {secret}"}


def _filled(path, repo="app"):
    path = path.replace("{repo}", repo).replace("{run}", "1").replace("{job}", "test")
    return path.replace("{place:path}", "main").replace("{commit}", "1" * 40).replace("{token}", "x")


# ---- twins


def test_every_page_names_its_twin_and_the_twin_is_a_route_with_the_same_check():
    by_path = {route.path: route for route in API if route.method == "GET"}
    pages = [route for route in ROUTES if route.method == "GET" and not route.api]

    assert {route.path for route in pages if route.twin is None} == WITHOUT_TWIN
    for page in pages:
        if page.twin is not None:
            assert by_path[page.twin].needs == page.needs, page.path
            assert page.twin.endswith(page.path.removeprefix("/{repo}")) or page.path == "/"


def test_a_page_and_its_twin_answer_alike(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "plain words", "plain name")
            ada = await site.person("ada", admin=True)
            await site.repo("empty")
            answers = []
            for route in ROUTES:
                if route.twin is None:
                    continue
                for repo in ("app", "empty", "missing"):
                    page = await site.get(_filled(route.path, repo), ada)
                    twin = await site.get(_filled(route.twin, repo), ada)
                    answers.append((_filled(route.path, repo), page.status_code, twin.status_code))
            return answers

    answers = aio.run(story())

    assert len(answers) > 30
    assert {status for _, status, _ in answers} == {200, 404}
    assert [one for one in answers if one[1] != one[2]] == []


# ---- problems


def test_an_error_is_a_problem_with_a_type_a_title_a_detail_and_a_next_step(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.person("eve", app="read")
            eve = await _token(site, "eve")
            return [
                await site.get(f"{V1}/queue?colour=red"),
                await site.get(f"{V1}/runs?limit=101"),
                await site.get(f"{V1}/nothing"),
                await site.get(f"{APP}/runs/1"),
                await site.get(V1, authorization="Bearer nope"),
                await site.get(V1, authorization="Basic YTpi"),
                await site.post(f"{APP}/cancel/1", **eve),
                await site.post(f"{APP}/cancel/1"),
                await site.post(f"{APP}/runs"),
                await site.client.request("PUT", f"{APP}/runs"),
                await site.client.post(
                    f"{APP}/cancel/1", headers={"content-length": str(limits.HTTP_BODY_BYTES_MAX + 1)}
                ),
                await site.client.post(f"{APP}/cancel/1", content=b"{" * (limits.API_BODY_BYTES_MAX + 1), headers=eve),
                await site.client.post(f"{APP}/cancel/1", content=b"reason=x", headers=eve),
                await site.client.post(f"{APP}/cancel/1", json={"why": "x"}, headers=eve),
            ]

    answers = aio.run(story())

    assert [answer.status_code for answer in answers] == [
        400, 400, 404, 404, 401, 401, 403, 403, 405, 405, 413, 429, 400, 400,
    ]  # fmt: skip
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["type"].startswith("urn:vole:problem:")
        assert problem["title"]
        assert problem["detail"]
    said = [answer.json() for answer in answers]
    assert "there are: limit, cursor, repository, state, labels, runner" in said[0]["detail"]
    assert "(LIST_MAX)" in said[1]["detail"]
    assert said[2] == said[3]
    assert answers[4].headers["www-authenticate"].startswith("Bearer")
    assert "token create" in said[4]["next_step"]
    assert "takes `write`" in said[6]["detail"]
    assert "API_BODY_BYTES_MAX" in said[11]["detail"]


def test_our_own_fault_is_a_problem_with_a_reference_alone(tmp_path, monkeypatch):
    async def broken(view, *args):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("vole.jobs.reads.last_runs", broken)

    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            return await site.get(f"{V1}/repositories")

    answer = aio.run(story())

    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    assert re.search(r"under \w+\.", answer.json()["detail"])


# ---- who may see what


@pytest.mark.proves("SR-44")
@pytest.mark.parametrize("route", [route for route in API if route.about_repo], ids=lambda route: route.path)
def test_a_private_repository_answers_like_a_missing_one_to_everyone_and_every_token(tmp_path, route):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            (await site.repo("secret", public=False)).commit({"f": "x"})
            await site.run("secret")
            stranger = await site.person("eve", app="write")
            tokens = [await _token(site, "eve", scope) for scope in (None, "read", "start:secret", "status:app")]
            pairs = []
            for given in [{}, {"cookie": f"vole={stranger}", "origin": URL}, *tokens]:
                ask = site.get if route.method == "GET" else site.post
                pairs.append([await ask(_filled(route.path, name), **given) for name in ("secret", "missing")])
            return pairs

    pairs = aio.run(story())

    assert len(pairs) == 6
    for hidden, missing in pairs:
        assert hidden.status_code in (403, 404)
        assert (hidden.content, hidden.headers) == (missing.content, missing.headers)
        assert "secret" not in hidden.text.replace("start:secret", "")


@pytest.mark.proves("SR-44")
def test_the_same_statements_run_for_a_private_repository_and_for_a_missing_one(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.repo("secret", public=False)
            await site.person("eve", app="read")
            eve = await _token(site, "eve", "read")
            return [await site.statements(f"{V1}/repositories/{name}/runs/1", **eve) for name in ("secret", "missing")]

    private, missing = aio.run(story())

    assert private == missing
    assert len(private) > 3


@pytest.mark.proves("SR-44")
def test_a_private_repository_shows_in_no_list_to_who_may_not_read_it(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.repo("secret", public=False)
            await site.run("secret")
            mac = await site.runner("mac", grant=("app", "secret"), repos=("secret", "app"))
            await site.takes(mac)
            await site.run("secret")
            await site.person("eve", app="write")
            await site.person("ada", secret="read")
            eve, ada, narrow = [await _token(site, *who) for who in (("eve",), ("ada",), ("ada", "read:app"))]
            lists = [f"{V1}/{part}" for part in ("repositories", "runs", "queue", "runners", "status")]
            hidden = [(await site.get(path, **given)).text for path in lists for given in ({}, eve, narrow)]
            shown = [(await site.get(path, **ada)).text for path in lists[:4]]
            asked = [(await site.get(f"{V1}/queue?repository={name}", **eve)) for name in ("secret", "absent")]
            return hidden, shown, asked

    hidden, shown, (secret, absent) = aio.run(story())

    assert not any("secret" in text for text in hidden)
    assert all("secret" in text for text in shown)
    assert (secret.status_code, secret.content) == (404, absent.content)


# ---- tokens


def test_a_token_never_does_more_than_its_account_may_just_now(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("secret", public=False)
            await site.run("secret")
            await site.person("ada", secret="write")
            ada = await _token(site, "ada", "start:secret")
            account = next(one.id for one in await site.db.read(people_reads.accounts) if one.name == "ada")
            before = await site.get(f"{SECRET}/runs/1", **ada)
            await site.db.write(people.revoke_grant, account, site.repos["secret"].id, "write")
            gone = await site.get(f"{SECRET}/runs/1", **ada), await site.post(f"{SECRET}/cancel/1", **ada)
            await site.db.write(people.grant, account, site.repos["secret"].id, "read")
            read = await site.get(f"{SECRET}/runs/1", **ada), await site.post(f"{SECRET}/cancel/1", **ada)
            await site.house.parts.administration.revoke_token(account, "tstart:secret")
            return before, gone, read, await site.get(f"{SECRET}/runs/1", **ada)

    before, gone, read, revoked = aio.run(story())

    assert before.status_code == 200
    assert [answer.status_code for answer in gone] == [404, 404]
    assert [answer.status_code for answer in read] == [200, 403]
    assert revoked.status_code == 401


# scope: (reads app, reads secret, cancels in app, cancels in secret); Ada may write to both
ALLOWED = {
    None: (200, 200, 200, 200),
    "read": (200, 200, 403, 403),
    "read:secret": (404, 200, 403, 403),
    "start:app": (200, 404, 200, 404),
    "status:app": (403, 403, 403, 403),
    "read:gone": (404, 404, 403, 403),
}


@pytest.mark.proves("SR-46a")
@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("scope", ALLOWED, ids=str)
def test_a_scope_takes_away_all_but_what_it_says(tmp_path, scope, admin):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.repo("secret", public=False)
            await site.run("app")
            await site.run("secret")
            await site.person("ada", admin=admin, app="write", secret="write")
            ada = await _token(site, "ada", scope)
            read = [(await site.get(f"{base}/runs/1", **ada)).status_code for base in (APP, SECRET)]
            return (*read, *[(await site.post(f"{base}/cancel/1", **ada)).status_code for base in (APP, SECRET)])

    assert aio.run(story()) == ALLOWED[scope]


def test_the_forms_of_scopes_are_those_that_the_table_tries():
    tried = {"read" if scope == "read" else f"{scope.partition(':')[0]}:REPO" for scope in ALLOWED if scope}

    assert tried == set(FORMS)


@pytest.mark.proves("SR-46")
def test_a_change_needs_a_token_or_a_session_from_our_own_page(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            for _ in range(3):
                await site.run("app")
            session = await site.person("ada", app="write")
            ada = await _token(site, "ada")
            return [
                await site.post(f"{APP}/cancel/1", session),
                await site.post(f"{APP}/cancel/1", session, origin="http://evil.test"),
                await site.get(f"{APP}/cancel/1", session),
                await site.post(f"{APP}/cancel/1", session, origin=URL),
                await site.post(f"{APP}/cancel/2/test", **ada, origin="http://evil.test"),
                await site.client.post(f"{APP}/cancel/3", json={"reason": "no more"}, headers=ada),
                await site.get(f"{APP}/runs/3", **ada),
                await site.post(f"{APP}/cancel/3", session, authorization="Bearer nope", origin=URL),
            ]

    answers = aio.run(story())

    assert [answer.status_code for answer in answers] == [403, 403, 405, 200, 200, 200, 200, 401]
    assert answers[4].json() == {"cancelled": 1}
    assert answers[6].json()["jobs"][0]["reason"] == "cancelled by ada: no more"


@pytest.mark.proves("SR-46")
def test_reading_the_api_changes_no_row(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "words", "name")
            ada = await site.person("ada", app="write")
            before = site.db.commits
            for route in API:
                if route.method == "GET":
                    await site.get(_filled(route.path), ada)
            return site.db.commits - before

    assert aio.run(story()) == 0


# ---- lists


async def _all(site, path, **headers):
    """Every item of a list, page by page of `limit` 2, and the number of pages."""
    items, pages, cursor = [], 0, ""
    while True:
        answer = (await site.get(f"{path}{'&' if '?' in path else '?'}limit=2{cursor}", **headers)).json()
        items += answer["items"]
        pages += 1
        assert len(answer["items"]) <= 2
        assert pages < 50
        if answer["next"] is None:
            return items, pages
        cursor = f"&cursor={answer['next']}"


LISTS = {
    f"{V1}/repositories": ("name", 5),
    f"{V1}/runs": ("address", 5),
    f"{V1}/queue": ("address", 5),
    f"{APP}/runs": ("number", 5),
    f"{APP}/events/1": ("id", 4),
    f"{APP}/commits/main": ("id", 5),
    f"{APP}/refs": ("name", 3),
    f"{APP}/refs?kind=tag": ("name", 3),
}


@pytest.mark.parametrize("path", LISTS)
def test_a_list_comes_whole_and_once_page_by_page(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            await _lists(site)
            return await _all(site, path), (await site.get(path)).json()["items"]

    (items, pages), whole = aio.run(story())
    name, least = LISTS[path]

    assert items == whole
    assert len({json.dumps(one[name]) for one in items}) == len(items) >= least
    assert pages == -(-len(items) // 2)


async def _lists(site):
    repo = await site.repo("app")
    for name in ("b", "c", "d", "e"):
        await site.repo(name)
    for at in range(5):
        tip = repo.commit({"f": str(at)}, f"commit {at}")
        await site.run("app", a_job("test"), a_job("other"))
    for name in ("x", "y"):
        repo.git("update-ref", f"refs/heads/{name}", tip)
    for name in ("1", "2", "3"):
        repo.git("update-ref", f"refs/tags/{name}", tip)
    await site.takes(await site.runner("mac", grant=("app",)))


@pytest.mark.parametrize("path", [f"{V1}/runs", f"{APP}/runs", f"{APP}/commits/main", f"{V1}/queue"])
def test_what_comes_in_between_neither_shifts_a_page_nor_shows_twice(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            await _lists(site)
            before = (await site.get(path)).json()["items"]
            first = (await site.get(f"{path}?limit=2")).json()
            await site.run("app")
            (await site.repo_of("app")).commit({"f": "later"}, "later")
            rest = (await site.get(f"{path}?cursor={first['next']}")).json()["items"]
            return before, first["items"] + rest

    before, together = aio.run(story())

    assert together[: len(before)] == before


@pytest.mark.parametrize(
    "cursor", ["x", "e30", "W10", "", "bnVsbA", "WyJydW5zIiwgInR3byJd", "é", "A" * 5000, "WyJxdWV1ZSIsMV0"]
)
def test_a_cursor_that_no_list_gave_is_refused(tmp_path, cursor):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            return [await site.get(f"{path}?cursor={cursor}") for path in (f"{V1}/runs", f"{V1}/queue")]

    for answer in aio.run(story()):
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("cursor: none that this list gave")


@pytest.mark.parametrize("number", [-(2**70), 2**63, 2**200, True])
def test_a_cursor_with_a_number_that_no_row_has_is_refused(tmp_path, number):
    cursor = base64.urlsafe_b64encode(json.dumps(["runs", number]).encode()).decode().rstrip("=")

    async def story():
        async with a_site(tmp_path) as site:
            return await site.get(f"{V1}/runs?cursor={cursor}")

    assert aio.run(story()).status_code == 400


@pytest.mark.parametrize("limit", ["0", "101", "x", "-1", "1.5", "", "١", "9" * 30])
def test_a_limit_out_of_bounds_is_refused_by_the_name_of_its_bound(tmp_path, limit):
    async def story():
        async with a_site(tmp_path) as site:
            return await site.get(f"{V1}/runs?limit={limit}")

    answer = aio.run(story())

    assert answer.status_code == 400
    assert "LIST_MAX" in answer.json()["detail"]


@pytest.mark.parametrize("route", API, ids=lambda route: f"{route.method} {route.path}")
def test_a_parameter_that_is_not_there_or_is_given_twice_is_refused(tmp_path, route):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "words", "name")
            await site.person("ada", app="write")
            ada = await _token(site, "ada")
            ask = site.get if route.method == "GET" else site.post
            twice = "&".join(f"{name}=1&{name}=1" for name in route.query[:1])
            return await ask(_filled(route.path) + "?frm=1", **ada), await ask(f"{_filled(route.path)}?{twice}", **ada)

    unknown, twice = aio.run(story())

    assert unknown.status_code == 400
    assert "'frm' is no parameter here" in unknown.json()["detail"]
    if route.query:
        assert twice.status_code == 400
        assert "given twice" in twice.json()["detail"]


# ---- what is in it


@pytest.mark.proves("SR-14", "SR-48")
def test_hostile_content_is_data_and_no_answer_is_our_fault(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, EVIL, NAME)
            ada = await site.person("ada", admin=True)
            seen, todo, answers = set(), [_filled(route.path) for route in API if route.method == "GET"], {}
            while todo:
                path = todo.pop()
                if path in seen:
                    continue
                seen.add(path)
                answers[path] = answer = await site.get(path, ada)
                # The pages it leads to, and of each page the twin.
                for found in re.findall(rf'"(?:url|raw_url|log_url)": "{URL}(/[^"]*)"', answer.text):
                    todo += [
                        found,
                        *([f"{V1}/repositories{found}"] if "?" not in found and "/raw/" not in found else []),
                    ]
            return answers

    answers = aio.run(story())

    assert len(answers) > 60
    for path, answer in answers.items():
        assert answer.status_code in (200, 404), (path, answer.text)
        if path.startswith(V1):
            assert answer.headers["content-type"] in ("application/json", "application/problem+json")
            assert answer.text.isascii()
            answer.json()


def test_a_finished_run_says_where_its_record_stands_and_how_to_verify_it(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.run("app", skipped="filter")
            parts, paths = site.house.parts, (f"{APP}/runs/1", "/app/runs/1")
            before = [await site.get(path) for path in paths]
            await Recording(
                parts.db, parts.bells, parts.storage, parts.logs, parts.record_keys, parts.clock, lambda _: None
            ).once()
            return before, [await site.get(path) for path in paths]

    (none, bare), (twin, page) = aio.run(story())
    tip = (tmp_path / "repos/app.git/refs/vole/runs").read_text().strip()

    assert none.json()["record"] is None
    assert "verify-commit" not in bare.text
    record = twin.json()["record"]
    assert record == {
        "ref": "refs/vole/runs",
        "commit": tip,
        "path": "runs/000/001/run.json",
        "verify": [
            "git fetch origin refs/vole/runs:refs/vole/runs",
            f'git -c gpg.ssh.allowedSignersFile="$PWD/record-signers" verify-commit {tip[:10]}',
        ],
    }
    for line in record["verify"]:
        assert str(escape(line)) in page.text


def test_a_run_tells_all_that_its_page_shows(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "plain words", "name")
            return [(await site.get(path)).json() for path in (f"{APP}/runs/1", f"{APP}/runs/1/test", f"{APP}/why/1")]

    run, job, why = aio.run(story())

    assert (run["address"], run["state"], run["event"]) == ("app/1", "running", "push")
    assert [one["key"] for one in run["jobs"]] == ["test", "test2", "test3"]
    test, _, fast = run["jobs"]
    assert (test["conclusion"], test["marked"]) == ("success", True)
    assert test["attempts"][0]["log_note"].startswith("log incomplete")
    assert [step["conclusion"] for step in test["attempts"][0]["steps"]] == ["failure", "skipped"]
    assert any("fast" in line for line in fast["why"])
    assert [one["level"] for one in run["annotations"]] == ["error"]
    assert run["artifacts"][0]["url"].startswith(f"{URL}/app/runs/1/test/artifacts/1/")
    assert run["summaries"][0]["markdown"].startswith("# plain words")
    assert [line["kind"] for line in run["timeline"]["items"]][:2] == ["run_enqueued", "enqueued"]
    assert job["run"]["address"] == "app/1"
    assert {one["runner"]: one["reason"] and one["reason"]["code"] for one in why["items"][2]["runners"]} == {
        "mac": "lacks_label",
        "odd": "lacks_label",
    }


def test_the_queue_is_the_input_of_an_autoscaler(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            for labels in (("linux",), ("linux",), ("linux", "arm64"), ()):
                await site.run("app", a_job(runs_on=labels))
            return (await site.get(f"{V1}/queue?labels=linux")).json()

    queue = aio.run(story())

    assert [(one["labels"], one["count"], one["oldest"]) for one in queue["depths"]] == [
        (["linux"], 2, "app/1/test"),
        (["arm64", "linux"], 1, "app/3/test"),
    ]
    assert all(one["why"] == "waits: no runner is connected" for one in queue["depths"])
    assert [one["address"] for one in queue["items"]] == ["app/1/test", "app/2/test", "app/3/test"]
