"""An offload child that is late: the slow half of tests/unit/base/test_offload.py."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio import run
from vole.base import limits
from vole.base.errors import Exhausted, Unavailable
from vole.base.offload import Offload

DEEDS = "tests.unit.base.offload_deeds"


@pytest.mark.proves("SR-17")
def test_a_late_child_is_a_refusal_by_name_and_no_call_waits_longer_than_its_bound() -> None:
    async def story() -> None:
        offload = Offload(DEEDS)
        await offload.start()
        try:
            late = [offload.call(f"{DEEDS}:hang", None) for _ in range(limits.OFFLOAD_CHILDREN)]
            *first, waited = await asyncio.gather(*late, offload.call(f"{DEEDS}:double", 1), return_exceptions=True)
            after = await offload.call(f"{DEEDS}:double", 2)
        finally:
            await offload.close()

        assert [type(answer) for answer in first] == [Exhausted] * limits.OFFLOAD_CHILDREN
        assert all("OFFLOAD_WALL_S" in str(answer) for answer in first)
        # Both bounds are five seconds: whether the third got a child in the last moment or not, it did not hang.
        assert waited == 2 or (isinstance(waited, Unavailable) and "OFFLOAD_QUEUE_S" in str(waited))
        assert after == 4

    run(story())
