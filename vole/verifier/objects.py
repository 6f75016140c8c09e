"""Objects of a clone, none believed: each is hashed again; commits and trees have the one form that they may have."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pygit2

from vole.base import limits
from vole.base.errors import Invalid, NotFound

FILE, FOLDER = b"100644", b"40000"
_ENTRY = re.compile(rb"([0-7]+) ([^/\0]+)\0(.{20})", re.DOTALL)
_COMMIT = re.compile(
    rb"(?P<head>tree (?P<tree>[0-9a-f]{40})\n(?:parent (?P<parent>[0-9a-f]{40})\n)?"
    rb"author (?P<who>vole <(?P<principal>records@[0-9a-z]+)> (?P<at>[1-9][0-9]{0,11}) \+0000)\n"
    rb"committer (?P=who)\n)"
    rb"gpgsig (?P<signature>-----BEGIN SSH SIGNATURE-----\n(?: [A-Za-z0-9+/=]+\n)+ -----END SSH SIGNATURE-----)\n"
    rb"\n(?P<message>.*)",
    re.DOTALL,
)

Entries = dict[str, tuple[bytes, str]]  # by name: mode and id


@dataclass(frozen=True)
class Commit:
    """A commit of records. `payload` is what its signature is over."""

    id: str
    tree: str
    parent: str | None
    principal: str
    at_s: int
    signature: bytes
    payload: bytes


class Objects:
    """The objects and refs of the repository at `path`. Raises NotFound where there is none."""

    def __init__(self, path: Path) -> None:
        try:
            self._repository = pygit2.Repository(str(path))
        except pygit2.GitError as error:
            raise NotFound(f"{path} is no git repository: {error}", next_step="name the folder of a clone") from None
        self.entries = lru_cache(maxsize=64)(self._entries)  # each tree is read as the new one, then as the former

    def tip(self, ref: str) -> str:
        """Raises NotFound."""
        found = self._repository.references.get(ref)
        if found is None or not isinstance(found.target, pygit2.Oid):
            raise NotFound(f"there is no {ref} here", next_step=f"git fetch origin {ref}:{ref}")
        return str(found.target)

    @property
    def origin(self) -> str | None:
        """Where the clone was made from."""
        return next((remote.url for remote in self._repository.remotes if remote.name == "origin"), None)

    def read(self, kind: str, ident: str) -> bytes:
        """The bytes. Raises Invalid for an object that is missing, of another kind or with other bytes than its id."""
        try:
            _, size = self._repository.odb.read_header(pygit2.Oid(hex=ident))
            if size > limits.RECORD_OBJECT_BYTES_MAX:
                raise Invalid(f"{kind} {ident} has {size} bytes (RECORD_OBJECT_BYTES_MAX)")
            _, data = self._repository.odb.read(pygit2.Oid(hex=ident))
        except KeyError:
            raise Invalid(f"{kind} {ident} is missing", next_step="git fetch the records again") from None
        except pygit2.GitError as error:
            raise Invalid(f"{kind} {ident} cannot be read: {error}", next_step="git fsck") from None
        whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
        if hashlib.sha1(whole, usedforsecurity=False).hexdigest() != ident:
            raise Invalid(f"{ident} is no {kind}, or its bytes are not those of its id", next_step="git fsck")
        return data

    def commit(self, ident: str) -> Commit:
        """Raises Invalid for a commit in any other form than that of records."""
        found = _COMMIT.fullmatch(self.read("commit", ident))
        if found is None:
            raise Invalid("this is no signed commit of records")
        return Commit(
            ident,
            found["tree"].decode(),
            None if found["parent"] is None else found["parent"].decode(),
            found["principal"].decode(),
            int(found["at"]),
            found["signature"].replace(b"\n ", b"\n"),
            found["head"] + b"\n" + found["message"],
        )

    def _entries(self, ident: str) -> Entries:
        """What is in a tree. Raises Invalid for one that git would not write."""
        data = self.read("tree", ident)
        found = _ENTRY.findall(data)
        order = [name + b"/" if mode == FOLDER else name for mode, name, _ in found]
        whole = sum(len(mode) + len(name) + 22 for mode, name, _ in found) == len(data)
        if not whole or order != sorted(set(order)) or not {FILE, FOLDER}.issuperset(mode for mode, _, _ in found):
            raise Invalid(f"tree {ident} is not written as a tree of records")
        return {name.decode("utf-8", "backslashreplace"): (mode, blob.hex()) for mode, name, blob in found}
