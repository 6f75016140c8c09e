"""The people of the benchmarks: keys, OpenSSH's client, git, and clones to push from. The same for every side."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.machine import BrokenError

WORDS_S = 300.0
# What vole prefers; the tuned sshd gets the same, so that no cipher decides.
CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com"


@dataclass(frozen=True)
class Address:
    """Where an SSH server listens, and as whom one knocks."""

    port: int
    user: str
    known_hosts: Path


def make_key(path: Path) -> Path:
    """An ed25519 key without a passphrase."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)])
    return path


def ssh_words(address: Address, key: Path, *options: str) -> list[str]:
    """OpenSSH's client with nobody's configuration; the host itself is still to follow."""
    fixed = (
        f"Port={address.port}",
        f"User={address.user}",
        f"IdentityFile={key}",
        f"UserKnownHostsFile={address.known_hosts}",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "StrictHostKeyChecking=yes",
        "PreferredAuthentications=publickey",
        "BatchMode=yes",
        "LogLevel=ERROR",
    )
    return ["ssh", "-F", "none", *(word for option in (*fixed, *options) for word in ("-o", option))]


def git_env(home: Path, ssh: Sequence[str] = ()) -> dict[str, str]:
    """An environment in which git knows no person's settings."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    who = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in _WHO.items()}
    env = {**keep, **who, "HOME": str(home), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    if ssh:
        env["GIT_SSH_COMMAND"] = shlex.join(ssh)
        env["GIT_SSH_VARIANT"] = "ssh"
    return env


_WHO = {"NAME": "Ada", "EMAIL": "ada@bench.invalid"}


def run(words: Sequence[object], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Its standard output. Raises BrokenError with what it said when it does not exit 0."""
    done = subprocess.run(
        [str(word) for word in words],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WORDS_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-600:]
        raise BrokenError(f"{shlex.join(map(str, words))[:200]}: exit {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def timed(words: Sequence[object], env: dict[str, str], cwd: Path | None = None) -> float:
    """Seconds from start to exit."""
    begin = time.perf_counter()
    run(words, env, cwd)
    return time.perf_counter() - begin


@dataclass
class Clone:
    """A working clone that pushes one fresh small commit at a time to one place."""

    folder: Path
    env: dict[str, str]
    count: int = field(default=0)

    @classmethod
    def create(cls, folder: Path, env: dict[str, str], files: dict[str, str], remote: str) -> Clone:
        run(["git", "init", "-q", "-b", "main", folder], env)
        for name, text in {"README.md": "# A small repository\n", **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        clone = cls(folder, env)
        clone.git("add", "-A")
        clone.git("commit", "-q", "-m", "Begin")
        clone.git("remote", "add", "origin", remote)
        clone.git("push", "-q", "origin", "main")
        return clone

    def git(self, *words: str) -> str:
        return run(["git", *words], self.env, self.folder)

    def commit(self) -> None:
        """Two lines of one file change."""
        self.count += 1
        (self.folder / "count.txt").write_text(f"{self.count}\n{time.time_ns()}\n")
        self.git("add", "count.txt")
        self.git("commit", "-q", "-m", f"Count to {self.count}")

    def push_ms(self) -> float:
        """A fresh commit, and the milliseconds of its push alone."""
        self.commit()
        return timed(["git", "push", "-q", "origin", "main"], self.env, self.folder) * 1000
