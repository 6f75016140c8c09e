from __future__ import annotations

import base64

import pytest

from vole.base.errors import Invalid
from vole.people import keys

BODY = "AAAAC3NzaC1lZDI1NTE5AAAAIG6ZkSs6Pr0fgWtRzXn7YV0nVLyFJZrLvUj5kqf3bT2s"
GOOD = f"ssh-ed25519 {BODY} ada@laptop"


def packed(*parts: bytes) -> str:
    return base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()


def test_a_key_is_kept_without_its_comment_and_the_comment_is_harmless():
    key = keys.parse(f"  ssh-ed25519 {BODY} ada \x1b[31m laptop\n")

    assert key.text == f"ssh-ed25519 {BODY}"
    assert key.comment == "ada \\x1b[31m laptop"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ssh-ed25519",
        BODY,
        f'command="id" ssh-ed25519 {BODY}',
        f"no-pty {GOOD}",
        f"ssh-ed25519 {BODY[:-4]}",
        f"ssh-ed25519 {BODY}AAAA",
        f"ssh-ed25519 {BODY[:-2]}!!",
        f"ssh-rsa {BODY}",
        f"ssh-dss {packed(b'ssh-dss', b'1', b'2', b'3', b'4')}",
        f"ssh-rsa {packed(b'ssh-rsa', b'1', bytes([1]) * 128)}",
        f"ssh-ed25519 {packed(b'ssh-ed25519', b'x' * 31)}",
        f"ssh-ed25519-cert-v01@openssh.com {BODY}",
        "-----BEGIN OPENSSH PRIVATE KEY----- x",
        "x" * 9000,
    ],
)
def test_what_is_no_plain_public_key_is_refused_with_the_way_to_get_one(line):
    with pytest.raises(Invalid) as refused:
        keys.parse(line)

    assert "ssh-keygen" in refused.value.lines[-1]
