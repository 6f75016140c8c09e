"""Rows 7, 7b: what an idle connection costs in memory, and a handshake in time and CPU, against OpenSSH."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.clients import Address, run
from tests.bench.figures import Measured, Outcome, Sample, interleave
from tests.bench.machine import CHECKOUT, BrokenError, cpu_s, memory_kib
from tests.bench.openssh import start_sshd
from tests.bench.product import start_forge

TARGETS = (targets.IDLE, targets.HANDSHAKES, targets.HANDSHAKE_CPU)
HELD = 100
IDLE_ROUNDS = 3
SHAKEN = 100
AT_ONCE = 8
SHAKE_ROUNDS = 7
SETTLE_S = 0.5


@dataclass(frozen=True)
class Side:
    address: Address
    key: Path
    pid: int
    costs: list[float] = field(default_factory=list)  # ms of server CPU a handshake

    def words(self, what: str, count: int, option: object) -> list[str]:
        """The load generator's command line."""
        at = [str(self.address.port), self.address.user, str(self.key), str(self.address.known_hosts)]
        return [sys.executable, "-m", "tests.bench.loadgen", what, str(count), str(option), *at]


def measure(bench: Bench) -> Iterator[Outcome]:
    yield _idle(bench)
    yield from _handshakes(bench)


def _idle(bench: Bench) -> Outcome:
    """Fresh servers each round: a server that was used before has room to spare and would look free."""
    vole, openssh = [], []
    for number in range(bench.rounds(IDLE_ROUNDS)):
        forge = start_forge(bench.work / f"forge-{number}", bench.children)
        forge.create("app")
        sshd = start_sshd(bench.work / f"sshd-{number}", bench.children, tuned=True)
        vole.append(_held_kib(Side(forge.address, forge.runner_key("app"), forge.pid), "runner"))
        openssh.append(_held_kib(Side(sshd.address, sshd.key, sshd.pid), "plain"))
        bench.children.end(forge.child)
        bench.children.end(sshd.child)
    return Measured(targets.IDLE, Sample(tuple(vole)), Sample(tuple(openssh)))


def _held_kib(side: Side, role: str) -> float:
    """KiB a connection by the growth of the server and its children."""
    with _holding(side, 3, role):
        pass  # what the first connection alone brings: modules, tables
    before = memory_kib(side.pid)
    with _holding(side, HELD, role):
        time.sleep(SETTLE_S)
        return (memory_kib(side.pid) - before) / HELD


class _holding:  # noqa: N801 - reads as a verb at the `with`
    def __init__(self, side: Side, count: int, role: str) -> None:
        words = side.words("idle", count, role)
        self._child = subprocess.Popen(words, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> None:
        assert self._child.stdout is not None
        if self._child.stdout.readline().strip() != b"held":
            raise BrokenError(f"idle connections: exit {self._child.wait(10)}")

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(20)
        time.sleep(SETTLE_S)


def _handshakes(bench: Bench) -> Iterator[Outcome]:
    forge = start_forge(bench.work / "forge", bench.children)
    sshd = start_sshd(bench.work / "sshd", bench.children, tuned=True)
    vole = Side(forge.address, forge.key, forge.pid)
    openssh = Side(sshd.address, sshd.key, sshd.pid)
    found = interleave(
        {"vole": lambda: _shake(vole), "openssh": lambda: _shake(openssh)}, bench.rounds(SHAKE_ROUNDS), warm=1
    )
    yield Measured(targets.HANDSHAKES, found["vole"], found["openssh"])
    yield Measured(targets.HANDSHAKE_CPU, Sample(tuple(vole.costs[1:])), Sample(tuple(openssh.costs[1:])))


def _shake(side: Side) -> float:
    """Handshakes a second. One more than are timed are made: the load generator's own warm-up."""
    before = cpu_s(side.pid)
    seconds = float(run(side.words("handshakes", SHAKEN, AT_ONCE), cwd=CHECKOUT))
    time.sleep(SETTLE_S)
    side.costs.append((cpu_s(side.pid) - before) / (SHAKEN + 1) * 1000)
    return SHAKEN / seconds
