"""What somebody else wrote is refused: without the key, with another, and with the server's own key in wrong hands."""

from __future__ import annotations

import base64
import hashlib
import re
import string
import struct
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.forging import ONE, RETRIED, TWO, Bend, Chain, Link, a_server_writes, as_it_is, chain_of
from vole import verifier
from vole.base.errors import Invalid
from vole.git.records.sshsig import public_blob, sign

pytestmark = pytest.mark.needs("git")
RUN = "runs/000/001/run.json"
ORDER = 2**252 + 27742317777372353535851937790883648493  # of ed25519's group
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
Forge = Callable[[Chain], object]


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return a_server_writes(tmp_path_factory.mktemp("honest") / "server")


def verdict(chain: Chain, seen: str | None = None, name: str = "app"):
    keys = verifier.signers(chain.signers, "signers")
    return verifier.verify(verifier.Objects(chain.path), name, keys, verifier.Evidence(None), seen)


# ---- whoever has no key


def nobody(*, keeps_signature: bool = True, **files: bytes) -> Forge:
    """The last commit has other files, whose names are given with `_` for `/`."""

    def forge(chain: Chain) -> None:
        chain.last.files |= {place.replace("_", "/") + ".json": data for place, data in files.items()}
        if not keeps_signature:
            chain.last.armour = b""

    return forge


def says_green(chain: Chain) -> None:
    for link in chain.links:
        link.files[ONE] = link.files[ONE].replace(b"failure", b"success")


def takes_away(chain: Chain) -> None:
    for link in chain.links:
        link.files.pop(TWO, None)


def last(change: Callable[[Link], object]) -> Forge:
    return lambda chain: change(chain.last)


def stranger(chain: Chain, *, lists_itself: bool) -> None:
    for link in chain.links:
        link.key = STRANGER
        if lists_itself:
            link.files["record-signers"] = own_line(chain)
    chain.resigned()


def own_line(chain: Chain) -> bytes:
    key = base64.b64encode(public_blob(STRANGER))
    return re.sub(rb"ssh-ed25519 \S+", b"ssh-ed25519 " + key, chain.links[0].files["record-signers"])


def hidden_header(link: Link) -> None:
    link.commit = lambda data: data.replace(b"\ngpgsig", b"\nencoding latin-1\ngpgsig")


def trailing(link: Link) -> None:
    link.commit = lambda data: data + b"and more"


# ---- signatures of the right key in other forms


def packed(*fields: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(field)) + field for field in fields)


def other_signature(
    *, namespace: bytes = b"git", reserved: bytes = b"", hashed: str = "sha512", version: int = 1, tail: bytes = b"",
    columns: int = 70, adds: int = 0, shown: Ed25519PrivateKey | None = None,
) -> Forge:  # fmt: skip
    """A signature that any careless reader takes: true of what it says, in another form than the one there is."""

    def signed(key: Ed25519PrivateKey, payload: bytes) -> str:
        digest = hashlib.new(hashed, payload).digest()
        raw = key.sign(b"SSHSIG" + packed(namespace, reserved, hashed.encode(), digest))
        scalar = int.from_bytes(raw[32:], "little") + adds
        raw = raw[:32] + scalar.to_bytes(32, "little")
        parts = packed(public_blob(shown or key), namespace, reserved, hashed.encode(), packed(b"ssh-ed25519", raw))
        text = base64.b64encode(b"SSHSIG" + struct.pack(">I", version) + parts + tail).decode()
        lines = "\n".join(text[at : at + columns] for at in range(0, len(text), columns))
        return f"-----BEGIN SSH SIGNATURE-----\n{lines}\n-----END SSH SIGNATURE-----"

    def forge(chain: Chain) -> None:
        chain.last.again()
        chain.last.signed = signed

    return forge


def loose_armour(chain: Chain) -> None:
    """Base64 with a bit set that no byte is made of."""
    chain.last.again()
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    chain.last.signed = lambda key, payload: re.sub(
        "(.)=\n-", lambda found: letters[letters.index(found[1]) + 1] + "=\n-", sign(key, payload)
    )


# ---- whoever had a key


def old_key(second: int) -> Forge:
    """The key from before the rotation signs the last commit."""

    def forge(chain: Chain) -> None:
        chain.last.key = chain.keys[0]
        chain.last.at(chain.last.second + second)
        chain.last.again()

    return forge


def dated_before_its_key(chain: Chain) -> None:
    for link in chain.links[2:]:
        link.at(chain.links[1].second)
    chain.resigned()


def signed_anew(change: Callable[[Chain], object], since: int = 0) -> Forge:
    """With the server's key, from a link on."""

    def forge(chain: Chain) -> None:
        change(chain)
        chain.resigned(since)

    return forge


def with_key(change: Callable[[Link], object]) -> Forge:
    """The last commit, with the server's key."""
    return signed_anew(last(change), -1)


