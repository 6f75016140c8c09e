"""A copy of a repository is whole, whatever git packs, merges or moves in it between two files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vole.base.ids import RepoName
from vole.git import copies
from vole.git.storage import Storage

pytestmark = pytest.mark.needs("git")


def git(path: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", path, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def path(tmp_path):
    """Two packs, a loose commit above them, a branch in `packed-refs` and a newer one loose."""
    (tmp_path / "repos").mkdir()
    path = Storage(tmp_path / "repos").create(RepoName("app"))
    for number in range(3):
        commits(path, number)
        git(path, "pack-refs", "--all") if number == 1 else None
        git(path, "repack", "-d", "-q") if number < 2 else None
    return path


def commits(path: Path, number: int) -> None:
    blob = git(path, "hash-object", "-w", "--", __file__)
    made = subprocess.run(["git", "-C", path, "mktree"], input=f"100644 blob {blob}\tf{number}\n", check=True,
                          capture_output=True, text=True).stdout.strip()  # fmt: skip
    parents = [word for tip in git(path, "for-each-ref", "--format=%(objectname)").split()[:1] for word in ("-p", tip)]
    git(path, "update-ref", "refs/heads/main", git(path, "commit-tree", made, "-m", str(number), *parents))


class Through:
    """Copies files, and does something once, before the first whose name matches."""

    def __init__(self, pattern: str = "", deed: Callable[[], object] | None = None) -> None:
        self.pattern, self.deed = pattern, deed

    def put(self, source: Path, target: Path) -> None:
        if self.deed is not None and source.match(self.pattern):
            deed, self.deed = self.deed, None
            deed()
        shutil.copyfile(source, target)

    def note(self, target: Path) -> None:
        assert target.is_file()


def test_a_copy_has_every_ref_and_all_that_it_reaches(path, tmp_path):
    git(path, "update-ref", "refs/vole/keep/x", "refs/heads/main~1")

    assert copies.copy(path, tmp_path / "copy.git", Through()) == 2

    assert copies.problems(tmp_path / "copy.git") == []
    assert git(tmp_path / "copy.git", "for-each-ref") == git(path, "for-each-ref")


@pytest.mark.parametrize("pattern", ["objects/[0-9a-f][0-9a-f]/*", "pack/*.pack", "pack/*.idx"])
@pytest.mark.parametrize("deed", [("repack", "-d", "-q", "--geometric=2"), ("repack", "-a", "-d", "-q")])
def test_what_is_packed_or_merged_meanwhile_is_copied_all_the_same(path, tmp_path, pattern, deed):
    copies.copy(path, tmp_path / "copy.git", Through(pattern, lambda: git(path, *deed)))

    assert copies.problems(tmp_path / "copy.git") == []
    assert git(tmp_path / "copy.git", "rev-list", "--count", "main") == "3"


def test_a_branch_that_moves_meanwhile_is_where_it_was(path, tmp_path):
    before = git(path, "rev-parse", "main")

    copies.copy(path, tmp_path / "copy.git", Through("HEAD", lambda: commits(path, 9)))

    assert git(tmp_path / "copy.git", "rev-parse", "main") == before
    assert copies.problems(tmp_path / "copy.git") == []


def test_a_copy_that_lacks_an_object_is_not_whole(path, tmp_path):
    copies.copy(path, tmp_path / "copy.git", Through())
    tip = git(path, "rev-parse", "main")
    (tmp_path / "copy.git/objects" / tip[:2] / tip[2:]).unlink()

    assert any(tip in line for line in copies.problems(tmp_path / "copy.git"))
    assert copies.missing_commits(tmp_path / "copy.git", [tip]) == [tip]
