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
from pygit2.enums import DiffFind, FileMode, ObjectType

from vole.base import limits
from vole.base.errors import NotFound
from vole.base.ids import CommitId
from vole.git import objects
from vole.git.objects import Commit, Going, Held
from vole.git.storage import open_repository

Change = Literal["added", "removed", "modified", "renamed", "retyped"]

_HUNK_PLACE = re.compile(r"@@ [^@]* @@ ?")
_PATH_BYTES_MAX = 4096  # PATH_MAX: no working tree can hold a longer one
_CHANGES: dict[str, Change] = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "T": "retyped"}
_ROW = re.compile(rb"0*([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)  # of a tree as git keeps it: mode, name, id
_FOLDER = b"40000"


class Line(NamedTuple):
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


class CostlyError(Exception):
    """More to do than may be done at once."""


@dataclass
class _Room:
    """What a comparison may take: `at_once`, CostlyError where it is over; else the page says what it does not show."""

    repo: pygit2.Repository
    going: Going
    at_once: bool
    lines: int
    objects: int = 0  # measured so far

    def size(self, oid: pygit2.Oid | str) -> int:
        """Bytes of an object that is to be read. Raises KeyError for one that is not there."""
        size: int = self.repo.odb.read_header(oid)[1]
        self.objects += 1
        self.refuse(size > limits.AT_ONCE_BYTES_MAX or self.objects > limits.AT_ONCE_OBJECTS_MAX)
        return size

    def refuse(self, over: bool) -> None:
        if over and self.at_once:
            raise CostlyError


def of_commit(repository: Path, commit_id: CommitId, going: Going) -> tuple[Commit, Diff]:
    """The commit, and what it changed against its first parent, or against nothing. Raises NotFound."""
    return _of_commit(_Room(open_repository(repository), going, at_once=False, lines=limits.DIFF_LINES_MAX), commit_id)


def of_small_commit(held: Held, repository: Path, commit_id: CommitId) -> tuple[Commit, Diff]:
    """The same in about a millisecond, for a thread that others wait for. Raises CostlyError where it takes longer."""
    room = _Room(held.open(repository), lambda: None, at_once=True, lines=limits.AT_ONCE_LINES_MAX)
    return _of_commit(room, commit_id)


def _of_commit(room: _Room, commit_id: CommitId) -> tuple[Commit, Diff]:
    found = _commit(room, commit_id)
    new = str(found.tree_id)
    old = str(_commit(room, CommitId(str(found.parent_ids[0]))).tree_id) if found.parent_ids else None
    files, whole = _changed(room, old, new)
    if not whole:
        return objects._as_commit(found), Diff(tuple(sorted(files, key=lambda file: file.new_path)), 0, 0, more=True)
    moved = {"added", "removed"} <= {file.change for file in files}
    room.refuse(moved or 2 * len(files) > limits.AT_ONCE_OBJECTS_MAX)
    return objects._as_commit(found), _with_lines(room, old, new, moved=moved)


def _commit(room: _Room, commit_id: CommitId) -> pygit2.Commit:
    try:
        room.size(commit_id)
    except KeyError:
        raise NotFound("there is no such commit") from None
    return objects._commit(room.repo, commit_id)


def _changed(room: _Room, old: str | None, new: str | None) -> tuple[list[FileDiff], bool]:
    """Files that differ, and whether these are all. Equal subtrees are never opened."""
    found: list[FileDiff] = []
    entries = limits.DIFF_ENTRIES_MAX
    folders: list[tuple[bytes, str | None, str | None]] = [(b"", old, new)]
    while folders:
        room.going()
        at, was_folder, is_folder = folders.pop()
        before, after = _rows(room, was_folder), _rows(room, is_folder)
        entries -= len(before) + len(after)
        if entries < 0 or len(found) > limits.DIFF_FILES_MAX or len(at) > _PATH_BYTES_MAX:
            return found[: limits.DIFF_FILES_MAX], False
        gone, come = ({name: (mode, oid) for mode, name, oid in rows} for rows in (before - after, after - before))
        for name in gone.keys() | come.keys():
            sides = (gone.get(name), come.get(name))
            below = [side[1].hex() if side is not None and side[0] == _FOLDER else None for side in sides]
            if any(below):
                folders.append((at + name + b"/", below[0], below[1]))
            here = [side is not None and side[0] != _FOLDER for side in sides]
            if any(here):
                change: Change = "modified" if all(here) else ("added" if here[1] else "removed")
                found.append(FileDiff(change, at + name, at + name, None, None, (), "enough"))
    room.refuse(len(found) > limits.DIFF_FILES_MAX)
    return found[: limits.DIFF_FILES_MAX], len(found) <= limits.DIFF_FILES_MAX


def _rows(room: _Room, tree: str | None) -> set[tuple[bytes, bytes, bytes]]:
    """Mode, name and id of every entry, read from the bytes: an object of pygit2 for each costs five times that."""
    if tree is None:
        return set()
    room.size(tree)
    kind, data = room.repo.read(tree)
    return set(_ROW.findall(data)) if kind == ObjectType.TREE else set()


def _with_lines(room: _Room, old: str | None, new: str, *, moved: bool) -> Diff:
    """`moved`: a file came and another went, so one may be the other."""
    tree, before = room.repo[new], None if old is None else room.repo[old]
    assert isinstance(tree, pygit2.Tree)
    assert before is None or isinstance(before, pygit2.Tree)
    diff = tree.diff_to_tree(swap=True) if before is None else before.diff_to_tree(tree)
    if moved:
        diff.find_similar(DiffFind.FIND_RENAMES, rename_limit=limits.DIFF_RENAMES_MAX)
    files = []
    for number, delta in enumerate(diff.deltas):
        room.going()
        file = _file(room, diff, number, delta)
        room.lines -= sum(len(hunk.lines) for hunk in file.hunks)
        files.append(file)
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return Diff(tuple(files), added, removed, more=False)


def _file(room: _Room, diff: pygit2.Diff, number: int, delta: pygit2.DiffDelta) -> FileDiff:
    sides = (delta.old_file, delta.new_file)
    change = _CHANGES.get(delta.status_char(), "modified")
    file = FileDiff(change, sides[0].raw_path, sides[1].raw_path, None, None, (), "")
    if any(side.mode == FileMode.COMMIT for side in sides):
        return replace(file, why_not="submodule")
    if any(_bytes(room, side) > limits.DIFF_FILE_BYTES_MAX for side in sides):
        return replace(file, why_not="large")
    patch = diff[number]
    if patch is None or patch.delta.is_binary:
        return replace(file, why_not="binary" if patch is not None else "")
    _, added, removed = patch.line_stats
    room.refuse(added + removed > room.lines)
    counted = replace(file, added=added, removed=removed)
    if added + removed > room.lines:
        return replace(counted, why_not="enough")
    return replace(counted, hunks=tuple(_hunk(hunk) for hunk in patch.hunks))


def _bytes(room: _Room, side: pygit2.DiffFile) -> int:
    absent = not side.id.raw.strip(b"\0")
    return 0 if absent else room.size(side.id)


def _hunk(hunk: pygit2.DiffHunk) -> Hunk:
    lines: list[Line] = []
    for line in hunk.lines:
        text = line.raw_content.decode("utf-8", "replace")
        if line.origin not in (" ", "+", "-"):  # `\ No newline at end of file`, about the line before
            lines[-1] = lines[-1]._replace(ends=False)
            continue
        old, new = (number if number > 0 else None for number in (line.old_lineno, line.new_lineno))
        sign: Literal[" ", "+", "-"] = "+" if line.origin == "+" else "-" if line.origin == "-" else " "
        lines.append(Line(sign, old, new, text.removesuffix("\n").removesuffix("\r")))
    section = _HUNK_PLACE.sub("", hunk.header, count=1).strip()
    return Hunk(hunk.old_start, hunk.new_start, section, tuple(lines))
