"""Documents to commits of an append-only chain: objects written as git writes them, the ref moved last, if it still
stands where it stood.

In Python, for libgit2 keeps the interpreter to itself while it waits for the disk.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pygit2

from vole.base import log
from vole.base.clock import Moment
from vole.base.errors import Conflict, Unavailable
from vole.base.ids import CommitId, RefName
from vole.git.records.keys import RecordKeys
from vole.git.storage import open_repository, sync_folder

_log = log.get("vole.git.records")

RUNS = RefName("refs/vole/runs")
ADMIN = RefName("refs/vole/admin")  # of `vole-admin.git`
SIGNERS = "record-signers"  # in the tree of each chain, so that a clone has it
_FILE, _FOLDER = "100644", "40000"

Files = dict[str, "bytes | Files | None"]  # None: there is to be none


@dataclass(frozen=True)
class Stamp:
    """What a commit says beside its files."""

    message: str
    now: Moment


def append(path: Path, ref: RefName, files: Mapping[str, bytes], keys: RecordKeys, stamp: Stamp) -> CommitId | None:
    """One signed commit on top of `ref` that adds `files`; the tip. Done twice is done once: what stands there stays,
    and where nothing is new there is no commit. None: there are no records at all.

    Raises NotFound for a repository that is gone, Conflict when somebody else moved the ref, Unavailable when the disk
    takes no more; the ref is as before then.
    """
    repository = open_repository(path)
    tip = _tip(repository, ref)
    tree = None if tip is None else tip.tree
    new = {place: data for place, data in files.items() if not _stands(tree, place, data)}
    if not new:
        return None if tip is None else CommitId(str(tip.id))
    if tree is None or SIGNERS not in tree or tree[SIGNERS].id != pygit2.hash(keys.allowed_signers):
        new[SIGNERS] = keys.allowed_signers
    return _commit_on(repository, ref, tip, new, keys, stamp)


def put(path: Path, ref: RefName, files: Mapping[str, bytes | None], keys: RecordKeys, stamp: Stamp) -> CommitId | None:
    """As `append`, of what changes: a file gets these bytes whatever it had, and None takes it away."""
    repository = open_repository(path)
    tip = _tip(repository, ref)
    tree = None if tip is None else tip.tree
    wanted = {**files, SIGNERS: keys.allowed_signers}
    new = {place: data for place, data in wanted.items() if _blob(tree, place) != (data and pygit2.hash(data))}
    if not new.keys() & files.keys():
        return None if tip is None else CommitId(str(tip.id))
    return _commit_on(repository, ref, tip, new, keys, stamp)


def documents(path: Path, ref: RefName, place: str, depth: int) -> Iterator[dict[str, bytes]]:
    """What stands at `ref`, by path: all files of each folder that lies `depth` below `place`, as one.

    Folders that are numbers come in their order. Nothing where there is no such ref or place.
    """
    repository = open_repository(path)
    tip = _tip(repository, ref)
    try:
        tree = None if tip is None else tip.tree / place if place else tip.tree
    except KeyError:
        return
    if isinstance(tree, pygit2.Tree):
        yield from _folders(tree, f"{place}/" if place else "", depth)


def _commit_on(
    repository: pygit2.Repository,
    ref: RefName,
    tip: pygit2.Commit | None,
    new: Mapping[str, bytes | None],
    keys: RecordKeys,
    stamp: Stamp,
) -> CommitId:
    try:
        objects = _Objects(Path(repository.path, "objects"))
        root = _graft(repository, objects, None if tip is None else tip.tree, _nested(new))
        commit = objects.write("commit", _commit(root, tip, keys, stamp))
        objects.sync()
        move_ref(repository, ref, None if tip is None else CommitId(str(tip.id)), commit)
    except OSError as error:
        place = Path(repository.path).name
        raise Unavailable(f"records cannot be written to {place} just now: {error.strerror}") from None
    return commit


def standing(repository: pygit2.Repository, ref: RefName, place: str) -> CommitId | None:
    """The tip of `ref`, if the file `place` stands there: who verifies that commit verifies the file."""
    tip = _tip(repository, ref)
    try:
        return None if tip is None or tip.tree[place] is None else CommitId(str(tip.id))
    except KeyError:
        return None


def move_ref(repository: pygit2.Repository, ref: RefName, old: CommitId | None, new: CommitId) -> None:
    """Move `ref` if it stands at `old`, and durably. Raises Conflict."""
    place = Path(repository.path, ref)
    lock = place.with_name(f"{place.name}.lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise Conflict(f"{ref} is locked by another program") from None
    try:
        with os.fdopen(descriptor, "w") as file:
            found = repository.references.get(ref)
            if (None if found is None else str(found.target)) != old:
                raise Conflict(f"{ref} was moved by another program")
            file.write(f"{new}\n")
            file.flush()
            os.fsync(file.fileno())
        lock.rename(place)
    except BaseException:
        lock.unlink(missing_ok=True)
        raise
    for folder in (place.parent, place.parent.parent):
        sync_folder(folder)


@dataclass
class _Objects:
    """Loose objects in a folder; durable after `sync`."""

    folder: Path
    _touched: set[Path] = field(default_factory=set)

    def write(self, kind: str, data: bytes) -> CommitId:
        """The object's id."""
        whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
        ident = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        folder = self.folder / ident[:2]
        place = folder / ident[2:]
        self._touched |= {folder, self.folder}
        if place.exists():
            return CommitId(ident)
        folder.mkdir(exist_ok=True)
        fresh = folder / f"tmp_obj_{ident}"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444), "wb") as file:
            file.write(zlib.compress(whole))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(place)
        return CommitId(ident)

    def sync(self) -> None:
        """The names too."""
        for folder in self._touched:
            sync_folder(folder)


