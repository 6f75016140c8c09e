"""What a commit changed: files with their counts, and lines with both numbers. Every part of it is bounded.

The trees are compared here, entry by entry, before libgit2 is asked: a few hundred bytes of pack can unfold to more
paths than a server can list, and libgit2 would list them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import pygit2
from pygit2.enums import DeltaStatus, DiffFind, ObjectType

from vole.base import limits
from vole.base.ids import CommitId
from vole.git import objects
from vole.git.objects import Commit, Going
from vole.git.storage import open_repository

Change = Literal["added", "removed", "modified", "renamed", "retyped"]

_HUNK_PLACE = re.compile(r"@@ [^@]* @@ ?")
_PATH_BYTES_MAX = 4096  # PATH_MAX: no working tree can hold a longer one
_CHANGES: dict[int, Change] = {
    DeltaStatus.ADDED: "added",
    DeltaStatus.DELETED: "removed",
    DeltaStatus.MODIFIED: "modified",
    DeltaStatus.RENAMED: "renamed",
    DeltaStatus.TYPECHANGE: "retyped",
}


@dataclass(frozen=True)
class Line:
    """`old` and `new` are line numbers, None on the side that does not have it."""

    sign: Literal[" ", "+", "-"]
    old: int | None
    new: int | None
    text: str  # without its line end
    ends: bool = True  # False: the file ends here without a line end


@dataclass(frozen=True)
class Hunk:
    old_start: int
    new_start: int
    section: str  # what git found above it: a function's name
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class FileDiff:
    """One file. `why_not` says why its lines are not here; then `added` and `removed` may be unknown."""

    change: Change
    old_path: bytes
    new_path: bytes
    added: int | None
    removed: int | None
    hunks: tuple[Hunk, ...]
    why_not: Literal["", "binary", "large", "enough", "submodule"]


@dataclass(frozen=True)
class Diff:
    """`files` in path order. `more` says that there are more than the bound; their number is not known then."""

    files: tuple[FileDiff, ...]
    added: int
    removed: int
    more: bool


def of_commit(repository: Path, commit_id: CommitId, going: Going) -> tuple[Commit, Diff]:
    """The commit, and what it changed against its first parent, or against nothing. Raises NotFound."""
    repo = open_repository(repository)
    found = objects._commit(repo, commit_id)
    new = str(found.tree_id)
    old = str(objects._commit(repo, CommitId(str(found.parent_ids[0]))).tree_id) if found.parent_ids else None
    files, whole = _changed(repo, old, new, going)
    if not whole:
        return objects._as_commit(found), Diff(tuple(sorted(files, key=lambda file: file.new_path)), 0, 0, more=True)
    moved = {"added", "removed"} <= {file.change for file in files}
    return objects._as_commit(found), _with_lines(repo, old, new, going, moved=moved)


def _changed(repo: pygit2.Repository, old: str | None, new: str | None, going: Going) -> tuple[list[FileDiff], bool]:
    """Files that differ, and whether these are all. Equal subtrees are never opened."""
    found: list[FileDiff] = []
    room = limits.DIFF_ENTRIES_MAX
    folders: list[tuple[bytes, str | None, str | None]] = [(b"", old, new)]
    while folders:
        going()
        at, was_folder, is_folder = folders.pop()
        before, after = _rows(repo, was_folder), _rows(repo, is_folder)
        room -= len(before) + len(after)
        if room < 0 or len(found) > limits.DIFF_FILES_MAX or len(at) > _PATH_BYTES_MAX:
            return found[: limits.DIFF_FILES_MAX], False
        for name in before.keys() | after.keys():
            was, now = before.get(name), after.get(name)
            if was == now:
                continue
            below = [row.id if row is not None and row.folder else None for row in (was, now)]
            if any(below):
                folders.append((at + name + b"/", below[0], below[1]))
            here = [row is not None and not row.folder for row in (was, now)]
            if any(here):
                change: Change = "modified" if all(here) else ("added" if here[1] else "removed")
                found.append(FileDiff(change, at + name, at + name, None, None, (), "enough"))
    return found[: limits.DIFF_FILES_MAX], len(found) <= limits.DIFF_FILES_MAX


class _Row(NamedTuple):
    id: str
    folder: bool
    mode: int


def _rows(repo: pygit2.Repository, tree: str | None) -> dict[bytes, _Row]:
    found = repo[tree] if tree is not None else None
    if not isinstance(found, pygit2.Tree):
        return {}
    return {row.raw_name or b"": _Row(str(row.id), row.type == ObjectType.TREE, row.filemode) for row in found}


def _with_lines(repo: pygit2.Repository, old: str | None, new: str, going: Going, *, moved: bool) -> Diff:
    """`moved`: a file came and another went, so one may be the other."""
    tree = repo[new]
    assert isinstance(tree, pygit2.Tree)
    diff = repo.diff(old, new) if old is not None else tree.diff_to_tree(swap=True)
    assert isinstance(diff, pygit2.Diff)
    if moved:
        diff.find_similar(DiffFind.FIND_RENAMES, rename_limit=limits.DIFF_RENAMES_MAX)
    room = limits.DIFF_LINES_MAX
    files = []
    for number, delta in enumerate(diff.deltas):
        going()
        file = _file(repo, diff, number, delta, room)
        room -= sum(len(hunk.lines) for hunk in file.hunks)
        files.append(file)
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return Diff(tuple(files), added, removed, more=False)


def _file(repo: pygit2.Repository, diff: pygit2.Diff, number: int, delta: pygit2.DiffDelta, room: int) -> FileDiff:
    sides = (delta.old_file, delta.new_file)
    change = _CHANGES.get(delta.status, "modified")
    file = FileDiff(change, sides[0].raw_path, sides[1].raw_path, None, None, (), "")
    if any(side.mode == pygit2.enums.FileMode.COMMIT for side in sides):
        return replace(file, why_not="submodule")
    if any(_bytes(repo, side) > limits.DIFF_FILE_BYTES_MAX for side in sides):
        return replace(file, why_not="large")
    patch = diff[number]
    if patch is None or patch.delta.is_binary:
        return replace(file, why_not="binary" if patch is not None else "")
    _, added, removed = patch.line_stats
    counted = replace(file, added=added, removed=removed)
    if added + removed > room:
        return replace(counted, why_not="enough")
    return replace(counted, hunks=tuple(_hunk(hunk) for hunk in patch.hunks))


def _bytes(repo: pygit2.Repository, side: pygit2.DiffFile) -> int:
    absent = not side.id.raw.strip(b"\0")
    return 0 if absent else repo.odb.read_header(side.id)[1]


def _hunk(hunk: pygit2.DiffHunk) -> Hunk:
    lines: list[Line] = []
    for line in hunk.lines:
        text = line.raw_content.decode("utf-8", "replace")
        if line.origin not in (" ", "+", "-"):  # `\ No newline at end of file`, about the line before
            lines[-1] = replace(lines[-1], ends=False)
            continue
        old, new = (number if number > 0 else None for number in (line.old_lineno, line.new_lineno))
        sign: Literal[" ", "+", "-"] = "+" if line.origin == "+" else "-" if line.origin == "-" else " "
        lines.append(Line(sign, old, new, text.removesuffix("\n").removesuffix("\r")))
    section = _HUNK_PLACE.sub("", hunk.header, count=1).strip()
    return Hunk(hunk.old_start, hunk.new_start, section, tuple(lines))
