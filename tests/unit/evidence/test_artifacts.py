from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest

from vole.base import limits
from vole.base.errors import Conflict, Exhausted, Invalid, NotFound, Unavailable
from vole.base.ids import Epoch, JobId, RepoId
from vole.evidence import artifacts
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.model import Upload, WrongOffset, check_file
from vole.wire.runner import ArtifactFile

DATA = b"the build"
SHA = hashlib.sha256(DATA).hexdigest()


def a_file(**more):
    return ArtifactFile(**{"name": "dist", "path": "out/a.txt", "size": len(DATA), "sha256": SHA, **more})


def an_upload(*, repo=1, job=5, epoch=1, **more):
    return Upload(RepoId(repo), JobId(job), Epoch(epoch), a_file(**more))


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


def test_a_file_comes_in_pieces_and_goes_on_where_it_stopped(store, tmp_path):
    assert store.begin(an_upload()) == 0
    store.append(an_upload(), 0, DATA[:4])
    again = ArtifactStore(tmp_path / "artifacts")

    assert again.begin(an_upload()) == 4
    again.append(an_upload(), 4, DATA[4:])
    again.commit(an_upload())

    assert again.path(RepoId(1), SHA).read_bytes() == DATA
    assert again.has(RepoId(1), SHA, len(DATA))


def test_a_piece_for_another_place_is_answered_with_the_right_one(store):
    store.append(an_upload(), 0, DATA[:4])

    with pytest.raises(WrongOffset) as refused:
        store.append(an_upload(), 2, b"zz")

    assert refused.value.offset == 4


def test_a_file_that_could_not_be_made_durable_is_thrown_away_and_sent_again(store, monkeypatch):
    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    store.append(an_upload(), 0, DATA)
    with monkeypatch.context() as patch:
        patch.setattr(artifacts.os, "fsync", fails)
        with pytest.raises(Unavailable, match="cannot be written just now: Input/output error"):
            store.commit(an_upload())

    assert store.begin(an_upload()) == 0
    store.append(an_upload(), 0, DATA)
    store.commit(an_upload())
    assert store.has(RepoId(1), SHA, len(DATA))


def test_a_disk_without_room_for_a_folder_costs_no_byte_that_is_here(store, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    store.append(an_upload(), 0, DATA)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(Unavailable, match="No space left"):
            store.commit(an_upload())
        with pytest.raises(Unavailable, match="No space left"):
            store.append(an_upload(job=6), 0, DATA)

    store.commit(an_upload())
    assert store.has(RepoId(1), SHA, len(DATA))


def test_other_bytes_than_were_declared_are_no_artifact_and_are_thrown_away(store):
    store.append(an_upload(), 0, b"x" * len(DATA))

    with pytest.raises(Conflict, match="SHA-256"):
        store.commit(an_upload())

    assert not store.has(RepoId(1), SHA, len(DATA))
    assert store.begin(an_upload()) == 0


def test_a_file_with_bytes_missing_is_not_committed(store):
    store.append(an_upload(), 0, DATA[:4])

    with pytest.raises(WrongOffset):
        store.commit(an_upload())


def test_more_bytes_than_were_declared_are_refused(store):
    with pytest.raises(Invalid, match="more than"):
        store.append(an_upload(), 0, DATA + b"!")


@pytest.mark.proves("SR-28")
def test_a_digest_opens_nothing_in_another_repository(store):
    store.append(an_upload(repo=1), 0, DATA)
    store.commit(an_upload(repo=1))

    assert store.begin(an_upload(repo=2)) == 0
    with pytest.raises(NotFound):
        store.path(RepoId(2), SHA)


def test_pieces_of_two_attempts_never_mix(store):
    store.append(an_upload(epoch=1), 0, DATA[:4])

    assert store.begin(an_upload(epoch=2)) == 0


def test_the_same_bytes_are_stored_once_in_a_repository_and_need_no_second_upload(store):
    store.append(an_upload(job=5), 0, DATA)
    store.commit(an_upload(job=5))

    assert store.begin(an_upload(job=6)) == len(DATA)
    store.commit(an_upload(job=6))


def test_an_empty_file_is_an_artifact(store):
    upload = an_upload(size=0, sha256=hashlib.sha256(b"").hexdigest())

    store.commit(upload)

    assert store.has(RepoId(1), upload.file.sha256, 0)


def test_pieces_whose_lease_is_over_are_swept_at_start(store):
    store.append(an_upload(job=5), 0, DATA[:4])
    store.append(an_upload(job=6), 0, DATA[:4])

    assert store.drop_partials({(JobId(6), Epoch(1))}) == 1

    assert (store.begin(an_upload(job=5)), store.begin(an_upload(job=6))) == (0, 4)


@pytest.mark.proves("SR-34")
def test_a_file_over_the_bound_is_refused_by_the_bounds_name():
    with pytest.raises(Exhausted, match="ARTIFACT_BYTES_MAX"):
        check_file(a_file(size=limits.ARTIFACT_BYTES_MAX + 1))


@pytest.mark.proves("SR-23")
@pytest.mark.parametrize(
    "change",
    [
        {"path": "../x"},
        {"path": "/etc/passwd"},
        {"path": "a//b"},
        {"path": "a/./b"},
        {"path": ""},
        {"path": "a\0b"},
        {"path": "x" * 600},
        {"name": ""},
        {"name": "n" * 300},
        {"sha256": SHA.upper()},
        {"sha256": "../../" + SHA[:58]},
        {"size": -1},
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(change):
    with pytest.raises(Invalid):
        check_file(a_file(**change))
