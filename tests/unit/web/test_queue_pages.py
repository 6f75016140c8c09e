"""The queue as it is sifted, and what a run's timeline and event log say."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import a_site
from vole.base import limits
from vole.base.clock import seconds
from vole.base.ids import JobKey
from vole.jobs import ledger as jobs
from vole.jobs.model import Happening
from vole.web.pages.timeline import WORDS
from vole.wire import runner as wire
from vole.wire.plan import Concurrency

V1 = "/api/v1"


async def _queue(site):
    """app/1: a running, b blocked; app/2: gpu queued; lib/1: linux queued; secret/1: queued."""
    for name in ("app", "lib"):
        await site.repo(name)
    await site.repo("secret", public=False)
    mac = await site.runner("mac", "linux", grant=("app",))
    await site.runner("box", "linux", "gpu", grant=("app", "lib"), only=True)
    await site.run("app", a_job("a", runs_on=("linux",)), a_job("b", needs=("a",)))
    await site.takes(mac)
    await site.run("app", a_job("a", runs_on=("gpu", "linux")))
    await site.run("lib", a_job("a", runs_on=("linux",)), a_job("bare"))
    await site.run("secret", a_job("a", runs_on=("linux",)))


# The address, and the jobs that it shows.
SIFTED = {
    "": ["app/1/a", "app/2/a", "lib/1/a", "lib/1/bare", "app/1/b"],
    "?repository=lib": ["lib/1/a", "lib/1/bare"],
    "?state=running": ["app/1/a"],
    "?state=blocked": ["app/1/b"],
    "?state=leased": [],
    "?labels=linux": ["app/1/a", "app/2/a", "lib/1/a"],
    "?labels=linux,gpu": ["app/2/a"],
    "?labels=gpu%20linux": ["app/2/a"],
    "?labels=arm64": [],
    "?runner=mac": ["app/1/a", "app/1/b"],
    "?runner=box": ["app/1/a", "app/2/a", "lib/1/a"],
    "?runner=box&state=queued&repository=lib": ["lib/1/a"],
    "?repository=&state=&labels=&runner=": ["app/1/a", "app/2/a", "lib/1/a", "lib/1/bare", "app/1/b"],
}


@pytest.mark.parametrize("query", SIFTED, ids=lambda query: query or "all")
def test_the_page_and_the_api_show_the_jobs_that_are_asked_for(tmp_path, query):
    async def story():
        async with a_site(tmp_path) as site:
            await _queue(site)
            return (await site.get(f"/queue{query}")).text, (await site.get(f"{V1}/queue{query}")).json()

    page, api = aio.run(story())

    assert [one["address"] for one in api["items"]] == SIFTED[query]
    assert re.findall(r'class="strong" href="[^"]*">([^<]+)</a>', page) == SIFTED[query]
    assert ("No unfinished job is like that." in page) == (not SIFTED[query])
    assert sum(one["count"] for one in api["depths"]) == sum(one["state"] == "queued" for one in api["items"])


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("repository=secret", 404, "there is no repository"),
        ("repository=absent", 404, "there is no repository"),
        ("state=finished", 400, "is no state of an unfinished job; there are: blocked, queued"),
        ("labels=Linux", 400, "is not a label"),
        ("runner=nobody", 404, "no connected runner is called"),
    ],
)
def test_what_cannot_be_is_said_above_the_form_and_refused_by_the_api(tmp_path, query, status, words):
    async def story():
        async with a_site(tmp_path) as site:
            await _queue(site)
            return await site.get(f"/queue?{query}"), await site.get(f"{V1}/queue?{query}")

    page, api = aio.run(story())

    assert page.status_code == 200
    assert words in page.text
    assert api.status_code == status
    if status == 400:
        assert words in api.json()["detail"]


async def _run_again(site):
    """app/1 failed; app/2 runs it again, for ada."""
    mac = await site.runner("mac", grant=("app",))
    first = await site.run("app")
    await site.finishes(mac, await site.takes(mac), "failure")
    await site.db.write(jobs.rerun_run, site.index, first.id, "ada", failed=True)


@pytest.mark.parametrize(
    ("start", "words", "event", "older"),
    [
        (lambda site: site.run("app"), "ada, push", "push", None),
        (lambda site: site.run("app", event="manual"), "ada, by hand", "manual", None),
        (lambda site: site.run("app", event="schedule"), "its schedule", "schedule", None),
        (_run_again, "ada, app/1 again", "push", "app/1"),
    ],
    ids=["push", "manual", "schedule", "rerun"],
)
def test_the_queue_and_the_run_say_what_started_it(tmp_path, start, words, event, older):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await start(site)
            number = 1 if older is None else 2
            pages = [(await site.get(path)).text for path in ("/queue", f"/app/runs/{number}")]
            (waiting,) = (await site.get(f"{V1}/queue")).json()["items"]
            return pages, waiting, (await site.get(f"{V1}/repositories/app/runs/{number}")).json()

    pages, waiting, run = aio.run(story())

    assert all(words in page for page in pages)
    for one in (waiting, run):
        assert (one["event"], one["actor"], one["rerun_of"]) == (event, "ada", older)


def test_a_run_says_which_concurrency_groups_it_has_and_for_whom_it_waits(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            ship = dataclasses.replace(a_job("ship"), concurrency=Concurrency("live"))
            await site.run("app", ship, group="main")
            await site.run("app", dataclasses.replace(ship, job="send", key=JobKey("send")))
            await site.run("app", a_job("test"), group="main")
            numbers = (1, 2, 3)
            pages = [(await site.get(f"/app/runs/{number}")).text for number in numbers]
            twins = [(await site.get(f"{V1}/repositories/app/runs/{number}")).json() for number in numbers]
            return pages, [twin["concurrency_groups"] for twin in twins]

    pages, groups = aio.run(story())

    assert groups == [
        [_group("main", held=True), _group("live", "ship", held=True)],
        [_group("live", "send", held_by="app/1/ship")],
        [_group("main", held_by="app/1")],
    ]
    facts = [re.search(r"<dt>Concurrency group</dt><dd>(.*?)</dd>", page).group(1) for page in pages]
    assert [re.sub(r"<[^>]+>", "", text) for text in facts] == [
        "main, held; live of ship, held",
        "live of send, waits for app/1/ship",
        "main, waits for app/1",
    ]
    assert '<a href="/app/runs/1/ship">' in facts[1]


def _group(name, job=None, *, held=False, held_by=None):
    return {"name": name, "job": job, "held": held, "held_by": held_by}


def test_a_page_looks_at_so_many_jobs_and_goes_on_behind_them(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_SCANNED_MAX", 2)

    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            for labels in ((), (), (), (), ("gpu",), (), ("gpu",)):
                await site.run("app", a_job("a", runs_on=labels), a_job("b", needs=("a",)))
            page, items, cursor, asked = (await site.get("/queue?labels=gpu")).text, [], "", 0
            while cursor is not None:
                answer = (await site.get(f"{V1}/queue?labels=gpu{cursor}")).json()
                items += [one["address"] for one in answer["items"]]
                cursor, asked = answer["next"] and f"&cursor={answer['next']}", asked + 1
            return page, items, asked

    page, items, asked = aio.run(story())

    assert items == ["app/5/a", "app/7/a"]
    assert asked == 7  # four looks at queued jobs, three at blocked ones behind them, none of which asks for gpu
    assert "There is more that is not shown" in page
    assert "No unfinished job is like that" not in page


@pytest.mark.proves("SR-44")
def test_sifting_by_a_private_repository_is_sifting_by_a_missing_one(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _queue(site)
            pages = [(await site.get(f"/queue?repository={name}")).text for name in ("secret", "absent")]
            member = await site.person("ada", secret="read")
            return pages, (await site.get("/queue?repository=secret", member)).text

    (secret, absent), shown = aio.run(story())

    assert secret.replace("secret", "absent") == absent
    assert ">secret</option>" not in secret
    assert "secret/1/a" in shown


def test_a_sifted_page_lives_on_with_what_was_asked_for(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _queue(site)
            page = (await site.get("/queue?labels=gpu&state=queued")).text
            address = re.search(r'data-live="([^"]+)"', page).group(1).replace("&amp;", "&")
            stream = site.follow(address)
            assert await stream.status() == 200
            await site.run("app", a_job("a", runs_on=("gpu",)))
            site.house.parts.bells.ring("queue")
            said = await stream.event()
            await stream.leave()
            return address, said[0]

    address, said = aio.run(story())

    assert address.startswith("/queue?state=queued&labels=gpu&live=")
    assert said == "changed"


# ---- what happened


async def _requeued(site):
    """A job that is handed back while it runs, then ends; the clock of its runner is an hour late."""
    await site.repo("app")
    mac = await site.runner("mac", grant=("app",))
    await site.run("app", a_job("build"), a_job("test", needs=("build",)))
    site.clock.advance(seconds(3))
    job = await site.takes(mac)
    at = site.clock.now() - seconds(3600)
    await site.logs(mac, job, b"x\n", wire.Mark(0, at, 1, "begin", "Install"))
    site.clock.advance(seconds(10))
    await site.house.parts.leasing.handback(mac, wire.Handback(job.lease.job, job.lease.epoch, "the disk is full"))
    site.clock.advance(seconds(limits.HANDBACK_REST_S + 1))
    job = await site.takes(mac)
    at = site.clock.now() + seconds(3600)
    await site.logs(mac, job, b"x\n", wire.Mark(0, at, 1, "begin", "Install"), wire.Mark(2, at, 1, "end", ""))
    site.clock.advance(seconds(5))
    await site.finishes(mac, job)


def test_a_run_tells_from_queued_to_ended_with_each_step_and_why_it_went_back(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _requeued(site)
            return (await site.get("/app/runs/1")).text, (await site.get(f"{V1}/repositories/app/runs/1")).json()

    page, run = aio.run(story())
    told = [(line["job"], line["epoch"], line["words"]) for line in run["timeline"]["items"]]

    assert told == [
        (None, None, "the run was made"),
        ("build", None, "was made, queued"),
        ("test", None, "was made, blocked"),
        ("build", 1, "was given to mac"),
        ("build", 1, "was started by its runner"),
        ("build", 1, "began Install"),
        ("build", 1, "its attempt was lost: handed back: the disk is full"),
        ("build", 2, "was given to mac"),
        ("build", 2, "was started by its runner"),
        ("build", 2, "began Install"),
        ("build", 2, "step 1 ended"),
        ("build", 2, "ended: success"),
        ("test", None, "may run now: what it waited for is there"),
    ]
    times = [line["at"] for line in run["timeline"]["items"]]
    assert times == sorted(times)
    assert 'class="event is-trouble"' in page
    for _, _, words in told:
        assert words in page
    assert '<a href="/app/events/1">Event log</a>' in page


def test_the_event_log_shows_every_row_in_words_page_by_page(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LIST_MAX", 4)

    async def story():
        async with a_site(tmp_path) as site:
            await _requeued(site)
            pages, href = [], "/app/events/1"
            while href:
                pages.append((await site.get(href)).text)
                later = re.search(r'href="(/app/events/1\?after=\d+)">Later', pages[-1])
                href = later and later.group(1)
            rows = await site.db.read(_kinds)
            return pages, rows, await site.get("/app/events/2"), await site.get("/app/events/x")

    async def _kinds(view):
        return [row["kind"] for row in await view.all("SELECT kind FROM events ORDER BY id")]

    pages, rows, missing, odd = aio.run(story())

    assert [kind for page in pages for kind in re.findall(r'<span class="tag">(\w+)</span></span></li>', page)] == rows
    assert len(pages) == -(-len(rows) // 4)
    assert (missing.status_code, odd.status_code) == (404, 404)


def test_keys_and_sessions_of_runners_are_in_no_event_that_is_shown(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _requeued(site)
            answers = [await site.get("/app/events/1"), await site.get(f"{V1}/repositories/app/events/1")]
            return [answer.text for answer in answers]

    for text in aio.run(story()):
        assert "SHA256:" not in text
        assert "session" not in text


def test_each_thing_that_can_happen_to_a_job_has_words_of_its_own():
    assert set(Happening) <= set(WORDS)
    assert len(set(WORDS.values())) == len(WORDS)


def test_a_long_timeline_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "TIMELINE_MAX", 5)

    async def story():
        async with a_site(tmp_path) as site:
            await _requeued(site)
            return (await site.get("/app/runs/1")).text, (await site.get(f"{V1}/repositories/app/runs/1")).json()

    page, run = aio.run(story())

    assert len(run["timeline"]["items"]) == 5
    assert run["timeline"]["more"]
    assert "There is more." in page
