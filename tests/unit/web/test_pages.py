from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import pkgutil
import re
import threading
from dataclasses import is_dataclass
from xml.sax.saxutils import escape, quoteattr

import pytest

import vole.web.pages
from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import a_site
from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import Exhausted
from vole.config.server import QueueConfig
from vole.repos import ledger as repos
from vole.web import login, refusals
from vole.web.pages.visit import Workshop
from vole.web.refusals import Left
from vole.wire import runner as wire
from vole.wire.plan import JUNIT_REPORTS, ArtifactPlan

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e{{7*7}}"
NAME = 'x"><script>alert(1)</script>\u202e'


def _page_classes():
    modules = [
        importlib.import_module(f"vole.web.pages.{found.name}")
        for found in pkgutil.iter_modules(vole.web.pages.__path__)
    ]
    classes = {
        one
        for module in [*modules, login, refusals]
        for _, one in inspect.getmembers(module, inspect.isclass)
        if is_dataclass(one) and "template" in vars(one)
    }
    assert len(classes) > 12
    return classes


async def _crawl(site, session):
    """Every page that can be reached by links, and the classes that were rendered."""
    rendered = set()
    original = site.house.renderer.render

    def noting(page, frame):
        rendered.add(type(page))
        return original(page, frame)

    site.house.renderer.render = noting
    pages, todo = {}, ["/", "/login", "/login/token", "/nothing"]
    while todo:
        path = todo.pop()
        if path in pages:
            continue
        pages[path] = answer = await site.get(path, session)
        if answer.headers["content-type"].startswith("text/html"):
            links = re.findall(r'(?:href|src|data-live)="(/[^"#]*)', answer.text)
            todo += [link.replace("&amp;", "&") for link in links if "live=" not in link]
    return pages, rendered


async def _everything(site, text: str, name: str) -> None:
    """Every row and file that a page shows, with `text` wherever others choose it, `name` where git bounds it."""
    repo = await site.repo("app")
    await site.db.write(repos.set_description, site.repos["app"].id, text)
    author = f"{re.sub('[<>]', '', text)} <e@x>"
    repo.commit(
        {
            "README.md": f"# {text}\n![{text}](a.png)\n[{text}](javascript:alert(1))\n<b>{text}</b>",
            "a.png": b"\x89PNG\0",
            ".vole/workflows/ci.yml": "on: push\n",
        },
        text,
    )
    repo.commit(
        {name: text, "dir/" + name: text, "code.py": f"x = '''{text}'''\n# {text}", b"\xff\xfe": "bytes"},
        text,
        author=author,
    )
    tip = repo.commit({"code.py": None, "moved.py": f"x = '''{text}'''\n# {text}", "big": "x\n"}, text + "\n\n" + text)
    repo.git("update-ref", f"refs/heads/{name.replace(' ', '')}", tip)
    repo.git("update-ref", f"refs/tags/{name.replace(' ', '')}", tip)
    mac = await site.runner("mac", "linux", grant=("app",), repos=("app",), slots=2)
    twin = await site.runner("odd", grant=("app",))
    twin.draining = True
    plans = [
        a_job(
            "test",
            runs_on=("linux",),
            name=text,
            workflow=text,
            continue_on_error=True,
            artifacts=(ArtifactPlan(text[:100], ("out/**",)), ArtifactPlan(JUNIT_REPORTS, ("*",))),
        ),
        a_job("test2", runs_on=("linux", "fast"), needs=("test",)),
        a_job("test3", runs_on=("fast",)),
    ]
    await site.run("app", *plans, commit=tip)
    job = await site.takes(mac)
    mark = wire.Mark(0, 1, 1, "begin", text[:100])
    await site.logs(mac, job, f"{text}\n::group::{text}\n\x1b[31m{text}\n::error::{text}\n".encode(), mark)
    store, leasing = site.house.parts.artifacts, site.house.parts.leasing
    file = wire.ArtifactFile(
        text[:100],
        f"out/{text[:100].replace('/', '_')}",
        0,
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    )
    await leasing.artifact_begin(mac, job.lease.job, job.lease.epoch, file)
    await leasing.artifact_commit(mac, job.lease.job, job.lease.epoch, file)
    assert store is not None
    said = quoteattr(text.replace("\x1b", " ").replace("\0", " "))
    case = f"<testcase classname={said} name={said}><failure message={said}>{escape(said)}</failure></testcase>"
    report = f"<testsuite>{case}{'<testcase><error/></testcase>' * 60}<!-- its end is missing -->".encode()
    tests = wire.ArtifactFile(JUNIT_REPORTS, file.path, len(report), hashlib.sha256(report).hexdigest())
    await leasing.artifact_begin(mac, job.lease.job, job.lease.epoch, tests)
    await leasing.artifact_append(mac, job.lease.job, job.lease.epoch, tests, 0, report)
    await leasing.artifact_commit(mac, job.lease.job, job.lease.epoch, tests)
    await site.finishes(
        mac, job, "failure", reason=text, artifacts=(file, tests), summary=f"# {text}\n{text}",
        annotations=(wire.Annotation("error", text, file=text if text == EVIL else "moved.py", line=3, step=1),),
        steps=(wire.StepOutcome(1, "failure", name=text, continued=True), wire.StepOutcome(2, "skipped", name=text)),
        log=wire.LogSeal(10_000, "0" * 64),
    )  # fmt: skip
    await site.run("app", *plans, commit=tip)
    await site.logs(mac, await site.takes(mac), b"running\nhalf")
    await site.run("app", skipped="filter", commit=tip)


