"""The server's record key and the list of all it ever had. In this process alone: no child is given key, path or file.

`record_signers` is the list, in the format that `ssh-keygen -Y verify` reads; its last line is the key that signs. A
key that was replaced stays in it, with the second until which it signed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key

from vole.base import log
from vole.base.clock import Moment
from vole.base.errors import Invalid
from vole.git.records.sshsig import public_blob, sign
from vole.git.storage import sync_folder

_log = log.get("vole.git.records")

_LINE = re.compile(
    r'(?P<principal>\S+) namespaces="git"(?:,valid-after="(?P<after>\d{14})Z")?(?:,valid-before="(?P<before>\d{14})Z")?'
    r" ssh-ed25519 (?P<key>[A-Za-z0-9+/]+=*)"
)
_WHEN = "%Y%m%d%H%M%S"


@dataclass(frozen=True)
class Signer:
    """A record key that is or was: its public half, and the seconds (UTC) between which it signed; None: no bound."""

    principal: str
    key: str  # base64
    after_s: int | None = None
    before_s: int | None = None

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.key)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """Its line in an allowed-signers file."""
        options = 'namespaces="git"'
        options += "" if self.after_s is None else f',valid-after="{_written(self.after_s)}Z"'
        options += "" if self.before_s is None else f',valid-before="{_written(self.before_s)}Z"'
        return f"{self.principal} {options} ssh-ed25519 {self.key}"


class RecordKeys:
    """The keys of one server, in the files `path` (private, mode 0600) and `record_signers` beside it."""

    def __init__(self, path: Path, private: Ed25519PrivateKey, signers: tuple[Signer, ...]) -> None:
        self._path = path
        self._private = private
        self.signers = signers

    @classmethod
    def open(cls, path: Path, deployment: str, now: Moment) -> RecordKeys:
        """The keys at `path`; a first key is made where there is none, a next one where the last is lost.

        Raises Invalid for files that cannot be read, do not belong together or are open to others.
        """
        principal = f"records@{deployment}"
        signers = _read_signers(_list(path))
        waiting = _next(path)
        if waiting.exists():  # a rotation was cut short: it counts if the list says so
            if signers and _signer(_load(waiting), principal).key == signers[-1].key:
                waiting.replace(path)
            else:
                waiting.unlink()
        if not path.exists():
            if signers:
                _log.warning("the record key is gone; a new one signs from now on", was=signers[-1].fingerprint)
            return cls._made(path, principal, signers, now)
        private = _load(path)
        own = _signer(private, principal)
        if not signers:
            signers = (own,)
            _write(_list(path), _text(signers), 0o644)
        if signers[-1].key != own.key:
            raise Invalid(
                f"{path} is not the last key of {_list(path).name}",
                next_step="put the two files of one server back together, from the same backup",
            )
        return cls(path, private, signers)

    @property
    def current(self) -> Signer:
        """The key that signs."""
        return self.signers[-1]

    @property
    def allowed_signers(self) -> bytes:
        """The file that verifiers are given."""
        return _text(self.signers)

    def sign(self, message: bytes) -> str:
        """The armoured signature of `message`."""
        return sign(self._private, message)

    def rotate(self, now: Moment) -> Signer:
        """A new key signs from `now` on; the former is valid for what it signed until then."""
        made = RecordKeys._made(self._path, self.current.principal, self.signers, now)
        self._private, self.signers = made._private, made.signers
        return self.current

    @classmethod
    def _made(cls, path: Path, principal: str, former: tuple[Signer, ...], now: Moment) -> RecordKeys:
        """The list between the key and its place: `open` can tell from it how far a death let us come."""
        private, now_s = Ed25519PrivateKey.generate(), now // 1_000_000
        new = _signer(private, principal, after_s=now_s if former else None)
        signers = (*(_ended(signer, now_s) for signer in former), new)
        _write(_next(path), private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
        _write(_list(path), _text(signers), 0o644)
        _next(path).replace(path)
        sync_folder(path.parent)
        return cls(path, private, signers)


def fingerprint_of(path: Path) -> str:
    """Of the record key at `path`. Raises Invalid where it cannot be read or is open to others."""
    return _signer(_load(path), "").fingerprint


def signers_at(path: Path) -> tuple[Signer, ...]:
    """The list of keys beside the record key at `path`, oldest first. Raises Invalid, naming the line."""
    return _read_signers(_list(path))


def _list(path: Path) -> Path:
    return path.with_name("record_signers")


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def _load(path: Path) -> Ed25519PrivateKey:
    if path.stat().st_mode & 0o077:
        raise Invalid(f"{path} can be read by others", next_step=f"chmod 600 {path}")
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise Invalid(f"the record key {path} cannot be read: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Invalid(f"the record key {path} is no ed25519 key")
    return key


def _signer(key: Ed25519PrivateKey, principal: str, after_s: int | None = None) -> Signer:
    return Signer(principal, base64.b64encode(public_blob(key)).decode(), after_s)


def _ended(signer: Signer, now_s: int) -> Signer:
    if signer.before_s is not None:
        return signer
    return Signer(signer.principal, signer.key, signer.after_s, max(now_s, signer.after_s or 0))


def _text(signers: tuple[Signer, ...]) -> bytes:
    return "".join(f"{signer.line}\n" for signer in signers).encode()


def _read_signers(path: Path) -> tuple[Signer, ...]:
    """Raises Invalid, naming the line."""
    if not path.exists():
        return ()
    signers = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise Invalid(f"{path}:{number}: no line of record signers", next_step="take the file from a backup")
        signers.append(Signer(found["principal"], found["key"], _second(found["after"]), _second(found["before"])))
    return tuple(signers)


def _written(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime(_WHEN)


def _second(text: str | None) -> int | None:
    return None if text is None else int(datetime.strptime(text, _WHEN).replace(tzinfo=UTC).timestamp())


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and durable."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
