from __future__ import annotations

import asyncio
import re

import pytest

from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import a_site
from vole.base import limits
from vole.base.clock import seconds
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.web import live
from vole.wire import runner as wire


async def _started(site, **more):
    await site.repo("app")
    mac = await site.runner("mac", grant=("app",))
    await site.run("app", a_job(**more))
    return mac, await site.takes(mac)


def _begin(offset: int, step: int) -> wire.Mark:
    return wire.Mark(offset, 0, step, "begin", f"Step {step}")


def _text(events) -> str:
    html = "".join(piece["html"] for name, data, _ in events if name == "log" for piece in data["pieces"])
    return re.sub(r"<[^>]+>", "", html)


async def _painted(following, to: int):
    """The events up to the one that has painted the log's first `to` bytes: an early look may have sent a part."""
    events = [await following.event()]
    while int(events[-1][2] or 0) < to:
        events.append(await following.event())
    return events


def test_a_log_grows_on_an_open_page(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            mac, job = await _started(site)
            await site.logs(mac, job, b"one\n", _begin(0, 1))
            page = await site.get("/app/runs/1/test")
            following = site.follow(re.search(r'data-live="([^"]*)"', page.text).group(1).replace("&amp;", "&"))
            assert await following.status() == 200
            await site.logs(mac, job, b"two\nthr")
            first = await _painted(following, len("one\ntwo\n"))
            await site.logs(mac, job, b"ee\n", _begin(11, 2))
            await site.logs(mac, job, b"four\n")
            await site.finishes(mac, job)
            rest = await following.until("end")
            await following.done
            return page.text, first, rest

    page, first, rest = aio.run(story())

    assert "one" in page
    assert _text(first) == "Step 1two"
    assert first[-1][1]["partial"] == "thr"
    assert _text(rest) == "threeStep 2four"
    assert "changed" in [name for name, _, _ in rest]


def test_a_browser_that_comes_back_goes_on_where_it_was(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            mac, job = await _started(site)
            await site.logs(mac, job, b"one\ntwo\nthr")
            following = site.follow("/app/runs/1/test?live=1&attempt=1&from=0")
            await following.status()
            name, _, place = await following.event()
            await following.leave()
            await site.logs(mac, job, b"ee\n")
            again = site.follow("/app/runs/1/test?live=1&attempt=1&from=0", last_event_id=place)
            await again.status()
            event = await again.event()
            await again.leave()
            return name, place, event

    name, place, event = aio.run(story())

    assert (name, place) == ("log", "8")
    assert _text([event]) == "three"


def test_a_step_that_is_known_too_late_makes_the_page_load_again(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            mac, job = await _started(site)
            await site.logs(mac, job, b"one\n", _begin(0, 1))
            following = site.follow("/app/runs/1/test?live=1&attempt=1&from=0")
            await following.status()
            await site.logs(mac, job, b"two\n")
            await _painted(following, len("one\ntwo\n"))
            await site.logs(mac, job, b"", _begin(4, 2))
            events = await following.until("end")
            await following.done
            return [name for name, _, _ in events]

    assert "reload" in aio.run(story())


def test_a_job_without_a_runner_says_when_it_starts(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.run("app")
            page = await site.get("/app/runs/1/test")
            following = site.follow(re.search(r'data-live="([^"]*)"', page.text).group(1).replace("&amp;", "&"))
            await following.status()
            mac = await site.runner("mac", grant=("app",))
            await site.takes(mac)
            events = await following.until("end")
            await following.done
            return [name for name, _, _ in events]

    assert aio.run(story()) == ["reload", "end"]


@pytest.mark.parametrize("path", ["/app/runs/1", "/queue", "/runners"])
def test_a_page_hears_of_what_changed_since_it_was_made(tmp_path, path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            mac = await site.runner("mac", grant=("app",))
            await site.run("app")
            page = await site.get(path)
            address = re.search(r'data-live="([^"]*)"', page.text).group(1).replace("&amp;", "&")
            await site.takes(mac)
            following = site.follow(address)
            await following.status()
            event = await following.event()
            await following.leave()
            return event[0]

    assert aio.run(story()) == "changed"


@pytest.mark.proves("SR-44")
def test_a_stream_ends_when_the_right_to_see_it_does(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("secret", public=False)
            ada = await site.person("ada", secret="read")
            mac = await site.runner("mac", grant=("secret",))
            await site.run("secret", a_job(repo="secret"))
            job = await site.takes(mac)
            following = site.follow("/secret/runs/1/test?live=1&attempt=1&from=0", ada)
            assert await following.status() == 200
            await following.looked()
            account = next(one.id for one in await site.db.read(people_reads.accounts) if one.name == "ada")
            await site.db.write(people.revoke_grant, account, site.repos["secret"].id, None)
            site.clock.advance(seconds(limits.LOOK_S))
            await site.logs(mac, job, b"not yours\n")
            events = await following.until("closed")
            await following.done
            return _text(events)

    assert "not yours" not in aio.run(story())


@pytest.mark.proves("SR-53")
def test_live_pages_have_a_bound_and_give_their_place_back(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "EVENT_STREAMS_MAX", 1)

    async def story():
        async with a_site(tmp_path) as site:
            await _started(site)
            path = "/app/runs/1/test?live=1&attempt=1&from=0"
            first = site.follow(path)
            statuses = [await first.status()]
            second = site.follow(path)
            statuses.append(await second.status())
            await second.done
            await first.leave()
            third = site.follow(path)
            statuses.append(await third.status())
            await third.leave()
            return statuses, site.house.streams.open

    assert aio.run(story()) == ([200, 429, 200], 0)


def test_stopping_the_server_ends_live_pages(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _started(site)
            following = site.follow("/app/runs/1/test?live=1&attempt=1&from=0")
            await following.status()
            site.house.closing.set()
            site.house.parts.bells.ring(live.CLOSING)
            await asyncio.wait_for(following.done, 3)

    aio.run(story())
