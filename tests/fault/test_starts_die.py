"""The server dies before, inside or after each change that starts a run without a push, and begins again."""

from __future__ import annotations

import pytest

from tests.aio import run
from tests.fault.test_queue_changes import Death, Mortal
from tests.starting import APP, DEPLOY, JOBS, NIGHTLY, NOON, a_house
from vole.base.clock import ManualClock, seconds
from vole.base.entropy import SeededEntropy
from vole.base.errors import Conflict
from vole.base.ids import RunNumber
from vole.flows.starting import Wanted
from vole.repos import reads as hosted

pytestmark = pytest.mark.needs("git")
# Every change of the story; the last test fails when the story has another one.
CHANGES = ["follow_schedules", "put_back_schedule", "start_by_clock", "start_by_hand", "rerun"]


class World:
    """One folder, and the lives of a server on it."""

    def __init__(self, folder, target):
        self.folder, self.clock, self.entropy = folder, ManualClock(NOON), SeededEntropy()
        Mortal.target = target
        Mortal.seen.clear()
        self.deaths = 0

    async def does(self, deed, *, again=None):
        """`deed` in a life of its own; after a death `again`, or the deed once more, in the next one."""
        for step in (deed, again or deed):
            async with a_house(self.folder, clock=self.clock, store=Mortal, entropy=self.entropy) as house:
                try:
                    await step(house)
                    house.check()
                    return
                except Death:
                    self.deaths += 1


async def story(world):
    async def pushes(house):
        if not house.storage.path(APP).joinpath("refs/heads/main").exists():
            await house.pushed({"nightly.yml": NIGHTLY, "deploy.yml": DEPLOY, "ci.yml": JOBS})

    async def looks(house):
        await house.schedules.once()
        assert len(await house.db.read(hosted.schedules_of, house.repo.id)) == 1

    async def starts(house):
        await house.starting.start(house.person(), APP, Wanted("deploy", None, {"note": "x"}))

    async def starts_unless_begun(house):
        """A person looks whether it was started before they say it again."""
        if not any(event == "manual" for _, event, _, _ in house.runs()):
            await starts(house)

    async def reruns(house):
        await house.ends()
        try:
            await house.starting.rerun(house.person(), APP, RunNumber(1), failed=False)
        except Conflict as refused:  # what was said before the death holds
            if "was run again already, as app/3" not in refused.sentence:
                raise

    await world.does(pushes)
    await world.does(looks)
    world.clock.advance(seconds(16 * 3_600))
    await world.does(looks)
    world.clock.advance(seconds(-3 * 3_600))
    await world.does(looks)
    world.clock.advance(seconds(5 * 3_600))
    await world.does(looks)
    await world.does(starts, again=starts_unless_begun)
    await world.does(reruns)


async def told(folder, target):
    world = World(folder, target)
    await story(world)
    async with a_house(folder, clock=world.clock, entropy=world.entropy) as house:
        house.check()
        assert [run[:2] for run in house.runs()] == [(1, "schedule"), (2, "manual"), (3, "schedule")]
        assert [row["rerun_of"] is None for row in house.rows("SELECT rerun_of FROM runs")] == [True, True, False]
        assert len(house.rows("SELECT * FROM starts")) == 2
        assert len(house.rows("SELECT * FROM jobs")) == 3
    return world


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", CHANGES)
def test_dying_at_a_change_loses_no_start_and_doubles_none(tmp_path, name, when):
    world = run(told(tmp_path, (name, when, 1)))

    assert world.deaths == 1


def test_the_story_has_no_change_that_is_not_died_at(tmp_path):
    run(told(tmp_path, None))

    assert set(Mortal.seen) - {"_repo", "mark_schedules", "cancel_run"} == set(CHANGES)
