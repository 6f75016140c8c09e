"""Times of a schedule beside a minute-by-minute reading of crontab(5), made apart from ours."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vole.base.clock import Moment, iso
from vole.base.cron import Cron, first_after
from vole.base.errors import Invalid

UTC = datetime.UTC
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def moment(*parts: int) -> Moment:
    return Moment(int(datetime.datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000)  # type: ignore[arg-type, misc]


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        low = draw(st.integers(least, most))
        high = draw(st.integers(low, most))
        step = draw(st.integers(1, 9))
        forms = ["*", f"*/{step}", str(low), f"{low}-{high}", f"{low}-{high}/{step}", f"{low}/{step}"]
        parts.append(draw(st.sampled_from(forms)))
    return ",".join(parts)


lines = st.tuples(*(st.one_of(st.just("*"), fields(*bound)) for bound in BOUNDS)).map(" ".join)
moments = st.datetimes(datetime.datetime(2026, 1, 1), datetime.datetime(2032, 1, 1)).map(
    lambda at: Moment(int(at.replace(tzinfo=UTC).timestamp()) * 1_000_000 + at.microsecond)
)


def allows(field: str, value: int, most: int) -> bool:
    """One field, read part by part."""
    for part in field.split(","):
        span, _, step_text = part.partition("/")
        step = int(step_text or 1)
        if span == "*":
            low, high = next(bound for bound in BOUNDS if bound[1] == most)
        elif "-" in span:
            low, high = map(int, span.split("-"))
        else:
            low, high = int(span), most if step_text else int(span)
        if low <= value <= high and (value - low) % step == 0:
            return True
    return False


def due(line: str, at: datetime.datetime) -> bool:
    minute, hour, date, month, day = line.split()
    on_date = allows(date, at.day, 31)
    sunday_first = at.isoweekday() % 7
    on_day = allows(day, sunday_first, 7) or (sunday_first == 0 and allows(day, 7, 7))
    both = not date.startswith("*") and not day.startswith("*")
    return (
        allows(minute, at.minute, 59)
        and allows(hour, at.hour, 23)
        and allows(month, at.month, 12)
        and (on_date or on_day if both else on_date and on_day)
    )


@settings(max_examples=200)
@given(lines, moments)
def test_the_next_time_is_the_first_minute_that_crontab_would_name(line: str, since: Moment) -> None:
    try:
        found = Cron.parse(line).after(since)
    except Invalid as refused:
        if "never comes" not in refused.sentence:
            raise
        found = None
    at = datetime.datetime.fromtimestamp(since // 60_000_000 * 60, UTC) + datetime.timedelta(minutes=1)
    for _ in range(1440):  # a day of minutes
        if due(line, at):
            assert found == Moment(int(at.timestamp()) * 1_000_000)
            return
        at += datetime.timedelta(minutes=1)
    if found is not None:
        named = datetime.datetime.fromtimestamp(found // 1_000_000, UTC)
        assert named >= at
        assert due(line, named)


@pytest.mark.parametrize(
    ("line", "since", "expected"),
    [
        ("0 3 * * *", (2026, 11, 30, 12, 0), "2026-12-01T03:00"),
        ("0 3 * * *", (2026, 12, 1, 3, 0), "2026-12-02T03:00"),
        ("* * * * *", (2026, 12, 31, 23, 59), "2027-01-01T00:00"),
        ("*/15 9-17 * * mon-fri", (2026, 11, 28, 12, 0), "2026-11-30T09:00"),
        ("0 0 29 feb *", (2026, 11, 30, 12, 0), "2028-02-29T00:00"),
        ("0 0 29 2 *", (2096, 3, 1, 0, 0), "2104-02-29T00:00"),
        ("0 0 13 * fri", (2026, 11, 30, 12, 0), "2026-12-04T00:00"),  # either day
        ("0 0 13 * */7", (2026, 11, 30, 12, 0), "2026-12-13T00:00"),  # both: a star with a step is a star
        ("0 0 * * 7", (2026, 11, 30, 12, 0), "2026-12-06T00:00"),
        ("59 23 31 * *", (2026, 11, 1, 0, 0), "2026-12-31T23:59"),
    ],
)
def test_known_times(line: str, since: tuple[int, ...], expected: str) -> None:
    at = Cron.parse(line).after(moment(*since))

    assert at is not None
    assert iso(at)[:16] == expected


def test_of_several_lines_the_first_time_counts() -> None:
    assert first_after(("0 3 * * *", "30 2 * * *"), moment(2026, 1, 1)) == moment(2026, 1, 1, 2, 30)


@pytest.mark.parametrize(
    "line",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
     "5-1 * * * *", "1- * * * *", "-1 * * * *", ", * * * *", "1,,2 * * * *", "*-5 * * * *", "٣ * * * *", "0 0 31 2 *",
     "0 0 30 feb *", "@daily", "@reboot", "0 0 * mon *", "1/2/3 * * * *", "*/1e1 * * * *", "0 0 L * *", "0 0 ? * *"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_a_reason(line: str) -> None:
    with pytest.raises(Invalid):
        Cron.parse(line)
