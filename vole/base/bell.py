"""Wake-up hints between tasks. A bell never carries a fact: who wakes reads again, and also wakes by itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Bells:
    """Bells by topic: `jobs`, `run:<id>`, `log:<job>`, `runners`. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, dict[asyncio.Event, None]] = defaultdict(dict)  # rung in their order

    def ring(self, *topics: str) -> None:
        """Wake everyone who listens to one of `topics`."""
        for topic in topics:
            for event in self._waiting.get(topic, ()):
                event.set()

    @contextmanager
    def listening(self, *topics: str) -> Iterator[Listener]:
        """A listener that hears every ring from here on, also those between its waits."""
        event = asyncio.Event()
        for topic in topics:
            self._waiting[topic][event] = None
        try:
            yield Listener(event)
        finally:
            for topic in topics:
                self._waiting[topic].pop(event, None)
                if not self._waiting[topic]:
                    del self._waiting[topic]


class Listener:
    """One waiter. A ring while it is busy is not lost: the next wait returns at once."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, timeout_s: float) -> bool:
        """True when rung since the last wait, False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
