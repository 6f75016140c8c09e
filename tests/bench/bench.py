"""What every group of rows gets: folders, a place for processes, how often to measure. Knows no row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.machine import Children


@dataclass(frozen=True)
class Bench:
    work: Path
    cache: Path
    children: Children
    scale: float  # of the usual number of rounds

    def rounds(self, usual: int) -> int:
        return max(3, round(usual * self.scale))
