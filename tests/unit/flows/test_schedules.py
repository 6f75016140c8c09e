"""The clock starts runs: once a minute named, once for all that was missed, at the tip of the default branch."""

from __future__ import annotations

import pytest

from tests.aio import run
from tests.starting import APP, JOBS, NIGHTLY, NOON, a_house
from vole.base import limits
from vole.base.clock import ManualClock, iso, seconds
from vole.git import storage as git
from vole.repos import ledger as repos
from vole.repos import reads as hosted

pytestmark = pytest.mark.needs("git")
HOUR = seconds(3_600)
DAY = 24 * HOUR
PATH = ".vole/workflows/nightly.yml"


async def next_time(house) -> str:
    (schedule,) = await house.db.read(hosted.schedules_of, house.repo.id)
    return iso(schedule.next_at)[:16]


async def passes(house, span, times=1) -> None:
    """Time passes in equal parts, with a look after each."""
    for _ in range(times):
        house.clock.advance(seconds(span / times / 1_000_000))
        await house.schedules.once()


def test_a_time_that_has_come_starts_the_workflow_once_at_the_tip(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY, "ci.yml": JOBS})
            await house.schedules.once()
            assert await next_time(house) == "2026-12-01T03:00"
            tip = await house.pushed({"other.yml": JOBS})
            await passes(house, 14 * HOUR)
            assert house.runs() == []

            await passes(house, HOUR, times=60)
            await passes(house, 2 * HOUR, times=20)

            house.check()
            assert house.runs() == [(1, "schedule", PATH, tip)]
            row = house.rows("SELECT actor, event ->> '$.actor', ref FROM runs")[0]
            assert tuple(row) == ("schedule", "schedule", "refs/heads/main")
            assert git.is_held(house.storage.path(APP), tip)
            assert await next_time(house) == "2026-12-02T03:00"
            assert house.index.queued == 1

    run(story())


def test_where_nothing_is_due_nothing_is_written(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
            before = house.db.commits
            await passes(house, 2 * HOUR, times=50)
            assert house.db.commits == before

    run(story())


@pytest.mark.parametrize("away", [16 * HOUR, 2 * DAY, 40 * DAY])
def test_what_was_missed_is_made_up_by_one_run(tmp_path, away):
    async def story():
        clock = ManualClock(NOON)
        async with a_house(tmp_path, clock=clock) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
        clock.advance(seconds(away / 1_000_000))
        for _ in range(3):
            async with a_house(tmp_path, clock=clock) as house:
                await house.schedules.once()
                await house.schedules.once()
                house.check()
                assert len(house.runs()) == 1

    run(story())


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(("back", "others"), [(HOUR, 0), (16 * HOUR, 0), (30 * HOUR, 1)])
def test_a_clock_that_goes_back_starts_no_minute_twice_and_misses_none(tmp_path, back, others, restart):
    """`others`: minutes before the first run that the clock comes by now."""

    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
            await passes(house, 16 * HOUR)
            assert len(house.runs()) == 1
            earlier = ManualClock(house.clock.now())
            earlier.advance(seconds(-back / 1_000_000))
            if not restart:
                house.clock._now = earlier.now()
                await comes_by_again(house)
                return
        async with a_house(tmp_path, clock=earlier) as house:
            await comes_by_again(house)

    async def comes_by_again(house):
        await passes(house, back + HOUR, times=40)
        assert len(house.runs()) == 1 + others
        await passes(house, DAY)
        assert len(house.runs()) == 2 + others
        minutes = [row["due_at"] for row in house.rows("SELECT due_at FROM starts")]
        assert len(set(minutes)) == len(minutes) == 2 + others

    run(story())


def test_a_clock_that_was_a_year_ahead_does_not_silence_the_schedule(tmp_path):
    async def story():
        ahead = ManualClock(NOON)
        ahead.advance(seconds(400 * 86_400))
        async with a_house(tmp_path, clock=ahead) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
        async with a_house(tmp_path, clock=ManualClock(NOON)) as house:
            await house.schedules.once()
            assert await next_time(house) == "2026-12-01T03:00"

    run(story())


def test_two_lines_that_name_a_minute_start_it_once(tmp_path):
    async def story():
        both = f"on: {{schedule: [{{cron: '0 3 * * *'}}, {{cron: '0 */3 * * *'}}]}}\n{JOBS}"
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": both})
            await house.schedules.once()
            await passes(house, DAY, times=96)
            assert len(house.runs()) == 8

    run(story())


def test_schedules_follow_the_default_branch_and_no_other(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"ci.yml": JOBS})
            await house.pushed({"nightly.yml": NIGHTLY}, branch="topic")
            await house.schedules.once()
            assert await house.db.read(hosted.schedules_of, house.repo.id) == []

            git.set_default_branch(house.storage.path(APP), git.RefName("refs/heads/topic"))
            await house.db.write(repos.mark_schedules, house.repo.id, declared=True)
            await house.schedules.once()
            assert await next_time(house) == "2026-12-01T03:00"

            await house.pushed({"nightly.yml": NIGHTLY.replace("0 3", "30 2")}, branch="topic")
            await house.schedules.once()
            assert await next_time(house) == "2026-12-01T02:30"

            await house.pushed({"nightly.yml": None}, branch="topic", declared=False)
            await house.schedules.once()
            assert await house.db.read(hosted.schedules_of, house.repo.id) == []
            assert house.rows("SELECT * FROM schedule_reads") == []

    run(story())


