"""Pages in a real browser, at both widths and in both colours: what a person sees, hostile content and all."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from itertools import product

import pytest

from tests import aio
from tests.endtoend.test_web_git import _served
from tests.queueing import a_job
from tests.unit.web.test_pages import EVIL, NAME, _everything
from tests.unit.web.test_start_pages import DEPLOY, JOBS, a_repo
from vole.people import reads as people
from vole.wire import runner as wire

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(60)]

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# The contrast of every text with what is behind it (WCAG 2, 1.4.3).
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const c = [r, g, b].map((v) => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor); if (colour[3] === 255) return colour; }
    return parse("white"); };
  const faults = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.offsetParent) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faults.push(`${ratio.toFixed(2)} ${node.className || node.tagName}: ${walker.currentNode.data}`);
  }
  return [...new Set(faults)];
}"""
# What a screen reader and a keyboard need of every page.
STRUCTURE = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const ids = all("[id]").map((element) => element.id);
  return [
    document.documentElement.lang !== "en" && "no language",
    all("main").length !== 1 && "not one main",
    !all("h1, .where").length && "no heading",
    !all("a.skip[href='#main']").length && "no way to skip",
    all("img:not([alt])").length && "a picture without words",
    all("nav:not([aria-label])").length && "a nav without a name",
    all("button").some((one) => !one.textContent.trim()) && "a button without words",
    all("a[href]:not([aria-hidden])").some((one) => !one.textContent.trim()) && "a link without words",
    new Set(ids).size !== ids.length && "an id twice",
  ].filter(Boolean);
}"""
ALARMS = """
  window.alert = (x) => alarm(`alert ${x}`);
  document.addEventListener("securitypolicyviolation", (e) => alarm(`policy ${e.violatedDirective} ${e.blockedURI}`));
