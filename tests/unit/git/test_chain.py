"""A record counts only where a signed commit of the chain brought it."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.git.gitrepo import GitRepo
from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Exhausted, Invalid, NotFound
from vole.git.records import RUNS, Chain, RecordKeys, Stamp, append

PLACE, OTHER = "runs/000/001/test/1.json", "runs/000/002/test/1.json"
NOW = Moment(1_800_000_000_000_000)


@pytest.fixture
def repo(tmp_path):
    return GitRepo(tmp_path / "app.git")


@pytest.fixture
def keys(tmp_path):
    return RecordKeys.open(tmp_path / "record_ed25519", "0" * 32, NOW)


def write(repo, keys, place=PLACE, data=b"good", now=NOW):
    return append(repo.path, RUNS, {place: data}, keys, Stamp("a record\n", now))


def committed(repo, place, data, *, parents=(), sign=None, when="1800000000 +0000"):
    """A commit with one more file, written by hand; `sign`: makes its signature from its bytes."""
    blob = repo.git("hash-object", "-w", "--stdin", stdin=data)
    env = {"GIT_INDEX_FILE": str(repo.path / "by-hand.index")}
    base = ["git", "-C", str(repo.path)]
    if parents:
        subprocess.run([*base, "read-tree", parents[0]], check=True, env={**_env(), **env})
    else:
        subprocess.run([*base, "read-tree", "--empty"], check=True, env={**_env(), **env})
    subprocess.run(
        [*base, "update-index", "--add", "--cacheinfo", f"100644,{blob},{place}"], check=True, env={**_env(), **env}
    )
    tree = subprocess.run([*base, "write-tree"], check=True, env={**_env(), **env}, capture_output=True).stdout.decode()
    head = f"tree {tree.strip()}\n" + "".join(f"parent {parent}\n" for parent in parents)
    who = f"vole <records@x> {when}"
    head += f"author {who}\ncommitter {who}\n"
    signed = "" if sign is None else "gpgsig " + sign(f"{head}\nby hand\n".encode()).replace("\n", "\n ") + "\n"
    commit = repo.git("hash-object", "-w", "-t", "commit", "--stdin", stdin=f"{head}{signed}\nby hand\n".encode())
    repo.git("update-ref", RUNS, commit)
    return commit


def _env():
    return {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent"}


def test_a_record_is_found_with_the_commit_that_brought_it(repo, keys):
    first = write(repo, keys)
    write(repo, keys, OTHER, b"later")

    found = Chain(repo.path, keys.signers).find(PLACE)

    assert (found.commit, found.data) == (first, b"good")


def test_what_is_not_there_is_not_found(repo, keys):
    with pytest.raises(NotFound):
        Chain(repo.path, keys.signers).find(PLACE)
    write(repo, keys)
    with pytest.raises(NotFound):
        Chain(repo.path, keys.signers).find(OTHER)


@pytest.mark.proves("I-40")
def test_a_commit_that_no_key_of_the_server_signed_proves_nothing(repo, keys, tmp_path):
    tip = write(repo, keys)
    (tmp_path / "elsewhere").mkdir()
    stranger = RecordKeys.open(tmp_path / "elsewhere" / "record_ed25519", "1" * 32, NOW)

    for sign, why in (
        (None, "not signed"),
        (stranger.sign, "no record key of this server"),
        (lambda _: keys.sign(b"something else"), "no record key of this server"),
        (lambda data: keys.sign(data).replace("SSH SIGNATURE", "PGP SIGNATURE"), "no record key|not signed"),
        (lambda data: keys.sign(data)[:-40] + keys.sign(data)[-39:], "no record key"),
    ):
        committed(repo, OTHER, b"forged", parents=(tip,), sign=sign)
        with pytest.raises(Invalid, match=why):
            Chain(repo.path, keys.signers).find(OTHER)
        # The server goes on above it, and vouches only for what it brings itself.
        write(repo, keys, "runs/000/003/run.json")
        with pytest.raises(Invalid, match=why):
            Chain(repo.path, keys.signers).find(OTHER)
        assert Chain(repo.path, keys.signers).find(PLACE).commit == tip


@pytest.mark.proves("I-40")
def test_a_record_that_was_changed_later_has_the_voucher_of_the_change(repo, keys):
    tip = write(repo, keys)
    committed(repo, PLACE, b"changed", parents=(tip,))

    with pytest.raises(Invalid, match="not signed"):
        Chain(repo.path, keys.signers).find(PLACE)


def test_a_well_signed_commit_by_hand_is_one_of_the_server(repo, keys):
    commit = committed(repo, PLACE, b"good", sign=keys.sign)

    assert Chain(repo.path, keys.signers).find(PLACE).commit == commit


def test_a_chain_has_no_second_parent(repo, keys):
    first, second = write(repo, keys), write(repo, keys, OTHER)
    committed(repo, "runs/000/003/run.json", b"x", parents=(second, first), sign=keys.sign)

    with pytest.raises(Invalid, match="several parents"):
        Chain(repo.path, keys.signers).find(PLACE)


def test_a_rotated_key_signs_nothing_new_and_vouches_for_what_it_signed(repo, keys):
    former = keys.sign.__self__._private
    tip = write(repo, keys)
    keys.rotate(Moment(NOW + 10_000_000))
    later = write(repo, keys, OTHER, now=Moment(NOW + 20_000_000))

    assert Chain(repo.path, keys.signers).find(PLACE).commit == tip
    assert Chain(repo.path, keys.signers).find(OTHER).commit == later
    keys._private = former
    committed(repo, "runs/000/003/run.json", b"x", parents=(later,), sign=keys.sign, when="1800000030 +0000")
    with pytest.raises(Invalid, match="outside the time of its key"):
        Chain(repo.path, keys.signers).find("runs/000/003/run.json")


def test_each_record_of_a_long_chain_is_found_where_it_came(repo, keys):
    places = [f"runs/000/{number:03d}/test/1.json" for number in range(1, 24)]
    commits = [write(repo, keys, place) for place in places]
    chain = Chain(repo.path, keys.signers)

    assert [chain.find(place).commit for place in places] == commits


def test_the_way_back_is_bounded(repo, keys, monkeypatch):
    places = [f"runs/000/{number:03d}/test/1.json" for number in range(1, 7)]
    for place in places:
        write(repo, keys, place)
    monkeypatch.setattr(limits, "RECORD_CHAIN_MAX", 4)

    assert Chain(repo.path, keys.signers).find(places[2])  # three commits back
    with pytest.raises(Exhausted, match="RECORD_CHAIN_MAX"):
        Chain(repo.path, keys.signers).find(places[1])
