"""Names, times, bells and supervision."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio import run
from vole.base import limits
from vole.base.bell import Bells
from vole.base.clock import ManualClock, Moment, SystemClock, after, iso, seconds
from vole.base.entropy import SeededEntropy, SystemEntropy
from vole.base.errors import Invalid, Unavailable
from vole.base.ids import AccountName, CommitId, JobKey, RefName, RepoName
from vole.base.supervise import SWEEP_PAUSE_MAX_S, Sweep, repeat
from vole.base.supervise import run as supervise


@pytest.mark.parametrize("text", ["app", "a", "0", "a.b_c-d", "x" * 63])
def test_a_good_repository_name_is_itself(text):
    assert RepoName.parse(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "App", "-a", ".a", "a/b", "a..b", "a.git", "a.lock", "x" * 64, "queue", "vole-admin", "a\n", "ä", "K", "a b"],
)
def test_a_bad_repository_name_is_refused(text):
    with pytest.raises(Invalid):
        RepoName.parse(text)


def test_an_account_name_is_at_most_32_characters():
    assert AccountName.parse("a" * 32)
    with pytest.raises(Invalid, match="32"):
        AccountName.parse("a" * 33)


@pytest.mark.parametrize("text", ["a" * 39, "A" * 40, "a" * 41, "a" * 40 + "\n", "HEAD"])
def test_only_forty_lower_case_hex_digits_are_a_commit(text):
    with pytest.raises(Invalid):
        CommitId.parse(text)


def test_a_ref_knows_its_kind_and_short_name():
    assert (RefName.parse(b"refs/heads/a/b").kind, RefName.parse(b"refs/heads/a/b").short) == ("branch", "a/b")
    assert (RefName.parse(b"refs/tags/v1").kind, RefName.parse(b"refs/tags/v1").short) == ("tag", "v1")
    assert RefName.parse(b"refs/notes/x").kind == "other"


@pytest.mark.parametrize("raw", [b"HEAD", b"refs/heads/\xb1", b"refs/" + b"x" * 1024, b"refs/a\nb"])
def test_a_ref_that_is_none_of_ours_is_refused(raw):
    with pytest.raises(Invalid):
        RefName.parse(raw)


def test_a_job_key_is_an_id_or_an_id_and_a_number():
    assert JobKey.parse("test.12") == "test.12"
    for text in ("test.0", "1test", "test.", "a/b", "../x"):
        with pytest.raises(Invalid):
            JobKey.parse(text)


@pytest.mark.parametrize("ttl_s", [limits.LEASE_TTL_MIN_S, limits.LEASE_TTL_S, limits.LEASE_TTL_MAX_S])
def test_both_ways_of_ending_a_step_tree_are_over_before_the_job_is_offered_elsewhere(ttl_s):
    times = limits.lease_times(ttl_s)

    assert times.fence_s + times.grace_s < ttl_s
    assert times.orphan_s + times.grace_s < ttl_s
    assert times.renew_s * 2 < times.fence_s


def test_the_clock_never_steps_and_shows_utc():
    clock = SystemClock()
    first, second = clock.now(), clock.now()

    assert first <= second
    assert iso(ManualClock().now()) == "2027-01-15T08:00:00.000Z"


def test_a_clock_that_is_behind_what_is_stored_goes_on_from_there():
    for clock in (SystemClock(), ManualClock()):
        ahead = after(clock.now(), seconds(3600))

        assert clock.not_before(ahead) > seconds(3599)
        assert clock.now() >= ahead
        assert clock.not_before(Moment(0)) == 0


def test_ids_grow_even_when_the_clock_goes_back():
    for entropy in (SystemEntropy(), SeededEntropy()):
        clock = ManualClock()
        first = entropy.ident(clock.now())
        assert entropy.ident(clock.advance(seconds(-3600))) > first
        assert entropy.ident(clock.now()) < 1 << 63


def test_a_ring_before_the_wait_is_not_lost_and_other_topics_are_not_heard():
    async def story():
        bells = Bells()
        with bells.listening("jobs") as listener:
            bells.ring("other")
            bells.ring("jobs")
            heard = await listener.wait(1)
            again = await listener.wait(0.001)
        return heard, again

    assert run(story()) == (True, False)


def test_a_failing_sweep_is_counted_and_waits_longer_each_time():
    async def fail() -> None:
        raise OSError("disk on fire")

    async def story():
        sweep = Sweep("publish", fail, every_s=1.0)
        pauses = []
        for _ in range(8):
            await sweep.step()
            pauses.append(sweep.pause_s())
        return sweep, pauses

    sweep, pauses = run(story())

    assert sweep.failures == 8
    assert "disk on fire" in sweep.last_error
    assert pauses == sorted(pauses)
    assert pauses[-1] == SWEEP_PAUSE_MAX_S


def test_a_sweep_whose_store_cannot_write_is_tried_again_soon():
    async def full() -> None:
        raise Unavailable("the store cannot write just now")

    async def story():
        sweep = Sweep("leases", full, every_s=1.0)
        for _ in range(8):
            await sweep.step()
        return sweep.pause_s()

    assert run(story()) == limits.LOOK_S


def test_a_sweep_that_works_again_is_forgiven():
    answers = iter([OSError("x"), None])

    async def once() -> None:
        if (error := next(answers)) is not None:
            raise error

    async def story():
        sweep = Sweep("s", once, every_s=1.0)
        await sweep.step()
        failed = sweep.failures
        await sweep.step()
        return failed, sweep.failures, sweep.last_error

    assert run(story()) == (1, 0, None)


class Recorder:
    """A service that writes down what is asked of it, and fails when told."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name = name
        self.said = said
        self.failing = asyncio.Event()

    async def start(self) -> None:
        self.said.append(f"{self.name} start")

    async def wait(self) -> None:
        await self.failing.wait()
        raise OSError(f"{self.name} broke")

    async def drain(self) -> None:
        self.said.append(f"{self.name} drain")

    async def stop(self) -> None:
        self.said.append(f"{self.name} stop")


def test_stopping_is_in_order():
    async def story():
        said: list[str] = []
        stop = asyncio.Event()
        stop.set()
        await supervise([Recorder("ssh", said), Recorder("web", said)], [], Bells(), stop)
        return said

    assert run(story()) == ["ssh start", "web start", "ssh drain", "web drain", "web stop", "ssh stop"]


def test_a_service_that_fails_ends_all_and_is_named():
    async def story():
        said: list[str] = []
        ssh = Recorder("ssh", said)
        ssh.failing.set()
        with pytest.raises(ExceptionGroup) as caught:
            await supervise([ssh, Recorder("web", said)], [], Bells(), asyncio.Event())
        return said, str(caught.value.exceptions[0])

    said, error = run(story())

    assert error == "ssh broke"
    assert said[-2:] == ["web stop", "ssh stop"]


def test_a_bell_wakes_a_sweep_before_its_time():
    async def story():
        ran = asyncio.Event()
        count = 0

        async def once() -> None:
            nonlocal count
            count += 1
            if count == 2:
                ran.set()
            else:
                bells.ring("jobs")

        bells = Bells()
        looping = asyncio.create_task(repeat(Sweep("s", once, every_s=3600, topics=("jobs",)), bells))
        await ran.wait()
        looping.cancel()
        return count

    assert run(story()) == 2
