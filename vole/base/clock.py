"""What time it is. A Moment is microseconds since 1970 UTC; a Span is microseconds."""

from __future__ import annotations

import datetime
import time
from typing import NewType, Protocol

from vole.base.errors import Invalid

Moment = NewType("Moment", int)
Span = NewType("Span", int)


def seconds(count: float) -> Span:
    """A span of `count` seconds."""
    return Span(round(count * 1_000_000))


def in_seconds(span: int) -> float:
    """`span` microseconds as seconds."""
    return span / 1_000_000


def after(moment: Moment, span: Span) -> Moment:
    """The moment `span` after `moment`."""
    return Moment(moment + span)


def iso(moment: Moment) -> str:
    """ISO 8601 in UTC with milliseconds, as pages and records show it."""
    whole, rest = divmod(moment, 1_000_000)
    when = datetime.datetime.fromtimestamp(whole, datetime.UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{rest // 1000:03d}Z"


def moment(text: str) -> Moment:
    """What `iso` shows, read; a day alone is its midnight, and all is UTC where no zone is said. Raises Invalid."""
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text[:40]!r} is no time", next_step="say it like 2026-11-30T16:00:00Z") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return Moment(round(when.timestamp() * 1_000_000))


class Clock(Protocol):
    """Where moments come from. One is made in `app`, and handed down."""

    def now(self) -> Moment: ...


class StoreClock(Clock, Protocol):
    """A clock whose moments are written down, and go on from what is written when the next process begins."""

    def not_before(self, moment: Moment) -> Span:
        """Give no moment before this one from here on; how far the clock was behind it."""
        ...


class SystemClock:
    """The wall time at process start plus the monotonic time since: it never steps."""

    def __init__(self) -> None:
        self._offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def now(self) -> Moment:
        return Moment(self._offset_us + time.monotonic_ns() // 1000)

    def not_before(self, moment: Moment) -> Span:
        behind = Span(max(0, moment - self.now()))
        self._offset_us += behind
        return behind


class BootClock:
    """As SystemClock, but the time a machine was suspended counts too: a lease does not wait for a lid to open."""

    def __init__(self) -> None:
        self._offset_us = time.time_ns() // 1000 - _since_boot_us()

    def now(self) -> Moment:
        return Moment(self._offset_us + _since_boot_us())


def _since_boot_us() -> int:
    """Microseconds since the machine started; where the system does not count sleep, only those awake."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1000


class ManualClock:
    """A clock for tests and simulations: it moves only when told."""

    def __init__(self, start: Moment = Moment(1_800_000_000_000_000)) -> None:
        self._now = start

    def now(self) -> Moment:
        return self._now

    def not_before(self, moment: Moment) -> Span:
        behind = Span(max(0, moment - self._now))
        self._now = after(self._now, behind)
        return behind

    def advance(self, span: Span) -> Moment:
        self._now = after(self._now, span)
        return self._now
