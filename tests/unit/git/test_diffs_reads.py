from __future__ import annotations

import asyncio
import shutil

import pytest

from tests import aio
from tests.unit.git.gitrepo import GitRepo
from vole.base import limits
from vole.base.errors import NotFound, Unavailable
from vole.base.ids import CommitId
from vole.git import diffs
from vole.git.objects import Held


def _going() -> None:
    return


@pytest.fixture
def repo(tmp_path):
    return GitRepo(tmp_path / "app.git")


def _diff(repo, commit):
    return diffs.of_commit(repo.path, CommitId(commit), _going)[1]


def test_lines_carry_both_numbers(repo):
    repo.commit({"f": "one\ntwo\nthree\n"})
    tip = repo.commit({"f": "one\n2\nthree\nfour\n"})

    (file,) = _diff(repo, tip).files

    assert (file.change, file.added, file.removed) == ("modified", 2, 1)
    assert [(line.sign, line.old, line.new, line.text) for line in file.hunks[0].lines] == [
        (" ", 1, 1, "one"),
        ("-", 2, None, "two"),
        ("+", None, 2, "2"),
        (" ", 3, 3, "three"),
        ("+", None, 4, "four"),
    ]


def test_a_first_commit_adds_everything(repo):
    tip = repo.commit({"a": "1\n2\n", "b/c": "3\n"})

    diff = _diff(repo, tip)

    assert [(file.new_path, file.change, file.added) for file in diff.files] == [
        (b"a", "added", 2),
        (b"b/c", "added", 1),
    ]
    assert (diff.added, diff.removed) == (3, 0)


def test_a_moved_file_is_a_rename(repo):
    text = "".join(f"line {n}\n" for n in range(20))
    repo.commit({"old.txt": text})
    tip = repo.commit({"old.txt": None, "new.txt": text + "more\n"})

    (file,) = _diff(repo, tip).files

    assert (file.change, file.old_path, file.new_path, file.added, file.removed) == (
        "renamed", b"old.txt", b"new.txt", 1, 0,
    )  # fmt: skip


def test_a_missing_last_line_end_is_said(repo):
    tip = repo.commit({"f": "one"})

    assert not _diff(repo, tip).files[0].hunks[0].lines[0].ends


def test_bytes_that_are_no_text_are_counted_as_binary(repo):
    tip = repo.commit({"f": b"\0\1\2"})

    assert _diff(repo, tip).files[0].why_not == "binary"


def test_a_large_file_is_listed_without_its_lines(repo, monkeypatch):
    monkeypatch.setattr(limits, "DIFF_FILE_BYTES_MAX", 10)
    tip = repo.commit({"f": "eleven bytes\n"})

    (file,) = _diff(repo, tip).files

    assert (file.why_not, file.added, file.hunks) == ("large", None, ())


def test_lines_stop_at_the_bound_and_counts_go_on(repo, monkeypatch):
    monkeypatch.setattr(limits, "DIFF_LINES_MAX", 3)
    tip = repo.commit({"a": "1\n2\n", "b": "1\n2\n"})

    first, second = _diff(repo, tip).files

    assert (len(first.hunks), first.why_not) == (1, "")
    assert (second.hunks, second.why_not, second.added) == ((), "enough", 2)


def test_more_files_than_the_bound_are_listed_without_lines(repo, monkeypatch):
    monkeypatch.setattr(limits, "DIFF_FILES_MAX", 3)
    tip = repo.commit({f"f{n}": "x\n" for n in range(4)})

    diff = _diff(repo, tip)

    assert (len(diff.files), diff.more) == (3, True)


def _nested(repo, depth: int, width: int) -> str:
    """A commit whose tree unfolds to width ** depth paths out of `depth` objects."""
    blob = repo.git("hash-object", "-w", "--stdin", stdin=b"x\n")
    below = repo.git("mktree", stdin=f"100644 blob {blob}\tf\n".encode())
    for _ in range(depth):
        rows = "".join(f"040000 tree {below}\td{n}\n" for n in range(width))
        below = repo.git("mktree", stdin=rows.encode())
    return repo.git(
        "-c", "user.name=M", "-c", "user.email=m@m", "commit-tree", below, "-m", "bomb", "-p", repo.commit({"a": "1"})
    )


@pytest.mark.proves("SR-53")
@pytest.mark.parametrize(("depth", "width"), [(10, 10), (1500, 1)])
def test_a_tree_that_unfolds_to_billions_of_paths_costs_no_more_than_the_bound(repo, depth, width):
    tip = _nested(repo, depth, width)

    diff = _diff(repo, tip)  # without the bound it ends at no time that a test waits for

    assert diff.more


