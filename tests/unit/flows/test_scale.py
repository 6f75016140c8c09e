"""What the queue does for many: counted in looks, answers, commits and steps of SQLite, never in time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager

import pytest

from tests.aio import run
from tests.bench import million
from tests.leasing_server import Server
from tests.queueing import POLICY, a_hello, a_job, a_run
from vole.base.clock import Moment, seconds
from vole.base.entropy import SeededEntropy
from vole.base.ids import SessionId
from vole.base.supervise import Sweep, repeat
from vole.jobs import ledger
from vole.jobs.index import QueueIndex
from vole.jobs.match import Ask
from vole.jobs.model import Holder
from vole.people import ledger as people
from vole.store.database import Tx, open_writer
from vole.wire import runner


@asynccontextmanager
async def parked(folder, count, labels=("linux",)):
    """A server with so many runners of one slot, each with a want that was looked at once."""
    server = await Server.begin(folder)
    wants = []
    try:
        await server.account("rui", "app")
        person = await server.person("rui")
        for number in range(count):
            session = await server.leasing.hello(person, a_hello(f"r{number}", labels))
            wants.append(await server.asks(session))
        await server.leasing.look()
        yield server, wants
    finally:
        for want in wants:
            want.cancel()
        await asyncio.gather(*wants, return_exceptions=True)
        await server.end()


@pytest.mark.timeout(120)
def test_of_500_parked_runners_as_many_wake_as_there_is_work(tmp_path):
    async def story():
        async with parked(tmp_path, 500) as (server, wants):
            looks = 0

            async def look():
                nonlocal looks
                looks += 1
                return await server.leasing.look()

            dispatching = asyncio.create_task(
                repeat(Sweep("dispatch", look, 60.0, topics=("jobs", "want")), server.bells)
            )
            await asyncio.sleep(0)
            before, looks = server.db.commits, 0
            await server.enqueues(a_run(*[a_job(f"j{number}", runs_on=("linux",)) for number in range(7)]))
            server.bells.ring("jobs")
            await asyncio.wait(wants, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            for _ in range(50):  # whoever else was woken would come by now
                await asyncio.sleep(0)

            assert sum(want.done() for want in wants) == 7
            assert server.rows("SELECT COUNT(*) FROM attempts")[0][0] == 7
            assert (looks, server.db.commits - before) == (1, 2)  # one for the enqueue, one for all seven leases
            dispatching.cancel()

    run(story())


@pytest.mark.parametrize("span_s", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_fifty_connected_runners_without_work_cause_no_commit(tmp_path, span_s):
    async def story():
        async with parked(tmp_path, 50) as (server, _):
            await server.upkeep.once()
            before = server.db.commits
            for second in range(span_s):
                server.clock.advance(seconds(1))
                await server.upkeep.once()
                if second % 5 == 0:
                    await server.leasing.look()
                    await server.leasing.recheck()

            assert server.db.commits == before

    run(story())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", sorted(million.SHAPES))
def test_after_a_restart_a_lease_takes_as_many_steps_among_many_as_among_few(tmp_path, shape, count):
    few, many = (_steps_of_a_lease(tmp_path / str(queued), queued, shape) for queued in (1_000, count))

    assert many <= few * 1.5


def _steps_of_a_lease(folder, queued, shape):
    """Hundreds of SQLite's own instructions, after a start with so many jobs in the queue."""
    folder.mkdir()
    million.fill(folder, queued, 10)
    million.shape_as(folder, queued, shape)
    connection, index, entropy, steps = open_writer(folder / "vole.db"), QueueIndex(), SeededEntropy(), 0
    _change(connection, entropy, ledger.restart, index, POLICY)
    assert index.queued == queued

    def step():
        nonlocal steps
        steps += 1

    account = connection.execute("SELECT id FROM accounts").fetchone()[0]
    repos = _change(connection, entropy, people.run_grant, account)
    holder = Holder(SessionId(1), "rui", "SHA256:rui", "r", "0", "linux", "x64")
    ask = Ask(holder, million.CARRIED, frozenset(), repos, 1, token="t", first_look=False)
    connection.set_progress_handler(step, 100)
    given = _change(connection, entropy, ledger.lease_many, index, [ask], POLICY)
    connection.set_progress_handler(None, 100)
    connection.close()
    assert isinstance(given.answers[0], runner.Job)
    return steps


def _change(connection: sqlite3.Connection, entropy, change, *args):
    tx = Tx(connection, Moment(2_000_000_000_000_000), entropy)
    connection.execute("BEGIN IMMEDIATE")
    result = change(tx, *args)
    connection.execute("COMMIT")
    for step in tx._after:
        step()
    return result
