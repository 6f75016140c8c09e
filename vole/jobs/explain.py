"""Why a job waits, for people: the reasons of the grant rule, of all runners at once. Pure; finds no reason itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vole.jobs.match import Demand, Reason, Why
from vole.jobs.model import HELD, State

SHOWN = 3  # runners named in one line; the rest is a count


@dataclass(frozen=True)
class Verdict:
    """One connected runner and the one reason why it cannot take the job; None when it would get it."""

    runner: str
    labels: frozenset[str]
    reason: Reason | None


@dataclass(frozen=True)
class Explained:
    """One job, and what every connected runner makes of it."""

    address: str  # app/12/test
    key: str
    demand: Demand
    holder: str | None  # the runner that has it
    conclusion: str | None
    verdicts: tuple[Verdict, ...]


def prospect(explained: Explained, nearest: Callable[[str], str | None]) -> str:
    """One line: what comes next for the job, and why. `nearest` gives the known label that an unknown one may mean."""
    demand = explained.demand
    if demand.set_aside is not None:
        return f"set aside: {demand.set_aside}"
    if demand.state is State.FINISHED:
        return f"ended: {explained.conclusion}"
    if demand.state in HELD:
        return f"starts now on {explained.holder}" if demand.state is State.LEASED else f"runs on {explained.holder}"
    if demand.state is State.BLOCKED and demand.group is not None:
        return Reason(Why.CONCURRENCY_GROUP, demand.group).sentence
    if demand.state is State.BLOCKED:
        return f"waits for {demand.waits_for}" if demand.waits_for else "waits for its condition"
    takers = [verdict.runner for verdict in explained.verdicts if verdict.reason is None]
    return f"starts now on {takers[0]}" if takers else f"waits: {_waits(explained, nearest)}"


def why(explained: Explained, nearest: Callable[[str], str | None]) -> list[str]:
    """The prospect of a job, then a line for each connected runner."""
    lines = [f"{explained.address}: {prospect(explained, nearest)}"]
    if explained.demand.state is State.QUEUED:
        lines += [
            f"  {verdict.runner}: {verdict.reason.sentence if verdict.reason else 'would take it now'}"
            for verdict in explained.verdicts
        ]
    return lines


def together(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Prospects of a run's jobs, by key: one line when all are alike, else one for each group of jobs."""
    groups: dict[str, list[str]] = {}
    for key, text in lines:
        groups.setdefault(text, []).append(key)
    if len(groups) <= 1:
        return list(groups)
    return [f"{_some(keys)}: {text}" for text, keys in groups.items()]


def _waits(explained: Explained, nearest: Callable[[str], str | None]) -> str:
    verdicts = explained.verdicts
    if not verdicts:
        return "no runner is connected"
    carried = frozenset[str]().union(*(verdict.labels for verdict in verdicts))
    missing = sorted(explained.demand.labels - carried)
    reasons = [f"{verdict.runner} {verdict.reason.sentence}" for verdict in verdicts if verdict.reason is not None]
    if not missing:
        return _some(reasons, "; ")
    near = nearest(missing[0])
    notes = [_some(reasons, ", "), *([f"nearest label: '{near}'"] if near else [])]
    return f"no connected runner carries '{missing[0]}' ({'; '.join(notes)})"


def _some(texts: Sequence[str], between: str = ", ") -> str:
    shown = between.join(texts[:SHOWN])
    return shown if len(texts) <= SHOWN else f"{shown} and {len(texts) - SHOWN} more"
