"""What the demo shows: each change once in a pipe, a table on a terminal."""

from __future__ import annotations

import io

from vole.cli.demo_screen import JobLine, screen_for


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_line_for_each_change_and_none_for_a_repeat() -> None:
    stream = io.StringIO()
    queued, running = JobLine("demo/1/a", "queued", ""), JobLine("demo/1/a", "running", "on r")

    with screen_for(stream) as screen:
        for line in (queued, queued, running, running):
            screen.jobs([line])

    assert stream.getvalue().splitlines() == ["demo/1/a         queued", "demo/1/a         running    on r"]


def test_hostile_text_is_spelled_out_in_a_pipe_and_on_a_terminal() -> None:
    for stream in (io.StringIO(), _Terminal()):
        with screen_for(stream) as screen:
            screen.say("\x1b]0;title\x07 said")
            screen.jobs([JobLine("demo/1/a", "running", "\x1b]0;job\x07")])

        assert r"\x1b]0;title\x07 said" in stream.getvalue()
        assert "\x1b]0;" not in stream.getvalue()