def bent(old: bytes, new: bytes, place: str = ONE) -> Forge:
    return lambda chain: chain.bend(place, old, new)


def moved(old: str, new: str) -> Forge:
    return lambda chain: chain.move(old, new)


def lists(text: Callable[[bytes], bytes]) -> Forge:
    return with_key(lambda link: link.files.update({"record-signers": text(link.files["record-signers"])}))


def after_its_run(chain: Chain) -> None:
    chain.place(ONE.replace("1.json", "2.json"), chain.last.files[ONE].replace(b'"attempt":1', b'"attempt":2'), since=1)
    chain.resigned()


def another_parent(link: Link) -> None:
    link.payload = lambda data: data.replace(b"\nauthor", b"\nparent " + b"1" * 40 + b"\nauthor", 1)


def rotated(change: Bend = as_it_is) -> Forge:
    """A second rotation, as the server would do it, whose list is then changed."""

    def forge(chain: Chain) -> None:
        line = chain.signers.splitlines(keepends=True)[1]
        until = line.replace(b" ssh-", b',valid-before="20270115080125Z" ssh-')
        third = re.sub(rb"ssh-ed25519 \S+", b"ssh-ed25519 " + base64.b64encode(public_blob(STRANGER)), line)
        chain.signers = chain.signers.replace(line, until) + third
        chain.last.files["record-signers"] = change(chain.signers)
        chain.last.key = STRANGER
        chain.last.again()

    return forge


def file_for_folder(link: Link) -> None:
    for name in (ONE, RUN):
        del link.files[name]
    link.files["runs/000/001"] = b"{}"


def empty_folder(chain: Chain) -> None:
    empty = bytes.fromhex(chain.put("tree", b""))
    chain.last.trees["runs/"] = lambda data: data + b"40000 001\0" + empty
    chain.last.again()


def swapped(data: bytes) -> bytes:
    """The two entries of a root tree the other way round."""
    cut = data.index(b"40000 runs")
    return data[cut:] + data[:cut]


def twice(data: bytes) -> bytes:
    return data[: data.index(b"40000 runs")] + data


def adds_nothing(chain: Chain) -> None:
    chain.last.files = dict(chain.links[-2].files)


def unsorted(data: bytes) -> bytes:
    return re.sub(rb'"purpose":"(.*?)",(.*),"v":1}$', rb'"v":1,"purpose":"\1",\2}', data)


