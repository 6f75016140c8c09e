"""Whoever asked for a change may be gone once it is written: whoever it concerns hears of it all the same."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from tests import leasing_server, stored
from tests.aio import run
from tests.queueing import a_hello, a_job, a_run
from tests.starting import APP, DEPLOY, a_house
from tests.unit.git.gitrepo import GitRepo
from vole import app
from vole.base.errors import Denied
from vole.base.ids import AccountName, PushId, RefName, RunNumber
from vole.base.supervise import carried_through
from vole.cli.founding import found
from vole.config import server
from vole.flows.push.planning import Meant, OpenGit
from vole.flows.push.story import intend_push
from vole.flows.starting import Wanted
from vole.jobs import ledger as jobs
from vole.jobs.model import RunSource
from vole.people import reads as people
from vole.people.model import OPERATOR
from vole.repos.model import Intent, PinnedRun
from vole.store.database import Database
from vole.wire import runner
from vole.wire.hook import RefUpdate


class Leaving(Database):
    """The store. Who leaves is cancelled when the next change is made, before its answer comes."""

    leaver: asyncio.Task | None = None

    async def write(self, change, /, *args, **kwargs):
        loop, leaver = asyncio.get_running_loop(), self.leaver

        def made(tx):
            result = change(tx, *args, **kwargs)
            if leaver is not None:
                loop.call_soon_threadsafe(leaver.cancel)
            return result

        return await super().write(made)


async def leaves(db, deed):
    """Do it, and be gone as soon as it is written."""
    db.leaver = asyncio.create_task(deed)
    with pytest.raises(asyncio.CancelledError):
        await db.leaver
    db.leaver = None


@asynccontextmanager
async def a_forge(folder, monkeypatch):
    """A server without doors, a running job in `app/1`, and the session that runs it."""
    monkeypatch.setattr(app, "Database", Leaving)
    found(folder / "forge", server.template(url="https://forge.example"))
    async with app.App.closed_doors(server.load(folder / "forge")) as forge:
        repo = await forge.administration.create_repo(APP, public=True, description="")
        await forge.db.write(leasing_server._account, "rui", "runner", [repo.id])
        session = await forge.leasing.hello(await forge.db.read(people.person_of_key, "SHA256:rui"), a_hello("rui"))
        await forge.db.write(jobs.enqueue_run, forge.index, RunSource(repo.id, PushId(1)), a_run(a_job("x")), {})
        want = asyncio.create_task(forge.leasing.next_job(session, runner.Want(0, "t")))
        await asyncio.sleep(0)
        await forge.leasing.look()
        lease = (await want).lease
        await forge.leasing.started(session, runner.Started(lease.job, lease.epoch))
        yield forge, repo, session


async def a_push(forge, repo):
    """A push whose ref has moved, not confirmed yet."""
    git = GitRepo(forge.storage.path(APP))
    commit, ref = git.commit({"a": "1"}, branch="topic"), RefName("refs/heads/topic")
    updates = (RefUpdate(ref, None, commit),)
    meant = await forge.db.write(intend_push, Intent(repo.id, AccountName("ada"), "", (), updates, ()))
    plan = dataclasses.replace(a_run(a_job("y")), ref=ref, commit=commit)
    push = OpenGit(OPERATOR, repo, forge.storage.path(APP), "write", frozenset())
    push.locked, push.meant = asyncio.Lock(), Meant(meant, updates, (PinnedRun(0, plan),))
    await push.locked.acquire()
    return push


@pytest.mark.proves("I-13")
@pytest.mark.parametrize(
    ("deed", "bell"), [("cancel", "queue"), ("grant", "people"), ("remove", "people"), ("push", "jobs")]
)
def test_who_asked_is_gone_and_the_change_is_heard_of(tmp_path, monkeypatch, deed, bell):
    async def story():
        async with a_forge(tmp_path, monkeypatch) as (forge, repo, session):
            push = await a_push(forge, repo) if deed == "push" else None
            asked = {
                "cancel": lambda: forge.leasing.cancel(OPERATOR, APP, RunNumber(1), None, ""),
                "grant": lambda: forge.administration.grant(AccountName("rui"), APP, "read"),
                "remove": lambda: forge.administration.remove_repo(APP),
                "push": lambda: forge.pushes.confirm(push),
            }[deed]
            with forge.bells.listening(bell) as listener:
                await leaves(forge.db, asked())

                assert await listener.wait(0.01)

            if deed in ("cancel", "remove"):
                assert isinstance(session.orders.get_nowait(), runner.Cancel)
            if deed == "push":
                assert forge.index.queued == 1

    run(story())


def test_a_runner_that_is_gone_before_its_welcome_is_not_shown_as_connected(tmp_path, monkeypatch):
    async def story():
        async with a_forge(tmp_path, monkeypatch) as (forge, _repo, first):
            person = await forge.db.read(people.person_of_key, "SHA256:rui")
            await leaves(forge.db, forge.leasing.hello(person, a_hello("another")))

            sql = "SELECT id FROM runners WHERE disconnected_at IS NULL"
            assert [row["id"] for row in stored.rows(forge.config.paths.root, sql)] == [first.id]
            assert [session.id for session in forge.roster] == [first.id]

    run(story())


@pytest.mark.proves("I-13", "I-28")
@pytest.mark.parametrize("again", [False, True])
def test_who_starts_a_run_is_gone_and_it_is_heard_of(tmp_path, again):
    async def story():
        async with a_house(tmp_path, store=Leaving) as house:
            await house.pushed({"deploy.yml": DEPLOY})
            start = house.starting.start(house.person(), APP, Wanted("deploy", inputs={"note": "now"}))
            if again:
                begun = await start
                await house.ends()
                start = house.starting.rerun(house.person(), APP, begun.run.number, failed=False)
            with house.bells.listening("jobs") as listener:
                await leaves(house.db, start)

                assert await listener.wait(0.01)

            assert len(house.runs()) == 1 + again
            house.check()

    run(story())


def test_a_story_ends_before_whoever_waits_for_it_is_cancelled_however_often_they_are():
    async def story():
        go, told = asyncio.Event(), []

        async def long():
            await go.wait()
            told.append("told")

        waiter = asyncio.create_task(carried_through(long()))
        for _ in range(3):
            await asyncio.sleep(0)
            waiter.cancel()
        await asyncio.sleep(0)
        assert not waiter.done()

        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waiter

        assert told == ["told"]

    run(story())


def test_what_a_story_raises_is_raised_to_whoever_waits():
    async def refused():
        raise Denied("no")

    with pytest.raises(Denied, match="no"):
        run(carried_through(refused()))
