"""A copy of a repository while it is served, and whether a copy is whole. Never decides what is copied when.

Refs before objects: what a ref names was there before the ref was. Loose objects before packs: what is packed
meanwhile is found in its pack, and what is merged in the one that it was merged into. Bitmaps and the index over packs
are left out, for git makes them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pygit2

from vole.base import limits
from vole.base.errors import Invalid, Unavailable
from vole.base.ids import CommitId
from vole.git import service
from vole.git.records import RUNS
from vole.git.storage import open_repository

_TARGET = re.compile(r"([0-9a-f]{40}) (refs/\S+)")
_OBJECT = re.compile(r"[0-9a-f]{38}")
_RUN = re.compile(r"runs/(\d+)/(\d{3})/.+")


class Copier(Protocol):
    """Through whom files are copied."""

    def put(self, source: Path, target: Path) -> None:
        """Copy one file. Raises FileNotFoundError."""
        ...

    def note(self, target: Path) -> None:
        """A file of the copy that was written otherwise."""
        ...


def copy(path: Path, into: Path, through: Copier) -> int:
    """Copy the repository at `path` to the new folder `into`, file by file; how many refs it has.

    Raises NotFound where it is gone, and what `through` raises.
    """
    open_repository(path)
    refs = _refs(path)
    lay_out(into)
    for name in ("HEAD", "config"):
        through.put(path / name, into / name)
    (into / "packed-refs").write_text("".join(f"{at} {ref}\n" for ref, at in sorted(refs.items())))
    through.note(into / "packed-refs")
    for file in _loose(path):
        (into / file.relative_to(path)).parent.mkdir(exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):  # packed just now
            through.put(file, into / file.relative_to(path))
    _copy_packs(path / "objects" / "pack", into / "objects" / "pack", through)
    return len(refs)


def lay_out(path: Path) -> None:
    """The folders without which git sees no repository, and which a list of files does not name."""
    for folder in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):
        (path / folder).mkdir(parents=True, exist_ok=True, mode=0o700)


def problems(path: Path) -> list[str]:
    """What is missing of a copy: objects that its refs reach, the two ends of its chain of records."""
    found = [f"{path.name}: {line}" for line in service.missing_objects(path)]
    try:
        return found + ([] if found else [f"{path.name}: {line}" for line in _chain(path)])
    except (pygit2.GitError, KeyError) as error:
        return [f"{path.name}: a record cannot be read: {error}"]


def missing_commits(path: Path, commits: Iterable[CommitId]) -> list[CommitId]:
    """Those of `commits` that are not there."""
    repository = open_repository(path)
    return [commit for commit in commits if commit not in repository]


def highest_run(path: Path) -> int:
    """The highest number of a run that has a record here; 0 where there is none."""
    repository = open_repository(path)
    tip = repository.references.get(RUNS)
    if tip is None:
        return 0
    thousands = tip.peel(pygit2.Commit).tree["runs"]
    assert isinstance(thousands, pygit2.Tree), "a commit of records holds one"
    last = max((one for one in thousands if isinstance(one, pygit2.Tree)), key=lambda one: int(str(one.name)))
    return int(str(last.name)) * 1000 + max(int(str(one.name)) for one in last)


def recorded(path: Path) -> tuple[int, int]:
    """How many records stand here, and their bytes as they are read (git keeps them smaller)."""
    repository = open_repository(path)
    tip = repository.references.get(RUNS)
    if tip is None:
        return 0, 0
    number = total = 0
    left: list[pygit2.Object] = [tip.peel(pygit2.Commit).tree["runs"]]
    while left:
        one = left.pop()
        if isinstance(one, pygit2.Tree):
            left += one
        elif isinstance(one, pygit2.Blob):
            number, total = number + 1, total + one.size
    return number, total


def _chain(path: Path) -> Iterator[str]:
    """Each commit of records stands on one, is signed and takes nothing away. libgit2 holds objects to their ids."""
    repository = open_repository(path)
    tip = repository.references.get(RUNS)
    commit = None if tip is None else tip.peel(pygit2.Commit)
    while commit is not None:
        if len(commit.parents) > 1 or commit.gpg_signature[0] is None:
            yield f"{RUNS} holds {commit.id}, which is no record"
        parent = commit.parents[0] if commit.parents else None
        diff = commit.tree.diff_to_tree(swap=True) if parent is None else parent.tree.diff_to_tree(commit.tree)
        for delta in diff.deltas:
            name = delta.new_file.path
            if _RUN.fullmatch(name) and delta.status_char() != "A":
                yield f"{RUNS} at {commit.id} takes {name} away or changes it"
            elif _RUN.fullmatch(name):
                repository[delta.new_file.id].read_raw()
        commit = parent


def _refs(path: Path) -> dict[str, str]:
    """Loose ones first: what is packed meanwhile is read from the packed ones."""
    loose = {}
    for file in sorted((path / "refs").rglob("*")):
        if file.is_file() and not file.name.endswith(".lock"):
            try:
                loose[str(file.relative_to(path))] = file.read_text("ascii").strip()
            except FileNotFoundError:
                continue  # packed or deleted just now
    packed = path / "packed-refs"
    lines = packed.read_text("utf-8").splitlines() if packed.exists() else []
    known = {found[2]: found[1] for line in lines if (found := _TARGET.fullmatch(line))}
    for ref, at in (known | loose).items():
        if not _TARGET.fullmatch(f"{at} {ref}"):
            raise Invalid(f"{path.name}: {ref} names no object but {at[:60]!r}")
    return known | loose


def _loose(path: Path) -> list[Path]:
    folders = [folder for folder in (path / "objects").iterdir() if len(folder.name) == 2]
    return [file for folder in folders for file in folder.iterdir() if _OBJECT.fullmatch(file.name)]


def _copy_packs(folder: Path, into: Path, through: Copier) -> None:
    """Until two looks find the same packs, all of them copied: they are merged meanwhile, the merged one first there.

    A pack counts once its index is there, which comes last. Raises Unavailable when there is no end to it.
    """
    copied, before = set[str](), None
    for _ in range(limits.PACK_LOOKS_MAX):
        found = {index.stem for index in folder.glob("pack-*.idx")}
        if found == before and found <= copied:
            return
        before = found
        for name in sorted(found - copied):
            with suppress(FileNotFoundError):
                for suffix in (".pack", ".idx"):
                    through.put(folder / f"{name}{suffix}", into / f"{name}{suffix}")
                copied.add(name)
    raise Unavailable(f"{folder} changes faster than it is copied", next_step="try again in a moment")
