"""Signatures in the SSH format that git and ssh-keygen verify: OpenSSH's PROTOCOL.sshsig, ed25519, namespace `git`."""

from __future__ import annotations

import base64
import hashlib
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MAGIC, _VERSION = b"SSHSIG", 1
_NAMESPACE, _RESERVED, _HASH = b"git", b"", b"sha512"
_ALGORITHM = b"ssh-ed25519"
_LINE = 70


def sign(key: Ed25519PrivateKey, message: bytes) -> str:
    """The armoured signature of `message`, without a newline at its end."""
    digest = hashlib.sha512(message).digest()
    signed = _MAGIC + b"".join(map(_string, (_NAMESPACE, _RESERVED, _HASH, digest)))
    signature = _string(_ALGORITHM) + _string(key.sign(signed))
    fields = (public_blob(key), _NAMESPACE, _RESERVED, _HASH, signature)
    blob = _MAGIC + struct.pack(">I", _VERSION) + b"".join(map(_string, fields))
    text = base64.b64encode(blob).decode()
    body = "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return f"-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----"


def public_blob(key: Ed25519PrivateKey) -> bytes:
    """The public half in SSH's wire form (RFC 8709)."""
    return _string(_ALGORITHM) + _string(key.public_key().public_bytes_raw())


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
