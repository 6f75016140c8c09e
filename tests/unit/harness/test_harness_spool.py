from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from tests.aio import run
from tests.harness_host import a_job
from vole.base import limits
from vole.base.clock import ManualClock
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope
from vole.wire.plan import JobContext
from vole_runner.harness.environment import Facts, Surroundings
from vole_runner.harness.files import Places
from vole_runner.harness.spool import Remarks, Spool, StepLog
from vole_runner.harness.steps import Job

CHUNK = limits.LOG_CHUNK_BYTES


def a_spool(window=4 * CHUNK):
    return Spool("a", window, ManualClock())


async def all_of(spool):
    spool.close()
    return [frame async for frame in spool.frames()]


def test_events_have_numbers_without_a_gap_and_transport_has_none():
    async def story():
        spool = a_spool()
        spool.event(intent=pb.StepIntent(step_id="1"))
        spool.chunk("1", pb.STDOUT, 0, b"x")
        spool.beat(pb.Heartbeat())
        spool.event(result=pb.StepResult(step_id="1"))
        return await all_of(spool)

    assert [frame.seq for frame in run(story())] == [1, 0, 0, 2]


@pytest.mark.parametrize(("acked", "full"), [(0, True), (1, False), (2, False), (99, False)])
def test_an_ack_makes_room_for_what_it_names(acked, full):
    spool = a_spool(window=2 * CHUNK)
    spool.chunk("1", pb.STDOUT, 0, b"x" * CHUNK)
    spool.chunk("1", pb.STDOUT, CHUNK, b"x" * CHUNK)
    run(all_of(spool))

    spool.ack(log_through=acked)

    assert spool.full is full


def test_a_second_ack_of_the_same_changes_nothing():
    spool = a_spool(window=2 * CHUNK)
    for at in range(3):
        spool.chunk("1", pb.STDOUT, at * CHUNK, b"x" * CHUNK)
    run(all_of(spool))

    spool.ack(log_through=1)
    spool.ack(log_through=1)
    spool.ack(log_through=0)

    assert spool.full


async def pumped(*writes, window=4 * CHUNK):
    """The frames of a log that got `writes` through its pipe, with every chunk acknowledged."""
    spool = a_spool(window)
    log = StepLog("1", spool, Remarks(spool))
    reading, writing = os.pipe()

    async def writer():
        for data in writes:
            await asyncio.to_thread(os.write, writing, data)
        os.close(writing)

    frames = []

    async def reader():
        async for frame in spool.frames():
            frames.append(frame)
            spool.ack(log_through=frame.log.seq)

    async with asyncio.TaskGroup() as group:
        group.create_task(reader())
        pumping = group.create_task(log.pump(reading))
        await writer()
        await pumping
        spool.close()
    return frames, log


def test_the_seal_is_the_length_and_digest_of_what_was_sent():
    sent = [b"one\n", b"\xff\x00" * 40_000, b"rest"]

    frames, log = run(pumped(*sent))

    whole = b"".join(frame.log.data for frame in frames)
    assert whole == b"".join(sent)
    assert (log.bytes, log.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())


def test_chunks_are_bounded_and_name_their_offset():
    frames, _ = run(pumped(*[b"x" * 50_000] * 20))

    offsets = [frame.log.offset for frame in frames]
    sizes = [len(frame.log.data) for frame in frames]
    assert max(sizes) <= CHUNK
    assert offsets == [sum(sizes[:at]) for at in range(len(sizes))]
    assert [frame.log.seq for frame in frames] == list(range(1, len(frames) + 1))


def test_what_a_host_that_comes_back_has_makes_room_too():
    async def story():
        spool = a_spool(window=1)
        spool.chunk("1", pb.STDOUT, 0, b"x")
        await anext(spool.frames())
        waiting = asyncio.ensure_future(spool.changed())
        await asyncio.sleep(0)

        spool.replay(events_from=1, log_from=2)

        await asyncio.wait_for(waiting, 1)
        return spool.full

    assert not run(story())


def test_a_full_window_holds_the_pump_until_an_ack_comes():
    async def story():
        spool = a_spool(window=CHUNK)
        log = StepLog("1", spool, Remarks(spool))
        reading, writing = os.pipe()
        pumping = asyncio.ensure_future(log.pump(reading))
        writer = asyncio.ensure_future(asyncio.to_thread(os.write, writing, b"x" * 6 * CHUNK))
        while log.bytes < CHUNK:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        held = log.bytes

        async def acknowledging():
            async for frame in spool.frames():
                spool.ack(log_through=frame.log.seq)

        reader = asyncio.create_task(acknowledging())
        await writer
        os.close(writing)
        await pumping
        reader.cancel()
        return held, log.bytes

    held, whole = run(story())
    assert held <= 2 * CHUNK
    assert whole == 6 * CHUNK


def test_a_pump_whose_step_has_ended_waits_for_no_window():
    async def story():
        spool = a_spool(window=1)
        log = StepLog("1", spool, Remarks(spool))
        reading, writing = os.pipe()
        os.write(writing, b"x" * 1000)
        os.close(writing)
        spool.chunk("0", pb.STDOUT, 0, b"unacknowledged")
        log.ended()
        await log.pump(reading)
        return log.bytes

    assert run(story()) == 1000


def test_a_mask_told_twice_is_one_and_stands_before_its_chunk():
    frames, _ = run(pumped(b"::add-mask::secret\n::add-mask::secret\nsecret\n"))

    assert [frame.WhichOneof("frame") for frame in frames] == ["mask", "log"]


@pytest.mark.proves("SR-35")
def test_no_host_can_ask_for_a_grace_over_the_bound():
    async def story():
        plan = a_job("true")
        envelope = JobEnvelope("", JobContext("1", 1, 1, ""), "/x", "r", 60.0)
        places = Places(*[os.path] * 3)  # type: ignore[arg-type]
        job = Job(Surroundings(Facts(plan, envelope, places, {})), a_spool(), None, ManualClock(), 5.0)  # type: ignore[arg-type]
        job.stop(pb.USER, 3600.0)
        return job._stop.result().kill_at - asyncio.get_running_loop().time()

    assert run(story()) <= limits.CANCEL_GRACE_S
