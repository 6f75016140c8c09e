"""Signatures in the SSH format that git and ssh-keygen verify: OpenSSH's PROTOCOL.sshsig, ed25519, namespace `git`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAGIC, _VERSION = b"SSHSIG", 1
_NAMESPACE, _RESERVED, _HASH = b"git", b"", b"sha512"
_ALGORITHM = b"ssh-ed25519"
_LINE = 70
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_KEY_HEAD = struct.pack(">I", len(_ALGORITHM)) + _ALGORITHM + struct.pack(">I", 32)
_SIGNATURE_HEAD = struct.pack(">I", len(_ALGORITHM)) + _ALGORITHM + struct.pack(">I", 64)


def sign(key: Ed25519PrivateKey, message: bytes) -> str:
    """The armoured signature of `message`, without a newline at its end."""
    signature = _string(_ALGORITHM) + _string(key.sign(_signed(message)))
    blob = _blob(public_blob(key), signature)
    text = base64.b64encode(blob).decode()
    body = "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return f"{_BEGIN}\n{body}\n{_END}"


def signer_of(armoured: str, message: bytes) -> str | None:
    """The key, in base64 of its wire form, that signed `message` as `sign` does; None for any other signature."""
    lines = armoured.strip().splitlines()
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError):
        return None
    empty = _blob(_KEY_HEAD + bytes(32), _SIGNATURE_HEAD + bytes(64))
    at = len(_MAGIC) + 4 + 4 + len(_KEY_HEAD)
    key, signature = blob[at : at + 32], blob[-64:]
    # Made again from its two parts: whatever else stood in it would show.
    if len(blob) != len(empty) or blob != _blob(_KEY_HEAD + key, _SIGNATURE_HEAD + signature):
        return None
    if (lines[0], lines[-1]) != (_BEGIN, _END):
        return None
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _signed(message))
    except InvalidSignature:
        return None
    return base64.b64encode(_KEY_HEAD + key).decode()


def public_blob(key: Ed25519PrivateKey) -> bytes:
    """The public half in SSH's wire form (RFC 8709)."""
    return _string(_ALGORITHM) + _string(key.public_key().public_bytes_raw())


def _signed(message: bytes) -> bytes:
    return _MAGIC + b"".join(map(_string, (_NAMESPACE, _RESERVED, _HASH, hashlib.sha512(message).digest())))


def _blob(key: bytes, signature: bytes) -> bytes:
    fields = (key, _NAMESPACE, _RESERVED, _HASH, signature)
    return _MAGIC + struct.pack(">I", _VERSION) + b"".join(map(_string, fields))


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
