"""SQLite is busy, full or broken at the Nth statement, for every N of every change: whole or not at all, and again."""

from __future__ import annotations

import functools
import sqlite3

import pytest

from tests.aio import run
from tests.endtoend.git_server import CI, forge
from tests.fault import test_queue_changes as life
from tests.fault.failing import Failing, Stubborn
from tests.leasing_server import Server
from tests.queueing import POLICY, a_job, a_run
from vole.base.clock import seconds
from vole.base.errors import Unavailable
from vole.base.ids import RepoName, RunNumber
from vole.flows.leasing import sessions
from vole.store import database
from vole.wire import runner

KINDS = ["busy", "full", "ioerr"]
TRIES_MAX = 120  # of one deed: the longest change has half as many statements


@pytest.fixture
def stubborn(monkeypatch):
    connect = functools.partial(sqlite3.connect, factory=Failing)
    monkeypatch.setattr(database.sqlite3, "connect", connect)
    Stubborn.armed = False
    Stubborn.tries.clear()
    Stubborn.failures.clear()
    yield Stubborn
    Stubborn.armed = False
    Failing.at = None


class World(life.World):
    """A server that lives on, and people and runners that say again what it could not take in."""

    async def begin(self) -> None:
        self.lives += 1
        db = await Stubborn.open(self.folder / "vole.db", self.clock, self.entropy)
        self.server = Server(self.folder, db, self.clock, POLICY)
        Stubborn.armed = True
        await self.again(self.server.upkeep.on_start)

    async def again(self, deed):  # type: ignore[no-untyped-def]
        for _ in range(TRIES_MAX):
            try:
                return await deed()
            except Unavailable:
                queued = self.server.rows("SELECT COUNT(*) FROM jobs WHERE state = 'queued' AND set_aside IS NULL")
                held = self.server.rows("SELECT job_id, epoch FROM attempts WHERE ended_at IS NULL")
                assert self.server.index.queued == queued[0][0]
                assert set(self.server.index.held) == {tuple(row) for row in held}
        raise AssertionError(f"not through after {TRIES_MAX} tries: {dict(Stubborn.tries)}")


@pytest.mark.timeout(60)
@pytest.mark.proves("I-05", "I-21", "I-22", "I-34")
@pytest.mark.parametrize("kind", KINDS)
def test_every_change_of_a_runs_life_happens_whole_or_not_at_all_and_then_again(tmp_path, stubborn, kind, monkeypatch):
    monkeypatch.setattr(Failing, "kind", kind)

    async def story() -> None:
        world = World(tmp_path)
        await life.story(world)
        db, index, session = world.server.db, world.server.index, world.session
        # A goodbye is said once: what it could not write, the start window does. Here it is said until it is heard.
        await world.again(lambda: db.write(sessions._disconnect, index, session, "bye"))
        stubborn.armed = False

        life.check(world.server)
        assert world.lives == 1
        assert world.server.rows("SELECT 1 FROM runners WHERE disconnected_at IS NULL") == []
        await world.server.end()

    run(story(), timeout_s=55)

    assert set(stubborn.failures) == {*life.CHANGES, "_restart"}
    assert all(failed > 3 for failed in stubborn.failures.values()), stubborn.failures


@pytest.mark.needs("git", "ssh")
@pytest.mark.timeout(60)
@pytest.mark.proves("I-27", "I-29")
@pytest.mark.parametrize("kind", ["busy", "full"])
def test_a_push_that_the_store_cannot_take_is_refused_or_settled_later_and_has_one_run(
    tmp_path, stubborn, kind, monkeypatch
):
    monkeypatch.setattr(Failing, "kind", kind)

    async def story() -> None:
        async with forge(tmp_path, stubborn) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            work = await at.work("work", {".vole/workflows/ci.yml": CI})
            stubborn.armed = True
            refused = []
            while not await at.rows("SELECT 1 FROM pushes"):
                refused.append(await at.push(ada, work, "app"))
                assert len(refused) < 20
            *refused, last = refused

            assert len(refused) > 3
            for push in refused:
                assert push.status == 1
                assert "the store cannot write just now: database" in push.err
                assert ("free space" if kind == "full" else "try again in a moment") in push.err
            assert last.status != 0  # its refs moved, its runs could not be started: it is not told "accepted"
            assert "the store cannot write just now" in last.err
            for _ in range(TRIES_MAX):
                try:
                    assert await at.recovery.settle_pushes() == 1
                    break
                except Unavailable:
                    assert await at.rows("SELECT 1 FROM runs") == []
            stubborn.armed = False

            head = await at.head(work)
            assert await at.rows("SELECT ref, commit_id, state FROM runs") == [("refs/heads/main", head, "queued")]
            assert await at.rows("SELECT state FROM pushes") == [("confirmed",)]
            assert at.index.queued == 1
            assert (await at.push(ada, work, "app")).status == 0
            assert len(await at.rows("SELECT 1 FROM runs")) == 1

    run(story(), timeout_s=55)

    assert stubborn.failures["confirm_push"] > 8


async def troubles(world: World) -> None:
    """One job is handed back, one expires, one is cancelled while it runs and not acknowledged."""
    world.session = None
    await world.begin()
    await world.server.account("mac-1", "app")
    await world.server.account("ada", "app", kind="git")
    ada = await world.server.person("ada")
    await world.again(lambda: world.server.enqueues(a_run(a_job("one"), a_job("two"), a_job("three"))))
    world.session = await world.again(lambda: world.server.connects("mac-1", slots=3))
    given = [await world.again(lambda token=f"t-{n}": life.lease(world, token)) for n in range(3)]
    back, silent, unwanted = given
    for job in (back, silent, unwanted):
        key = (job.lease.job, job.lease.epoch)
        await world.again(lambda key=key: life.say(world, "started", runner.Started(*key)))
    leasing = world.server.leasing
    key = (back.lease.job, back.lease.epoch)
    await world.again(lambda: life.say(world, "handback", runner.Handback(*key, "disk is low")))
    await world.again(lambda: leasing.cancel(ada, RepoName("app"), RunNumber(1), unwanted.key, "not this one"))
    Stubborn.armed = False
    for _ in range(15):  # past the TTL, with no gap
        await world.server.upkeep.once()
        world.clock.advance(seconds(4))
    Stubborn.armed = True
    await world.again(lambda: life.sweep(world))


@pytest.mark.timeout(60)
@pytest.mark.proves("I-14", "I-20")
@pytest.mark.parametrize("kind", KINDS)
def test_what_ends_leases_happens_whole_or_not_at_all_and_then_again(tmp_path, stubborn, kind, monkeypatch):
    monkeypatch.setattr(Failing, "kind", kind)

    async def story() -> None:
        world = World(tmp_path)
        await troubles(world)
        stubborn.armed = False
        world.server.check()
        jobs = world.server.rows("SELECT key, state, conclusion, losses, set_aside FROM jobs ORDER BY ordinal")
        assert [tuple(row) for row in jobs] == [
            ("one", "queued", None, 1, None),
            ("two", "queued", None, 1, None),
            ("three", "finished", "cancelled", 0, None),
        ]
        assert (world.server.index.queued, world.server.index.held) == (2, {})
        await world.server.end()

    run(story(), timeout_s=55)

    assert {"hand_back", "_cancel", "sweep"} <= set(stubborn.failures)
    assert stubborn.failures["sweep"] > 15