@pytest.mark.proves("SR-53")
def test_a_diff_stops_when_nobody_waits(repo):
    tip = repo.commit({"a": "1"})

    def gone() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        diffs.of_commit(repo.path, CommitId(tip), gone)


# ---- at once


def _at_once(repo, commit):
    async def story():
        held = Held()
        try:
            return diffs.of_small_commit(held, repo.path, CommitId(commit))
        finally:
            held.close()

    return aio.run(story())


def test_a_small_commit_is_the_same_made_at_once(repo):
    tips = [
        repo.commit({"a": "1\n2\n", "b/c": "3", "b/d/e": b"\0"}),
        repo.commit({"a": "1\n3\n", "b/c": None}),
        repo.commit({"a": "1\n3\n"}, modes={"a": "100755"}),
        repo.commit({"b/d/e": "text now\n", "b/d/f": "1"}),
    ]

    for tip in tips:
        assert _at_once(repo, tip) == diffs.of_commit(repo.path, CommitId(tip), _going)


@pytest.mark.proves("SR-53")
@pytest.mark.parametrize(
    "costly",
    [
        pytest.param(lambda repo: repo.commit({"a": "x" * (limits.AT_ONCE_BYTES_MAX + 1)}), id="a large file"),
        pytest.param(lambda repo: repo.commit({"a": "1"}, "m" * (limits.AT_ONCE_BYTES_MAX + 1)), id="a large commit"),
        pytest.param(lambda repo: repo.commit({f"d/{'f' * 200}{n}": "1" for n in range(80)}), id="a large folder"),
        pytest.param(lambda repo: repo.commit({"a": "1\n" * (limits.AT_ONCE_LINES_MAX + 1)}), id="many lines"),
        pytest.param(lambda repo: repo.commit({f"f{n}": "1" for n in range(limits.AT_ONCE_OBJECTS_MAX)}), id="files"),
        pytest.param(lambda repo: repo.commit({f"{'d/' * limits.AT_ONCE_OBJECTS_MAX}f": "1"}), id="a deep path"),
        pytest.param(lambda repo: (repo.commit({"a": "1"}), repo.commit({"a": None, "b": "1"}))[1], id="a move"),
        pytest.param(lambda repo: _nested(repo, 10, 10), id="a bomb"),
    ],
)
def test_what_takes_longer_is_not_made_at_once(repo, costly):
    tip = costly(repo)

    with pytest.raises(diffs.CostlyError):
        _at_once(repo, tip)


def test_a_repository_made_anew_is_never_the_one_that_was_held(repo):
    async def story():
        held = Held()
        tip = CommitId(repo.commit({"secret": "1"}))
        repo.git("repack", "-qad")  # what was read of a pack can still be read when its folder is gone
        first = held.open(repo.path)
        diffs.of_small_commit(held, repo.path, tip)
        assert held.open(repo.path) is first
        shutil.rmtree(repo.path)
        GitRepo(repo.path)
        with pytest.raises(NotFound):
            diffs.of_small_commit(held, repo.path, tip)
        shutil.rmtree(repo.path)
        with pytest.raises(NotFound):
            held.open(repo.path)
        held.close()

    aio.run(story())


def test_a_held_repository_that_begins_to_borrow_is_refused(repo):
    async def story():
        held = Held()
        tip = CommitId(repo.commit({"a": "1"}))
        held.open(repo.path)
        (repo.path / "objects" / "info" / "alternates").write_text("/elsewhere\n")
        with pytest.raises(Unavailable, match="alternates"):
            diffs.of_small_commit(held, repo.path, tip)
        held.close()

    aio.run(story())


def test_what_is_held_is_let_go_of(tmp_path, monkeypatch):
    async def story():
        held, most = Held(), 2
        monkeypatch.setattr(limits, "HELD_MAX", most)
        paths = [GitRepo(tmp_path / f"{n}.git").path for n in range(most + 1)]
        opened = [held.open(path) for path in paths]
        assert held.open(paths[-1]) is opened[-1]
        assert held.open(paths[0]) is not opened[0]  # it went first
        monkeypatch.setattr(limits, "HELD_S", 0)
        again = held.open(paths[1])
        while held.open(paths[1]) is again:  # as long as a story may take
            await asyncio.sleep(0)
        held.close()

    aio.run(story())
