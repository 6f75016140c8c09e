from __future__ import annotations

import pytest

from tests.unit.git.gitrepo import GitRepo
from vole.base import limits
from vole.base.errors import Exhausted, NotFound
from vole.base.ids import CommitId
from vole.git import objects


def _going() -> None:
    return


@pytest.fixture
def repo(tmp_path):
    return GitRepo(tmp_path / "app.git")


def test_an_empty_repository_has_no_default_branch(repo):
    assert objects.default_branch(repo.path) is None


def test_the_default_branch_is_the_one_that_head_names(repo):
    repo.commit({"a": "1"})

    assert objects.default_branch(repo.path) == "main"


def test_a_branch_with_slashes_is_found_before_the_path_in_it(repo):
    tip = repo.commit({"docs/x.md": "x"}, branch="feat/login")

    place = objects.locate(repo.path, b"feat/login/docs/x.md")

    assert (place.name, place.kind, place.commit, place.path) == ("feat/login", "branch", tip, b"docs/x.md")


def test_an_annotated_tag_is_peeled_to_its_commit(repo):
    tip = repo.commit({"a": "1"})
    repo.git("-c", "user.name=Ada", "-c", "user.email=a@b", "tag", "-a", "v1", "-m", "one", tip)

    assert objects.locate(repo.path, b"v1/a").commit == tip
    assert [ref.name for ref in objects.refs(repo.path, "tag", most=10).shown] == ["v1"]


def test_a_commit_id_is_a_place_too(repo):
    tip = repo.commit({"a": "1"})

    assert objects.locate(repo.path, f"{tip}/a".encode()).kind == "commit"


def test_an_internal_ref_is_no_place(repo):
    tip = repo.commit({"a": "1"})
    repo.git("update-ref", f"refs/vole/keep/{tip}", tip)

    with pytest.raises(NotFound):
        objects.locate(repo.path, f"../vole/keep/{tip}".encode())
    assert objects.refs(repo.path, "branch", most=10).total == 1


def test_folders_stand_before_files_and_sizes_are_bytes(repo):
    tip = repo.commit({"b.txt": "four", "a/x": "1", "README": "plain", "README.md": "# hi"})

    tree = objects.tree(repo.path, CommitId(tip), b"")

    assert [(row.name, row.kind, row.size) for row in tree.entries] == [
        (b"a", "tree", None),
        (b"README", "file", 5),
        (b"README.md", "file", 4),
        (b"b.txt", "file", 4),
    ]
    assert tree.readme == b"README.md"


def test_a_name_that_is_no_utf8_is_found_by_its_bytes(repo):
    tip = repo.commit({b"caf\xe9/men\xfc.txt": "x"})

    assert objects.blob(repo.path, CommitId(tip), b"caf\xe9/men\xfc.txt", most_bytes=10).data == b"x"


def test_a_file_over_the_bound_has_a_size_and_no_bytes(repo):
    tip = repo.commit({"big": "x" * 100})

    blob = objects.blob(repo.path, CommitId(tip), b"big", most_bytes=99)

    assert (blob.size, blob.data) == (100, None)


@pytest.mark.parametrize("path", [b"nothing", b"a/x/y", b"../a", b"a//x", b"/a"])
def test_what_is_not_there_is_not_found(repo, path):
    tip = repo.commit({"a/x": "1"})

    with pytest.raises(NotFound):
        objects.blob(repo.path, CommitId(tip), path, most_bytes=10)
    with pytest.raises(NotFound):
        objects.tree(repo.path, CommitId(tip), path)


def test_the_id_of_a_tree_is_no_commit(repo):
    repo.commit({"a": "1"})
    tree = repo.git("rev-parse", "main^{tree}")

    with pytest.raises(NotFound):
        objects.commit(repo.path, CommitId(tree))


def test_a_commit_has_its_whole_message(repo):
    tip = repo.commit({"a": "1"}, "Subject\n\nBody one\n\nBody two\n")

    commit = objects.commit(repo.path, CommitId(tip))

    assert (commit.subject, commit.body) == ("Subject", "Body one\n\nBody two")
    assert (commit.author.name, commit.author.email) == ("Ada Lovelace", "ada@example.org")


def test_history_pages_meet_without_gap_or_overlap(repo, monkeypatch):
    monkeypatch.setattr(limits, "LIST_MAX", 2)
    ids = [repo.commit({"a": str(n)}) for n in range(5)][::-1]
    tip = CommitId(ids[0])

    pages = [objects.history(repo.path, tip, skip=skip, going=_going) for skip in (0, 2, 4)]

    assert [commit.id for page, _ in pages for commit in page] == ids
    assert [more for _, more in pages] == [True, True, False]


def test_history_goes_back_no_further_than_its_bound(repo):
    tip = repo.commit({"a": "1"})

    with pytest.raises(Exhausted, match="HISTORY_SKIP_MAX"):
        objects.history(repo.path, CommitId(tip), skip=limits.HISTORY_SKIP_MAX + 1, going=_going)


@pytest.mark.proves("SR-53")
def test_history_stops_when_nobody_waits(repo):
    tip = repo.commit({"a": "1"})
    repo.commit({"a": "2"})

    def gone() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        objects.history(repo.path, CommitId(tip), skip=1, going=gone)
