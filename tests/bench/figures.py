"""Numbers and their table: samples, targets, ratios, met or missed. Never starts a process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["ms", "s", "/s", "MB/s", "KiB", "ms CPU"]


@dataclass(frozen=True)
class Sample:
    """What was measured of one side, in the row's unit."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(min(self.values))}..{short(max(self.values))})"


@dataclass(frozen=True)
class Bound:
    """A ratio, vole over peer, that is met at or below `limit`, or at or above it."""

    sign: Literal["<=", ">="]
    limit: float

    def holds(self, ratio: float) -> bool:
        return ratio <= self.limit if self.sign == "<=" else ratio >= self.limit

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


@dataclass(frozen=True)
class Target:
    """One row: its number, what is compared, and what the ratio ought to be."""

    row: str
    what: str
    unit: Unit
    gate: Bound
    aim: Bound


@dataclass(frozen=True)
class Measured:
    target: Target
    vole: Sample
    peer: Sample
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.vole.median / self.peer.median

    @property
    def verdict(self) -> str:
        if self.target.aim.holds(self.ratio):
            return "met, aim too"
        return "met" if self.target.gate.holds(self.ratio) else "MISSED"


@dataclass(frozen=True)
class Unmeasured:
    """A row that this run has no figure for, and why: a peer that is missing, a side that broke."""

    target: Target
    why: str


Outcome = Measured | Unmeasured


def interleave(sides: Mapping[str, Callable[[], float]], rounds: int, warm: int = 1) -> dict[str, Sample]:
    """Each side once a round, the order turned by one each time; the first `warm` rounds are thrown away."""
    names = list(sides)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + warm):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = sides[name]()
            if number >= warm:
                found[name].append(value)
    return {name: Sample(tuple(values)) for name, values in found.items()}


def short(value: float) -> str:
    """Three digits that matter: 0.0123, 1.23, 12.3, 123, 12345."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def table(outcomes: Sequence[Outcome]) -> str:
    """All rows as text, one line each, notes below their row."""
    head = ("row", "what", "unit", "vole", "peer", "ratio", "gate", "aim", "")
    lines = [head, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = []
    for line, outcome in zip(lines, [None, *outcomes], strict=True):
        text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if isinstance(outcome, Measured) and outcome.note:
            text.append(" " * (widths[0] + 2) + outcome.note)
    return "\n".join(text)


def _cells(outcome: Outcome) -> tuple[str, ...]:
    target = outcome.target
    start = (target.row, target.what, target.unit)
    ends = (str(target.gate), str(target.aim))
    if isinstance(outcome, Unmeasured):
        return (*start, "-", "-", "-", *ends, f"not measured: {outcome.why}")
    return (*start, str(outcome.vole), str(outcome.peer), short(outcome.ratio), *ends, outcome.verdict)
