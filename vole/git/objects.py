"""What pages show of a repository: branches, tags, trees, files, commits. Reads alone; each read has a bound.

Plain functions that block: call them in a thread. A repository is opened for each call, but where it is `Held`.
Names and paths are bytes inside git; here a path stays bytes, and a name becomes text with `surrogateescape`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import pygit2
from pygit2.enums import FileMode, ObjectType, SortMode

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import Exhausted, Invalid, NotFound
from vole.base.ids import CommitId
from vole.git.storage import open_repository

Kind = Literal["tree", "file", "executable", "link", "submodule"]
Going = Callable[[], None]  # called between pieces of work; raises when nobody waits for the answer any more

_KINDS: dict[int, Kind] = {
    FileMode.TREE: "tree",
    FileMode.BLOB: "file",
    FileMode.BLOB_EXECUTABLE: "executable",
    FileMode.LINK: "link",
    FileMode.COMMIT: "submodule",
}
_README = re.compile(rb"readme(?:\.(?:md|markdown|txt|rst))?", re.IGNORECASE)
_BINARY_PROBE_BYTES = 8000  # as git decides
_YEAR_9999_S = 253_402_300_799  # a commit may claim any time; no calendar shows a later one


@dataclass(frozen=True)
class Signature:
    """Who, and when, as the commit claims."""

    name: str
    email: str
    at: Moment


@dataclass(frozen=True)
class Commit:
    """One commit, its message whole."""

    id: CommitId
    parents: tuple[CommitId, ...]
    author: Signature
    committer: Signature
    message: str

    @property
    def subject(self) -> str:
        return self.message.lstrip("\n").partition("\n")[0]

    @property
    def body(self) -> str:
        return self.message.lstrip("\n").partition("\n")[2].strip("\n")


@dataclass(frozen=True)
class Ref:
    """A branch or a tag (peeled to its commit)."""

    kind: Literal["branch", "tag"]
    name: str
    commit: Commit


@dataclass(frozen=True)
class Refs:
    """The first of a repository's branches or tags, and how many there are."""

    shown: tuple[Ref, ...]
    total: int


@dataclass(frozen=True)
class Entry:
    """A row of a tree. `size` is bytes, None for what has none."""

    name: bytes
    kind: Kind
    id: str
    size: int | None


@dataclass(frozen=True)
class Tree:
    """The first entries of a folder, folders first, and how many there are."""

    id: str
    entries: tuple[Entry, ...]
    total: int
    readme: bytes | None  # name of the entry that is shown below


@dataclass(frozen=True)
class Blob:
    """A file. `data` is None when it is over the bound that was asked for."""

    id: str
    kind: Kind
    size: int
    data: bytes | None

    @property
    def binary(self) -> bool:
        return self.data is not None and is_binary(self.data)


@dataclass(frozen=True)
class Place:
    """A revision as an address names it, and what is left of the address: a path in it."""

    name: str  # branch, tag or commit id
    kind: Literal["branch", "tag", "commit"]
    commit: CommitId
    path: bytes


class Held:
    """Repositories kept open for HELD_S, for the loop's thread: opening one costs as much as reading a small commit.

    A folder that is held open keeps its inode: another repository of the same name is never taken for it.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Held] = OrderedDict()

    def open(self, path: Path) -> pygit2.Repository:
        """As `open_repository`. Raises NotFound, Unavailable."""
        name = str(path)
        held = self._open.get(name)
        if held is not None and held.still_at(name):
            return held.repository
        self._drop(name)
        self._open[name] = held = _Held(open_repository(path), os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        # Not longer, since what is open keeps its bytes on the disk after it is gone.
        asyncio.get_running_loop().call_later(limits.HELD_S, self._drop, name)
        if len(self._open) > limits.HELD_MAX:
            self._drop(next(iter(self._open)))
        return held.repository

    def close(self) -> None:
        """Let go of all."""
        for name in list(self._open):
            self._drop(name)

    def _drop(self, name: str) -> None:
        held = self._open.pop(name, None)
        if held is not None:
            os.close(held.folder)


@dataclass(frozen=True)
class _Held:
    repository: pygit2.Repository
    folder: int  # a descriptor of it

    def still_at(self, name: str) -> bool:
        """The same folder, and nothing borrowed: what opening it would say."""
        if os.path.exists(f"{name}/objects/info/alternates"):
            return False
        try:
            return os.path.samestat(os.stat(name), os.fstat(self.folder))
        except FileNotFoundError:
            return False


def is_binary(data: bytes) -> bool:
    """As git decides: a NUL among the first bytes."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def default_branch(repository: Path) -> str | None:
    """The short name of the branch HEAD names, or None while it has no commit."""
    repo = open_repository(repository)
    return None if repo.head_is_unborn else str(repo.lookup_reference("HEAD").target).removeprefix("refs/heads/")


