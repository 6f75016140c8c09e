"""Each attempt has a fresh place; nothing of it stays, and one process owns the folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vole.base import limits
from vole.base.errors import Conflict
from vole.base.ids import Epoch, JobId
from vole.wire.runner import LeaseRef
from vole_runner.folders import Folders
from vole_runner.harness.trees import remove_tree

LEASE = LeaseRef(JobId(1), Epoch(1))


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[Folders]:
    folders = Folders.claim(root)
    try:
        yield folders
    finally:
        folders.release()


@pytest.mark.proves("SR-32")
def test_every_attempt_gets_a_folder_that_was_not_there(tmp_path: Path) -> None:
    with claimed(tmp_path / "work") as folders:
        first, second = folders.fresh(), folders.fresh()

        assert first != second
        assert [list(folder.iterdir()) for folder in (first, second)] == [[], []]
        assert oct(first.stat().st_mode & 0o777) == "0o700"


@pytest.mark.proves("SR-32")
def test_what_a_crash_left_is_gone_at_the_next_start(tmp_path: Path) -> None:
    with claimed(tmp_path / "work") as folders:
        (folders.fresh() / "secret").write_text("of the former job")
        folders.spool(LEASE).write_text("its log")

    with claimed(tmp_path / "work") as folders:
        left = [*(folders.root / "attempts").iterdir(), *(folders.root / "spool").iterdir()]

    assert left == []


def test_a_second_runner_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with claimed(tmp_path / "work"), pytest.raises(Conflict, match="another vole-runner"):
        Folders.claim(tmp_path / "work")


def test_read_only_files_and_folders_are_removed() -> None:
    root = Path(tempfile.mkdtemp())
    root.chmod(0o777)
    tree = root / "tree"

    def story() -> None:
        (tree / "locked" / "deep").mkdir(parents=True)
        (tree / "locked" / "deep" / "file").write_text("x")
        (tree / "locked" / "deep" / "file").chmod(0o400)
        (tree / "locked" / "deep").chmod(0o500)
        (tree / "locked").chmod(0)
        assert remove_tree(tree)

    status = as_nobody(story)
    left = tree.exists()
    shutil.rmtree(root)

    assert (status, left) == (0, False)


def as_nobody(deed: Callable[[], None]) -> int:
    """The exit status of a child that does `deed` without root's right to ignore modes."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            deed()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)

    assert remove_tree(tree)
    assert oct(outside.stat().st_mode & 0o777) == "0o500"


def test_the_disk_is_low_below_what_was_asked_for(tmp_path: Path) -> None:
    with claimed(tmp_path / "work") as folders:
        free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize

        assert folders.disk_low(free * 2)
        assert not folders.disk_low(0)


def test_sockets_lie_where_their_path_fits(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / "work"
    deep.mkdir(parents=True)

    with claimed(deep) as folders:
        length = len(os.fsencode(folders.sockets / "h-999999.sock"))
        there = folders.sockets.is_dir()

    assert there
    assert length <= limits.SOCKET_PATH_BYTES_MAX
    assert not folders.sockets.exists()


def test_the_sockets_of_a_runner_that_was_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 100)
    killed = Folders.claim(root)
    (killed.sockets / "h-1.sock").touch()
    os.close(killed._lock)  # as the kernel does

    folders = Folders.claim(root)
    try:
        assert folders.sockets != killed.sockets
        assert not killed.sockets.exists()
    finally:
        folders.release()
