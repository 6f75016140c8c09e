"""OpenSSH public key lines, as people paste them. Pure; never checks a signature."""

from __future__ import annotations

import base64
import binascii
import hashlib

from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.people.model import PublicKey

LINE_CHARS_MAX = 8_192  # a 16384-bit RSA key has 2,800
COMMENT_CHARS_MAX = 200
RSA_BITS_MIN = 2_048

# Number of fields after the algorithm name (RFC 4253, 5656, 8709; PROTOCOL.u2f).
_FIELDS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
_NEXT_STEP = "paste the line of a .pub file: ssh-keygen -t ed25519 makes one"


def parse(line: str) -> PublicKey:
    """The key in `line`. Raises Invalid for options, certificates, private keys, weak or broken keys."""
    words = line.strip().split(None, 2)
    if len(line) > LINE_CHARS_MAX or len(words) < 2 or "PRIVATE KEY" in line:
        raise Invalid("that is no public key line", next_step=_NEXT_STEP)
    algorithm, encoded = words[0], words[1]
    if algorithm not in _FIELDS:
        raise Invalid(
            f"{visible(algorithm, 80)!r} is no key type that vole takes (options before it are not taken either); "
            f"use {', '.join(_FIELDS)}",
            next_step=_NEXT_STEP,
        )
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("the key's base64 is broken; was a part of the line lost?", next_step=_NEXT_STEP) from None
    _check(algorithm, blob)
    comment = visible(words[2], COMMENT_CHARS_MAX) if len(words) == 3 else ""
    return PublicKey(algorithm, f"{algorithm} {base64.b64encode(blob).decode()}", fingerprint(blob), comment)


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a key's wire form, as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _check(algorithm: str, blob: bytes) -> None:
    fields = _strings(blob)
    if len(fields) != 1 + _FIELDS[algorithm] or fields[0] != algorithm.encode():
        raise Invalid(f"the key's content is no {algorithm} key; was a part of the line lost?", next_step=_NEXT_STEP)
    if algorithm == "ssh-rsa" and (bits := int.from_bytes(fields[2], "big").bit_length()) < RSA_BITS_MIN:
        raise Invalid(f"an RSA key of {bits} bits is too weak; at least {RSA_BITS_MIN}", next_step=_NEXT_STEP)
    if algorithm.endswith("ed25519") and len(fields[1]) != 32:
        raise Invalid("an Ed25519 key has 32 bytes; was a part of the line lost?", next_step=_NEXT_STEP)


def _strings(blob: bytes) -> list[bytes]:
    """The length-prefixed strings that make up `blob`, or none when they do not fill it exactly."""
    found, at = [], 0
    while at + 4 <= len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        found.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    return found if at == len(blob) else []
