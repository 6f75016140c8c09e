"""The server's own SSH key: made once at init, read at every start. Never shown, never rewritten."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh

from vole.base.errors import Conflict, Invalid


def make_host_key(path: Path) -> str:
    """Write a new ed25519 key to `path` (mode 0600) and `path`.pub; its fingerprint. Raises Conflict if it is there."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment="vole host key")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already; the host key is never replaced") from None
    with os.fdopen(handle, "wb") as file:
        file.write(key.export_private_key())
    path.with_suffix(".pub").write_bytes(key.export_public_key())
    return key.get_fingerprint()


def load_host_key(path: Path) -> asyncssh.SSHKey:
    """The key at `path`. Raises Invalid where it cannot be read or is open to others."""
    try:
        if path.stat().st_mode & 0o077:
            raise Invalid(f"{path} can be read by others", next_step=f"chmod 600 {path}")
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as error:
        raise Invalid(f"the host key {path} cannot be read: {error}") from None


def host_key_fingerprint(path: Path) -> str:
    """`SHA256:…` of the key at `path`, as `ssh-keygen -l` prints it. Raises Invalid where it cannot be read."""
    return load_host_key(path).get_fingerprint()
