"""What vole is held to: each row's gate and aim, as ratios of medians within one interleaved run."""

from __future__ import annotations

from tests.bench.figures import Bound, Target, Unit


def at_most(row: str, what: str, unit: Unit, gate: float, aim: float) -> Target:
    return Target(row, what, unit, Bound("<=", gate), Bound("<=", aim))


def at_least(row: str, what: str, unit: Unit, gate: float, aim: float) -> Target:
    return Target(row, what, unit, Bound(">=", gate), Bound(">=", aim))


PUSH = at_most("1", "push with auth and policy / tuned OpenSSH", "ms", 0.40, 0.20)
PUSH_LOCAL = at_most("1b", "the same / bare local-path push", "ms", 3.0, 1.5)
PUSH_WARM = at_most("1c", "push over a warm ControlMaster / OpenSSH's", "ms", 1.3, 0.8)
PUSH_POLICY = at_most("1d", "push with policy hook / judged after it", "ms", 1.15, 1.03)

CLONE_BULK = at_most("2", "clone of 300 MB / OpenSSH", "s", 1.10, 0.90)
CLONE_BULK_CPU = at_most("2", "  server CPU of it / OpenSSH", "s", 1.4, 1.05)
PUSH_BULK = at_most("2b", "push of 300 MB / OpenSSH", "s", 1.25, 1.0)
CLONE_MANY = at_most("2c", "clone of 50k objects / OpenSSH", "s", 0.9, 0.65)
PUSH_MANY = at_most("2c", "push of 50k objects / OpenSSH", "s", 0.7, 0.5)
CLONE_TWO = at_most("3", "two clones of 300 MB at once / OpenSSH's two", "s", 1.25, 1.0)

# Rows without a target of their own ask that the peer is reached.
CYCLE = at_least("4", "lease + finish, one runner / raw SQLite commits / 2", "/s", 0.55, 0.80)
CYCLE_HUEY = at_least("4", "  the same / SqliteHuey, no leases, no log", "/s", 1, 2)
CYCLES = at_least("4b", "cycles of 64 runners / raw SQLite commits", "/s", 2, 6)
CYCLES_POSTGRES = at_least("4c", "the same / SKIP LOCKED on 16 connections", "/s", 2, 6)
CYCLES_PROCRASTINATE = at_least("4c", "  the same / procrastinate, 16 at a time", "/s", 1, 2)
LEASES = {
    (shape, repos): at_most("5", f"lease at 1M / at 10k queued: {shape}, {repos}", "ms", 1.5, 1.1)
    for shape in ("mix", "starved", "3000 sets")
    for repos in ("1 repository", "1,000 repositories")
}
START_UP = at_most("5b", "start with 1M queued / SQLite reads them", "s", 3, 1.5)
BUILDS = at_least("6c", "trivial builds, one runner of 8 slots / Buildbot", "/s", 5, 20)

RETURN_TO_STEP = at_most("6", "push return to step / Buildbot", "ms", 0.10, 0.02)
START_TO_STEP = at_most("6b", "push start to step / Buildbot (local path)", "ms", 0.35, 0.12)
START_TO_SOURCE = at_most("6d", "push start to step with source / Buildbot + Git step", "ms", 0.12, 0.06)

IDLE = at_most("7", "memory per idle runner / OpenSSH connection", "KiB", 0.10, 0.03)
HANDSHAKES = at_least("7b", "handshakes, 8 at a time / OpenSSH", "/s", 2, 3.5)
HANDSHAKE_CPU = at_most("7b", "  server CPU of one / OpenSSH", "ms CPU", 0.3, 0.13)

PAGE = at_least("8", "commit page uncached / cgit", "/s", 1.0, 2)
PAGE_CACHED = at_least("8", "commit page cached / cgit with its cache", "/s", 5, 15)
PUSH_LOADED = at_most("8b", "p99 of a small push under load of pages / idle", "ms", 3, 1.5)

LOG_STREAM = at_least("9", "log stream / ssh host 'cat >> file'", "MB/s", 0.8, 1.4)
LOG_LAG = at_most("9b", "line printed to line stored / the same over ssh", "ms", 5, 1.5)
