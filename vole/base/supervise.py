"""Services and sweeps in one task group, and the one place where the order of stopping is written.

A service is essential: if it fails, everything stops and the process exits. A sweep may fail: it is logged,
counted, shown, and tried again with a growing pause. A story that changes something is carried through.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from vole.base import limits, log
from vole.base.bell import Bells
from vole.base.errors import Unavailable

_log = log.get("vole.supervise")

T = TypeVar("T")

SWEEP_PAUSE_MAX_S = 60.0  # a broken sweep is tried at least this often


async def carried_through(
    story: Coroutine[Any, Any, T], unheard: Callable[[T], Coroutine[Any, Any, object]] | None = None
) -> T:
    """What `story` comes to. Whoever waits here may be cancelled: the story ends first, `unheard` is told what
    it came to, and then they are.

    A change stands once it is written: cut short before its orders and bells, a cancelled job would run on, and a
    freed place would be one that nobody hears of.
    """
    task = asyncio.ensure_future(story)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if task.cancelled():
            raise
        if (error := task.exception()) is not None:
            _log.warning("what nobody waits for any more failed", why=str(error))
        elif unheard is not None:
            await carried_through(unheard(task.result()))
        raise


class Service(Protocol):
    """A part that listens. `start` returns once it does; `drain` takes no new sessions; `stop` ends the rest."""

    name: str

    async def start(self) -> None: ...

    async def wait(self) -> None:
        """Returns or raises only when the service has failed."""
        ...

    async def drain(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass
class Sweep:
    """`once` repeated every `every_s`, or at once when one of `topics` rings, or when something is due by itself."""

    name: str
    once: Callable[[], Awaitable[object]]
    every_s: float
    topics: tuple[str, ...] = ()
    due_s: Callable[[], float] = field(default=lambda: math.inf)  # seconds until it is
    failures: int = field(default=0, init=False)
    last_error: str | None = field(default=None, init=False)
    pause_max_s: float = field(default=SWEEP_PAUSE_MAX_S, init=False)

    def pause_s(self) -> float:
        """How long until the next try: until what is due, longer after each failure in a row."""
        if self.failures:
            return min(self.every_s * 2.0**self.failures, self.pause_max_s)
        return min(self.every_s, self.due_s())

    async def step(self) -> None:
        """Run `once`; a failure is logged and counted, never raised."""
        try:
            await self.once()
        except Exception as error:
            self.failures += 1
            # A full disk is not a broken sweep: jobs go on soon after there is room again.
            self.pause_max_s = limits.LOOK_S if isinstance(error, Unavailable) else SWEEP_PAUSE_MAX_S
            self.last_error = f"{type(error).__name__}: {error}"[: limits.PROBLEM_CHARS_MAX]
            _log.error("sweep failed", sweep=self.name, failures=self.failures, trace=error)
        else:
            self.failures, self.last_error = 0, None


async def repeat(sweep: Sweep, bells: Bells) -> None:
    """The loop of every sweep. Written once; tests call `once` and never wait for a timer."""
    with bells.listening(*sweep.topics) as listener:
        while True:
            await sweep.step()
            await listener.wait(sweep.pause_s())


async def run(services: list[Service], sweeps: list[Sweep], bells: Bells, stop: asyncio.Event) -> None:
    """Start the services in order, repeat the sweeps, and stop in order when `stop` is set or a service fails.

    Order of stopping: no new sessions; sessions get STOP_S to end; sweeps end; services end, last first.
    """
    started: list[Service] = []
    try:
        for service in services:
            await service.start()
            started.append(service)
        await _until_stopped(started, sweeps, bells, stop)
    finally:
        for service in reversed(started):
            await service.stop()


async def _until_stopped(services: list[Service], sweeps: list[Sweep], bells: Bells, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(repeat(sweep, bells), name=sweep.name) for sweep in sweeps]
        watches = [group.create_task(service.wait(), name=service.name) for service in services]
        stopping = group.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([*watches, stopping], return_when=asyncio.FIRST_COMPLETED)
        for service in services:
            await service.drain()
        for task in [*loops, *watches, stopping]:
            task.cancel()
        for task in done:
            if task is not stopping:
                task.result()
                raise RuntimeError(f"service {task.get_name()} ended by itself")