"""


@asynccontextmanager
async def _browser(**context):
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        try:
            yield await browser.new_context(**context)
        finally:
            await browser.close()


async def _links(page, path):
    html = await page.content()
    found = re.findall(r'href="(/[^"#]*)', html)
    return [
        link.replace("&amp;", "&")
        for link in found
        if not any(part in link for part in ("/raw/", "/artifacts/", "raw=", "/badges/", "/atom/"))
    ]


async def _visit_all(site, url, context, check):
    """Every page that links lead to, each handed to `check`."""
    seen, todo = set(), ["/", "/login/token"]
    page = await context.new_page()
    while todo:
        path = todo.pop(0)
        kind = re.sub(r"[0-9a-f]{10,}", "X", path)
        if kind in seen or path.startswith("/static"):
            continue
        seen.add(kind)
        await page.goto(url + path, wait_until="load")
        await check(page, path)
        todo += await _links(page, path)
    return seen


@pytest.mark.proves("SR-48", "SR-49", "SR-50")
def test_no_hostile_byte_runs_a_script_or_loads_from_elsewhere(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser() as context:
            await _everything(site, EVIL, NAME)
            told, asked = [], []
            await context.expose_function("alarm", lambda what: told.append(what))  # noqa: PLW0108  it takes no builtin
            await context.add_init_script(ALARMS)
            context.on("request", lambda request: asked.append(request.url))
            context.on("weberror", lambda error: told.append(str(error.error)))

            async def nothing(page, path):
                await page.evaluate("0")

            seen = await _visit_all(site, url, context, nothing)
            page = await context.new_page()
            for raw in ("/app/raw/main/code.py", "/app/runs/1/test?raw=1"):
                await page.goto(url + raw)
            return seen, told, [one for one in asked if not one.startswith(url)]

    seen, told, elsewhere = aio.run(story(), timeout_s=50)

    assert len(seen) > 25
    assert told == []
    assert elsewhere == []


def test_pages_fit_their_width_are_readable_and_have_their_structure(tmp_path):
    async def story():
        faults = []

        async def check(page, path):
            faults.extend(f"{path}: {fault}" for fault in await page.evaluate(STRUCTURE))
            for width, scheme in product((360, 1280), ("light", "dark")):
                await page.set_viewport_size({"width": width, "height": 800})
                await page.emulate_media(color_scheme=scheme)
                if (over := await page.evaluate(TOO_WIDE)) > 0:
                    faults.append(f"{path} {width}: {over} pixels too wide")
                faults.extend(f"{path} {width} {scheme}: {fault}" for fault in await page.evaluate(CONTRAST))

        async with _served(tmp_path) as (site, url), _browser() as context:
            await _everything(site, "words and " + "averylongword" * 20, "a" * 120)
            return await _visit_all(site, url, context, check), faults

    seen, faults = aio.run(story(), timeout_s=50)

    assert len(seen) > 25
    assert faults == []


async def _running(site):
    await site.repo("app")
    mac = await site.runner("mac", grant=("app",))
    await site.run("app", a_job())
    job = await site.takes(mac)
    await site.logs(mac, job, b"first line\n", wire.Mark(0, 0, 1, "begin", "Build"))
    return mac, job


def test_a_live_log_shows_a_new_byte_within_a_second_and_the_state_when_it_ends(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser() as context:
            mac, job = await _running(site)
            page = await context.new_page()
            await page.goto(f"{url}/app/runs/1/test")
            await site.logs(mac, job, b"h")
            await page.wait_for_selector("#partial:has-text('h')", timeout=1000)
            await site.logs(mac, job, b"ello\n")
            await page.wait_for_selector(".ln:has-text('hello')", timeout=1000)
            await site.finishes(mac, job)
            await page.wait_for_selector("#part-head .is-success", timeout=3000)
            return await page.inner_text("#log")

    text = aio.run(story(), timeout_s=30)

    assert text.replace("\n\n", "\n").split("\n")[-2:] == ["first line", "hello"]


def test_a_run_page_follows_its_jobs(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser() as context:
            mac, job = await _running(site)
            page = await context.new_page()
            await page.goto(f"{url}/app/runs/1")
            await page.wait_for_selector("#part-head .is-running")
            await site.finishes(mac, job, "failure")
            await page.wait_for_selector("#part-head .is-failure", timeout=3000)
            return await page.title()

    assert aio.run(story(), timeout_s=30).startswith("app/1 failure")


def test_every_page_is_whole_without_script(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser(java_script_enabled=False) as context:
            mac, job = await _running(site)
            page = await context.new_page()
            await page.goto(f"{url}/app/runs/1/test")
            before = await page.inner_text("main")
            await site.finishes(mac, job)
            await page.reload()
            return before, await page.inner_text("main")

    before, after = aio.run(story(), timeout_s=30)

    assert "first line" in before
    assert "running" in before
    assert "success" in after


@pytest.mark.proves("SR-46", "SR-46a", "SR-47")
def test_a_person_logs_in_by_the_button_of_a_link_and_out_again(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser() as context:
            await site.person("ada", admin=True)
            account = (await site.db.read(people.accounts))[0].id
            token = await site.house.parts.administration.make_login_link(account)
            page = await context.new_page()
            await page.goto(f"{url}/login/{token}")
            async with page.expect_response(lambda answer: answer.request.method == "POST") as posted:
                await page.click("main button")
            cookies = await context.cookies(url)
            await page.goto(url)
            logged_in = await page.inner_text(".who")
            await page.click(".who button")
            await page.goto(url)
            return (await posted.value).status, cookies, logged_in, await page.inner_text(".who")

    status, cookies, logged_in, logged_out = aio.run(story(), timeout_s=30)

    assert status == 303
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Lax")]
    assert "ada" in logged_in
    assert "Log in" in logged_out


def test_the_queue_is_sifted_by_a_form_without_script_and_the_address_says_how(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url), _browser(java_script_enabled=False) as context:
            for name in ("app", "lib"):
                await site.repo(name)
                await site.run(name, a_job(runs_on=("linux",)))
            page = await context.new_page()
            await page.goto(f"{url}/queue")
            before = await page.inner_text("#part-queue")
            await page.select_option("select[name=repository]", "lib")
            await page.fill("input[name=labels]", "linux")
            await page.click("main button")
            await page.wait_for_url("**/queue?*")
            chosen = await page.input_value("select[name=repository]"), await page.input_value("input[name=labels]")
            return before, page.url, chosen, await page.inner_text("#part-queue")

    before, address, chosen, after = aio.run(story(), timeout_s=30)

    assert "app/1/test" in before
    assert "repository=lib" in address
    assert "labels=linux" in address
    assert chosen == ("lib", "linux")
    assert "app/1/test" not in after
    assert "lib/1/test" in after


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_person_starts_cancels_and_runs_again_by_the_buttons(tmp_path, width, script):
    sizes = {"viewport": {"width": width, "height": 800}, "java_script_enabled": script}
    files = {".vole/workflows/deploy.yml": DEPLOY, ".vole/workflows/ci.yml": JOBS}

    async def wide(page):
        over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return [await page.evaluate(over), *await page.evaluate(CONTRAST), *await page.evaluate(STRUCTURE)]

    async def story():
        async with _served(tmp_path) as (site, url), _browser(**sizes) as context:
            session = await a_repo(site, ends="failure", files=files)
            await context.add_cookies([{"name": "vole", "value": session, "url": url}])
            page = await context.new_page()
            faults, seen = [], []
            await page.goto(f"{url}/app")
            await page.click("text=Start")
            await page.select_option("select[name='input.to']", "live")
            await page.fill("input[name='input.note']", "by hand, " + "averylongword" * 20)
            faults += await wide(page)
            await page.click("text=Start Ship it")
            await page.wait_for_url("**/app/runs/2")
            seen.append(await page.inner_text("#part-facts"))
            faults += await wide(page)
            await page.click("text=Cancel the run")
            await page.wait_for_url("**/app/runs/2")
            seen.append(await page.inner_text("#part-head"))
            await page.click("text=Run again what failed")
            await page.wait_for_url("**/app/runs/3")
            await page.click("a:has-text('app/2')")
            seen.append(await page.inner_text("#part-head"))
            faults += await wide(page)
            return seen, faults

    (started, cancelled, again), faults = aio.run(story(), timeout_s=50)

    assert "ada, by hand" in started
    assert "to: live" in started
    assert "cancelled" in cancelled
    assert "run again as app/3" in again
    assert faults == [0, 0, 0]
