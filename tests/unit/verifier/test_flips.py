"""One byte is another one: of a document, of a commit, of a tree, of a log. It is found wherever it is."""

from __future__ import annotations

import hashlib
import re
import shutil

import pytest

from tests.forging import LOG, MADE, ONE, Chain, a_server_writes, chain_of
from vole import verifier
from vole.base.errors import Invalid, NotFound

pytestmark = pytest.mark.needs("git")
FLIPS = (0x01, 0x20, 0xFF)  # another digit or letter, the other case, whatever


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return a_server_writes(tmp_path_factory.mktemp("honest") / "server")


@pytest.fixture
def chain(honest, tmp_path):
    found = chain_of(honest, tmp_path)
    found.links = found.links[:1]
    found.write()
    return found


def is_good(chain: Chain) -> bool:
    keys = verifier.signers(chain.signers, "signers")
    try:
        verifier.verify(verifier.Objects(chain.path), "app", keys, verifier.Evidence(None), None)
    except Invalid:
        return False
    return True


def flipped(data: bytes, each: int = len(FLIPS)):
    """Every byte in turn, flipped in `each` ways."""
    for at in range(len(data)):
        for flip in [FLIPS[(at + more) % len(FLIPS)] for more in range(each)]:
            yield at, data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]


def stored(chain: Chain, ident: str) -> tuple[str, bytes]:
    return verifier.Objects(chain.path)._repository.odb.read(ident)


@pytest.mark.proves("SR-42")
@pytest.mark.parametrize("place", [ONE, "runs/000/001/run.json"])
def test_every_byte_of_a_document_is_signed(chain, place):
    """Everything above it is made again for it: only the signature cannot be."""
    whole = chain.links[0].files[place]
    assert is_good(chain)

    for at, data in flipped(whole, each=1):
        chain.links[0].files[place] = data
        chain.write()
        assert not is_good(chain), f"byte {at} of {len(whole)}"

    chain.links[0].files[place] = whole
    chain.write()
    assert is_good(chain)


@pytest.mark.proves("SR-42")
def test_every_byte_of_a_commit_counts(chain):
    """Its signature too: there is no second way to write the same."""
    _, whole = stored(chain, chain.written[0])

    for at, data in flipped(whole):
        chain.points_at(chain.put("commit", data))
        assert not is_good(chain), f"byte {at}: {data[max(0, at - 20) : at + 20]!r}"


@pytest.mark.proves("SR-42")
@pytest.mark.parametrize("kind", ["commit", "tree", "blob"])
def test_every_byte_of_a_stored_object_counts(chain, kind):
    """Under its old name: git reads objects of packs without hashing them."""
    tree = stored(chain, chain.written[0])[1][5:45].decode()
    signers = stored(chain, tree)[1][-0:].split(b"record-signers\0")[1][:20].hex()
    ident = {"commit": chain.written[0], "tree": tree, "blob": signers}[kind]
    _, whole = stored(chain, ident)

    for at, data in flipped(whole):
        chain.put(kind, data, ident)
        assert not is_good(chain), f"byte {at} of {kind}"

    chain.put(kind, whole, ident)
    assert is_good(chain)


@pytest.mark.proves("SR-42")
@pytest.mark.parametrize("file", ["logs/app/1/test/1", "artifacts"])
def test_every_byte_of_a_file_at_hand_is_held_against_its_record(honest, tmp_path, file):
    shutil.copytree(honest.folder, tmp_path / "copy")
    place = tmp_path / "copy" / file
    if file == "artifacts":
        place = next(path for path in place.rglob("*") if path.name == hashlib.sha256(MADE).hexdigest())
    whole = place.read_bytes()
    assert whole in (LOG, MADE)
    keys = verifier.signers(honest.signers, "signers")
    objects = verifier.Objects(honest.path)

    def held() -> verifier.Evidence:
        evidence = verifier.Evidence(tmp_path / "copy")
        verifier.verify(objects, "app", keys, evidence, None)
        return evidence

    assert (held().held["logs"], held().held["artifacts"]) == (2, 1)
    for data in (*(data for _, data in flipped(whole)), whole[:-1], whole + b"\n", b""):
        place.write_bytes(data)
        with pytest.raises(Invalid, match=f"{re.escape(str(place))} is not the file that was recorded"):
            held()
    place.unlink()
    assert sum(held().absent.values()) == 1


def test_a_list_of_signers_in_another_form_is_refused_with_its_line(honest):
    line, _, rest = honest.signers.partition(b"\n")
    bad = {
        b"": "signers does not end with a whole line",
        honest.signers[:-1]: "signers does not end with a whole line",
        line + b"\n\n" + rest: "signers:2: no line",
        honest.signers.replace(b'namespaces="git"', b'namespaces="*"'): "signers:1: no line",
        honest.signers.replace(b"ssh-ed25519 AAAA", b"ssh-ed25519 BAAA"): "signers:1: no line",
        honest.signers.replace(b"\n", b"=\n"): "signers:1: no line",
        re.sub(rb'before="\d{4}', b'before="0000', honest.signers): "signers:1: 0000",
        re.sub(rb"ssh-ed25519 \S+", b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAA", honest.signers): "no ed25519 key",
    }
    for text, why in bad.items():
        with pytest.raises(Invalid, match=why):
            verifier.signers(text, "signers")


def test_where_there_is_nothing_to_verify_the_next_step_is_said(honest, tmp_path):
    with pytest.raises(NotFound, match="is no git repository"):
        verifier.Objects(tmp_path)
    (chain := chain_of(honest, tmp_path)).points_at("0" * 40)
    (chain.path / "refs/vole/runs").unlink()
    with pytest.raises(NotFound) as refusal:
        is_good(chain)
    assert refusal.value.next_step == "git fetch origin refs/vole/runs:refs/vole/runs"
