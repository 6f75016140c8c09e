"""Who may sign, and whether they did: lists of signers, and SSH signatures taken apart by hand."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vole.base.errors import Invalid

_LINE = re.compile(
    r'(?P<principal>records@[0-9a-z]+) namespaces="git"(?:,valid-after="(?P<after>[0-9]{14})Z")?'
    r'(?:,valid-before="(?P<before>[0-9]{14})Z")? ssh-ed25519 (?P<key>[A-Za-z0-9+/]+=*)'
)
_KEY_HEAD = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"  # 32 bytes of key follow
_SIGNATURE_HEAD = b"\0\0\0\x0bssh-ed25519\0\0\0\x40"  # 64 bytes of signature follow
_NAMED = b"\0\0\0\x03git" + b"\0\0\0\0" + b"\0\0\0\x06sha512"  # namespace, nothing, digest
_BEFORE_KEY = b"SSHSIG" + b"\0\0\0\x01" + b"\0\0\0\x33" + _KEY_HEAD
_BETWEEN = _NAMED + b"\0\0\0\x53" + _SIGNATURE_HEAD
_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----\n", b"\n-----END SSH SIGNATURE-----"
_COLUMNS = 70


@dataclass(frozen=True)
class Key:
    """A line of a list of signers; the seconds since 1970 UTC between which it signs, both included."""

    principal: str
    raw: bytes
    after_s: int | None
    before_s: int | None

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(_KEY_HEAD + self.raw).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def signs_at(self, second: int) -> bool:
        return (self.after_s or 0) <= second and (self.before_s is None or second <= self.before_s)


def signers(data: bytes, where: str) -> tuple[Key, ...]:
    """The keys of a list as the server publishes it. Raises Invalid, naming the line."""
    if not data.endswith(b"\n"):
        raise Invalid(f"{where} does not end with a whole line of a signer")
    return tuple(_key(line, f"{where}:{number}") for number, line in enumerate(data[:-1].split(b"\n"), 1))


def grew(former: tuple[Key, ...], now: tuple[Key, ...]) -> bool:
    """Whether `now` is `former` after rotations: all keys are kept, new ones behind them, and the last has an end."""
    if not former:
        return True
    *kept, last = former
    if len(now) <= len(former) or now[: len(kept)] != tuple(kept):
        return False
    ended = now[len(kept)]
    return ended.before_s is not None and last == replace(ended, before_s=None)


def signer(armoured: bytes, payload: bytes) -> bytes | None:
    """The raw key that signed `payload`; None for anything but a good signature in the one form there is."""
    blob = _bared(armoured)
    at = len(_BEFORE_KEY)
    key, signature = blob[at : at + 32], blob[-64:]
    # Put together again: every byte is key, signature, or as it has to be.
    if blob != _BEFORE_KEY + key + _BETWEEN + signature or len(key + signature) != 96:
        return None
    signed = b"SSHSIG" + _NAMED + b"\0\0\0\x40" + hashlib.sha512(payload).digest()
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except InvalidSignature:
        return None
    return key


def _bared(armoured: bytes) -> bytes:
    """What is in the armour; nothing if it is not written as it would be again."""
    try:
        blob = base64.b64decode(armoured.removeprefix(_BEGIN).removesuffix(_END))
    except ValueError:
        return b""
    text = base64.b64encode(blob)
    lines = b"\n".join(text[at : at + _COLUMNS] for at in range(0, len(text), _COLUMNS))
    return blob if armoured == _BEGIN + lines + _END else b""


def _key(line: bytes, where: str) -> Key:
    found = _LINE.fullmatch(line.decode("utf-8", "replace"))
    blob = b"" if found is None else base64.b64decode(found["key"] + "==")
    if found is None or not blob.startswith(_KEY_HEAD) or base64.b64encode(blob).decode() != found["key"]:
        raise Invalid(f"{where}: no line of a record signer", next_step="take the list from the server")
    if len(blob) != len(_KEY_HEAD) + 32:
        raise Invalid(f"{where}: that is no ed25519 key", next_step="take the list from the server")
    return Key(
        found["principal"], blob[len(_KEY_HEAD) :], _second(found["after"], where), _second(found["before"], where)
    )


def _second(text: str | None, where: str) -> int | None:
    try:
        return None if text is None else int(datetime.strptime(text + "Z", "%Y%m%d%H%M%S%z").timestamp())
    except ValueError:
        raise Invalid(f"{where}: {text} is no time") from None