FORGERIES: dict[str, tuple[Forge, str]] = {
    # without the key
    "a result is changed": (says_green, "signature is not good"),
    "a record is added": (nobody(runs_000_004_run=b"{}"), "signature is not good"),
    "a record is added, unsigned": (nobody(keeps_signature=False, runs_000_004_run=b"{}"), "no signed commit"),
    "a record is taken away": (takes_away, "signature is not good"),
    "the message is changed": (last(lambda one: setattr(one, "message", b"app/3 success\n")), "signature is not good"),
    "the date is changed": (last(lambda one: one.at(one.second + 1)), "signature is not good"),
    "the signature of another commit": (
        lambda chain: setattr(chain.last, "armour", chain.links[-2].armour), "signature is not good"
    ),
    "the first commits are cut off": (lambda chain: setattr(chain.links[1], "rooted", True), "signature is not good"),
    "a commit is left out": (lambda chain: chain.links.pop(1), "signature is not good"),
    "two commits change places": (lambda chain: chain.links.insert(2, chain.links.pop()), "signature is not good"),
    "a header outside the signature": (last(hidden_header), "no signed commit"),
    "bytes behind the message": (last(trailing), "signature is not good"),
    "another key, which the records list": (lambda chain: stranger(chain, lists_itself=True), "nobody on the list"),
    "another key": (lambda chain: stranger(chain, lists_itself=False), "nobody on the list"),
    "another key for the last commit": (with_key(lambda one: setattr(one, "key", STRANGER)), "nobody on the list"),
    "another key that shows the server's": (
        lambda chain: (other_signature(shown=chain.last.key)(chain), setattr(chain.last, "key", STRANGER)),
        "signature is not good",
    ),
    # what the key signed for another purpose, or as another text
    "a signature for files": (other_signature(namespace=b"file"), "signature is not good"),
    "a signature with something reserved": (other_signature(reserved=b"x"), "signature is not good"),
    "a signature of SHA-256": (other_signature(hashed="sha256"), "signature is not good"),
    "a signature of version 2": (other_signature(version=2), "signature is not good"),
    "bytes behind the signature": (other_signature(tail=b"\0"), "signature is not good"),
    "an armour of other width": (other_signature(columns=64), "signature is not good"),
    "an armour with loose bits": (loose_armour, "signature is not good"),
    "the signature's other scalar": (other_signature(adds=ORDER), "signature is not good"),
    # a key that was replaced
    "the old key after its end": (old_key(1), "outside the time of its key"),
    "the old key in its last second": (old_key(0), "not signed by the last key"),
    "the old key, dated back": (old_key(-1), "before its parent's"),
    "the new key before its time": (dated_before_its_key, "outside the time of its key"),
    # the server's own key: the chain
    "another server's name": (
        with_key(lambda one: setattr(one, "head", one.head.replace(b"records@0", b"records@1"))), "nobody on the list"
    ),
    "an author who did not commit": (
        with_key(lambda one: setattr(one, "head", one.head.replace(b"committer v", b"committer m"))), "no signed commit"
    ),
    "a second parent": (with_key(another_parent), "no signed commit"),
    "a commit that adds nothing": (signed_anew(adds_nothing), "adds no record"),
    "a record changes later": (
        with_key(lambda one: one.files.update({ONE: one.files[ONE].replace(b"failure", b"success")})),
        f"it changes {ONE}",
    ),
    "a record goes later": (with_key(lambda one: one.files.pop(TWO)), f"it removes {TWO.rpartition('/')[0]}/1.json"),
    "a folder of records goes later": (with_key(lambda one: [one.files.pop(name) for name in (ONE, RUN)]), "removes"),
    "a file for a folder of records": (with_key(file_for_folder), "it changes runs/000/001"),
    "a file beside the records": (with_key(lambda one: one.files.update({"README": b"hi"})), "something else than"),
    "a file between the records": (with_key(lambda one: one.files.update({"runs/README": b"hi"})), "no JSON"),
    "a record that can be run": (with_key(lambda one: one.modes.update({ONE: "100755"})), "not written as a tree"),
    "a record that is a link": (with_key(lambda one: one.modes.update({ONE: "120000"})), "not written as a tree"),
    "a record that is a repository": (with_key(lambda one: one.modes.update({ONE: "160000"})), "not written as a tree"),
    "an empty folder": (empty_folder, "runs/001 is empty"),
    "a tree out of order": (with_key(lambda one: one.trees.update({"": swapped})), "not written as a tree"),
    "a name twice in a tree": (with_key(lambda one: one.trees.update({"": twice})), "not written as a tree"),
    "bytes behind a tree": (
        with_key(lambda one: one.trees.update({"": lambda data: data + b"100644 x"})), "not written as a tree"
    ),
    "no list of signers": (with_key(lambda one: one.files.pop("record-signers")), "something else than"),
    "a list without the old key": (lists(lambda text: text.partition(b"\n")[2]), "another way than by a rotation"),
    "a list that opens the old key's time": (
        lists(lambda text: re.sub(rb',valid-before="\d+Z"', b"", text)), "another way than by a rotation"
    ),
    "a rotation that moves an older key's end": (
        rotated(lambda text: text.replace(b"080125Z", b"090125Z", 1)), "another way than by a rotation"
    ),
    "a rotation that moves a key's beginning": (
        rotated(lambda text: text.replace(b'after="20270115080125Z",', b'after="20270115080124Z",')),
        "another way than by a rotation",
    ),
    "a list that goes on while its last key signs": (
        lists(lambda text: text + text.partition(b"\n")[0] + b"\n"), "another way than by a rotation"
    ),
    # the server's own key: the documents
    "bytes behind the document": (bent(b'"v":1}', b'"v":1}\n'), "not canonical"),
    "a second document behind it": (bent(b'"v":1}', b'"v":1}{}'), "no JSON"),
    "a blank": (bent(b'"v":1', b'"v": 1'), "not canonical"),
    "an order of its own": (
        signed_anew(lambda chain: chain.place(ONE, unsorted(chain.last.files[ONE]))), "not canonical"
    ),
    "a key twice": (bent(b'"v":1}', b'"v":1,"v":1}'), "not canonical"),
    "an escape that need not be": (bent(b"mac-1", b"\\u006dac-1"), "not canonical"),
    "half a character": (bent("ü".encode(), b"\xc3"), "no JSON in UTF-8"),
    "a lone surrogate": (bent("ü".encode(), b"\\ud800"), "no JSON in UTF-8"),
    "a deep nest": (bent(b'"marks":[', b'"marks":[' + b"[" * 100_000 + b"]" * 100_000 + b","), "no JSON"),
    "a fraction": (bent(b'"run":1', b'"run":1.0'), "run is no whole number"),
    "not a number": (bent(b'"run":1', b'"run":NaN'), "run is no whole number"),
    "a truth for a number": (bent(b'"run":1', b'"run":true'), "run is no whole number"),
    "a number too big": (bent(b'"offset":0', b'"offset":9007199254740992'), "offset is no whole number below"),
    "a null": (bent(b'"summary":"# no"', b'"summary":null'), "summary is no text"),
    "an unknown field outside": (bent(b'"v":1}', b'"v":1,"w":1}'), "document has the unknown field 'w'"),
    "an unknown field": (bent(b',"workflow_path"', b',"workflow_new":1,"workflow_path"'), "the unknown field"),
    "an unknown field within": (bent(b',"version":"0"', b',"version":"0","x":1'), "runner has the unknown field 'x'"),
    "an unknown detail of an event": (bent(b'"number":1,', b'"nought":1,', RUN), "the unknown field 'nought'"),
    "a field that is missing": (bent(b',"truncated":false', b""), "lacks the field 'truncated'"),
    "another version": (bent(b'"v":1}', b'"v":2}'), "v is none of 1"),
    "another purpose": (bent(b"vole attempt record", b"vole gate record"), "purpose is none of"),
    "the other purpose": (bent(b"vole attempt record", b"vole run record"), "the unknown field"),
    "another repository": (bent(b'"repository":"app"', b'"repository":"web"'), "a record of web, not of app"),
    "another run": (moved(ONE, "runs/000/004/test/1.json"), "does not belong at this place"),
    "another attempt": (moved(ONE, "runs/000/001/test/2.json"), "does not belong at this place"),
    "another job": (moved(ONE, "runs/000/001/best/1.json"), "does not belong at this place"),
    "a number that is not padded": (moved(ONE, "runs/0/1/test/1.json"), "does not belong at this place"),
    "a run's record at an attempt's place": (moved(RUN, "runs/000/001/test/2.json"), "does not belong at this place"),
    "a job key that climbs": (bent(b'"job":"test"', b'"job":"../x"'), "job is no job key"),
    "a run of other jobs": (bent(b'"key":"test"', b'"key":"best"', RUN), "contradicts the record of test@1"),
    "a run with a job twice": (bent(b'"key":"after"', b'"key":"test"', RUN), "a job twice"),
    "a run of other attempts": (bent(b'"epochs":[1]', b'"epochs":[2]', RUN), "contradicts the record of test@1"),
    "a run that ended otherwise": (bent(b'"reason":"exit 1"},"q', b'"reason":"exit 2"},"q', RUN), "contradicts"),
    "a run of another commit": (bent(b'"commit":"1', b'"commit":"3', RUN), "contradicts the record of test@1"),
    "an attempt after its run": (after_its_run, "came after the record of its run"),
    "an attempt that is told twice": (
        lambda chain: [chain.place(RETRIED, chain.last.files[TWO], since=2), chain.resigned(2)],
        "does not belong at this place",
    ),
}  # fmt: skip


