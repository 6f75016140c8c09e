"""Rows 1, 1b, 1c, 1d: a small commit pushed over SSH, against OpenSSH, a local path, and vole that judges after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.clients import Address, Clone, git_env, run, ssh_words
from tests.bench.figures import Measured, Outcome, interleave
from tests.bench.machine import wait_until
from tests.bench.openssh import Sshd, start_sshd
from tests.bench.product import Forge, start_forge

TARGETS = (targets.PUSH, targets.PUSH_LOCAL, targets.PUSH_WARM, targets.PUSH_POLICY)
ROUNDS = 25
WARM = 3
# Each push of it is checked, and queues a run that no runner takes.
WORKFLOW = {
    ".vole/workflows/ci.yml": "on: push\njobs:\n  test:\n    runs-on: [linux]\n    steps:\n      - run: echo ok\n"
}


def measure(bench: Bench) -> Iterator[Outcome]:
    forge = start_forge(bench.work / "forge", bench.children)
    local = Clone.create(bench.work / "local", git_env(bench.work), WORKFLOW, str(_bare(bench.work / "local.git")))
    sshd = start_sshd(bench.work / "sshd", bench.children, tuned=True)
    yield from _cold(bench, forge, sshd, local)
    yield from _warm(bench, forge, sshd)
    yield _policy(bench, forge)


def _cold(bench: Bench, forge: Forge, sshd: Sshd, local: Clone) -> Iterator[Outcome]:
    vole = _clone_of_vole(bench, forge, "cold")
    openssh = _clone_of_openssh(bench, sshd, "cold")
    sides = {"vole": vole.push_ms, "openssh": openssh.push_ms, "local": local.push_ms}
    found = interleave(sides, bench.rounds(ROUNDS), WARM)
    yield Measured(targets.PUSH, found["vole"], found["openssh"])
    yield Measured(targets.PUSH_LOCAL, found["vole"], found["local"])


def _warm(bench: Bench, forge: Forge, sshd: Sshd) -> Iterator[Outcome]:
    with (
        _master(bench, "mv", forge.address, forge.key) as to_vole,
        _master(bench, "mo", sshd.address, sshd.key) as to_openssh,
    ):
        vole = _clone_of_vole(bench, forge, "warm", f"ControlPath={to_vole}")
        openssh = _clone_of_openssh(bench, sshd, "warm", f"ControlPath={to_openssh}")
        found = interleave({"vole": vole.push_ms, "openssh": openssh.push_ms}, bench.rounds(ROUNDS), WARM)
    yield Measured(targets.PUSH_WARM, found["vole"], found["openssh"])


def _policy(bench: Bench, forge: Forge) -> Outcome:
    """The verdict before a push lands against the verdict after it: our hook against none, the same runs at the end."""
    bare = start_forge(bench.work / "bare", bench.children, program="tests.bench.bareserver")
    found = interleave(
        {
            "vole": _clone_of_vole(bench, forge, "policy").push_ms,
            "without": _clone_of_vole(bench, bare, "without").push_ms,
        },
        bench.rounds(ROUNDS),
        WARM,
    )
    return Measured(targets.PUSH_POLICY, found["vole"], found["without"])


def _clone_of_vole(bench: Bench, forge: Forge, name: str, *options: str) -> Clone:
    forge.create(name)
    env = git_env(bench.work, ssh_words(forge.address, forge.key, *options))
    return Clone.create(bench.work / f"vole-{name}", env, WORKFLOW, forge.url(name))


def _clone_of_openssh(bench: Bench, sshd: Sshd, name: str, *options: str) -> Clone:
    env = git_env(bench.work, ssh_words(sshd.address, sshd.key, *options))
    repository = _bare(bench.work / f"openssh-{name}.git")
    return Clone.create(bench.work / f"openssh-{name}", env, WORKFLOW, sshd.url(repository))


def _bare(folder: Path) -> Path:
    run(["git", "init", "-q", "--bare", "-b", "main", folder], git_env(folder.parent))
    return folder


@contextlib.contextmanager
def _master(bench: Bench, name: str, address: Address, key: Path) -> Iterator[Path]:
    """The socket of a connection that is already open."""
    socket = bench.work / name
    words = ssh_words(address, key, "ControlMaster=yes", f"ControlPath={socket}")
    child = bench.children.start(f"master-{name}", [*words, "-N", "127.0.0.1"])
    try:
        wait_until(socket.exists, 10, "the ControlMaster is connected")
        yield socket
    finally:
        bench.children.end(child)
