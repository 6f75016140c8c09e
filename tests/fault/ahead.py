"""A server whose wall clock is ahead of the machine's: python -m tests.fault.ahead SECONDS DIR"""

from __future__ import annotations

import sys

from vole import app
from vole.base.clock import Moment, SystemClock, seconds
from vole.cli import cli

AHEAD = seconds(float(sys.argv.pop(1)))


class Ahead(SystemClock):
    def __init__(self) -> None:
        super().__init__()
        self.not_before(Moment(self.now() + AHEAD))


app.SystemClock = Ahead  # type: ignore[misc]
cli(["serve", sys.argv[1]])
