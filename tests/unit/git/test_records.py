"""The record key, its signatures, and the chain of commits: judged by git and ssh-keygen."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from vole.base.clock import Moment, seconds
from vole.base.errors import Conflict, Invalid, NotFound
from vole.base.ids import RepoName
from vole.git import records, storage
from vole.git.records import RUNS, RecordKeys, Stamp, append, commits
from vole.git.storage import Storage

pytestmark = pytest.mark.needs("git", "ssh")
NOW = Moment(seconds(1_800_000_000))
DEPLOYMENT = "0123456789abcdef" * 2
ONE, TWO = {"runs/000/001/a/1.json": b"{}"}, {"runs/000/001/b/1.json": b"[]", "runs/000/001/run.json": b"1"}


def at(second: int) -> Moment:
    return Moment(NOW + seconds(second))


@pytest.fixture
def path(tmp_path):
    store = Storage(tmp_path / "repos")
    (tmp_path / "repos").mkdir()
    yield store.create(RepoName("app"))
    store.close()


@pytest.fixture
def ring(tmp_path):
    return RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, NOW)


def git(path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/"}
    return subprocess.run(["git", "-C", path, *words], capture_output=True, text=True, check=False, env=plain | env)


def verifies(path, ring: RecordKeys, commit: str = RUNS) -> bool:
    signers = path.parent / "signers"
    signers.write_bytes(ring.allowed_signers)
    return git(path, "-c", f"gpg.ssh.allowedSignersFile={signers}", "verify-commit", commit).returncode == 0


def chain(path) -> list[str]:
    return git(path, "rev-list", "--first-parent", RUNS).stdout.split()


def files(path, commit: str = RUNS) -> set[str]:
    return set(git(path, "ls-tree", "-r", "--name-only", commit).stdout.split())


def is_whole(path) -> bool:
    """git finds nothing missing, odd or left over."""
    checked = git(path, "fsck", "--strict", "--full")
    return checked.returncode == 0 and not checked.stdout and "error" not in checked.stderr


def another_server(tmp_path) -> RecordKeys:
    (tmp_path / "other").mkdir()
    return RecordKeys.open(tmp_path / "other" / "record_ed25519", DEPLOYMENT, NOW)


# ---- the chain


@pytest.mark.proves("I-38", "SR-39")
def test_each_commit_stands_on_the_former_tip_and_only_adds(path, ring):
    first = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))
    second = append(path, RUNS, TWO, ring, Stamp("two\n", at(1)))

    assert chain(path) == [second, first]
    assert git(path, "diff-tree", "-r", "--name-status", first, second).stdout.split() == [
        "A", "runs/000/001/b/1.json", "A", "runs/000/001/run.json",
    ]  # fmt: skip
    assert files(path) == {*ONE, *TWO, "record-signers"}
    assert verifies(path, ring, first)
    assert verifies(path, ring, second)
    assert is_whole(path)


@pytest.mark.proves("I-36", "I-38")
def test_what_stands_there_is_not_written_again_whatever_it_would_say_now(path, ring):
    tip = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))

    assert append(path, RUNS, ONE, ring, Stamp("again\n", at(5))) == tip
    other = append(path, RUNS, {**dict.fromkeys(ONE, b"forged"), **TWO}, ring, Stamp("more\n", at(6)))

    assert chain(path) == [other, tip]
    assert git(path, "cat-file", "blob", f"{RUNS}:runs/000/001/a/1.json").stdout == "{}"


@pytest.mark.proves("SR-39")
def test_a_ref_that_somebody_else_moved_or_holds_is_left_as_it_is(path, ring):
    tip = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))
    repository = storage.open_repository(path)

    with pytest.raises(Conflict, match="moved"):
        commits.move_ref(repository, RUNS, None, tip)
    (path / f"{RUNS}.lock").touch()
    with pytest.raises(Conflict, match="locked"):
        append(path, RUNS, TWO, ring, Stamp("two\n", at(1)))

    assert chain(path) == [tip]
    assert (path / f"{RUNS}.lock").exists()


def test_packed_refs_and_packed_objects_are_gone_on_from(path, ring):
    tip = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))
    git(path, "pack-refs", "--all")
    git(path, "repack", "-adq")

    after = append(path, RUNS, TWO, ring, Stamp("two\n", at(1)))

    assert chain(path) == [after, tip]
    assert is_whole(path)


def test_an_object_that_a_death_left_half_written_is_written_whole(path, ring):
    ident = "9e26dfeeb6e641a33dae4961196235bdb965b21b"  # of `{}`
    (path / "objects/9e").mkdir()
    (path / f"objects/9e/tmp_obj_{ident}").write_bytes(b"half")
    (path / f"objects/9e/tmp_obj_{ident}").chmod(0o444)

    append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))

    assert is_whole(path)
    assert not list(path.glob("objects/*/tmp_obj_*"))


def test_times_never_go_back_along_the_chain(path, ring):
    append(path, RUNS, ONE, ring, Stamp("one\n", at(100)))

    append(path, RUNS, TWO, ring, Stamp("two\n", at(3)))

    assert git(path, "log", "--format=%ct", RUNS).stdout.split() == [str(1_800_000_100)] * 2


def test_the_message_says_whose_records_they_are(path, ring):
    append(path, RUNS, ONE, ring, Stamp("app/1/a@1 success\n", at(0)))

    shown = git(path, "log", "-1", "--format=%s|%cn <%ce>|%an <%ae>", RUNS).stdout.strip()
    assert shown == f"app/1/a@1 success|vole <records@{DEPLOYMENT}>|vole <records@{DEPLOYMENT}>"


def test_a_repository_that_is_gone_takes_no_records(tmp_path, ring):
    with pytest.raises(NotFound):
        append(tmp_path / "gone.git", RUNS, ONE, ring, Stamp("one\n", at(0)))


# ---- signatures


def test_another_key_and_one_changed_byte_verify_nothing(path, ring, tmp_path):
    tip = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))
    raw = git(path, "cat-file", "commit", tip).stdout
    changed = subprocess.run(
        ["git", "-C", path, "hash-object", "-t", "commit", "-w", "--stdin"],
        input=raw.replace("\none\n", "\nOne\n"), capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip

    assert verifies(path, ring, tip)
    assert changed != tip
    assert not verifies(path, ring, changed)
    assert not verifies(path, another_server(tmp_path), tip)


# ---- the key


@pytest.mark.proves("SR-41")
def test_the_key_is_a_private_file_that_ssh_keygen_reads_and_the_list_is_public(tmp_path, ring):
    private = tmp_path / "record_ed25519"
    shown = subprocess.run(["ssh-keygen", "-lf", private], capture_output=True, text=True, check=True).stdout

    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert ring.current.fingerprint in shown
    assert records.fingerprint_of(private) == ring.current.fingerprint
    assert re.fullmatch(
        rf'records@{DEPLOYMENT} namespaces="git" ssh-ed25519 \S+\n', (tmp_path / "record_signers").read_text()
    )


def test_a_key_that_others_can_read_signs_nothing(tmp_path, ring):
    (tmp_path / "record_ed25519").chmod(0o640)

    with pytest.raises(Invalid, match="can be read by others"):
        RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, NOW)


@pytest.mark.proves("SR-41")
def test_rotation_keeps_old_records_valid_and_the_old_key_signs_nothing_new(path, ring, tmp_path):
    old = RecordKeys(tmp_path / "unused", ring._private, ring.signers)
    before = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))

    ring.rotate(at(10))
    after = append(path, RUNS, TWO, ring, Stamp("two\n", at(10)))
    late = append(path, RUNS, {"runs/000/002/run.json": b"2"}, old, Stamp("by a thief\n", at(11)))

    assert [signer.before_s for signer in ring.signers] == [1_800_000_010, None]
    assert [signer.after_s for signer in ring.signers] == [None, 1_800_000_010]
    assert [verifies(path, ring, commit) for commit in (before, after, late)] == [True, True, False]
    assert git(path, "cat-file", "blob", f"{after}:record-signers").stdout.encode() == ring.allowed_signers
    again = RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, at(20))
    assert (again.signers, again.current.key) == (ring.signers, ring.current.key)


@pytest.mark.proves("SR-41")
@pytest.mark.parametrize(("steps", "happened"), [(0, False), (1, False), (2, True)])
def test_a_rotation_that_is_cut_short_happened_or_did_not(tmp_path, ring, monkeypatch, steps, happened):
    """Each file is put in its place by one `Path.replace`: key, list, and the key once more."""
    private, former, replace, done = tmp_path / "record_ed25519", ring.current, Path.replace, []

    def dying(path, target):
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(replace(path, target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            ring.rotate(at(10))

    again = RecordKeys.open(private, DEPLOYMENT, at(20))
    assert (again.current.key != former.key) == happened
    assert records.fingerprint_of(private) == again.current.fingerprint
    assert not list(tmp_path.glob("*.next"))


def test_a_lost_key_is_followed_by_another_and_its_records_stay_valid(path, ring, tmp_path):
    tip = append(path, RUNS, ONE, ring, Stamp("one\n", at(0)))
    (tmp_path / "record_ed25519").unlink()

    again = RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, at(10))

    assert len(again.signers) == 2
    assert verifies(path, again, tip)


def test_files_that_do_not_belong_together_are_refused(tmp_path, ring):
    own, signers = ring.allowed_signers, tmp_path / "record_signers"

    signers.write_bytes(another_server(tmp_path).allowed_signers)
    with pytest.raises(Invalid, match="is not the last key of record_signers"):
        RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, NOW)
    signers.write_bytes(own + b"nonsense\n")
    with pytest.raises(Invalid, match="record_signers:2: no line of record signers"):
        RecordKeys.open(tmp_path / "record_ed25519", DEPLOYMENT, NOW)