def _tip(repository: pygit2.Repository, ref: RefName) -> pygit2.Commit | None:
    found = repository.references.get(ref)
    return None if found is None else found.peel(pygit2.Commit)


def _stands(tree: pygit2.Tree | None, place: str, data: bytes) -> bool:
    """Whether the file is there. A record is never written again: one with other bytes is an alarm, and stays."""
    found = _blob(tree, place)
    if found not in (None, pygit2.hash(data)):
        _log.error("a record stands with other bytes than it would have now; it stays", path=place, blob=str(found))
    return found is not None


def _blob(tree: pygit2.Tree | None, place: str) -> pygit2.Oid | None:
    try:
        return None if tree is None else tree[place].id
    except KeyError:
        return None


def _folders(tree: pygit2.Tree, place: str, depth: int) -> Iterator[dict[str, bytes]]:
    if depth == 0:
        yield dict(_files(tree, place))
        return
    inner = [(str(entry.name), entry) for entry in tree if isinstance(entry, pygit2.Tree)]
    for name, entry in sorted(inner, key=lambda one: (len(one[0]), one[0])):
        yield from _folders(entry, f"{place}{name}/", depth - 1)


def _files(tree: pygit2.Tree, place: str) -> Iterator[tuple[str, bytes]]:
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            yield from _files(entry, f"{place}{entry.name}/")
        elif isinstance(entry, pygit2.Blob):
            yield f"{place}{entry.name}", entry.data


def _nested(files: Mapping[str, bytes | None]) -> Files:
    root: Files = {}
    for place, data in files.items():
        *folders, name = place.split("/")
        within = root
        for folder in folders:
            inner = within.setdefault(folder, {})
            assert isinstance(inner, dict), f"{place} lies below a file"
            within = inner
        within[name] = data
    return root


def _graft(repository: pygit2.Repository, objects: _Objects, tree: pygit2.Tree | None, files: Files) -> CommitId:
    """The tree with `files` in it."""
    entries = {} if tree is None else {str(entry.name): (f"{entry.filemode:o}", str(entry.id)) for entry in tree}
    for name, new in files.items():
        if new is None:
            entries.pop(name, None)
        elif isinstance(new, bytes):
            entries[name] = (_FILE, objects.write("blob", new))
        else:
            below = repository[entries[name][1]].peel(pygit2.Tree) if name in entries else None
            entries[name] = (_FOLDER, _graft(repository, objects, below, new))
    order = sorted(entries, key=lambda name: name + "/" if entries[name][0] == _FOLDER else name)
    return objects.write(
        "tree", b"".join(f"{entries[name][0]} {name}\0".encode() + bytes.fromhex(entries[name][1]) for name in order)
    )


def _commit(tree: CommitId, parent: pygit2.Commit | None, keys: RecordKeys, stamp: Stamp) -> bytes:
    """Times never go back along the chain, nor before the key that signs: its dates are held against them."""
    at = max(stamp.now // 1_000_000, 0 if parent is None else parent.commit_time, keys.current.after_s or 0)
    who = f"vole <{keys.current.principal}> {at} +0000"
    head = f"tree {tree}\n" + ("" if parent is None else f"parent {parent.id}\n")
    head += f"author {who}\ncommitter {who}\n"
    payload = f"{head}\n{stamp.message}".encode()
    signature = keys.sign(payload).replace("\n", "\n ")
    return f"{head}gpgsig {signature}\n\n{stamp.message}".encode()
