"""Runs that start without a push: by hand, again, by the clock. The order of steps; holds no SQL, no rule, no timer."""

from vole.flows.starting.by_clock import Schedules, start_by_clock
from vole.flows.starting.by_hand import Begun, Startable, Starting, Wanted, rerun, start_by_hand
from vole.flows.starting.tips import StartingParts

__all__ = [
    "Begun",
    "Schedules",
    "Startable",
    "Starting",
    "StartingParts",
    "Wanted",
    "rerun",
    "start_by_clock",
    "start_by_hand",
]
