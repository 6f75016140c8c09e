"""The objects of a push that is not accepted yet: workflow files at its tips, what changed, how large. Reads only.

Plain functions that block: call them in a thread. Names in trees are bytes; the path of a workflow is text with what
is hidden in it spelt out.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import ObjectType

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.base.escape import visible
from vole.base.ids import CommitId
from vole.git import service
from vole.git.storage import commit_of, open_repository

FOLDER = b".vole/workflows"
_OTHERS_SHOWN = 4  # entries that are no workflow; a notice names three
_INFLATES_AT_MOST = 1032  # times its size: 258 bytes for two bits
_LOOSE_HEADER_BYTES = 64  # "commit 123\0" and more


@dataclass(frozen=True)
class FileBlob:
    """One entry of the workflow folder; or the folder itself where a link stands in its place.

    `content` is empty for what is no workflow file, and blank for one over the bound.
    """

    path: str
    blob: CommitId
    content: bytes
    mode: int


@dataclass(frozen=True)
class Tip:
    """What a pushed object id holds: its commit, message and workflow files."""

    commit: CommitId
    message: str
    files: tuple[FileBlob, ...]  # every entry of the folder that may be a workflow, and a few of the others
    only_github: bool  # `.github/workflows` is there and our folder is not


@dataclass(frozen=True)
class Changes:
    """Paths that differ, None when there are too many; `base` is None when all of the tip counts as changed."""

    paths: tuple[str, ...] | None
    base: CommitId | None


class Quarantine:
    """One push's view of its repository: what is there, and what would be."""

    def __init__(self, path: Path, folder: str) -> None:
        """`folder` is what git's hook said; empty when the push brings no objects. Raises Invalid for one elsewhere."""
        self._path = path
        self._folder = Path(folder) if folder else None
        self._repository = open_repository(path)
        if self._folder is not None:
            # The courier is ours, but git names the folder relative to nowhere we chose: look before trusting it.
            if self._folder.parent != path / "objects" or not self._folder.name.startswith("tmp_objdir-"):
                raise Invalid(f"git keeps the push's objects in {folder!r}, not below the repository")
            self._repository.odb.add_disk_alternate(str(self._folder))

    def check_sizes(self) -> None:
        """Raises Exhausted for an object that inflates beyond OBJECT_BYTES_MAX."""
        for size in self._sizes():
            if size > limits.OBJECT_BYTES_MAX:
                most = limits.OBJECT_BYTES_MAX
                raise Exhausted(f"an object of {size} bytes; at most {most} (OBJECT_BYTES_MAX)",
                                next_step="keep large files outside the repository")  # fmt: skip

    def tip(self, new: CommitId) -> Tip | None:
        """What `new` holds; None for a tag of something that is no commit. Raises Exhausted for too many files."""
        commit = commit_of(self._repository, new)
        if commit is None:
            return None
        found = self._repository[commit].peel(pygit2.Commit)
        message = found.raw_message.decode("utf-8", "replace")
        folder = _at(found.tree, FOLDER)
        if isinstance(folder, pygit2.Tree):
            return Tip(commit, message, self._entries(folder), False)
        if folder is not None and folder.filemode in _SPECIAL:
            return Tip(commit, message, (_without_content(folder, FOLDER),), False)
        return Tip(commit, message, (), _at(found.tree, b".github/workflows") is not None)

    def is_forced(self, old: CommitId | None, new: CommitId) -> bool:
        """Whether moving a branch from `old` to `new` drops commits."""
        if old is None or commit_of(self._repository, old) != old or commit_of(self._repository, new) != new:
            return False
        return not self._repository.descendant_of(new, old)

    def changes(self, old: CommitId | None, new: CommitId, default: CommitId | None) -> Changes:
        """Paths that differ between `new` and `old`; for a new or forced branch, the merge base with `default`."""
        base = old
        if old is None or self.is_forced(old, new):
            common = None if default is None else self._repository.merge_base(new, default)
            base = None if common is None else CommitId(str(common))
        before = self._repository[base].peel(ObjectType.TREE) if base else None
        after = self._repository[new].peel(ObjectType.TREE)
        diff = after.diff_to_tree(swap=True) if before is None else before.diff_to_tree(after)
        if len(diff) > limits.CHANGED_PATHS_MAX:
            return Changes(None, base)
        return Changes(tuple(sorted({path for delta in diff.deltas for path in _paths(delta)})), base)

    def _entries(self, folder: pygit2.Tree) -> tuple[FileBlob, ...]:
        files: list[FileBlob] = []
        others: list[FileBlob] = []
        for entry in folder:
            path = FOLDER + b"/" + (entry.raw_name or b"")
            if isinstance(entry, pygit2.Tree) or not path.endswith((b".yml", b".yaml")):
                others.append(_without_content(entry, path))
            elif len(files) == limits.WORKFLOW_FILES_MAX:
                most = limits.WORKFLOW_FILES_MAX
                raise Exhausted(f"more than {most} files in {FOLDER.decode()} (WORKFLOW_FILES_MAX)")
            elif entry.filemode in _SPECIAL:
                files.append(_without_content(entry, path))
            else:
                files.append(FileBlob(visible(_text(path)), _id(entry), self._content(entry), entry.filemode))
        return (*files, *others[:_OTHERS_SHOWN])

    def _content(self, entry: pygit2.Object) -> bytes:
        # One byte over the bound is enough for the check to name it; a huge blob is not read at all.
        _, size = self._repository.odb.read_header(entry.id)
        return b" " * (limits.WORKFLOW_BYTES_MAX + 1) if size > limits.WORKFLOW_BYTES_MAX else entry.read_raw()

    def _sizes(self) -> Iterator[int]:
        """Of every object that may be too large."""
        if self._folder is None:
            return
        if any((self._folder / "pack").glob("*.pack")):
            yield from service.object_sizes(self._path, self._folder)
            return
        for fan in self._folder.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(fan) as entries:
                for entry in entries:
                    if entry.stat().st_size * _INFLATES_AT_MOST > limits.OBJECT_BYTES_MAX:
                        yield _loose_size(entry.path)


_SPECIAL = (0o120000, 0o160000)  # a symlink, a submodule: never followed


def _at(tree: pygit2.Tree, path: bytes) -> pygit2.Object | None:
    """The entry at `path`, or the first link, file or submodule that stands in its way."""
    found: pygit2.Object = tree
    for name in path.split(b"/"):
        if not isinstance(found, pygit2.Tree):
            return found if found.filemode in _SPECIAL else None
        inside = next((entry for entry in found if entry.raw_name == name), None)
        if inside is None:
            return None
        found = inside
    return found


def _without_content(entry: pygit2.Object, path: bytes) -> FileBlob:
    return FileBlob(visible(_text(path)), _id(entry), b"", entry.filemode)


def _id(entry: pygit2.Object) -> CommitId:
    return CommitId(str(entry.id))


def _loose_size(path: str) -> int:
    with open(path, "rb") as file:
        header = zlib.decompressobj().decompress(file.read(256), _LOOSE_HEADER_BYTES)
    return int(header.partition(b"\0")[0].split(b" ")[1])


def _paths(delta: pygit2.DiffDelta) -> tuple[str, ...]:
    return _text(delta.old_file.raw_path), _text(delta.new_file.raw_path)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
