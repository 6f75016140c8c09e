from __future__ import annotations

import re

import pytest

from tests import aio
from tests.unit.web.site_to_test import URL, a_site
from vole.base import errors, limits
from vole.base.clock import seconds
from vole.base.ids import RESERVED_SEGMENTS, RepoName
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.repos import ledger as repos
from vole.web import refusals
from vole.web.routes import LATER, ROUTES

PATHS = [
    "", "/refs", "/tree/main", "/file/main/f", "/raw/main/f", "/commits/main", "/commit/" + "1" * 40, "/runs",
    "/runs/1", "/runs/1/test", "/runs/1/test?raw=1", "/runs/1/test?live=1", "/runs/1?live=x",
    "/runs/1/test/artifacts/1/" + "a" * 64 + "/f", "/start", "/start?ref=main",
]  # fmt: skip


def _path_of(route):
    return route.path.replace("{repo}", "secret").replace("{place:path}", "main").replace("{commit}", "1" * 40)


# ---- the table


@pytest.mark.proves("SR-45")
def test_the_site_has_the_routes_of_the_table_and_no_other(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            return site.client._transport.app.inner.routes

    served = {(route.path, *sorted(route.methods - {"HEAD"})) for route in aio.run(story())}

    assert served == {(route.path, route.method) for route in ROUTES}
    assert all(route.needs in ("read", "write", "public") for route in ROUTES if "{repo}" in route.path)
    pages = [
        route for route in ROUTES if not route.api
    ]  # the API's deeds ask in their flows, in the words of a problem
    deeds = {route.path for route in pages if route.method == "POST" and "/git/" not in route.path}
    assert deeds - {"/login/{token}", "/logout"} == {route.path for route in pages if route.needs == "write"}


@pytest.mark.proves("SR-46")
def test_whatever_changes_something_needs_a_proof_of_origin():
    changing = {route.path for route in ROUTES if route.method == "POST" and route.origin != "proven"}

    assert changing == {"/git/{repo}.git/git-upload-pack", "/git/{repo}.git/git-receive-pack"}
    assert all(route.origin == "any" for route in ROUTES if route.method == "GET")


def test_first_segments_of_routes_are_the_names_that_no_repository_may_have():
    first = {route.path.split("/")[1] for route in ROUTES} - {"", "{repo}"}

    assert first | LATER | {"vole-admin"} == RESERVED_SEGMENTS
    assert not first & LATER
    for name in RESERVED_SEGMENTS:
        with pytest.raises(errors.Invalid):
            RepoName.parse(name)


def test_every_kind_of_error_has_a_status():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.VoleError)}

    assert kinds - {errors.VoleError} == set(refusals.STATUS)


# ---- who may see what


