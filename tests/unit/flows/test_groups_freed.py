"""However a concurrency group is freed, parked requests hear of it and the next of the line is leased."""

from __future__ import annotations

import dataclasses

import pytest

from tests.aio import run
from tests.leasing_server import Server
from tests.queueing import a_job, a_result, a_run
from vole.base.clock import seconds
from vole.base.ids import RepoName, RunNumber
from vole.people.model import OPERATOR
from vole.wire import runner
from vole.wire.plan import Concurrency, JobPlan, RunPlan

ENDS = ["finished", "cancelled while queued", "cancelled and finished", "silent while cancelled"]


def grouped(job: JobPlan) -> RunPlan:
    return dataclasses.replace(a_run(job), concurrency=Concurrency("deploy"))


@pytest.mark.proves("I-12", "I-13")
@pytest.mark.parametrize("end", ENDS)
def test_a_freed_group_rings_and_the_next_of_its_line_is_leased(tmp_path, end):
    async def story():
        server = await Server.begin(tmp_path)
        try:
            await server.account("mac-1", "app")
            session = await server.connects("mac-1", slots=2)
            queued = end == "cancelled while queued"
            await server.enqueues(grouped(a_job(runs_on=("nobody",) if queued else ())), push=1)
            await server.enqueues(grouped(a_job()), push=2)
            job = None if queued else await server.takes(session)
            parked = await server.asks(session, "another")
            await server.leasing.look()
            assert not parked.done()

            with server.bells.listening("jobs") as bell:
                await _end(server, session, job, end)
                assert await bell.wait(0.1)
            await server.leasing.look()

            assert (await parked).address == "app/2/test"
            server.check()
        finally:
            await server.end()

    run(story())


def test_a_push_says_of_a_job_that_waits_for_its_group_beside_those_that_do_not(tmp_path):
    async def story():
        server = await Server.begin(tmp_path)
        try:
            plan = a_run(a_job("ship", concurrency=Concurrency("deploy")), a_job("x"), a_job("y", needs=("x",)))
            await server.enqueues(plan, push=1)
            second = await server.enqueues(plan, push=2)

            assert await server.leasing.prospects(second.id, 3) == [
                "ship: waits for its concurrency group, held by app/1/ship",
                "x: waits: no runner is connected",
            ]
        finally:
            await server.end()

    run(story())


async def _end(server: Server, session, job: runner.Job | None, end: str) -> None:
    if end != "finished":
        await server.leasing.cancel(OPERATOR, RepoName("app"), RunNumber(1), None, "")
    if end == "silent while cancelled":
        for _ in range(61):
            server.clock.advance(seconds(1))
            await server.upkeep.once()
    elif job is not None:
        await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch))
