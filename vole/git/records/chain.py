"""Records read back as evidence: a document counts where the commit that brought it is signed by a key of the server.

Plain functions that block. What a document says is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pygit2

from vole.base import limits
from vole.base.errors import Exhausted, Invalid, NotFound
from vole.base.ids import CommitId
from vole.git.records.commits import RUNS
from vole.git.records.keys import Signer
from vole.git.records.sshsig import signer_of
from vole.git.storage import open_repository


@dataclass(frozen=True)
class Proven:
    """A document, and the signed commit that brought it."""

    commit: CommitId
    data: bytes


class Chain:
    """The records of the repository at `path` as they stand when it is made, by the server's own list of `signers`."""

    def __init__(self, path: Path, signers: Sequence[Signer]) -> None:
        """Raises NotFound for a repository that is gone."""
        self._repository = open_repository(path)
        self._signers = {signer.key: signer for signer in signers}
        found = self._repository.references.get(RUNS)
        self._links = [] if found is None else [found.peel(pygit2.Commit).id]  # from the tip back, as far as was asked
        self._reason: dict[pygit2.Oid, str | None] = {}

    def find(self, place: str) -> Proven:
        """The document at `place` (docs/records.md). Raises NotFound where there is none, Invalid where nothing vouches
        for it, Exhausted for one further back than RECORD_CHAIN_MAX commits.
        """
        blob = self._at(0, place)
        if blob is None:
            raise NotFound(f"there is no record {place}")
        brought = self._links[self._brought(place, blob)]
        if reason := self._why_not(brought):
            raise Invalid(f"the record commit {str(brought)[:10]} {reason}")
        data = self._repository[blob]
        if not isinstance(data, pygit2.Blob):
            raise Invalid(f"{place} is no file")
        return Proven(CommitId(str(brought)), data.data)

    def _brought(self, place: str, blob: pygit2.Oid) -> int:
        """How far back `blob` came to `place`: the commit there has it, and its parent has not.

        In growing steps, then by halves: between the two a chain of many thousand commits is not looked at.
        """
        has, step, last = 0, 1, limits.RECORD_CHAIN_MAX
        while self._at(min(has + step, last), place) == blob:
            has, step = min(has + step, last), step * 2
            if has == last:
                raise Exhausted(f"the record is more than {last} commits back (RECORD_CHAIN_MAX)")
        lacks = min(has + step, last)
        while lacks - has > 1:
            middle = (has + lacks) // 2
            has, lacks = (middle, lacks) if self._at(middle, place) == blob else (has, middle)
        return has

    def _at(self, back: int, place: str) -> pygit2.Oid | None:
        """What stands at `place` that many commits back; None before the first."""
        while self._links and len(self._links) <= back:
            link = self._commit(self._links[-1])
            if len(link.parent_ids) > 1:
                raise Invalid(f"the record commit {str(link.id)[:10]} has several parents")
            if not link.parent_ids:
                return None
            self._links.append(link.parent_ids[0])
        try:
            return self._commit(self._links[back]).tree[place].id if self._links else None
        except KeyError:
            return None

    def _commit(self, ident: pygit2.Oid) -> pygit2.Commit:
        found = self._repository[ident]
        assert isinstance(found, pygit2.Commit), f"{ident} is no commit"
        return found

    def _why_not(self, commit: pygit2.Oid) -> str | None:
        if commit not in self._reason:
            self._reason[commit] = self._judged(self._commit(commit))
        return self._reason[commit]

    def _judged(self, commit: pygit2.Commit) -> str | None:
        signature, payload = commit.gpg_signature
        if signature is None or payload is None:
            return "is not signed"
        signer = self._signers.get(signer_of(signature.decode("utf-8", "replace"), payload) or "")
        if signer is None:
            return "is signed by no record key of this server"
        at, after, before = commit.commit_time, signer.after_s, signer.before_s
        if (after is not None and at < after) or (before is not None and at > before):
            return f"is dated outside the time of its key {signer.fingerprint}"
        return None
