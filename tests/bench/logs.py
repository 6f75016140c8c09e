"""Rows 9, 9b: a step's output on its way to the server's file, whole and line by line, against ssh and `cat >>`."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.clients import Clone, git_env, ssh_words
from tests.bench.figures import Measured, Outcome, Sample, interleave
from tests.bench.machine import wait_until
from tests.bench.openssh import Sshd, start_sshd
from tests.bench.product import Forge, start_forge, start_runner

TARGETS = (targets.LOG_STREAM, targets.LOG_LAG)
LINE = b"%07d the quick brown fox jumps over the lazy dog and then over the fence and home again\n"
LINES = 500_000  # 46 MB, below what one attempt may log
STREAM_ROUNDS = 7
LAG_ROUNDS = 5
TICKS = 100  # lines a round
STREAM_S = 60.0
LOOK_S = 0.0002  # how often a growing file is looked at, on both sides alike

# The step waits for its word to begin, so that a job's start is not counted.
WAIT = "touch {ready}; while [ ! -e {go} ]; do sleep 0.01; done; "
TICKER = """\
import sys, time
for _ in range(int(sys.argv[1])):
    print(time.time_ns(), flush=True)
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Stream:
    """A file on the server's side that grows by what a command on the other side prints, once told to go."""

    file: Path
    go: Callable[[], None]
    end: Callable[[], None]


def measure(bench: Bench) -> Iterator[Outcome]:
    lines, ticker = bench.work / "lines", bench.work / "ticker.py"
    lines.write_bytes(b"".join(LINE % number for number in range(LINES)))
    ticker.write_text(TICKER)
    opens = {"vole": _vole(bench), "openssh": _openssh(bench)}

    size = lines.stat().st_size
    rates = {name: partial(_rate, open_, f"cat {lines}", size) for name, open_ in opens.items()}
    found = interleave(rates, bench.rounds(STREAM_ROUNDS))
    yield Measured(targets.LOG_STREAM, found["vole"], found["openssh"])

    ticking = f"{shlex.quote(sys.executable)} {ticker} {TICKS}"
    lags: dict[str, list[float]] = {name: [] for name in opens}
    for _ in range(bench.rounds(LAG_ROUNDS)):
        for name, open_ in opens.items():
            lags[name] += _lags(open_, ticking)
    yield Measured(targets.LOG_LAG, Sample(tuple(lags["vole"])), Sample(tuple(lags["openssh"])))


def _rate(open_: Callable[[str], Stream], command: str, size: int) -> float:
    """MB/s from the word to go until the file has grown by all that was printed."""
    stream = open_(command)
    before = stream.file.stat().st_size
    stream.go()
    begin = time.perf_counter()
    wait_until(lambda: stream.file.stat().st_size >= before + size, STREAM_S, f"{stream.file} is whole", LOOK_S)
    seconds = time.perf_counter() - begin
    stream.end()
    return size / seconds / 1e6


def _lags(open_: Callable[[str], Stream], command: str) -> list[float]:
    """Milliseconds from each line's print to its being in the file."""
    stream = open_(command)
    lags: list[float] = []
    with stream.file.open("rb") as file:
        file.seek(0, 2)
        stream.go()
        rest = b""

        def all_seen() -> bool:
            nonlocal rest
            if data := file.read():
                now = time.time_ns()
                *lines, rest = (rest + data).split(b"\n")
                lags.extend((now - int(line)) / 1e6 for line in lines if line.isdigit())
            return len(lags) >= TICKS

        wait_until(all_seen, STREAM_S, f"{TICKS} lines in {stream.file}", LOOK_S)
    stream.end()
    return lags


def _openssh(bench: Bench) -> Callable[[str], Stream]:
    sshd: Sshd = start_sshd(bench.work / "sshd", bench.children, tuned=False)
    words = [*ssh_words(sshd.address, sshd.key), "127.0.0.1"]
    file = bench.work / "appended"

    def open_(command: str) -> Stream:
        file.write_bytes(b"")
        ssh = subprocess.Popen([*words, f"cat >> {file}"], stdin=subprocess.PIPE)
        assert ssh.stdin is not None
        ssh.stdin.write(b"first\n")
        ssh.stdin.flush()
        wait_until(lambda: file.stat().st_size, STREAM_S, "the connection's first bytes")
        printers: list[subprocess.Popen[bytes]] = []

        def end() -> None:
            assert ssh.stdin is not None
            ssh.stdin.close()
            for child in (*printers, ssh):
                child.wait(STREAM_S)

        return Stream(file, lambda: printers.append(subprocess.Popen(["sh", "-c", command], stdout=ssh.stdin)), end)

    return open_


def _vole(bench: Bench) -> Callable[[str], Stream]:
    forge: Forge = start_forge(bench.work / "forge", bench.children)
    forge.create("app")
    start_runner(forge, bench.work / "runner", bench.children, "app")
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    clone = Clone.create(bench.work / "clone", env, {}, forge.url("app"))
    ready, go, done = bench.work / "ready", bench.work / "go", bench.work / "done"
    wait = WAIT.format(ready=ready, go=go)

    def open_(command: str) -> Stream:
        for mark in (ready, go, done):
            mark.unlink(missing_ok=True)
        before = forge.logs()
        _workflow(clone, f"{wait}{command}; touch {done}")
        wait_until(ready.exists, STREAM_S, "the step has begun")
        wait_until(lambda: forge.logs() - before, STREAM_S, "the log's first bytes")
        (file,) = forge.logs() - before
        time.sleep(0.5)  # what the step's start itself logs is there before its file is looked at
        return Stream(file, go.touch, lambda: wait_until(done.exists, STREAM_S, "the step has ended"))

    return open_


def _workflow(clone: Clone, command: str) -> None:
    file = clone.folder / ".vole" / "workflows" / "ci.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    step = f"      - shell: sh\n        run: |\n          {command}\n"
    file.write_text(f"on: push\njobs:\n  print:\n    runs-on: [linux]\n    steps:\n{step}")
    clone.git("add", "-A")
    clone.push_ms()
