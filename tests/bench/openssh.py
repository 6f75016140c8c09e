"""OpenSSH's sshd as a peer: key only, no PAM, no DNS, a configuration of its own on loopback."""

from __future__ import annotations

import getpass
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.clients import CIPHERS, Address, make_key
from tests.bench.machine import Children, free_port, listens, need, wait_until

# HOME: a login shell that reads somebody's start-up files would make sshd look slow.
SETTINGS = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
X11Forwarding no
SetEnv HOME={folder} GIT_CONFIG_NOSYSTEM=1
MaxStartups 200
MaxSessions 100
LogLevel ERROR
"""
# sntrup761, its default key exchange, costs 70 ms a connection and vole's library does not speak it.
TUNED = f"Ciphers {CIPHERS}\nKexAlgorithms curve25519-sha256\n"


@dataclass(frozen=True)
class Sshd:
    address: Address
    key: Path
    folder: Path
    child: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.child.pid

    def url(self, repository: Path) -> str:
        return f"ssh://{self.address.user}@127.0.0.1:{self.address.port}{repository}"


def start_sshd(folder: Path, children: Children, *, tuned: bool) -> Sshd:
    """`tuned` takes the ciphers and key exchange that vole prefers; otherwise OpenSSH's defaults are kept."""
    program = need("sshd", "openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation folder; Debian makes it in a unit
    folder.mkdir()
    port = free_port()
    key = make_key(folder / "client")
    host = make_key(folder / "host_key")
    (folder / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host.with_suffix('.pub').read_text()}")
    text = SETTINGS.format(port=port, folder=folder) + (TUNED if tuned else "")
    (folder / "sshd_config").write_text(text)
    child = children.start(folder.name, [program, "-D", "-e", "-f", folder / "sshd_config"])
    wait_until(lambda: listens(port), 10, "sshd listens")
    return Sshd(Address(port, getpass.getuser(), folder / "known_hosts"), key, folder, child)
