"""The server dies at each change while one of a group goes on and another waits: none is lost, none goes on twice."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from tests.aio import run
from tests.fault.test_queue_changes import CHANGES, Mortal, World, work
from tests.queueing import a_job, a_run
from vole.base.ids import PushId
from vole.jobs import ledger
from vole.jobs.model import RunSource
from vole.wire.plan import Concurrency, RunPlan

# The changes of a life of which a group is freed, taken or left; the others are died at in the story without groups.
OF_A_GROUP = ["enqueue_run", "lease_many", "start", "_finish_all", "sweep"]


def a_run_of(group: str, **wish: object) -> RunPlan:
    plan = a_run(a_job("build.2", concurrency=Concurrency(f"{group}-job")))
    return dataclasses.replace(plan, concurrency=Concurrency(group, **wish))  # type: ignore[arg-type]


async def story(world: World) -> None:
    """Four runs of a group: the third displaces the second, and all but that one are worked off in their order."""
    world.session = None
    await world.begin()
    await world.server.account("mac-1", "app")
    await world.again(lambda: enqueues(world, 1, spared=True))
    for push in (2, 3):
        await world.again(lambda push=push: enqueues(world, push, queue="latest"))
    await world.again(lambda: enqueues(world, 4))
    for number in range(3):
        await work(world, f"token-{number}")


async def enqueues(world: World, push: int, **wish: object) -> None:
    server = world.server
    source = RunSource((await server.repo("app")).id, PushId(push), 0)
    plan = a_run_of("deploy", **wish)
    await server.db.write(ledger.enqueue_run, server.index, source, plan, {})
    server.check()


@pytest.mark.proves("I-12", "I-21", "I-22")
@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", OF_A_GROUP)
def test_dying_at_a_change_of_a_group_loses_no_turn_and_doubles_none(tmp_path, name, when):
    assert set(OF_A_GROUP) <= set(CHANGES)
    for nth in (1, 2):
        folder = tmp_path / str(nth)
        folder.mkdir()
        run(told(World(folder), (name, when, nth)))


async def told(world: World, target: tuple[str, str, int]) -> None:
    Mortal.target, Mortal.seen = target, Counter()
    await story(world)
    try:
        assert world.lives == 2
        world.server.check()
        runs = world.server.rows("SELECT number, conclusion FROM runs ORDER BY number")
        assert [tuple(row) for row in runs] == [(1, "failure"), (2, "cancelled"), (3, "failure"), (4, "failure")]
        assert world.server.rows("SELECT * FROM group_places") == []
        taken = world.server.rows("SELECT run_id FROM events WHERE kind = 'group_taken' AND job_id IS NULL ORDER BY id")
        numbers = {row["id"]: row["number"] for row in world.server.rows("SELECT id, number FROM runs")}
        assert [numbers[row["run_id"]] for row in taken] == [1, 3, 4]
    finally:
        await world.server.end()
