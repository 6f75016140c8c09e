"""Where a harness listens, and the taking over of a socket's path from one that was killed. Opens nothing of jobs."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import socket
import stat
from pathlib import Path

from vole.base import limits
from vole.base.errors import Conflict, Invalid, VoleError

_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def checked(address: str, *, plaintext: bool) -> str:
    """`unix:///path` or `host:port`; what leaves the machine only where the operator says so. Raises Invalid."""
    if address.startswith("unix:///"):
        if len(os.fsencode(address.removeprefix("unix://"))) > limits.SOCKET_PATH_BYTES_MAX:
            most = limits.SOCKET_PATH_BYTES_MAX
            raise Invalid(f"{address[:160]!r}: a socket's path has at most {most} bytes (SOCKET_PATH_BYTES_MAX)")
        return address
    found = _HOST_PORT.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise Invalid(f"{address[:160]!r} is no address to listen on: unix:///path or host:port")
    if not plaintext and not _is_loopback(found["host"].strip("[]")):
        raise Invalid(f"{address!r} is cleartext over a network; say --allow-plaintext if that is meant")
    return address


class SocketPath:
    """The path of a socket, ours until this process ends: by a lock beside it that outlives every socket.

    A killed harness leaves its socket behind. It is removed only where the lock says that it was a harness's, and where
    nobody answers there. Whatever else stands in the way stays.
    """

    def __init__(self, path: Path) -> None:
        """Raises Conflict where another harness has the path, Invalid where it or its lock is something else."""
        self._path = path
        self._lock = locked(path.with_name(f"{path.name}.lock"))
        try:
            self._clear()
        except BaseException:
            os.close(self._lock)
            raise

    def bound(self) -> None:
        """The socket is there: remember which one it is."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, _identity(self._path.lstat()), 0)
        os.fsync(self._lock)

    def _clear(self) -> None:
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(there.st_mode) or os.pread(self._lock, 64, 0) != _identity(there):
            raise Invalid(f"{self._path}: something stands there that no harness left; remove it, or listen elsewhere")
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.settimeout(1.0)
            try:
                knocking.connect(str(self._path))
            except ConnectionRefusedError:
                self._path.unlink()
                return
            except OSError as error:
                raise Invalid(f"{self._path}: it cannot be told whether somebody listens: {error.strerror}") from None
        raise Conflict(f"{self._path}: somebody listens there")


def locked(path: Path) -> int:
    """A lock file, ours and locked until we end; its descriptor. Raises Invalid, and Conflict where another has it.

    It is never removed: whoever waited for it would hold a file without a name.
    """
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise Invalid(f"{path}: {why}") from None
    try:
        found = os.fstat(lock)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise _not_ours(path)
        os.fchmod(lock, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Conflict(f"{path}: another harness has it") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _not_ours(path: Path) -> VoleError:
    return Invalid(f"{path}: it has to be a plain file of this user with one name; remove it, or listen elsewhere")


def _identity(found: os.stat_result) -> bytes:
    return f"{found.st_dev}:{found.st_ino}\n".encode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
