"""Where bare repositories live: make, open, remove, and their refs. Never decides who may do it.

pygit2 blocks, so these are plain functions; call them through `Storage.run`, on a small pool of threads.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import pygit2
from pygit2.enums import ConfigLevel, ObjectType

from vole.base import limits
from vole.base.errors import Conflict, NotFound, Unavailable
from vole.base.ids import CommitId, RefName, RepoName

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_BRANCH = RefName("refs/heads/main")
KEEP = "refs/vole/keep/"  # one ref a commit that a run needs; never shown to clients
_LOOSE = ("refs/heads", "refs/tags", KEEP)
_MAKING, _GOING = ".making-", ".going-"  # no repository name begins with a dot


def _settle_pygit2() -> None:
    """No configuration from outside the repository, and what libgit2 writes is on disk before it answers."""
    for level in (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = ""
    pygit2.settings.owner_validation = False  # the folder is ours, mode 0700
    pygit2.settings.enable_fsync_gitdir(True)


_settle_pygit2()


class Storage:
    """The repositories of one server, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(limits.GIT_THREADS, thread_name_prefix="git")

    def path(self, name: RepoName) -> Path:
        """Where the repository lies, or would."""
        return self._root / f"{name}.git"

    def exists(self, name: RepoName) -> bool:
        return self.path(name).is_dir()

    async def run(self, deed: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `deed` returns, called in one of the pool's threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(deed, *args, **kwargs))

    def create(self, name: RepoName) -> Path:
        """An empty bare repository, whole or not there at all. Raises Conflict where one is."""
        path = self.path(name)
        if path.exists():
            raise Conflict(f"there is a folder {path.name} already")
        make_bare(path)
        return path

    def names(self) -> list[RepoName]:
        """Of every folder that may be a repository, in order."""
        return sorted(RepoName.parse(path.name.removesuffix(".git")) for path in self._root.glob("[!.]*.git"))

    def remove(self, name: RepoName) -> None:
        """Gone at once under its name; nothing happens when there is none."""
        going = self._root / f"{_GOING}{name}.git"
        shutil.rmtree(going, ignore_errors=True)
        try:
            self.path(name).rename(going)
        except FileNotFoundError:
            return
        shutil.rmtree(going, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a crash left: half-made and half-removed repositories, quarantines and locks of dead pushes.

        Only while no git child runs: at start.
        """
        for left in [*self._root.glob(f"{_MAKING}*"), *self._root.glob(f"{_GOING}*")]:
            shutil.rmtree(left, ignore_errors=True)
        for path in self._root.glob("[!.]*.git"):
            tidy_after_push(path)

    def close(self) -> None:
        """Let what runs end; take nothing more."""
        self._threads.shutdown()


def make_bare(path: Path) -> None:
    """An empty bare repository where there is none, whole or not there at all."""
    making = path.with_name(f"{_MAKING}{path.name}")
    shutil.rmtree(making, ignore_errors=True)
    pygit2.init_repository(str(making), bare=True, initial_head=DEFAULT_BRANCH.short)
    shutil.rmtree(making / "hooks", ignore_errors=True)
    making.rename(path)


def open_repository(path: Path) -> pygit2.Repository:
    """The repository at `path`. Raises NotFound, Unavailable."""
    try:
        repository = pygit2.Repository(str(path))
    except pygit2.GitError:
        raise NotFound("the repository is not there any more") from None
    refuse_borrowed(path)
    return repository


def refuse_borrowed(path: Path) -> None:
    """Raises Unavailable for a repository that borrows objects from elsewhere: git would follow it anywhere."""
    if (path / "objects" / "info" / "alternates").exists():
        raise Unavailable("the repository has an alternates file; vole never makes one, so it serves none")


def is_empty(path: Path) -> bool:
    """Whether not one object lies in the repository. Those of a push on its way do not."""
    try:
        return not os.listdir(path / "objects/pack") and all(len(name) != 2 for name in os.listdir(path / "objects"))
    except FileNotFoundError:
        return False


def tidy_after_push(path: Path) -> None:
    """Remove the quarantines and ref locks of receive-packs that were killed. Only while none runs there."""
    for left in (path / "objects").glob("tmp_objdir-*"):
        shutil.rmtree(left, ignore_errors=True)
    for folder, _, files in os.walk(path / "refs"):
        for name in files:
            if name.endswith(".lock"):
                Path(folder, name).unlink(missing_ok=True)
    for name in ("packed-refs.lock", "HEAD.lock", "shallow.lock"):
        (path / name).unlink(missing_ok=True)


def ref_targets(repository: pygit2.Repository, refs: Iterable[RefName]) -> dict[RefName, CommitId | None]:
    """Where each of `refs` stands now; None: there is no such ref."""
    return {ref: _target(repository, ref) for ref in refs}


def pushed_refs(path: Path) -> dict[RefName, CommitId]:
    """Every branch and tag."""
    repository = open_repository(path)
    names = [RefName(name) for name in repository.references if name.startswith(("refs/heads/", "refs/tags/"))]
    return {name: target for name in names if (target := _target(repository, name)) is not None}


def keep(repository: pygit2.Repository, commits: Iterable[CommitId]) -> None:
    """Hold each commit by a ref of its own, so that whatever happens to branches it stays. Done twice is done once.

    Written as git writes a loose ref, lock and all: pygit2 would read every packed ref first, 12 ms for 20,000.
    """
    folder = Path(repository.path, KEEP)
    _make_folder(folder)
    for commit in commits:
        lock, ref = folder / f"{commit}.lock", folder / commit
        with lock.open("w") as file:
            file.write(f"{commit}\n")
            file.flush()
            os.fsync(file.fileno())
        lock.rename(ref)
    sync_folder(folder)


def is_held(path: Path, commit: CommitId) -> bool:
    """Whether `keep` holds it."""
    return f"{KEEP}{commit}" in open_repository(path).references


def held_commits(path: Path) -> frozenset[CommitId]:
    """The commits that `keep` holds."""
    names = open_repository(path).references
    return frozenset(CommitId(name.removeprefix(KEEP)) for name in names if name.startswith(KEEP))


def let_go(path: Path, commits: Iterable[CommitId]) -> None:
    """Undo `keep`. What is not held is left alone."""
    references = open_repository(path).references
    for commit in commits:
        if f"{KEEP}{commit}" in references:
            references.delete(f"{KEEP}{commit}")


def pack_refs(repository: pygit2.Repository) -> bool:
    """Pack the refs when there are many loose ones: each is a file that every later push reads. Whether it did.

    Never fails a push: a ref that something else has locked just now is left for the next time.
    """
    if sum(map(_entries, (Path(repository.path, folder) for folder in _LOOSE))) <= limits.LOOSE_REFS_MAX:
        return False
    try:
        repository.compress_references()
    except (pygit2.GitError, OSError, KeyError, ValueError):  # what pygit2 makes of a ref that is locked or just gone
        return False
    return True


def default_branch(repository: pygit2.Repository) -> RefName:
    """The branch that HEAD names, which need not exist."""
    return RefName(str(repository.lookup_reference("HEAD").target))


def set_default_branch(path: Path, branch: RefName) -> None:
    """Raises NotFound for a branch that does not exist."""
    repository = open_repository(path)
    if _target(repository, branch) is None:
        raise NotFound(f"there is no branch {branch.short!r}")
    repository.set_head(branch)


def default_with(repository: pygit2.Repository, pushed: Sequence[RefName]) -> RefName:
    """The default branch once the `pushed` ones are there: HEAD's, or the first of them where that has none."""
    head = default_branch(repository)
    return pushed[0] if pushed and head not in pushed and repository.head_is_unborn else head


def adopt_default_branch(repository: pygit2.Repository, pushed: Sequence[RefName]) -> RefName | None:
    """Point a HEAD without a branch at the first of the `pushed` ones. Which, if it moved."""
    default = default_with(repository, pushed)
    if default == default_branch(repository):
        return None
    repository.set_head(default)
    return default


def commit_of(repository: pygit2.Repository, tip: CommitId) -> CommitId | None:
    try:
        found = repository[tip].peel(ObjectType.COMMIT)
    except (KeyError, pygit2.GitError):
        return None
    return CommitId(str(found.id))


def _entries(folder: Path) -> int:
    return len(os.listdir(folder)) if folder.is_dir() else 0


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        sync_folder(folder.parent.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _target(repository: pygit2.Repository, ref: RefName) -> CommitId | None:
    found = repository.references.get(ref)
    return None if found is None else CommitId(str(found.target))