def test_the_chain_as_it_is_verifies(honest, tmp_path):
    chain = chain_of(honest, tmp_path)
    tip = chain.write()

    found = verdict(chain)

    assert (found.tip, found.commits, found.attempts, found.runs) == (tip, 4, 3, 3)
    assert list(found.keys.values()) == [2, 2]
    resigned = chain_of(honest, tmp_path)
    resigned.resigned()
    assert resigned.write() == tip
    rotated()(resigned)
    resigned.write()
    assert list(verdict(resigned).keys.values()) == [2, 1, 1]


@pytest.mark.proves("SR-40", "SR-42")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(honest, tmp_path, name):
    forge, why = FORGERIES[name]
    chain = chain_of(honest, tmp_path)
    forge(chain)
    chain.write()

    with pytest.raises(Invalid, match=f"commit [0-9a-f]{{10}}: .*{re.escape(why)}"):
        verdict(chain)


@pytest.mark.proves("SR-42")
def test_the_records_of_another_repository_are_refused_whole(honest, tmp_path):
    chain = chain_of(honest, tmp_path)
    chain.write()

    with pytest.raises(Invalid, match="it is a record of app, not of web"):
        verdict(chain, name="web")


@pytest.mark.proves("I-38", "SR-42")
def test_a_chain_that_was_cut_back_does_not_lead_to_what_was_seen(honest, tmp_path):
    chain = chain_of(honest, tmp_path)
    tip = chain.write()

    assert verdict(chain, seen=chain.written[0]).tip == tip
    chain.points_at(chain.written[-2])
    assert verdict(chain).runs == 2
    with pytest.raises(Invalid, match="records were taken away"):
        verdict(chain, seen=tip[:10])


def test_an_object_that_is_missing_or_of_another_kind_is_said(honest, tmp_path):
    chain = chain_of(honest, tmp_path)
    tip = chain.write()

    blob = chain.put("blob", b"x")
    chain.points_at(blob)
    with pytest.raises(Invalid, match=f"{blob} is no commit"):
        verdict(chain)
    chain.points_at(tip)
    (chain.path / "objects" / chain.written[0][:2] / chain.written[0][2:]).unlink()
    with pytest.raises(Invalid, match=f"commit {chain.written[0]} is missing"):
        verdict(chain)
