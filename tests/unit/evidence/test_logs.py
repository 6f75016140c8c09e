from __future__ import annotations

import errno
import hashlib
import os

import pytest

from vole.base import limits
from vole.base.errors import Conflict, Exhausted, Unavailable
from vole.base.ids import Epoch, JobKey, RepoName, RunNumber
from vole.evidence import logs as module
from vole.evidence.logs import LogKey, LogStore, WrongOffset

KEY = LogKey(RepoName("app"), RunNumber(12), JobKey("test.1"), Epoch(2))


@pytest.fixture
def logs(tmp_path):
    store = LogStore(tmp_path / "logs")
    yield store
    store.close()


def test_a_log_lies_at_repository_run_job_and_epoch(logs, tmp_path):
    logs.append_at(KEY, 0, b"x")

    assert (tmp_path / "logs/app/12/test.1/2").read_bytes() == b"x"


@pytest.mark.proves("I-33")
@pytest.mark.parametrize("offset", [0, 2, 4, 100])
def test_an_append_elsewhere_is_answered_with_the_right_offset_and_writes_nothing(logs, offset):
    logs.append_at(KEY, 0, b"abc")

    with pytest.raises(WrongOffset) as refused:
        logs.append_at(KEY, offset, b"zzz")

    assert refused.value.offset == 3
    assert logs.read(KEY, 0, 99) == b"abc"


@pytest.mark.proves("I-33")
def test_the_length_of_the_file_is_the_truth_after_a_restart(logs, tmp_path):
    logs.append_at(KEY, 0, b"abc")
    logs.close()
    again = LogStore(tmp_path / "logs")

    assert again.length(KEY) == 3
    assert again.append_at(KEY, 3, b"def") == 6
    assert again.seal(KEY) == module.Seal(6, hashlib.sha256(b"abcdef").hexdigest())


@pytest.mark.proves("I-35")
def test_logs_of_two_attempts_never_mix(logs):
    other = LogKey(KEY.repo, KEY.run, KEY.job, Epoch(3))
    logs.append_at(KEY, 0, b"one")
    logs.append_at(other, 0, b"other")

    assert (logs.read(KEY, 0, 99), logs.read(other, 0, 99)) == (b"one", b"other")


@pytest.mark.proves("SR-34")
def test_a_log_over_its_bound_is_refused_by_the_bounds_name(logs, monkeypatch):
    monkeypatch.setattr(limits, "LOG_BYTES_MAX", 4)
    logs.append_at(KEY, 0, b"abcd")

    with pytest.raises(Exhausted, match="LOG_BYTES_MAX"):
        logs.append_at(KEY, 4, b"e")


@pytest.mark.proves("I-34")
def test_a_sealed_log_takes_no_more(logs):
    logs.append_at(KEY, 0, b"abc")
    logs.close_for_good(KEY)
    seal = logs.seal(KEY)

    with pytest.raises(Conflict):
        logs.append_at(KEY, 3, b"d")

    assert (seal.bytes, logs.length(KEY)) == (3, 3)
    logs.reopen(KEY)
    assert logs.append_at(KEY, 3, b"d") == 4


def test_an_empty_log_has_no_file_and_a_seal_all_the_same(logs):
    assert logs.seal(KEY) == module.Seal(0, hashlib.sha256(b"").hexdigest())
    assert not logs.path(KEY).exists()


def test_an_append_that_the_disk_cuts_short_leaves_the_log_as_it_was(logs, monkeypatch):
    logs.append_at(KEY, 0, b"abc")
    real, calls = os.write, []

    def short_then_full(descriptor, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data)[:1])

    monkeypatch.setattr(module.os, "write", short_then_full)
    with pytest.raises(Unavailable, match="No space left"):
        logs.append_at(KEY, 3, b"def")
    monkeypatch.undo()

    assert logs.read(KEY, 0, 99) == b"abc"
    assert logs.append_at(KEY, 3, b"def") == 6


def test_a_log_whose_folder_cannot_be_made_is_taken_later(logs, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "mkdir", full)
        with pytest.raises(Unavailable, match="cannot be written just now: No space left"):
            logs.append_at(KEY, 0, b"abc")

    assert logs.append_at(KEY, 0, b"abc") == 3


@pytest.mark.proves("I-34")
def test_a_log_that_could_not_be_made_durable_is_written_again_before_it_counts(logs, monkeypatch):
    logs.append_at(KEY, 0, b"abc")
    written = logs.path(KEY).stat().st_ino
    real, failures = os.fsync, iter([OSError(errno.EIO, "Input/output error")])

    def fails_once(descriptor):
        for error in failures:
            raise error
        real(descriptor)

    monkeypatch.setattr(module.os, "fsync", fails_once)
    with pytest.raises(Unavailable, match="cannot be made durable just now: Input/output error"):
        logs.seal(KEY)

    seal = logs.seal(KEY)

    # The second fsync of the same file would have said that all is well.
    assert logs.path(KEY).stat().st_ino != written
    assert seal == module.Seal(3, hashlib.sha256(b"abc").hexdigest())
    assert [path.name for path in logs.path(KEY).parent.iterdir()] == [str(KEY.epoch)]


def test_more_logs_than_may_be_open_are_written_all_the_same(logs, monkeypatch):
    monkeypatch.setattr(limits, "LOG_FILES_OPEN_MAX", 2)
    keys = [LogKey(KEY.repo, KEY.run, KEY.job, Epoch(n)) for n in range(1, 6)]
    for round_ in (0, 1):
        for key in keys:
            logs.append_at(key, round_, b"x")

    assert [logs.seal(key).bytes for key in keys] == [2] * 5
    assert logs.seal(keys[0]).sha256 == hashlib.sha256(b"xx").hexdigest()


def test_a_removed_repository_leaves_no_log_behind(logs, tmp_path):
    other = LogKey(RepoName("lib"), KEY.run, KEY.job, KEY.epoch)
    logs.append_at(KEY, 0, b"abc")
    logs.append_at(other, 0, b"abc")

    logs.remove_repo(KEY.repo)

    assert (logs.length(KEY), logs.length(other)) == (0, 3)
