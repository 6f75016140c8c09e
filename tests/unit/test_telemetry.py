"""Log lines: their form, and what attackers' text in them cannot do."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vole import telemetry
from vole.base import limits, log


@contextmanager
def written(*, terminal: bool = False) -> Iterator[io.StringIO]:
    """A stream that gets the events of the part `vole.test`."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(telemetry.formatter(terminal=terminal))
    logger = logging.getLogger("vole.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)


def test_an_event_is_one_json_line_with_utc_microseconds() -> None:
    with written() as stream:
        log.get("vole.test").info("job leased", job=7, runner="mac-1", public=True, reason=None)

    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event.pop("at"))
    assert event == {
        "level": "info",
        "part": "vole.test",
        "event": "job leased",
        "job": 7,
        "runner": "mac-1",
        "public": True,
        "reason": None,
    }


def test_a_terminal_gets_key_value_lines() -> None:
    with written(terminal=True) as stream:
        log.get("vole.test").info("job leased", job=7, runner="mac 1")

    assert ' event="job leased" job=7 runner="mac 1"' in stream.getvalue()


@pytest.mark.proves("SR-79")
@pytest.mark.parametrize("terminal", [True, False])
def test_attackers_text_starts_no_line_and_moves_no_cursor(terminal: bool) -> None:
    hostile = "x\n2026-01-01 forged\r\x1b[2J\x9b31m\u202egnp.exe\u2028next\x00"

    with written(terminal=terminal) as stream:
        error = ValueError(hostile)
        log.get("vole.test").error(f"refused {hostile}", trace=error, ref=hostile, error=error)

    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()


@pytest.mark.proves("SR-79")
def test_a_field_and_a_trace_are_bounded() -> None:
    with written() as stream:
        try:
            raise ValueError("y" * 100_000)
        except ValueError as error:
            log.get("vole.test").error("z" * 100_000, trace=error, name="n" * 100_000)

    event = json.loads(stream.getvalue())
    assert len(event["event"]) == limits.LOG_VALUE_CHARS_MAX
    assert len(event["name"]) == limits.LOG_VALUE_CHARS_MAX
    assert len(event["trace"]) <= limits.LOG_TRACE_CHARS_MAX


def test_a_field_named_as_a_secret_is_dropped() -> None:
    with written() as stream:
        log.get("vole.test").info("token made", token="canary-1", cookie="canary-2", name="ci")

    assert "canary" not in stream.getvalue()
    assert json.loads(stream.getvalue())["name"] == "ci"
