"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere. Knows no server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from vole.base.escape import visible

if TYPE_CHECKING:
    from rich.live import Live

STYLES = {"success": "green", "running": "cyan", "leased": "cyan", "finished": "green"}


@dataclass(frozen=True)
class JobLine:
    address: str  # demo/1/build
    state: str  # queued, running, success, …
    detail: str  # a runner, a reason


class Screen(Protocol):
    def say(self, line: str) -> None:
        """A line that stays."""
        ...

    def jobs(self, lines: list[JobLine]) -> None:
        """How the jobs stand now."""
        ...


@contextmanager
def screen_for(stream: TextIO) -> Iterator[Screen]:
    """A screen on `stream`."""
    if not stream.isatty():
        yield _Lines(stream)
        return
    from rich.console import Console  # noqa: PLC0415  a fifth of the start-up, for terminals only
    from rich.live import Live  # noqa: PLC0415

    console = Console(file=stream, highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:
        yield _Table(live)


class _Table:
    """A table that changes in place, below the lines that stay."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def say(self, line: str) -> None:
        self._live.console.print(visible(line), soft_wrap=True)  # an address is not cut

    def jobs(self, lines: list[JobLine]) -> None:
        from rich.table import Table  # noqa: PLC0415

        table = Table.grid(padding=(0, 2))
        for line in lines:
            table.add_row(line.address, line.state, visible(line.detail), style=STYLES.get(line.state))
        self._live.update(table, refresh=True)


class _Lines:
    """A line for each change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, JobLine] = {}

    def say(self, line: str) -> None:
        self._stream.write(f"{visible(line)}\n")
        self._stream.flush()

    def jobs(self, lines: list[JobLine]) -> None:
        for line in lines:
            if self._shown.get(line.address) != line:
                self._shown[line.address] = line
                self.say(f"{line.address:<16} {line.state:<10} {line.detail}".rstrip())