def refs(
    repository: Path, kind: Literal["branch", "tag"], *, most: int, skip: int = 0, after: str | None = None
) -> Refs:
    """Branches by name, or tags newest name first, behind the name `after`. What leads to no commit is left out."""
    repo = open_repository(repository)
    prefix = _prefix(kind)
    names = sorted((name for name in repo.raw_listall_references() if name.startswith(prefix)), reverse=kind == "tag")
    if after is not None:
        skip = _behind(names, prefix + after.encode("utf-8", "surrogateescape"), reverse=kind == "tag")
    shown = (_ref(repo, kind, name, prefix) for name in names[skip : skip + most])
    return Refs(tuple(ref for ref in shown if ref is not None), len(names))


def _behind(names: list[bytes], last: bytes, *, reverse: bool) -> int:
    return next((at for at, name in enumerate(names) if (name < last if reverse else name > last)), len(names))


def locate(repository: Path, address: bytes) -> Place:
    """`main/docs/x.md` as branch (else tag, else commit id) and path; `HEAD` is the default branch. Raises NotFound.

    git keeps no ref `a` beside `a/b`, so the first that fits is the one that is meant.
    """
    repo = open_repository(repository)
    segments = address.split(b"/")
    if segments[0] == b"HEAD" and not repo.head_is_unborn:
        head = str(repo.lookup_reference("HEAD").target).removeprefix("refs/heads/")
        segments[:1] = head.encode("utf-8", "surrogateescape").split(b"/")
    kinds: tuple[Literal["branch", "tag"], ...] = ("branch", "tag")
    for kind in kinds:
        for count in range(1, len(segments) + 1):
            name = b"/".join(segments[:count])
            commit = _peeled(repo, _prefix(kind) + name)
            if commit is not None:
                return Place(_text(name), kind, CommitId(str(commit.id)), b"/".join(segments[count:]))
    try:
        found = _commit(repo, CommitId.parse(segments[0].decode("ascii", "replace")))
    except Invalid:
        raise NotFound("there is no such branch, tag or commit") from None
    return Place(str(found.id), "commit", CommitId(str(found.id)), b"/".join(segments[1:]))


def commit(repository: Path, commit_id: CommitId) -> Commit:
    """Raises NotFound."""
    return _as_commit(_commit(open_repository(repository), commit_id))


def history(repository: Path, tip: CommitId, *, skip: int, going: Going) -> tuple[tuple[Commit, ...], bool]:
    """A page of commits reachable from `tip`, newest first, and whether there are more.

    Raises NotFound; Exhausted beyond HISTORY_SKIP_MAX, since every skipped commit is read.
    """
    if skip > limits.HISTORY_SKIP_MAX:
        raise Exhausted(
            f"pages go back {limits.HISTORY_SKIP_MAX} commits (HISTORY_SKIP_MAX)", next_step="clone it and use git log"
        )
    repo = open_repository(repository)
    walk = repo.walk(_commit(repo, tip).id, SortMode.TIME)
    for at, _ in enumerate(islice(walk, skip)):
        if at % 256 == 0:
            going()
    page = [_as_commit(found) for found in islice(walk, limits.LIST_MAX + 1)]
    return tuple(page[: limits.LIST_MAX]), len(page) > limits.LIST_MAX


def commits_since(repository: Path, tip: CommitId, former: CommitId | None, most: int) -> list[CommitId]:
    """The commits that `tip` reaches and `former` (None: nothing) does not, newest first, at most `most`.

    None at all where either is not there any more.
    """
    repo = open_repository(repository)
    if tip not in repo or (former is not None and former not in repo):
        return []
    walk = repo.walk(repo[tip].id, SortMode.TOPOLOGICAL | SortMode.TIME)
    if former is not None:
        walk.hide(repo[former].id)
    return [CommitId(str(found.id)) for found in islice(walk, most)]


