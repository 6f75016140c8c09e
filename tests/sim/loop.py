"""An event loop without threads, sockets or waiting: callbacks in order, timers by the world's virtual time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any

CALLBACKS_MAX = 200_000  # between two moments of virtual time; more is a loop that never comes to rest


class Stuck(AssertionError):
    """Callbacks call callbacks and no time passes."""


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash is its number in its loop, not its address: a set of tasks has the same order in each run."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class Loop(asyncio.AbstractEventLoop):
    """The part of an event loop that tasks, futures, events, queues and timeouts need."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._order = itertools.count()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self.ready: deque[asyncio.Handle] = deque()
        self._numbers = itertools.count()  # of this loop only: where a set puts them must not tell of earlier ones
        self.tasks: dict[_Task, None] = {}  # ended in the order in which they began
        self.fuse: int | None = None  # callbacks until the process dies
        self.faults: list[str] = []

    # ---- driven by the world

    def run_ready(self) -> bool:
        """Run callbacks until none is ready; False when the fuse burned down first."""
        events._set_running_loop(self)
        try:
            for _ in range(CALLBACKS_MAX):
                if not self.ready:
                    return True
                if self.fuse is not None:
                    self.fuse -= 1
                    if self.fuse < 0:
                        return False
                handle = self.ready.popleft()
                if not handle._cancelled:
                    handle._run()
            raise Stuck(f"{CALLBACKS_MAX} callbacks without a pause; the next is {self.ready[0]!r}")
        finally:
            events._set_running_loop(None)

    def next_timer(self) -> int | None:
        """When the next timer is due, in microseconds of virtual time."""
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def fire(self) -> None:
        """Make ready every timer that is due."""
        while (due := self.next_timer()) is not None and due <= self._now_us():
            self.ready.append(heapq.heappop(self._timers)[2])

    def abandon(self) -> None:
        """The process is gone: end every task without letting any of it go on."""
        self.fuse = None
        for _ in range(20):
            if not self.tasks:
                return
            for task in list(self.tasks):
                task.cancel()
            self.run_ready()
        raise Stuck(f"tasks that do not end: {list(self.tasks)[:3]}")

    # ---- what asyncio asks for

    def time(self) -> float:
        return self._now_us() / 1e6

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (round(when * 1e6), next(self._order), handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: Any) -> None: ...

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = _Task(next(self._numbers), coro, loop=self, name=name)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False
