"""The door of metrics: what a scraper reads, over its own socket."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import pytest

from tests import aio
from tests.queueing import a_job
from tests.unit.web.site_to_test import a_site
from vole.base import limits
from vole.base.clock import seconds
from vole.telemetry import Metrics
from vole.web.metrics import MetricsDoor, MetricsParts


@asynccontextmanager
async def _measured(folder):
    """A site, its measures, and a client of the door of metrics."""
    bound = socket.create_server(("127.0.0.1", 0))
    async with a_site(folder) as site:
        await site.repo("app")
        metrics = Metrics()
        parts = MetricsParts(bound, metrics, site.db, site.house.parts.roster, site.clock, folder)
        door = MetricsDoor(parts)
        await door.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}") as client:
                yield site, metrics, client
        finally:
            await door.drain()
            await door.stop()


def _values(text):
    return {
        name: float(value) for name, value in re.findall(r"^(vole_[^ #]+) (\S+)$", text, re.MULTILINE)
    }  # name with labels: value


async def _scrape(client):
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return _values(answer.text)


def test_jobs_are_counted_by_state_as_they_are_when_asked(tmp_path):
    async def story():
        async with _measured(tmp_path) as (site, _, client):
            none = await _scrape(client)
            await site.run("app", a_job("a"), a_job("b"), a_job("c", needs=("a",)))
            queued = await _scrape(client)
            mac = await site.runner("mac", grant=("app",))
            job = await site.takes(mac)
            running = await _scrape(client)
            await site.finishes(mac, job)
            return none, queued, running, await _scrape(client)

    none, queued, running, after = aio.run(story())
    states = [f'vole_jobs{{state="{state}"}}' for state in ("blocked", "queued", "running")]

    assert [none[state] for state in states] == [0, 0, 0]
    assert [queued[state] for state in states] == [1, 2, 0]
    assert [running[state] for state in states] == [1, 1, 1]
    assert [after[state] for state in states] == [0, 2, 0]


def test_each_lease_counts_once_with_what_it_waited_since_it_was_leasable(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "WAITS_READ_MAX", 1)

    async def story():
        async with _measured(tmp_path) as (site, _, client):
            mac = await site.runner("mac", grant=("app",), slots=2)
            await site.run("app")
            site.clock.advance(seconds(10))
            first = await site.takes(mac)
            await site.run("app")
            site.clock.advance(seconds(50))
            await site.takes(mac)
            await site.finishes(mac, first)
            return [await _scrape(client) for _ in range(3)]

    scrapes = aio.run(story())

    assert [one["vole_queue_wait_seconds_count"] for one in scrapes] == [1, 2, 2]
    assert [one["vole_queue_wait_seconds_sum"] for one in scrapes] == [10, 60, 60]


def test_leases_from_before_the_start_are_not_counted(tmp_path):
    async def story():
        async with _measured(tmp_path) as (site, _, client):
            await site.run("app")
            await site.takes(await site.runner("mac", grant=("app",)))
            parts = MetricsParts(
                socket.create_server(("127.0.0.1", 0)),
                Metrics(),
                site.db,
                site.house.parts.roster,
                site.clock,
                tmp_path,
            )
            later = MetricsDoor(parts)
            await later.start()
            try:
                async with httpx.AsyncClient() as other:
                    port = parts.bound.getsockname()[1]
                    return await _scrape(client), _values((await other.get(f"http://127.0.0.1:{port}/metrics")).text)
            finally:
                await later.drain()
                await later.stop()

    before, after = aio.run(story())

    assert before["vole_queue_wait_seconds_count"] == 1
    assert after["vole_queue_wait_seconds_count"] == 0


def test_a_runner_is_named_by_its_account_and_never_by_its_own_words(tmp_path):
    async def story():
        async with _measured(tmp_path) as (site, _, client):
            mac = await site.runner("mac", grant=("app",))
            evil = 'x"} 1\nvole_evil{a="'
            mac.hello = type(mac.hello)(**{**vars(mac.hello), "name": evil})
            site.clock.advance(seconds(30))
            here = await client.get("/metrics")
            await site.house.parts.leasing.goodbye(mac, cause="closed")
            site.clock.advance(seconds(12))
            return here.text, await _scrape(client)

    here, gone = aio.run(story())

    assert "evil" not in here
    assert _values(here)['vole_runner_last_seen_seconds{account="mac"}'] == 30
    assert gone['vole_runner_last_seen_seconds{account="mac"}'] == 12


def test_looks_hooks_and_the_disk_are_measured(tmp_path):
    async def story():
        async with _measured(tmp_path) as (_, metrics, client):
            for _ in range(3):
                metrics.woke()
            metrics.answered(0.02)
            return await _scrape(client)

    values = aio.run(story())

    assert values["vole_lease_wakeups_total"] == 3
    assert values["vole_hook_seconds_count"] == 1
    assert values["vole_disk_free_bytes"] > 0


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("GET", "/queue", 404), ("POST", "/metrics", 405)]
)
def test_nothing_else_is_there(tmp_path, method, path, status):
    async def story():
        async with _measured(tmp_path) as (_, _, client):
            return await client.request(method, path)

    assert aio.run(story()).status_code == status


@pytest.mark.timeout(60)
def test_a_server_without_metrics_does_not_even_load_them():
    code = (
        "import sys, vole.app, vole.telemetry, vole.web.site; "
        "sys.exit('prometheus_client' in sys.modules or 'vole.web.metrics' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
