from __future__ import annotations

import pygit2
import pytest

from tests.unit.git.test_storage import WHO, a_commit
from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.base.ids import CommitId, RefName, RepoName
from vole.git.quarantine import Changes, Quarantine
from vole.git.storage import Storage

MAIN = RefName("refs/heads/main")


@pytest.fixture
def path(tmp_path):
    store = Storage(tmp_path)
    yield store.create(RepoName("app"))
    store.close()


def a_tree_commit(path, files, *parents, ref=None):
    """A commit of `files`: path to content, or to (mode, object id)."""
    repository = pygit2.Repository(str(path))
    index = pygit2.Index()
    for name, content in files.items():
        mode, blob = content if isinstance(content, tuple) else (0o100644, repository.create_blob(content))
        index.add(pygit2.IndexEntry(name, blob, mode))
    tree = index.write_tree(repository)
    return CommitId(str(repository.create_commit(ref, WHO, WHO, "subject\n\nbody", tree, list(parents))))


def test_a_tip_shows_its_message_and_the_files_of_the_folder(path):
    tip = a_tree_commit(path, {".vole/workflows/ci.yml": b"on: push", ".vole/workflows/x/y.yml": b"", "a": b"1"})

    found = Quarantine(path, "").tip(tip)

    assert found.message == "subject\n\nbody"
    assert [(file.path, file.content) for file in found.files] == [
        (".vole/workflows/ci.yml", b"on: push"),
        (".vole/workflows/x", b""),
    ]
    assert not found.only_github


def test_a_tag_is_followed_to_its_commit_and_a_tag_of_a_file_is_none(path):
    repository = pygit2.Repository(str(path))
    tip = a_tree_commit(path, {"a": b"1"})
    tag = repository.create_tag("v1", tip, pygit2.enums.ObjectType.COMMIT, WHO, "one")
    odd = repository.create_tag("v2", repository.create_blob(b"x"), pygit2.enums.ObjectType.BLOB, WHO, "two")
    quarantine = Quarantine(path, "")

    assert quarantine.tip(CommitId(str(tag))).commit == tip
    assert quarantine.tip(CommitId(str(odd))) is None


def test_only_a_github_folder_is_a_hint(path):
    tip = a_tree_commit(path, {".github/workflows/ci.yml": b""})

    assert Quarantine(path, "").tip(tip).only_github


@pytest.mark.proves("SR-21")
@pytest.mark.parametrize("place", [".vole", ".vole/workflows", ".vole/workflows/ci.yml"])
@pytest.mark.parametrize("mode", [0o120000, 0o160000])
def test_a_link_is_told_and_never_followed(path, place, mode):
    repository = pygit2.Repository(str(path))
    target = repository.create_blob(b"../secret") if mode == 0o120000 else pygit2.Oid(hex=a_commit(path, None))
    tip = a_tree_commit(path, {place: (mode, target), "secret": b"on: push"})

    (file,) = Quarantine(path, "").tip(tip).files

    assert file.path == (place if place.endswith("yml") else ".vole/workflows")
    assert (file.mode, file.content) == (mode, b"")


@pytest.mark.proves("SR-15")
def test_files_are_bounded_in_number_and_a_large_one_is_not_read(path):
    many = {f".vole/workflows/{number}.yml": b"" for number in range(limits.WORKFLOW_FILES_MAX + 1)}
    large = {".vole/workflows/ci.yml": b"secret" * limits.WORKFLOW_BYTES_MAX}
    quarantine = Quarantine(path, "")

    with pytest.raises(Exhausted, match="WORKFLOW_FILES_MAX"):
        quarantine.tip(a_tree_commit(path, many))
    (file,) = quarantine.tip(a_tree_commit(path, large)).files
    assert len(file.content) == limits.WORKFLOW_BYTES_MAX + 1
    assert b"secret" not in file.content


def test_changes_are_told_against_the_old_tip_the_merge_base_or_nothing(path):
    base = a_tree_commit(path, {"a": b"1"}, ref=MAIN)
    ours = a_tree_commit(path, {"a": b"1", "b": b"2"}, base)
    theirs = a_tree_commit(path, {"a": b"9"}, base)
    orphan = a_tree_commit(path, {"z": b"1"})
    look = Quarantine(path, "").changes

    assert look(base, ours, base) == _changes(["b"], base)
    assert look(None, ours, theirs) == _changes(["b"], base)
    assert look(theirs, ours, theirs) == _changes(["b"], base)  # forced: not against what was dropped
    assert look(None, orphan, base) == _changes(["z"], None)
    assert look(None, ours, None) == _changes(["a", "b"], None)


def _changes(paths, base):
    return Changes(tuple(paths), base)


def test_too_many_changes_are_not_listed(path, monkeypatch):
    monkeypatch.setattr(limits, "CHANGED_PATHS_MAX", 2)
    tip = a_tree_commit(path, {"a": b"", "b": b"", "c": b""})

    assert Quarantine(path, "").changes(None, tip, None).paths is None


def test_a_branch_is_forced_when_commits_are_dropped(path):
    base = a_tree_commit(path, {"a": b"1"})
    ahead = a_tree_commit(path, {"a": b"2"}, base)
    quarantine = Quarantine(path, "")

    assert quarantine.is_forced(ahead, base)
    assert not quarantine.is_forced(base, ahead)
    assert not quarantine.is_forced(None, ahead)


@pytest.mark.parametrize(
    "folder", ["/tmp", "/", "objects/tmp_objdir-x", "{path}/objects/info", "{path}/objects/tmp_objdir-x/../pack"]
)
def test_a_quarantine_elsewhere_is_refused(path, folder):
    with pytest.raises(Invalid, match="below the repository"):
        Quarantine(path, folder.format(path=path))


def test_objects_of_the_quarantine_are_seen_and_are_not_in_the_store(path):
    other = Storage(path.parent / "other")
    (path.parent / "other").mkdir()
    source = other.create(RepoName("src"))
    tip = a_tree_commit(source, {".vole/workflows/ci.yml": b"x"})
    quarantine = path / "objects/tmp_objdir-incoming-abc"
    (source / "objects").rename(quarantine)
    other.close()

    found = Quarantine(path, str(quarantine))

    assert [file.content for file in found.tip(tip).files] == [b"x"]
    found.check_sizes()
    with pytest.raises(KeyError):
        pygit2.Repository(str(path))[tip]
