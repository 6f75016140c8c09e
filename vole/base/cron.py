"""Times of a schedule: the five fields of cron, in UTC. Pure.

`m h dom mon dow`, each `*`, a number, a range `a-b`, either with a step `/n`, or a list of those; months and days of
the week also by their first three letters, 0 and 7 both Sunday. Where day of month and day of week are both given,
either will do, as in crontab(5).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from vole.base.clock import Moment
from vole.base.errors import Invalid

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_MONTHS = {name: at for at, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
_DAYS = {name: at for at, name in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905
_NAMES: tuple[dict[str, int], ...] = ({}, {}, {}, _MONTHS, _DAYS)
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_YEARS_MAX = 9  # from one 29 February to the next, over a century that has none
_MINUTE = datetime.timedelta(minutes=1)


@dataclass(frozen=True)
class Cron:
    """One line, as sets of what each field allows. `days` are 0 to 6 from Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    dates: frozenset[int]
    months: frozenset[int]
    days: frozenset[int]
    either: bool  # both date and day were given: one of them is enough

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Raises Invalid with the field that is wrong, or for a time that never comes."""
        fields = text.split()
        if text.strip() in _SHORTHANDS:
            raise Invalid(f"{text.strip()} is not known here; write '{_SHORTHANDS[text.strip()]}'")
        if len(fields) != len(_FIELDS):
            raise Invalid(f"{text[:60]!r} has {len(fields)} fields, not five: minute hour date month day-of-week")
        minutes, hours, dates, months, days = (_field(at, field) for at, field in enumerate(fields))
        weekdays = frozenset(day % 7 for day in days)
        given = [not field.startswith("*") for field in (fields[2], fields[4])]
        cron = cls(minutes, hours, dates, months, weekdays, all(given))
        if cron.after(Moment(0)) is None:
            raise Invalid(f"{text[:60]!r} never comes: no month of these has such a day")
        return cron

    def after(self, moment: Moment) -> Moment | None:
        """The first time later than `moment`, a whole minute; None when none comes."""
        at = _at(moment) + _MINUTE
        end = at.year + _YEARS_MAX
        while at.year <= end:
            if at.month not in self.months:
                at = (at.replace(day=1, hour=0, minute=0) + datetime.timedelta(days=32)).replace(day=1)
            elif not self._on(at):
                at = at.replace(hour=0, minute=0) + datetime.timedelta(days=1)
            elif at.hour not in self.hours:
                at = at.replace(minute=0) + datetime.timedelta(hours=1)
            elif at.minute not in self.minutes:
                at += _MINUTE
            else:
                return Moment(round(at.timestamp()) * 1_000_000)
        return None

    def _on(self, at: datetime.datetime) -> bool:
        date, day = at.day in self.dates, at.isoweekday() % 7 in self.days
        return date or day if self.either else date and day


def first_after(lines: tuple[str, ...], moment: Moment) -> Moment:
    """The first time of any of these good lines later than `moment`."""
    found = [at for line in lines if (at := Cron.parse(line).after(moment)) is not None]
    assert found, f"none of {lines} ever comes, and a push was accepted with them"
    return min(found)


def _at(moment: Moment) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(moment // 60_000_000 * 60, datetime.UTC)


def _field(at: int, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        found.update(_part(at, part))
    return frozenset(found)


def _part(at: int, text: str) -> range:
    name, least, most = _FIELDS[at]
    span, stepped, step_text = text.partition("/")
    first, ranged, last = span.partition("-")
    begin = least if span == "*" else _number(at, first)
    end = most if span == "*" or (stepped and not ranged) else _number(at, last if ranged else first)
    step = int(step_text) if step_text.isascii() and step_text.isdigit() and len(step_text) < 4 else None
    if begin is None or end is None or (stepped and not step):
        raise Invalid(f"{text[:40]!r} is no {name}: *, {least}-{most}, a-b, with /n, or a list of these")
    if not least <= begin <= end <= most:
        raise Invalid(f"{text[:40]!r} is no {name}: from {least} to {most}, the smaller one first")
    return range(begin, end + 1, step or 1)


def _number(at: int, text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 3:
        return int(text)
    return _NAMES[at].get(text.lower())