def test_nothing_there_and_nobody_there_still_makes_pages(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            return (await _crawl(site, None))[0]

    pages = aio.run(story())

    assert {path: page.status_code for path, page in pages.items() if page.status_code != 200} == {"/nothing": 404}


def test_every_page_class_renders_its_template_with_typical_content(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "plain words", "plain name")
            await site.repo("empty")
            return await _crawl(site, await site.person("ada", admin=True))

    pages, rendered = aio.run(story())

    assert rendered == _page_classes()
    assert {path for path, page in pages.items() if page.status_code != 200} == {"/nothing"}


@pytest.mark.proves("SR-14", "SR-48", "SR-50")
def test_hostile_content_is_text_on_every_page(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, EVIL, NAME)
            return (await _crawl(site, await site.person("ada", admin=True)))[0]

    pages = aio.run(story())

    assert len(pages) > 40
    for path, page in pages.items():
        assert page.status_code in (200, 404), path
        if not page.headers["content-type"].startswith("text/html"):
            continue
        text = page.text
        assert "<script>alert" not in text, path
        assert not re.search(r"<[^>]*\son\w+=", re.sub(r'"[^"]*"', '""', text)), path
        assert "javascript:" not in re.findall(r'href="([^"]*)"', text).__repr__(), path
        assert "\u202e" not in text, path
        assert "7*7" not in text.replace("{{7*7}}", ""), path
        assert not re.search(r"style=|<style", text), path
        assert all(source.startswith("/") for source in re.findall(r'src="([^"]*)"', text)), path


def test_the_tests_that_failed_are_on_the_pages_of_the_run_and_of_its_job(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "plain words", "name")
            return [(await site.get(path)).text for path in ("/app/runs/1", "/app/runs/1/test", "/app/runs/2/test")]

    run, job, other = aio.run(story())

    for page in (run, job):
        assert "61 failed" in page
        assert '<summary><span class="strong">plain words</span> <span class="soft">plain words</span>' in page
        assert "11 more failed and are not shown; the reports are among the artifacts." in page
        assert "out/plain words: line 1: no element found" in page
    assert "<h2>Tests</h2>" not in other


def test_a_failed_job_that_may_fail_has_words_and_a_look_of_its_own(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            mac = await site.runner("mac", grant=("app",))
            await site.run("app", a_job(continue_on_error=True))
            await site.finishes(mac, await site.takes(mac), "failure")
            return [(await site.get(path)).text for path in ("/app/runs", "/app/runs/1", "/app/runs/1/test", "/")]

    for page in aio.run(story()):
        assert re.search(r'is-marked">.*success, with failures allowed', page)


@pytest.mark.proves("I-34")
def test_a_log_that_is_not_whole_says_so_on_every_page_that_has_it(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await _everything(site, "words", "name")
            return [(await site.get(path)).text for path in ("/app/runs/1", "/app/runs/1/test")]

    for page in aio.run(story()):
        assert re.search(r"log incomplete: \d+ of 10000 bytes", page)


@pytest.mark.proves("I-24")
def test_a_job_that_waits_says_why_runner_by_runner(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.runner("linux-1", "linux", grant=("app",))
            await site.runner("bare-1")
            await site.run("app", a_job("x", runs_on=("linux", "fast")))
            return {
                path: (await site.get(path)).text for path in ("/app/runs/1", "/app/runs/1/x", "/runners", "/queue")
            }

    pages = aio.run(story())

    for page in pages.values():
        assert "no connected runner carries &#39;fast&#39;" in page
    assert "linux-1: lacks fast" in pages["/app/runs/1"]
    assert "any job" in pages["/runners"]
    assert "none that you may read" in pages["/runners"]
    assert "0 of 1" in pages["/runners"]


def test_a_repository_at_its_cap_says_so(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            site.house.parts.leasing.reconfigure(QueueConfig(60.0, 0.0, 1))
            mac = await site.runner("mac", grant=("app",), slots=1)
            await site.run("app")
            await site.takes(mac)
            await site.run("app")
            return (await site.get("/queue")).text, (await site.get("/runners")).text

    queue, runners = aio.run(story())

    assert "1 of 1 (at the cap)" in queue
    assert "1 of 1 (all busy)" in runners


def test_the_limit_of_a_job_says_where_it_came_from(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            await site.repo("app")
            await site.run("app", a_job("a"), a_job("b", timeout_s=1200, timeout_from="job"))
            return (await site.get("/app/runs/1")).text

    page = aio.run(story())

    assert "limit 60 min, the default" in page
    assert "limit 20 min, set by the job" in page


# ---- logs


async def _with_log(site, data: bytes, *marks: wire.Mark):
    await site.repo("app")
    mac = await site.runner("mac", grant=("app",))
    await site.run("app")
    job = await site.takes(mac)
    for at in range(0, len(data), 1 << 20):
        await site.logs(mac, job, data[at : at + (1 << 20)], *marks)
        marks = ()
    return mac, job


def test_a_long_log_is_shown_tail_first_and_every_line_can_be_reached(tmp_path):
    data = b"".join(b"line %d\n" % number for number in range(60_000))

    async def story():
        async with a_site(tmp_path) as site:
            await _with_log(site, data)
            seen, path, pages = [], "/app/runs/1/test", 0
            while path:
                page = (await site.get(path)).text
                seen = [int(number) for number in re.findall(r"</a>line (\d+)<", page)] + seen
                earlier = re.search(r'href="([^"]*)">Earlier', page)
                path = earlier and earlier.group(1).replace("&amp;", "&")
                pages += 1
            return seen, pages

    seen, pages = aio.run(story())

    assert seen == list(range(60_000))
    assert pages == len(data) // limits.LOG_TAIL_BYTES + 1


def test_raw_is_the_bytes_as_they_came(tmp_path):
    data = bytes(range(256)) * 2000 + b"\n"

    async def story():
        async with a_site(tmp_path) as site:
            await _with_log(site, data)
            whole = await site.get("/app/runs/1/test?raw=1")
            return whole, await site.get("/app/runs/1/test?raw=1&from=10&to=20")

    whole, part = aio.run(story())

    assert (whole.content, part.content) == (data, data[10:20])
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in whole.headers["content-security-policy"]


@pytest.mark.proves("SR-52")
@pytest.mark.parametrize(
    "query", ["from=0&to=99999999999", "from=-5", "from=1e9", "from=\u0661", "attempt=99999999999999999999"]
)
def test_odd_ranges_are_brought_within_bounds(tmp_path, query):
    async def story():
        async with a_site(tmp_path) as site:
            await _with_log(site, b"line\n" * 700_000)
            return await site.get(f"/app/runs/1/test?{query}")

    answer = aio.run(story())

    assert answer.status_code == (404 if query.startswith("attempt=9") and len(query) < 20 else 200)
    assert answer.text.count('class="ln"') * 5 <= limits.LOG_RANGE_BYTES_MAX + 5


# ---- what is kept, what is bounded


def test_a_commit_page_is_made_once_and_again_when_its_runs_move(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            tip = (await site.repo("app")).commit({"f": "x\n"})
            made = []
            render = site.house.renderer.render
            site.house.renderer.render = lambda page, frame: made.append(1) or render(page, frame)
            path = f"/app/commit/{tip}"
            first, second = await site.get(path), await site.get(path)
            await site.repo("other")
            third = await site.get(path)
            count = len(made)
            site.clock.advance(seconds(3600 * 24 * 400))
            fourth = await site.get(path)
            return [first, second, third], fourth, count, len(made)

    same, later, count, all_made = aio.run(story())

    assert len({answer.content for answer in same}) == 1
    assert (count, all_made) == (1, 2)
    assert later.content != same[0].content


def test_a_commit_page_made_in_its_turn_is_the_one_made_at_once(tmp_path, monkeypatch):
    async def story():
        async with a_site(tmp_path) as site:
            tip = (await site.repo("app")).commit({"f": "x <b>\n", "g": "\t\u202e\r\n"})
            me = await site.person("mia")
            work, turns = site.house.workshop.run, []
            monkeypatch.setattr(site.house.workshop, "run", lambda *args: turns.append(1) or work(*args))
            at_once = await site.get(f"/app/commit/{tip}", me)
            before = len(turns)
            monkeypatch.setattr(limits, "AT_ONCE_OBJECTS_MAX", 0)
            return at_once, await site.get(f"/app/commit/{tip}", me), before, len(turns)

    at_once, in_turn, before, after = aio.run(story())

    assert (at_once.status_code, before, after) == (200, 0, 1)
    assert at_once.content == in_turn.content
    assert all(part in at_once.text for part in ("x &lt;b&gt;", "\\u202e"))


def test_a_run_at_a_kept_commit_shows_at_once(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            tip = (await site.repo("app")).commit({"f": "x\n"})
            before = await site.get(f"/app/commit/{tip}")
            await site.run("app", commit=tip)
            return before.text, (await site.get(f"/app/commit/{tip}")).text

    before, after = aio.run(story())

    assert "app/1" not in before
    assert "app/1" in after


class _Request:
    """A client that leaves when told."""

    def __init__(self):
        self.leaves = asyncio.Event()

    async def receive(self):
        await self.leaves.wait()
        return {"type": "http.disconnect"}


@pytest.mark.proves("SR-53")
def test_costly_work_stops_when_its_client_leaves():
    async def story():
        shop, request, began, ended, pause = Workshop(), _Request(), asyncio.Event(), [], threading.Event()
        loop = asyncio.get_running_loop()

        def long(going):
            loop.call_soon_threadsafe(began.set)
            try:
                for _ in range(500):
                    going()
                    pause.wait(0.01)
            except Left:
                ended.append("left")
                raise

        running = asyncio.ensure_future(shop.run("me", request, long))
        await began.wait()
        request.leaves.set()
        with pytest.raises(Left):
            await running
        shop.close()
        return ended

    assert aio.run(story()) == ["left"]


@pytest.mark.proves("SR-53")
def test_one_client_has_no_more_than_its_places_and_the_others_wait_no_longer_than_the_bound(monkeypatch):
    monkeypatch.setattr(limits, "PAGE_WAIT_S", 0.2)

    async def story():
        shop, stop, most, running = Workshop(), asyncio.Event(), [0], [0]
        ended = []

        def slow(going):
            running[0] += 1
            most[0] = max(most[0], running[0])
            while not stop.is_set():
                going()
            running[0] -= 1

        asked = [asyncio.ensure_future(shop.run("me", _Request(), slow)) for _ in range(5)]
        other = asyncio.ensure_future(shop.run("other", _Request(), lambda going: "done"))
        assert await other == "done"
        for one in asyncio.as_completed(asked):
            try:
                await one
            except Exhausted:
                ended.append(True)
            if len(ended) == 3:
                break
        stop.set()
        await asyncio.gather(*asked, return_exceptions=True)
        shop.close()
        return most[0]

    assert aio.run(story()) == limits.PAGE_RENDERS_PER_CLIENT_MAX


@pytest.mark.proves("SR-53")
def test_work_that_takes_too_long_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(limits, "PAGE_RENDER_S", 0.1)

    async def story():
        shop = Workshop()

        def endless(going):
            while True:
                going()

        with pytest.raises(Exhausted, match="PAGE_RENDER_S"):
            await shop.run("me", _Request(), endless)
        shop.close()

    aio.run(story())


@pytest.mark.proves("SR-56")
def test_text_that_cannot_be_rendered_within_the_bounds_is_shown_as_it_stands(tmp_path):
    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"README.md": "# *hi*", "a.py": "x = 1"})
            site.offload.full = True
            return await site.get("/app"), await site.get("/app/file/main/a.py")

    front, file = aio.run(story())

    assert "<pre># *hi*</pre>" in front.text
    assert "<td>x = 1</td>" in file.text


def test_a_highlighted_file_has_as_many_lines_as_the_file(tmp_path):
    text = 'a = """\nx\n"""\n\n\nb = 1\n'

    async def story():
        async with a_site(tmp_path) as site:
            (await site.repo("app")).commit({"a.py": text})
            return (await site.get("/app/file/main/a.py")).text

    page = aio.run(story())

    assert re.findall(r'<tr id="L(\d+)">', page) == [str(number) for number in range(1, 7)]
    assert 'class="t-' in page
