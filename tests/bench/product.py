"""vole itself, as its users meet it: a server made by `vole init` and run by `vole serve`, and a `vole-runner`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.cgit import page
from tests.bench.clients import Address, git_env, make_key
from tests.bench.machine import CHECKOUT, BrokenError, Children, free_port, wait_until

SETTINGS = """\
ssh:
  listen: 127.0.0.1:{ssh_port}
web:
  listen: 127.0.0.1:{web_port}
"""
READY_S = 30.0
COMMAND_S = 60.0


@dataclass(frozen=True)
class Forge:
    """A running server, and `ada` who is its admin."""

    folder: Path
    address: Address
    key: Path
    web_port: int
    child: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.child.pid

    def url(self, repository: str) -> str:
        return f"ssh://{self.address.user}@127.0.0.1:{self.address.port}/{repository}.git"

    def commit_path(self, repository: str, commit: str) -> str:
        return f"/{repository}/commit/{commit}"

    def create(self, repository: str, *, public: bool = False) -> None:
        self.command("repo", "create", repository, *(["--public"] if public else []))

    def remove(self, repository: str) -> None:
        self.command("repo", "remove", repository, "--yes")

    def runner_key(self, repository: str) -> Path:
        """A key with which runners of `repository` may connect."""
        self.command("user", "add", "rui")
        key = make_key(self.folder.parent / f"{self.folder.name}-rui")
        self.command("key", "add", "rui", "--runner", stdin=key.with_suffix(".pub").read_bytes())
        self.command("grant", "rui", repository, "run")
        return key

    def logs(self) -> set[Path]:
        """The files of all attempts' logs."""
        return {path for path in (self.folder / "logs").rglob("*") if path.is_file()}

    def command(self, *words: str, stdin: bytes = b"") -> None:
        _command(self.folder, *words, stdin=stdin)


def start_forge(folder: Path, children: Children, program: str = "vole") -> Forge:
    """`program` is the module that serves: bareserver.py has another."""
    _command(folder, "init", str(folder))
    ports = {"ssh_port": free_port(), "web_port": free_port()}
    (folder / "vole.yaml").write_text(SETTINGS.format(**ports))
    child = children.start(folder.name, [sys.executable, "-m", program, "serve"], _env(folder))
    wait_until(lambda: _is_ready(child, ports["web_port"]), READY_S, "vole serves")
    known_hosts = folder.parent / f"{folder.name}-known_hosts"
    host_key = (folder / "keys" / "ssh_host_ed25519.pub").read_text()
    known_hosts.write_text(f"[127.0.0.1]:{ports['ssh_port']} {host_key}")
    key = make_key(folder.parent / f"{folder.name}-ada")
    forge = Forge(folder, Address(ports["ssh_port"], "git", known_hosts), key, ports["web_port"], child)
    forge.command("user", "add", "ada", "--admin")
    forge.command("key", "add", "ada", stdin=key.with_suffix(".pub").read_bytes())
    return forge


def start_runner(
    forge: Forge, folder: Path, children: Children, repository: str, slots: int = 1
) -> subprocess.Popen[bytes]:
    """A runner of the label `linux`. It may be a moment until it is connected."""
    flags = {
        "server": f"ssh://git@127.0.0.1:{forge.address.port}",
        "key": forge.runner_key(repository),
        "known-hosts": forge.address.known_hosts,
        "label": "linux",
        "repos": repository,
        "name": "bench",
        "slots": slots,
        "work": folder,
    }
    words = [word for flag, value in flags.items() for word in (f"--{flag}", value)]
    return children.start(folder.name, [sys.executable, "-m", "vole_runner", *words], _env(forge.folder))


_PROGRAM = (sys.executable, "-m", "vole")


def _env(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "runner")])
    return {**git_env(folder.parent), "VOLE_DIR": str(folder), "PYTHONPATH": path}


def _command(folder: Path, *words: str, stdin: bytes = b"") -> None:
    done = subprocess.run(
        [*_PROGRAM, *words], env=_env(folder), input=stdin, capture_output=True, timeout=COMMAND_S, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-600:]
        raise BrokenError(f"vole {' '.join(words)}: exit {done.returncode}: {said}")


def _is_ready(child: subprocess.Popen[bytes], web_port: int) -> bool:
    if child.poll() is not None:
        raise BrokenError(f"vole serve: exit {child.returncode}")
    try:
        return page(web_port, "/readyz")[0] == 200
    except OSError:
        return False
