"""Running a story of coroutines in a plain test, with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(story: Coroutine[object, object, T], timeout_s: float = 15.0) -> T:
    """What `story` returns. Raises TimeoutError when it takes longer than `timeout_s`."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await story

    return asyncio.run(bounded())
