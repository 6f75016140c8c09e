"""A push whose server or git dies at each of its steps: after a restart, exactly one run for each ref that moved."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys

import pytest

from tests.aio import run
from tests.endtoend.git_server import CI, forge, said
from vole.base import limits
from vole.base.errors import Unavailable
from vole.git import storage
from vole.git.service import GitPrograms
from vole.store.database import Database

CHANGES = ("intend_push", "confirm_push")
WORKFLOW = {".vole/workflows/ci.yml": CI}


class Died(Exception):
    """The server is gone: nothing it does from here on is done."""


class Mortal(Database):
    """A store that dies at one change, and notes the names of all."""

    name = ""
    when = ""
    dead = False
    noted: list[str] = []  # noqa: RUF012  of the class: a story has one store at a time

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        if self.dead:
            raise Died
        self.noted.append(change.__name__)
        if change.__name__ != self.name:
            return await super().write(change, *args, **kwargs)
        type(self).dead = True
        if self.when == "before":
            raise Died

        def dying(tx):  # type: ignore[no-untyped-def]
            change(tx, *args, **kwargs)
            if self.when == "inside":
                raise Died

        await super().write(dying)
        raise Died


@pytest.fixture
def mortal():
    Mortal.name, Mortal.when, Mortal.dead = "", "", False
    Mortal.noted.clear()
    return Mortal


async def ready(at):
    ada = await at.account("ada")
    await at.repo("app", ada)
    return ada, await at.work("work", WORKFLOW)


async def assert_one_run_for_each_ref(at):
    """I-27 to I-29 of a repository where each branch was made once, in one push."""
    refs = {name: tip for name, tip in (await at.refs("app")).items() if name.startswith("refs/heads/")}
    rows = await at.rows("SELECT ref, commit_id FROM runs")
    assert sorted(rows) == sorted(refs.items())
    kept = [name for name in await at.refs("app") if name.startswith("refs/vole/keep/")]
    assert {name.rpartition("/")[2] for name in kept} >= {commit for _, commit in rows}
    assert await at.rows("SELECT * FROM pushes WHERE state = 'intended'") == []
    assert await at.rows("SELECT * FROM push_runs") == []
    return refs


def test_a_push_makes_these_changes_and_no_others(tmp_path, mortal):
    async def story():
        async with forge(tmp_path, mortal) as at:
            ada, work = await ready(at)
            mortal.noted.clear()

            await at.push(ada, work, "app")

            assert mortal.noted == list(CHANGES)

    run(story())


@pytest.mark.proves("I-27", "I-28", "I-29")
@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_server_that_dies_at_a_change_loses_nothing_and_doubles_nothing(tmp_path, mortal, name, when):
    async def story():
        async with forge(tmp_path, mortal) as at:
            ada, work = await ready(at)
            mortal.name, mortal.when = name, when
            first = await at.push(ada, work, "app")
            assert mortal.dead
            assert first.status != 0  # it was never told "accepted"

        async with forge(tmp_path) as at:
            refs = await assert_one_run_for_each_ref(at)
            assert bool(refs) == (name == "confirm_push")

            again = await at.push(ada, work, "app")

            assert again.status == 0, again.err
            await assert_one_run_for_each_ref(at)

    run(story())


@pytest.mark.proves("I-28")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_dies_while_it_holds_the_commit_starts_the_run_after_it(tmp_path, mortal, monkeypatch, when):
    hold = storage.keep

    def dying(path, commits):
        if when == "after":
            hold(path, commits)
        Mortal.dead = True
        raise Died

    async def story():
        async with forge(tmp_path, mortal) as at:
            ada, work = await ready(at)
            with monkeypatch.context() as patch:
                patch.setattr(storage, "keep", dying)
                await at.push(ada, work, "app")
            assert await at.rows("SELECT * FROM runs") == []

        async with forge(tmp_path) as at:
            assert await assert_one_run_for_each_ref(at) != {}

    run(story())


@pytest.mark.proves("I-28")
def test_the_commit_of_a_run_outlives_its_branch_and_gc(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            await at.push(ada, work, "app", "main", "main:other")
            lost = await at.commit(work, {"a": "b"})
            await at.push(ada, work, "app", "main:topic")

            await at.push(ada, work, "app", ":topic")
            await said("git", "gc", "-q", "--prune=now", cwd=at.bare("app"))

            assert (await said("git", "cat-file", "-t", lost, cwd=at.bare("app"))).out == "commit\n"
            assert await at.rows("SELECT state FROM runs WHERE commit_id = :at", at=lost) == [("queued",)]

    run(story())


@pytest.mark.proves("SR-07", "I-27")
def test_a_git_that_is_killed_after_the_verdict_leaves_no_run_no_lock_and_no_quarantine(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            hook = at.folder / "hooks/pre-receive"
            text = hook.read_text()
            (at.bare("app") / "refs/heads/x.lock").touch()
            hook.write_text(text.replace('.[0-9]) exit "${line#.}"', '.[0-9]) kill -9 "$PPID"; exit "${line#.}"'))

            killed = await at.push(ada, work, "app")
            await at.idle()

            assert killed.status != 0
            assert await assert_one_run_for_each_ref(at) == {}
            assert list(at.bare("app").glob("objects/tmp_objdir-*")) == []
            assert list(at.bare("app").glob("refs/heads/*.lock")) == []
            hook.write_text(text)
            assert (await at.push(ada, work, "app")).status == 0
            assert len(await assert_one_run_for_each_ref(at)) == 1

    run(story())


@pytest.mark.proves("I-27")
def test_a_ref_that_git_itself_did_not_move_gets_no_run(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            (at.bare("app") / "refs/heads/stuck.lock").touch()

            pushed = await at.push(ada, work, "app", "main", "main:stuck", "main:main/below")

            assert pushed.status == 1
            assert len(await assert_one_run_for_each_ref(at)) == 1

    run(story())


@pytest.mark.proves("I-27")
@pytest.mark.parametrize("mode", [(), ("--atomic",)])
def test_of_a_push_of_many_refs_each_that_moved_has_one_run(tmp_path, mode):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            (at.bare("app") / "refs/heads/b7.lock").touch()

            pushed = await at.push(ada, work, "app", *mode, *(f"main:b{number}" for number in range(60)))

            assert pushed.status == 1
            assert len(await assert_one_run_for_each_ref(at)) == (0 if mode else 59)

    run(story())


@pytest.mark.proves("I-29")
def test_an_intent_that_its_push_could_not_settle_is_settled_by_the_sweep_and_then_pushes_go_on(tmp_path, mortal):
    async def story():
        async with forge(tmp_path, mortal) as at:
            ada, work = await ready(at)
            mortal.name, mortal.when = "confirm_push", "before"
            await at.push(ada, work, "app")
            mortal.name, mortal.dead = "", False
            blocked = await at.push(ada, work, "app", "main:more")

            settled = await at.recovery.settle_pushes()

            assert blocked.status == 1
            assert "not settled yet" in blocked.err
            assert settled == 1
            assert await at.recovery.settle_pushes() == 0
            assert (await at.push(ada, work, "app", "main:more")).status == 0
            assert len(await assert_one_run_for_each_ref(at)) == 2

    run(story())


def test_the_sweep_waits_for_a_push_that_is_on_its_way(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            hook = at.folder / "hooks/pre-receive"
            gate = at.folder / "gate"
            os.mkfifo(gate)
            slow = hook.read_text().replace('.[0-9]) exit "${line#.}"', f'.[0-9]) cat {gate}; exit "${{line#.}}"')
            hook.write_text(slow)
            pushing = asyncio.ensure_future(at.push(ada, work, "app"))
            async with asyncio.timeout(10):
                while not await at.rows("SELECT * FROM pushes"):
                    await asyncio.wait([pushing], timeout=0.02)

            sweeping = asyncio.ensure_future(at.recovery.settle_pushes())
            await asyncio.wait([sweeping], timeout=0.3)

            assert not sweeping.done()
            await asyncio.to_thread(gate.write_text, "")
            assert (await pushing).status == 0
            await sweeping
            assert len(await assert_one_run_for_each_ref(at)) == 1

    run(story())


def test_a_push_that_holds_the_repository_too_long_is_ended(tmp_path, monkeypatch):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            hook = at.folder / "hooks/pre-receive"
            gate = at.folder / "gate"
            os.mkfifo(gate)
            text = hook.read_text()
            hook.write_text(text.replace('.[0-9]) exit "${line#.}"', f'.[0-9]) cat {gate}; exit "${{line#.}}"'))
            monkeypatch.setattr(limits, "PUSH_LOCK_S", 0.5)

            held = await at.push(ada, work, "app")
            hook.write_text(text)
            monkeypatch.undo()
            after = await at.push(ada, work, "app")

            assert held.status != 0
            assert after.status == 0, after.err
            assert len(await assert_one_run_for_each_ref(at)) == 1

    run(story())


def test_a_starting_server_waits_for_git_children_of_the_one_before(tmp_path, monkeypatch):
    async def story():
        lock = tmp_path / "git.lock"
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "import sys; sys.stdin.read()",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[held.fileno()],
            )
        programs = GitPrograms(tmp_path, lock)
        monkeypatch.setattr(limits, "PUSH_LOCK_S", 0.2)
        with pytest.raises(Unavailable, match="of an earlier server still runs"):
            await programs.alone()
        monkeypatch.undo()
        waiting = asyncio.ensure_future(programs.alone())
        assert child.stdin is not None
        child.stdin.close()

        await waiting

        assert await child.wait() == 0
        programs.close()

    run(story())


def test_a_server_does_not_open_while_a_git_child_of_the_one_before_may_move_refs(tmp_path, monkeypatch):
    async def story():
        async with forge(tmp_path, parser=False):
            pass
        with (tmp_path / "git.lock").open() as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            monkeypatch.setattr(limits, "PUSH_LOCK_S", 0.2)
            with pytest.raises(Unavailable, match="of an earlier server still runs"):
                async with forge(tmp_path, parser=False):
                    pass

    run(story())


def test_a_receive_pack_carries_the_lock_that_says_it_lives(tmp_path):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            work = await at.work("work", {"a": "b"})
            taken = at.folder / "taken"
            probe = f"#!/bin/sh\nls -l /proc/$PPID/fd >{taken}\nexit 1\n"
            (at.folder / "hooks/pre-receive").write_text(probe)

            await at.push(ada, work, "app")

            assert str(at.folder / "git.lock") in taken.read_text()

    run(story())


def test_a_ref_that_moved_without_a_push_is_an_alarm_and_no_run(tmp_path, caplog):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at)
            await at.push(ada, work, "app")
            assert await at.recovery.find_strays() == []
            head = await at.head(work)
            await said("git", "update-ref", "refs/heads/ghost", head, cwd=at.bare("app"))

            strays = await at.recovery.find_strays()

            assert strays == ["app refs/heads/ghost"]
            assert "a ref moved without a push" in caplog.text
            assert len(await at.rows("SELECT * FROM runs")) == 1

    run(story())


def test_what_a_crash_left_half_made_is_gone_after_the_start(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            await ready(at)
            (at.folder / "repos/.making-x.git").mkdir()
            (at.folder / "repos/.going-y.git").mkdir()
            (at.bare("app") / "objects/tmp_objdir-incoming-abc").mkdir()
            (at.bare("app") / "refs/heads/main.lock").touch()

        async with forge(tmp_path) as at:
            assert [path.name for path in (at.folder / "repos").iterdir()] == ["app.git"]
            assert list(at.bare("app").rglob("*.lock")) == []
            assert list((at.bare("app") / "objects").glob("tmp_*")) == []

    run(story())
