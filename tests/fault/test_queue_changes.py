"""The server dies before, inside or after each change of a run's life, begins again, and everybody says it again."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.aio import run
from tests.leasing_server import Server
from tests.queueing import a_job, a_run
from vole.base.clock import ManualClock, seconds
from vole.base.entropy import SeededEntropy
from vole.store.database import Database
from vole.wire import runner
from vole.wire.plan import ArtifactPlan, NeededArtifact

# Every change of the story; the last test fails when the story has another one.
CHANGES = [
    "enqueue_run",
    "_connect",
    "lease_many",
    "start",
    "renew_many",
    "_mark",
    "_finish_all",
    "sweep",
    "_disconnect",
]
LOG = b"hello\n"
ARTIFACT = b"the build"


class Death(Exception):
    """The process is gone."""


class Mortal(Database):
    """A store whose process dies at the Nth change of one name."""

    target: tuple[str, str, int] | None = None
    seen: ClassVar[Counter[str]] = Counter()

    async def write_each(self, change, one, /, *args):  # type: ignore[no-untyped-def, override]
        return (await self.write(change, [one], *args))[0]

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        name = change.__name__
        Mortal.seen[name] += 1
        if Mortal.target is None or (name, Mortal.seen[name]) != (Mortal.target[0], Mortal.target[2]):
            return await super().write(change, *args, **kwargs)
        when = Mortal.target[1]
        if when == "before":
            raise Death

        def dying(tx):  # type: ignore[no-untyped-def]
            change(tx, *args, **kwargs)
            if when == "inside":
                raise Death

        await super().write(dying)
        raise Death


class World:
    """One folder, the server's lives on it, and a runner that says everything again after a death."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.entropy = folder, ManualClock(), SeededEntropy()
        self.lives = 0

    async def begin(self) -> None:
        self.lives += 1
        self.server = await Server.begin(self.folder, clock=self.clock, store=Mortal, entropy=self.entropy)

    async def again(self, deed: Callable[[], Awaitable[Any]]) -> Any:
        """Do it; after a death begin a new life, reconnect, and do it again."""
        while True:
            try:
                return await deed()
            except Death:
                await self.server.end()
                await self.begin()
                self.session = None

    async def connected(self) -> Any:
        if self.session is None:
            self.session = await self.server.connects("mac-1", ["linux"])
        return self.session


async def story(world: World) -> None:
    world.session = None
    await world.begin()
    await world.server.account("mac-1", "app")
    plan = a_run(
        a_job("build.1", runs_on=("linux",), artifacts=(ArtifactPlan("dist", ("*",)),), outputs={"v": "x"}),
        a_job("build.2", continue_on_error=True),
        a_job("test", needs=("build",), needs_artifacts=(NeededArtifact("dist"),)),
    )
    await world.again(lambda: world.server.enqueues(plan))
    for number in range(3):
        await work(world, f"token-{number}")
    await world.again(lambda: leave(world))


async def work(world: World, token: str) -> None:
    """One job from want to result, each word said until it is answered."""
    job = await world.again(lambda: lease(world, token))
    key = (job.lease.job, job.lease.epoch)
    await world.again(lambda: say(world, "started", runner.Started(*key)))
    await world.again(lambda: append(world, key))
    await world.again(lambda: say(world, "marks", runner.Marks(*key, (runner.Mark(0, 1, 1, "begin"),))))
    world.clock.advance(seconds(1))
    await world.again(lambda: say(world, "renew", runner.Renew((runner.Renewal(*key, 1, 6),))))
    await world.again(lambda: sweep(world))
    files = ()
    if job.key == "build.1":
        file = runner.ArtifactFile("dist", "a.txt", len(ARTIFACT), hashlib.sha256(ARTIFACT).hexdigest())
        await world.again(lambda: upload(world, key, file))
        files = (file,)
    conclusion = "failure" if job.key == "build.2" else "success"
    seal = runner.LogSeal(len(LOG), hashlib.sha256(LOG).hexdigest())
    result = runner.Finish(*key, conclusion, seal, artifacts=files, outputs={"v": job.key})
    answer = await world.again(lambda: say(world, "finish", result))
    assert answer == runner.Finished(*key, log="complete", log_bytes=len(LOG))


async def lease(world: World, token: str) -> runner.Job:
    session = await world.connected()
    task = await world.server.asks(session, token)
    try:
        await world.server.leasing.look()
        return await asyncio.wait_for(task, 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(world: World, word: str, message: Any) -> Any:
    return await getattr(world.server.leasing, word)(await world.connected(), message)


async def append(world: World, key: Any) -> None:
    session, leasing = await world.connected(), world.server.leasing
    at = await leasing.log_position(session, *key)
    while at < len(LOG):
        at = await leasing.append_log(session, *key, at, LOG[at : at + 2])


async def upload(world: World, key: Any, file: runner.ArtifactFile) -> None:
    session, leasing = await world.connected(), world.server.leasing
    at = await leasing.artifact_begin(session, *key, file)
    while at < file.size:
        at = await leasing.artifact_append(session, *key, file, at, ARTIFACT[at : at + 4])
    await leasing.artifact_commit(session, *key, file)


async def sweep(world: World) -> None:
    await world.server.upkeep.once()


async def leave(world: World) -> None:
    session = await world.connected()
    await world.server.leasing.goodbye(session, cause="bye")


async def told(folder: Path, target: tuple[str, str, int] | None) -> tuple[World, set[str]]:
    Mortal.target, Mortal.seen = target, Counter()
    world = World(folder)
    await story(world)
    try:
        check(world.server)
    finally:
        await world.server.end()
    return world, set(Mortal.seen)


def check(server: Server) -> None:
    server.check()
    jobs = server.rows("SELECT key, state, conclusion, marked, losses FROM jobs ORDER BY ordinal")
    assert [tuple(row) for row in jobs] == [
        ("build.1", "finished", "success", 0, 0),
        ("build.2", "finished", "success", 1, 0),
        ("test", "finished", "success", 0, 0),
    ]
    assert [tuple(row) for row in server.rows("SELECT number, state, conclusion FROM runs")] == [
        (1, "finished", "success")
    ]
    results = server.rows("SELECT job_id FROM attempts WHERE result_digest IS NOT NULL")
    assert len(results) == len({row["job_id"] for row in results}) == 3
    assert {
        row["log_state"] for row in server.rows("SELECT log_state FROM attempts WHERE result_digest IS NOT NULL")
    } == {"complete"}
    assert len(server.rows("SELECT * FROM artifacts")) == 1
    assert len(server.rows("SELECT * FROM marks")) == 3
    assert server.index.queued == 0
    assert server.index.held == {}


@pytest.mark.proves("I-06", "I-07", "I-09", "I-21", "I-22", "I-34")
@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", CHANGES)
def test_dying_at_a_change_loses_nothing_and_doubles_nothing(tmp_path, name, when):
    for nth in (1, 2):
        folder = tmp_path / str(nth)
        folder.mkdir()
        world, _ = run(told(folder, (name, when, nth)))
        assert world.lives == 2 or (nth == 2 and name in ("enqueue_run", "_connect", "_disconnect"))


def test_the_story_has_no_change_that_is_not_died_at(tmp_path):
    _, names = run(told(tmp_path, None))

    assert names - {"_restart", "_repo", "_account"} == set(CHANGES)