def test_a_push_that_keeps_the_lines_keeps_the_time_that_has_come(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
            house.clock.advance(seconds(16 * 3_600))
            tip = await house.pushed({"nightly.yml": NIGHTLY + "# more\n"})
            await house.schedules.once()
            assert house.runs() == [(1, "schedule", PATH, tip)]

    run(story())


def test_a_branch_that_moves_while_it_is_read_is_read_again(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            (unread,) = await house.db.read(hosted.unread_schedules)
            await house.pushed({"nightly.yml": NIGHTLY.replace("0 3", "0 4")})
            await house.db.write(repos.set_schedules, unread, {PATH: ("0 3 * * *",)})
            assert await house.db.read(hosted.schedules_of, house.repo.id) == []
            await house.schedules.once()
            assert await next_time(house) == "2026-12-01T04:00"

    run(story())


def test_a_time_that_cannot_start_says_why_and_the_next_one_is_tried_again(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
            path = house.storage.path(APP)
            (path / "objects/info/alternates").parent.mkdir(exist_ok=True)
            away = path.with_name("away")
            path.rename(away)
            await passes(house, 16 * HOUR)
            (schedule,) = await house.db.read(hosted.schedules_of, house.repo.id)
            assert (house.runs(), schedule.problem) == ([], "the repository is not there any more")

            away.rename(path)
            await passes(house, DAY)
            (schedule,) = await house.db.read(hosted.schedules_of, house.repo.id)
            assert (len(house.runs()), schedule.problem) == (1, "")

    run(story())


def test_schedules_go_with_their_repository(tmp_path):
    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({"nightly.yml": NIGHTLY})
            await house.schedules.once()
            house.clock.advance(seconds(16 * 3_600))
            await house.db.write(repos.remove_repo, house.repo.id)
            await house.schedules.once()
            assert house.runs() == []
            assert house.rows("SELECT repo_id FROM schedules UNION SELECT repo_id FROM schedule_reads") == []

    run(story())


def test_more_are_due_than_one_look_takes_and_all_of_them_start(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SWEEP_ROWS_MAX", 2)

    async def story():
        async with a_house(tmp_path) as house:
            await house.pushed({f"n{at}.yml": NIGHTLY for at in range(5)})
            await house.schedules.once()
            house.clock.advance(seconds(16 * 3_600))
            for _ in range(3):
                await house.schedules.once()
            assert len(house.runs()) == 5

    run(story())
