"""What a start gives back: time goes on from what is stored, whatever became of the wall clock meanwhile."""

from __future__ import annotations

import pytest

from tests.aio import run
from tests.leasing_server import Server
from tests.queueing import a_hello, a_job, a_result, a_run
from vole.base.clock import ManualClock, seconds

DAY = seconds(86_400)


@pytest.mark.parametrize("set_by", [-DAY, DAY])
@pytest.mark.proves("I-16", "I-21")
def test_a_wall_clock_that_was_set_before_a_restart_disorders_nothing_and_ends_no_lease(tmp_path, set_by):
    async def story():
        first = await Server.begin(tmp_path)
        try:
            await first.account("mac-1", "app")
            await first.enqueues(a_run(a_job("x"), a_job("y")))
            job = await first.takes(await first.connects("mac-1", slots=2))
        finally:
            await first.end()
        clock = ManualClock()
        clock.advance(seconds(5) + set_by)
        second = await Server.begin(tmp_path, clock=clock)
        try:
            await second.upkeep.once()
            session = await second.leasing.hello(await second.person("mac-1"), a_hello("mac-1", slots=2))
            await second.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
            events = second.rows("SELECT id, at, kind FROM events ORDER BY rowid")
            second.check()
        finally:
            await second.end()

        assert [row["id"] for row in events] == sorted(row["id"] for row in events)
        assert [row["at"] for row in events] == sorted(row["at"] for row in events)
        assert "concluded" in [row["kind"] for row in events]

    run(story())


def test_a_run_of_today_never_sorts_before_one_of_a_clock_that_was_ahead(tmp_path):
    async def story():
        first = await Server.begin(tmp_path)
        old = await first.enqueues(a_run(a_job("x")), push=1)
        await first.end()
        clock = ManualClock()
        clock.advance(seconds(-86_400))
        second = await Server.begin(tmp_path, clock=clock)
        try:
            new = await second.enqueues(a_run(a_job("x")), push=2)
        finally:
            await second.end()

        assert new.id > old.id

    run(story())


@pytest.mark.proves("I-16")
def test_a_start_that_takes_long_before_its_doors_open_ends_no_lease(tmp_path):
    async def story():
        first = await Server.begin(tmp_path)
        await first.account("mac-1", "app")
        await first.enqueues(a_run(a_job("x"), a_job("y")))
        session = await first.connects("mac-1", slots=2)
        await first.takes(session, "one")
        await first.gets(session, "two")
        await first.end()
        second = await Server.begin(tmp_path, clock=first.clock)
        try:
            second.clock.advance(seconds(300))  # pushes are settled, and nobody can renew
            await second.upkeep.once()
            states = [row["state"] for row in second.rows("SELECT state FROM jobs ORDER BY id")]
        finally:
            await second.end()

        assert states == ["running", "leased"]

    run(story())