def tree(repository: Path, commit_id: CommitId, path: bytes) -> Tree:
    """The folder at `path` (empty: the root). Raises NotFound when it is none."""
    repo = open_repository(repository)
    found = _descend(repo, commit_id, path)
    if found.type != ObjectType.TREE:
        raise NotFound("there is no such folder")
    rows = sorted(_entries(found), key=lambda row: (row.kind != "tree", row.name))
    readmes = [row.name for row in rows if row.kind in ("file", "executable") and _README.fullmatch(row.name)]
    # `README.md` before `README`: the one with the most to show.
    readme = max(readmes, key=lambda name: (name.lower().endswith((b".md", b".markdown")), name), default=None)
    sized = tuple(_sized(repo, row) for row in rows[: limits.TREE_ENTRIES_MAX])
    return Tree(str(found.id), sized, len(rows), readme)


def blob(repository: Path, commit_id: CommitId, path: bytes, *, most_bytes: int) -> Blob:
    """The file at `path`, its bytes only when they are at most `most_bytes`. Raises NotFound when it is none."""
    repo = open_repository(repository)
    parent = _descend(repo, commit_id, path.rpartition(b"/")[0])
    row = next((row for row in _entries(parent) if row.name == path.rpartition(b"/")[2]), None)
    if row is None or row.kind in ("tree", "submodule"):
        raise NotFound("there is no such file")
    size = repo.odb.read_header(row.id)[1]
    data = repo.odb.read(row.id)[1] if size <= most_bytes else None
    return Blob(row.id, row.kind, size, data)


def _commit(repo: pygit2.Repository, commit_id: CommitId) -> pygit2.Commit:
    try:
        found = repo[commit_id]
    except KeyError:
        raise NotFound("there is no such commit") from None
    if not isinstance(found, pygit2.Commit):
        raise NotFound("there is no such commit")
    return found


def _peeled(repo: pygit2.Repository, name: bytes) -> pygit2.Commit | None:
    try:
        found = repo.lookup_reference(_text(name)).peel(pygit2.Commit)
    except (KeyError, ValueError, pygit2.GitError):  # no such ref, no valid name, or it leads to no commit
        return None
    assert isinstance(found, pygit2.Commit)
    return found


def _ref(repo: pygit2.Repository, kind: Literal["branch", "tag"], name: bytes, prefix: bytes) -> Ref | None:
    found = _peeled(repo, name)
    return None if found is None else Ref(kind, _text(name.removeprefix(prefix)), _as_commit(found))


def _descend(repo: pygit2.Repository, commit_id: CommitId, path: bytes) -> pygit2.Object:
    """The object at `path`, by comparing names as bytes: nothing of a path is ever a file name here."""
    found: pygit2.Object = repo[_commit(repo, commit_id).tree_id]
    for segment in path.split(b"/") if path else []:
        entries = _entries(found) if isinstance(found, pygit2.Tree) else iter(())
        row = next((row for row in entries if row.name == segment and row.kind != "submodule"), None)
        if row is None:
            raise NotFound("there is no such file or folder")
        found = repo[row.id]
    return found


def _entries(found: pygit2.Object) -> Iterator[Entry]:
    if not isinstance(found, pygit2.Tree):
        raise NotFound("there is no such folder")
    for row in found:
        assert row.raw_name is not None
        yield Entry(row.raw_name, _KINDS.get(row.filemode, "file"), str(row.id), None)


def _sized(repo: pygit2.Repository, row: Entry) -> Entry:
    if row.kind in ("tree", "submodule"):
        return row
    return Entry(row.name, row.kind, row.id, repo.odb.read_header(row.id)[1])


def _as_commit(found: pygit2.Commit) -> Commit:
    return Commit(
        id=CommitId(str(found.id)),
        parents=tuple(CommitId(str(parent)) for parent in found.parent_ids),
        author=_signature(found.author),
        committer=_signature(found.committer),
        message=found.raw_message[: limits.COMMIT_MESSAGE_BYTES_MAX].decode("utf-8", "replace"),
    )


def _signature(found: pygit2.Signature) -> Signature:
    name, email = (raw[:200].decode("utf-8", "replace") for raw in (found.raw_name, found.raw_email))
    return Signature(name, email, Moment(min(max(found.time, 0), _YEAR_9999_S) * 1_000_000))


def _prefix(kind: Literal["branch", "tag"]) -> bytes:
    return b"refs/heads/" if kind == "branch" else b"refs/tags/"


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
