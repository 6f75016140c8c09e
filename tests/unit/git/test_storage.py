from __future__ import annotations

import os
import subprocess

import pygit2
import pytest

from vole.base import limits
from vole.base.errors import Conflict, NotFound, Unavailable
from vole.base.ids import CommitId, RefName, RepoName
from vole.git import storage
from vole.git.storage import Storage

APP = RepoName("app")
MAIN, TOPIC = RefName("refs/heads/main"), RefName("refs/heads/topic")
WHO = pygit2.Signature("Ada", "ada@example.org", 1_800_000_000, 0)


@pytest.fixture
def store(tmp_path):
    made = Storage(tmp_path)
    yield made
    made.close()


def a_commit(path, ref, *parents, files=()):
    repository = pygit2.Repository(str(path))
    builder = repository.TreeBuilder()
    for name, content in files:
        builder.insert(name, repository.create_blob(content), 0o100644)
    return CommitId(str(repository.create_commit(ref, WHO, WHO, "m", builder.write(), list(parents))))


def test_a_new_repository_is_bare_and_empty_and_has_no_hooks(store):
    path = store.create(APP)

    assert pygit2.Repository(str(path)).is_bare
    assert storage.default_branch(storage.open_repository(path)) == MAIN
    assert not (path / "hooks").exists()
    assert storage.pushed_refs(path) == {}
    with pytest.raises(Conflict):
        store.create(APP)


def test_a_removed_repository_is_gone_and_its_name_is_free(store):
    store.create(APP)

    store.remove(APP)
    store.remove(APP)

    assert not store.exists(APP)
    assert list(store.path(APP).parent.iterdir()) == []
    store.create(APP)
    assert store.exists(APP)


def test_nothing_of_a_users_git_configuration_counts(store, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[user]\n\tname = Mallory\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    repository = storage.open_repository(store.create(APP))

    assert "user.name" not in repository.config


@pytest.mark.proves("SR-08")
def test_a_repository_that_borrows_objects_is_refused(store):
    path = store.create(APP)
    (path / "objects/info/alternates").write_text("/elsewhere\n")

    with pytest.raises(Unavailable, match="alternates"):
        storage.open_repository(path)


def test_a_missing_repository_is_not_found(store):
    with pytest.raises(NotFound):
        storage.open_repository(store.path(APP))


def test_targets_of_refs_are_told_and_missing_ones_are_none(store):
    path = store.create(APP)
    tip = a_commit(path, MAIN)

    assert storage.ref_targets(storage.open_repository(path), [MAIN, TOPIC]) == {MAIN: tip, TOPIC: None}


@pytest.mark.proves("I-28")
def test_a_kept_commit_survives_gc_without_a_branch(store):
    path = store.create(APP)
    tip = a_commit(path, TOPIC)
    storage.keep(storage.open_repository(path), [tip])
    storage.keep(storage.open_repository(path), [tip])
    pygit2.Repository(str(path)).references.delete(TOPIC)

    subprocess.run(["git", "gc", "-q", "--prune=now"], cwd=path, check=True, env={"PATH": os.environ["PATH"]})

    assert storage.commit_of(storage.open_repository(path), tip) == tip
    assert storage.pushed_refs(path) == {}


def test_a_head_without_a_branch_adopts_the_first_pushed_and_only_then(store):
    path = store.create(APP)
    assert storage.adopt_default_branch(storage.open_repository(path), []) is None
    a_commit(path, TOPIC)

    assert storage.adopt_default_branch(storage.open_repository(path), [TOPIC]) == TOPIC
    a_commit(path, MAIN)
    assert storage.adopt_default_branch(storage.open_repository(path), [MAIN]) is None
    assert storage.default_branch(storage.open_repository(path)) == TOPIC


def test_the_default_branch_is_set_to_one_that_exists(store):
    path = store.create(APP)
    a_commit(path, TOPIC)

    storage.set_default_branch(path, TOPIC)
    with pytest.raises(NotFound):
        storage.set_default_branch(path, MAIN)

    assert storage.default_branch(storage.open_repository(path)) == TOPIC


def test_many_held_commits_are_packed_and_stay_held(store, monkeypatch):
    monkeypatch.setattr(limits, "LOOSE_REFS_MAX", 2)
    path = store.create(APP)
    tips = [a_commit(path, None, files=[("a", str(number).encode())]) for number in range(3)]
    storage.keep(storage.open_repository(path), tips[:2])
    assert not storage.pack_refs(storage.open_repository(path))
    storage.keep(storage.open_repository(path), tips)

    assert storage.pack_refs(storage.open_repository(path))

    assert list((path / "refs/vole/keep").glob("*")) == []
    assert storage.held_commits(path) == set(tips)
    storage.let_go(path, tips[:1])
    assert storage.held_commits(path) == set(tips[1:])


@pytest.mark.proves("I-28")
def test_a_commit_is_held_again_although_its_ref_is_packed_or_was_half_written(store, monkeypatch):
    monkeypatch.setattr(limits, "LOOSE_REFS_MAX", 0)
    path = store.create(APP)
    tip = a_commit(path, None)
    storage.keep(storage.open_repository(path), [tip])
    assert storage.pack_refs(storage.open_repository(path))
    (path / storage.KEEP).mkdir(parents=True, exist_ok=True)
    (path / storage.KEEP / f"{tip}.lock").write_text("left by a crash")

    storage.keep(storage.open_repository(path), [tip])

    shown = subprocess.run(["git", "for-each-ref"], cwd=path, check=True, capture_output=True, text=True)
    assert shown.stdout == f"{tip} commit\trefs/vole/keep/{tip}\n"
    assert list(path.rglob("*.lock")) == []


def test_a_ref_that_is_locked_just_now_does_not_fail_the_packing(store, monkeypatch):
    monkeypatch.setattr(limits, "LOOSE_REFS_MAX", 0)
    path = store.create(APP)
    a_commit(path, MAIN)
    (path / "packed-refs.lock").touch()

    assert not storage.pack_refs(storage.open_repository(path))

    (path / "packed-refs.lock").unlink()
    assert storage.pack_refs(storage.open_repository(path))


def test_a_repository_is_empty_until_an_object_lies_in_it_loose_or_packed(store):
    path = store.create(APP)
    (path / "objects/tmp_objdir-incoming-x").mkdir()
    assert storage.is_empty(path)

    a_commit(path, MAIN)
    assert not storage.is_empty(path)
    subprocess.run(["git", "repack", "-adq"], cwd=path, check=True)
    assert sorted(entry.name for entry in (path / "objects").iterdir()) == ["info", "pack", "tmp_objdir-incoming-x"]
    assert not storage.is_empty(path)
    store.remove(APP)
    assert not storage.is_empty(path)