@pytest.mark.proves("SR-44")
@pytest.mark.parametrize("path", PATHS)
def test_a_private_repository_answers_like_a_missing_one(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            secret = await site.repo("secret", public=False)
            secret.commit({"f": "x"})
            await site.run("secret")
            stranger = await site.person("eve", app="read")
            return [await site.get(f"/{name}{path}", who) for name in ("secret", "missing") for who in (None, stranger)]

    hidden, hidden_to_eve, missing, missing_to_eve = aio.run(story())

    assert hidden.status_code == 404
    assert (hidden.content, hidden.headers) == (missing.content, missing.headers)
    assert (hidden_to_eve.content, hidden_to_eve.headers) == (missing_to_eve.content, missing_to_eve.headers)


@pytest.mark.proves("SR-44")
def test_what_is_on_no_route_answers_like_what_is_not_theirs(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("secret", public=False)
            paths = ("/secret", "/secret/no/such/route", "/no/such/route", "/Not-A-Name", "/secret/commit/xyz")
            return {(answer.status_code, answer.content) for answer in [await site.get(path) for path in paths]}

    assert len(aio.run(story())) == 1


@pytest.mark.proves("SR-44")
def test_the_same_statements_run_for_a_private_repository_and_for_a_missing_one(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("secret", public=False)
            return [await site.statements(f"/{name}/runs/1") for name in ("secret", "missing")]

    private, missing = aio.run(story())

    assert private == missing
    assert len(private) > 2


@pytest.mark.proves("SR-44")
def test_a_private_repository_shows_nowhere_to_who_may_not_read_it(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.repo("secret", public=False)
            await site.run("secret")
            mac = await site.runner("mac", grant=("app", "secret"), repos=("secret", "app"))
            await site.takes(mac)
            await site.run("secret")
            stranger = await site.person("eve", app="write")
            member = await site.person("ada", secret="read")
            seen = []
            for path in ("/", "/queue", "/runners", "/status"):
                seen += [("secret" in (await site.get(path, who)).text) for who in (None, stranger)]
            shown = [("secret" in (await site.get(path, member)).text) for path in ("/", "/queue", "/runners")]
            return seen, shown, (await site.get("/runners", stranger)).text

    seen, shown, runners = aio.run(story())

    assert not any(seen)
    assert all(shown)
    assert "1 job not yours to see" in runners


def test_a_grant_is_looked_up_for_each_request(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("secret", public=False)
            ada = await site.person("ada", secret="read")
            before = await site.get("/secret/runs", ada)
            account = (await site.db.read(people_reads.accounts))[0].id
            await site.db.write(people.revoke_grant, account, site.repos["secret"].id, None)
            return before.status_code, (await site.get("/secret/runs", ada)).status_code

    assert aio.run(story()) == (200, 404)


# ---- sessions


@pytest.mark.proves("SR-46", "SR-46a")
def test_a_login_link_is_used_by_its_button_alone_and_once(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            account = await site.db.write(people.add_account, "ada", admin=False)
            token = await site.house.parts.administration.make_login_link(account)
            scanned = [await site.get(f"/login/{token}") for _ in range(3)]
            foreign = await site.post(f"/login/{token}", sec_fetch_site="cross-site")
            used = await site.post(f"/login/{token}", sec_fetch_site="same-origin")
            again = await site.post(f"/login/{token}", sec_fetch_site="same-origin")
            cookie = used.headers["set-cookie"].partition(";")[0].partition("=")[2]
            return scanned, foreign, used, again, await site.get("/", cookie)

    scanned, foreign, used, again, home = aio.run(story())

    assert all(page.status_code == 200 and "set-cookie" not in page.headers for page in scanned)
    assert foreign.status_code == 403
    assert (used.status_code, used.headers["location"]) == (303, f"{URL}/")
    assert again.status_code == 403
    assert "ada" in home.text


@pytest.mark.proves("SR-46a")
def test_a_login_link_ends_after_five_minutes(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            account = await site.db.write(people.add_account, "ada", admin=False)
            token = await site.house.parts.administration.make_login_link(account)
            site.clock.advance(seconds(limits.LOGIN_LINK_S + 1))
            return await site.post(f"/login/{token}", sec_fetch_site="same-origin")

    assert aio.run(story()).status_code == 403


@pytest.mark.proves("SR-47")
@pytest.mark.parametrize(("url", "cookie"), [("http://forge.test", "vole="), ("https://forge.test", "__Host-vole=")])
def test_the_cookie_is_for_http_alone_same_site_and_secure_on_https(tmp_path, url, cookie):
    async def story():
        async with a_site(tmp_path, url=url) as site:
            account = await site.db.write(people.add_account, "ada", admin=False)
            token = await site.house.parts.administration.make_login_link(account)
            return (await site.post(f"/login/{token}", origin=url)).headers["set-cookie"]

    said = aio.run(story())

    assert said.startswith(cookie)
    assert "HttpOnly" in said
    assert "SameSite=lax" in said
    assert ("Secure" in said) == url.startswith("https")
    assert f"Max-Age={limits.SESSION_DAYS * 86400}" in said


@pytest.mark.proves("SR-47")
def test_a_login_ends_the_session_that_was_there_before(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            former = await site.person("ada")
            account = (await site.db.read(people_reads.accounts))[0].id
            token = await site.house.parts.administration.make_login_link(account)
            answer = await site.post(f"/login/{token}", former, sec_fetch_site="same-origin")
            return "Log out" in (await site.get("/", former)).text, former in answer.headers["set-cookie"]

    assert aio.run(story()) == (False, False)


@pytest.mark.proves("SR-46", "SR-47")
def test_logging_out_ends_the_session_and_only_when_asked_from_our_own_page(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            ada = await site.person("ada")
            refused = [
                await site.post("/logout", ada),
                await site.post("/logout", ada, origin="http://evil.test"),
                await site.post("/logout", ada, sec_fetch_site="same-site", origin=URL),
            ]
            still = "ada" in (await site.get("/", ada)).text
            ended = await site.post("/logout", ada, origin=URL)
            return [page.status_code for page in refused], still, ended.status_code, (await site.get("/", ada)).text

    refused, still, ended, page = aio.run(story())

    assert refused == [403, 403, 403]
    assert still
    assert ended == 303
    assert "Log out" not in page


@pytest.mark.proves("SR-47")
def test_anonymous_pages_and_git_set_no_cookie(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"f": "x"})
            paths = ["/", "/app", "/nothing", "/git/app.git/info/refs?service=git-upload-pack", "/login"]
            return [await site.get(path) for path in paths]

    assert all("set-cookie" not in answer.headers for answer in aio.run(story()))


@pytest.mark.proves("SR-46")
def test_no_page_changes_a_row(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"f": "x"})
            await site.run("app")
            ada = await site.person("ada", app="write")
            before = site.db.commits
            paths = [route.path for route in ROUTES if route.method == "GET" and route.path != "/readyz"]
            for path in paths:
                named = path.replace("{repo}", "app").replace("{run}", "1").replace("{job}", "test")
                named = named.replace("{place:path}", "main/f").replace("{commit}", "1" * 40).replace("{token}", "x")
                await site.get(named, ada)
            return site.db.commits - before

    assert aio.run(story()) == 0


# ---- what every answer says


@pytest.mark.proves("SR-48")
@pytest.mark.parametrize("path", ["/", "/app", "/app/raw/main/f", "/nothing", "/healthz", "/static/x", "//", "/queue"])
def test_every_answer_has_the_policy(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"f": "x"})
            return await site.get(path)

    said = aio.run(story()).headers

    policy = said["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy or "sandbox" in policy
    assert said["x-content-type-options"] == "nosniff"
    assert said["x-frame-options"] == "DENY"
    assert said["referrer-policy"] == "same-origin"


@pytest.mark.proves("SR-49")
def test_raw_bytes_never_run(tmp_path):
    evil = {
        "a.html": "<script>alert(1)</script>", "a.svg": "<svg onload='alert(1)'/>", "a.js": "alert(1)",
        "a.png": b"\x89PNG\0\0", "a.bin": b"\0\1", "a.pdf": b"%PDF\0", 'q".html': b"\0<script>",
    }  # fmt: skip

    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit(evil)
            return {name: await site.get(f"/app/raw/main/{name.replace(chr(34), '%22')}") for name in evil}

    for name, answer in aio.run(story()).items():
        plain = answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.status_code == 200, name
        assert plain or answer.headers["content-disposition"].startswith('attachment; filename="'), name
        assert answer.headers["content-type"] in ("text/plain; charset=utf-8", "application/octet-stream", "image/png")
        assert "sandbox" in answer.headers["content-security-policy"]


_ODD_HOSTS = [
    (), (b"",), (b"a b",), (b"evil.test/x",), (b"user@evil.test",), (b"a:99999999",), (b"a,b",), (b"[::1",),
    (b"a\xe9",), (b"-a",), (b"forge.test", b"evil.test"),
]  # fmt: skip


@pytest.mark.proves("SR-51")
@pytest.mark.parametrize("hosts", _ODD_HOSTS)
def test_an_odd_host_is_refused(tmp_path, hosts):
    async def story():
        async with a_site(tmp_path) as site:
            return await site.status_of(b"/", *hosts), await site.status_of(b"/", b"forge.test:8080")

    assert aio.run(story()) == (400, 200)


_ODD_PATHS = [
    b"//evil.test", b"/app//x", b"/app/../x", b"/app/%2e%2e/x", b"/app/%2Fx", b"/app/%00", b"/app/%zz", b"/a\\b",
    b"/./a", b"*", b"app", b"http://evil.test/", b"/a b", b"/a\xff",
]  # fmt: skip


@pytest.mark.proves("SR-51")
@pytest.mark.parametrize("path", _ODD_PATHS)
def test_an_odd_path_is_refused(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            return await site.status_of(path, b"forge.test")

    assert aio.run(story()) == 400


@pytest.mark.proves("SR-51")
def test_redirects_and_clone_lines_are_made_of_the_configured_address(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"f": "x"})
            page = await site.get("/app", Host="evil.test", X_Forwarded_Host="evil.test")
            slash = await site.get("/app/", Host="evil.test")
            left = await site.post("/logout", Host="evil.test", origin=URL)
            return page, slash, left

    page, slash, left = aio.run(story())

    assert "evil.test" not in page.text
    assert f"git clone {URL}/git/app.git" in page.text
    assert (slash.status_code, "location" in slash.headers) == (404, False)
    assert left.headers["location"] == f"{URL}/"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "__init__", "PATCH"])
def test_other_methods_are_refused_by_name(tmp_path, method):
    async def story():
        async with a_site(tmp_path) as site:
            return await site.client.request(method, "/app")

    answer = aio.run(story())

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.proves("SR-52")
def test_a_body_over_the_bound_is_refused_before_it_is_read(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            return await site.client.post("/logout", headers={"content-length": str(limits.HTTP_BODY_BYTES_MAX + 1)})

    answer = aio.run(story())

    assert answer.status_code == 413
    assert "HTTP_BODY_BYTES_MAX" in answer.text


@pytest.mark.proves("SR-55")
def test_a_client_over_its_rate_is_told_when_to_come_back_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "RATE_PER_MINUTE", 5)

    async def story():
        async with a_site(tmp_path, proxies=("192.0.2.1",)) as site:
            mine = [await site.get("/healthz", x_forwarded_for="198.51.100.7") for _ in range(6)]
            other = await site.get("/healthz", x_forwarded_for="198.51.100.8")
            spoofed = await site.get("/healthz", x_forwarded_for="198.51.100.9, 198.51.100.7")
            site.clock.advance(seconds(15))
            return mine, other, spoofed, await site.get("/healthz", x_forwarded_for="198.51.100.7")

    mine, other, spoofed, later = aio.run(story())

    assert [answer.status_code for answer in mine] == [200] * 5 + [429]
    assert int(mine[-1].headers["retry-after"]) > 0
    assert (other.status_code, spoofed.status_code, later.status_code) == (200, 429, 200)


@pytest.mark.proves("SR-55")
def test_who_is_no_named_proxy_cannot_say_for_whom_they_ask(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "RATE_PER_MINUTE", 2)

    async def story():
        async with a_site(tmp_path) as site:
            return [(await site.get("/healthz", x_forwarded_for=f"198.51.100.{n}")).status_code for n in range(3)]

    assert aio.run(story()) == [200, 200, 429]


def test_our_own_fault_shows_a_reference_and_nothing_else(tmp_path, monkeypatch, caplog):
    async def broken(view, *args):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("vole.jobs.reads.last_runs", broken)

    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            return await site.get("/")

    answer = aio.run(story())

    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    reference = re.search(r"under (\w+)\.", answer.text)
    assert reference
    assert any(
        record.fields["reference"] == reference.group(1) for record in caplog.records if hasattr(record, "fields")
    )


@pytest.mark.proves("SR-22")
def test_a_refusal_is_bounded_and_shows_what_was_hidden(tmp_path, monkeypatch):
    async def refusing(view, *args):
        raise errors.Invalid("\x1b[31m\u202e" + "long " * 10_000, problems=tuple("x" * 5000 for _ in range(100)))

    monkeypatch.setattr("vole.jobs.reads.last_runs", refusing)

    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            return await site.get("/")

    answer = aio.run(story())

    assert answer.status_code == 400
    assert len(answer.text) < (limits.PROBLEMS_SHOWN_MAX + 1) * limits.PROBLEM_CHARS_MAX + 3000
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", answer.text)


def test_a_style_or_script_of_ours_may_be_kept_for_ever(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            page = (await site.get("/")).text
            path = re.search(r'href="(/static/[0-9a-f]{16}/vole\.css)"', page)
            assert path
            return await site.get(path.group(1)), await site.get("/static/0000000000000000/vole.css")

    found, other = aio.run(story())

    assert "immutable" in found.headers["cache-control"]
    assert other.status_code == 404


def test_the_server_says_whether_it_is_ready(tmp_path, monkeypatch):
    async def story():
        async with a_site(tmp_path) as site:
            before = await site.get("/readyz")
            monkeypatch.setattr(limits, "DISK_FREE_BYTES_MIN", 1 << 60)
            full = await site.get("/readyz")
            return before, full, await site.get("/healthz")

    before, full, health = aio.run(story())

    assert (before.status_code, health.status_code) == (200, 200)
    assert full.status_code == 503
    assert "DISK_FREE_BYTES_MIN" in full.text


@pytest.mark.proves("SR-44")
def test_a_repository_of_the_same_name_is_another_one(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            tip = (await site.repo("app")).commit({"f": "x"})
            before = await site.get(f"/app/commit/{tip}")
            await site.db.write(repos.set_public, site.repos["app"].id, public=False)
            return before.status_code, (await site.get(f"/app/commit/{tip}")).status_code

    assert aio.run(story()) == (200, 404)
