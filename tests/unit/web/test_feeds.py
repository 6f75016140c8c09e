"""Badges and feeds: what they say, to whom, and that no text of others breaks them."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest

from tests import aio
from tests.queueing import EVENT, a_job, a_run
from tests.unit.web.site_to_test import URL, a_site
from vole.base import limits
from vole.base.ids import CommitId, PushId
from vole.jobs import ledger as jobs
from vole.jobs.model import RunSource
from vole.people import reads as people

ATOM = "{http://www.w3.org/2005/Atom}"
EVIL = "]]><script>&\x00\x1b\ufffe\u202e\ud800\"'</title>"


async def a_run_of(
    site, *, path=".vole/workflows/ci.yml", name="ci", branch="main", commit="1" * 40, message="", **more
):
    """A queued run that says so."""
    site.pushes += 1
    event = dataclasses.replace(EVENT, ref_name=branch, message=message)
    plan = dataclasses.replace(
        a_run(a_job(workflow=name, workflow_path=path, event=event), **more),
        ref=f"refs/heads/{branch}", commit=CommitId(commit), workflow=name, workflow_path=path, event=event,
    )  # fmt: skip
    source = RunSource(site.repos["app"].id, PushId(site.pushes), 0)
    return await site.db.write(jobs.enqueue_run, site.index, source, plan, {job.key: () for job in plan.jobs})


def words(answer):
    assert answer.status_code == 200, answer.text
    return ET.fromstring(answer.content).attrib["aria-label"]


def story(tmp_path, told):
    async def whole():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"f": "x"})
            return await told(site)

    return aio.run(whole())


def test_a_badge_says_unknown_queued_running_and_how_it_ended(tmp_path):
    async def told(site):
        seen = [words(await site.get("/badges/app.svg"))]
        await a_run_of(site)
        seen.append(words(await site.get("/badges/app.svg")))
        mac = await site.runner("mac", grant=("app",))
        job = await site.takes(mac)
        seen.append(words(await site.get("/badges/app.svg")))
        await site.finishes(mac, job)
        return [*seen, words(await site.get("/badges/app.svg"))]

    assert story(tmp_path, told) == ["app: unknown", "app: queued", "app: running", "app: success"]


def test_a_badge_is_of_a_branch_and_a_workflow_and_without_one_the_worst_of_the_newest_commit(tmp_path):
    async def told(site):
        mac = await site.runner("mac", grant=("app",))
        for name, branch, commit, end in (
            ("lint", "main", "1" * 40, "failure"),
            ("ci", "main", "2" * 40, "success"),
            ("slow", "main", "2" * 40, "failure"),
            ("ci", "topic", "3" * 40, "failure"),
            ("slow", "main", "4" * 40, "success"),
        ):
            await a_run_of(site, path=f".vole/workflows/{name}.yml", name=f"My {name}", branch=branch, commit=commit)
            await site.finishes(mac, await site.takes(mac), end)
        await a_run_of(site, skipped="skip_ci")
        queries = ("", "?workflow=ci", "?workflow=My%20lint", "?branch=topic", "?branch=none", "?workflow=none")
        return [words(await site.get(f"/badges/app.svg{query}")) for query in queries]

    assert story(tmp_path, told) == [
        "app: success", "ci: success", "My lint: failure", "app: failure", "app: unknown", "none: unknown",
    ]  # fmt: skip


def test_a_badge_may_be_embedded_and_is_asked_for_again_by_its_tag(tmp_path):
    async def told(site):
        first = await site.get("/badges/app.svg")
        same = await site.get("/badges/app.svg", if_none_match=f'W/{first.headers["etag"]}, "x"')
        await a_run_of(site)
        changed = await site.get("/badges/app.svg", if_none_match=first.headers["etag"])
        feed = await site.get("/atom/app.xml")
        return first, same, changed, feed, await site.get("/atom/app.xml", if_none_match=feed.headers["etag"])

    first, same, changed, feed, feed_same = story(tmp_path, told)

    assert [one.status_code for one in (first, same, changed, feed, feed_same)] == [200, 304, 200, 200, 304]
    assert (same.content, feed_same.content) == (b"", b"")
    assert first.headers["content-type"] == "image/svg+xml"
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["cross-origin-resource-policy"] == "cross-origin"
    assert feed.headers["content-type"].startswith("application/atom+xml")
    assert feed.headers["cross-origin-resource-policy"] == "same-origin"
    for answer in (first, same, feed):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_feed_has_the_newest_runs_and_changes_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FEED_RUNS_MAX", 2)

    async def told(site):
        empty = ET.fromstring((await site.get("/atom/app.xml")).content)
        mac = await site.runner("mac", grant=("app",))
        for message in ("first", "second", "third"):
            await a_run_of(site, message=message)
        site.clock.advance(60_000_000)
        await site.finishes(mac, await site.takes(mac))
        return empty, ET.fromstring((await site.get("/atom/app.xml")).content)

    empty, feed = story(tmp_path, told)

    assert empty.find(f"{ATOM}entry") is None
    assert empty.findtext(f"{ATOM}updated")
    assert feed.tag == f"{ATOM}feed"
    assert feed.findtext(f"{ATOM}id") == f"{URL}/app/runs"
    links = {link.get("rel"): link.get("href") for link in feed.findall(f"{ATOM}link")}
    assert links == {"self": f"{URL}/atom/app.xml", "alternate": f"{URL}/app/runs"}
    entries = feed.findall(f"{ATOM}entry")
    assert [one.findtext(f"{ATOM}id") for one in entries] == [f"{URL}/app/runs/{number}" for number in (3, 2)]
    assert [one.findtext(f"{ATOM}title") for one in entries] == ["app/3 ci queued", "app/2 ci queued"]
    assert entries[0].findtext(f"{ATOM}summary") == "push at main, 1111111111: third"
    assert entries[0].findtext(f"{ATOM}author/{ATOM}name") == "ada"
    assert all(one.findtext(f"{ATOM}updated") == one.findtext(f"{ATOM}published") for one in entries)


@pytest.mark.proves("SR-14")
def test_texts_of_others_break_neither_badge_nor_feed(tmp_path):
    async def told(site):
        await a_run_of(site, name=EVIL.replace("\ud800", ""), branch="a&b<c", message=EVIL.replace("\ud800", ""))
        feed = await site.get("/atom/app.xml")
        badge = await site.client.get("/badges/app.svg", params={"workflow": EVIL.replace("\ud800", "")})
        return feed, badge

    feed, badge = story(tmp_path, told)

    entry = ET.fromstring(feed.content).find(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}summary").startswith("push at a&b<c, 1111111111: ]]><script>&\\x00\\x1b\ufffd\\u202e")
    assert [one.tag for one in entry] == [
        ATOM + name for name in ("id", "title", "link", "published", "updated", "author", "summary")
    ]
    svg = ET.fromstring(badge.content)
    assert svg.attrib["aria-label"].startswith("]]><script>&\\x00")
    assert {one.tag.rpartition("}")[2] for one in svg.iter()} == {"svg", "title", "rect", "g", "text"}
    assert b"<script" not in badge.content + feed.content


@pytest.mark.proves("SR-44")
@pytest.mark.parametrize("path", ["/badges/{}.svg", "/atom/{}.xml"])
def test_a_private_repository_has_neither_for_others_and_both_for_a_token_that_reads_it(tmp_path, path):
    async def told(site):
        await site.repo("secret", public=False)
        await site.person("ada", secret="read")
        await site.person("eve")
        hidden = [await site.get(path.format(name)) for name in ("secret", "missing")]
        statements = [await site.statements(path.format(name)) for name in ("secret", "missing")]
        tokens = []
        for who, scope in (("ada", None), ("ada", "read:secret"), ("ada", "status:secret"), ("eve", None)):
            account = (await site.db.read(people.person_named, who)).account
            secret = await site.house.parts.administration.create_token(account, f"t{scope}", scope)
            tokens.append((await site.get(path.format("secret"), authorization=f"Bearer {secret}")).status_code)
        odd = await site.get(path.format("app") + "?colour=red")
        return (
            hidden,
            statements,
            tokens,
            (await site.get(path.format("app"), authorization="Bearer x")).status_code,
            odd,
        )

    hidden, statements, tokens, unknown, odd = story(tmp_path, told)

    assert [one.status_code for one in hidden] == [404, 404]
    assert (hidden[0].content, hidden[0].headers) == (hidden[1].content, hidden[1].headers)
    assert statements[0] == statements[1]
    assert (tokens, unknown) == ([200, 200, 403, 404], 403)
    assert odd.status_code == 400
    assert "'colour' is no parameter here" in odd.text
