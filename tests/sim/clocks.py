"""Time in a simulation: virtual microseconds that only grow, and a wall clock that people may set."""

from __future__ import annotations

from vole.base.clock import Moment, Span

START_US = 1_800_000_000_000_000


class Time:
    """`now_us` is monotonic. `wall_us` is what a process reads once, when it starts."""

    def __init__(self) -> None:
        self.now_us = 0
        self.wall_offset_us = START_US

    def wall_us(self) -> int:
        return self.wall_offset_us + self.now_us


class ProcessClock:
    """As SystemClock: the wall time when the process began, and the monotonic time since."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._offset_us = time.wall_offset_us

    def now(self) -> Moment:
        return Moment(self._offset_us + self._time.now_us)

    def not_before(self, moment: Moment) -> Span:
        behind = Span(max(0, moment - self.now()))
        self._offset_us += behind
        return behind
