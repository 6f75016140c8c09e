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
    """The records of the repository at `path` as they stand now, judged by the server's own list of `signers`."""

    def __init__(self, path: Path, signers: Sequence[Signer]) -> None:
        """Raises NotFound for a repository that is gone."""
        self._repository = open_repository(path)
        self._signers = {signer.key: signer for signer in signers}
        self._reason: dict[pygit2.Oid, str | None] = {}

    def find(self, place: str) -> Proven:
        """The document at `place` (docs/records.md). Raises NotFound where there is none, Invalid where nothing vouches
        for it, Exhausted for one further back than RECORD_CHAIN_MAX commits.
        """
        found = self._repository.references.get(RUNS)
        commit = None if found is None else found.peel(pygit2.Commit)
        blob = None if commit is None else _at(commit, place)
        if commit is None or blob is None:
            raise NotFound(f"there is no record {place}")
        commit = self._brought(commit, place, blob)
        if reason := self._why_not(commit):
            raise Invalid(f"the record commit {str(commit.id)[:10]} {reason}")
        data = self._repository[blob]
        if not isinstance(data, pygit2.Blob):
            raise Invalid(f"{place} is no file")
        return Proven(CommitId(str(commit.id)), data.data)

    def _brought(self, commit: pygit2.Commit, place: str, blob: pygit2.Oid) -> pygit2.Commit:
        """Where `blob` came to `place`, from `commit` back."""
        for _ in range(limits.RECORD_CHAIN_MAX):
            if len(commit.parent_ids) > 1:
                raise Invalid(f"the record commit {str(commit.id)[:10]} has several parents")
            former = commit.parents[0] if commit.parent_ids else None
            if former is None or _at(former, place) != blob:
                return commit
            commit = former
        raise Exhausted(f"the record is more than {limits.RECORD_CHAIN_MAX} commits back (RECORD_CHAIN_MAX)")

    def _why_not(self, commit: pygit2.Commit) -> str | None:
        if commit.id not in self._reason:
            self._reason[commit.id] = self._judged(commit)
        return self._reason[commit.id]

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


def _at(commit: pygit2.Commit, place: str) -> pygit2.Oid | None:
    try:
        return commit.tree[place].id
    except KeyError:
        return None
