"""Bytes under a lease: logs and artifacts in, needed artifacts and the source out. The lease is the credential."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from vole.base import limits
from vole.base.errors import Exhausted, NotFound
from vole.base.ids import CommitId, Epoch, JobId, RepoName
from vole.evidence import reads as evidence
from vole.evidence.model import Upload
from vole.flows.leasing.desk import Desk, log_key
from vole.jobs import reads
from vole.repos.model import Repo
from vole.runners.roster import Session
from vole.wire.runner import ArtifactFile


@dataclass(frozen=True)
class SourceFacts:
    """What the source channel of a lease serves: one repository, one commit."""

    repo: RepoName
    commit: CommitId
    depth: int  # 0: the whole history


@dataclass(frozen=True)
class Shipping:
    """Every deed takes the live lease as its credential and raises Fenced without it."""

    desk: Desk
    _uploads: defaultdict[tuple[JobId, Epoch], set[str]] = field(default_factory=lambda: defaultdict(set))

    async def log_position(self, session: Session, job: JobId, epoch: Epoch) -> int:
        """Where the next byte of the attempt's log goes."""
        held = self.desk.held(session, job, epoch)
        return self.desk.parts.logs.length(log_key(held, epoch))

    async def append_log(self, session: Session, job: JobId, epoch: Epoch, offset: int, data: bytes) -> int:
        """The log's length after `data` at `offset`. Raises WrongOffset for any place but the end, Exhausted."""
        held = self.desk.held(session, job, epoch)
        length = self.desk.parts.logs.append_at(log_key(held, epoch), offset, data)
        self.desk.parts.bells.ring(f"log:{job}")
        return length

    async def artifact_begin(self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile) -> int:
        """How many bytes of the file are here. Raises Invalid, Exhausted."""
        upload = self._upload(session, job, epoch, file)
        begun = self._uploads[job, epoch]
        begun.add(file.sha256)
        if len(begun) > limits.ARTIFACT_FILES_MAX:
            raise Exhausted(f"more than {limits.ARTIFACT_FILES_MAX} artifact files of one job (ARTIFACT_FILES_MAX)")
        self._forget_ended()
        return self.desk.parts.artifacts.begin(upload)

    async def artifact_append(
        self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile, offset: int, data: bytes
    ) -> int:
        """The file's length after `data` at `offset`. Raises WrongOffset."""
        return self.desk.parts.artifacts.append(self._upload(session, job, epoch, file), offset, data)

    async def artifact_commit(self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile) -> None:
        """The file is whole: verified, durable. Raises Conflict for other bytes than were declared."""
        await asyncio.to_thread(self.desk.parts.artifacts.commit, self._upload(session, job, epoch, file))

    async def artifact_list(self, session: Session, job: JobId, epoch: Epoch, name: str) -> tuple[ArtifactFile, ...]:
        """The files of an artifact of the jobs that this one needs. Raises NotFound when none of them has it."""
        self.desk.held(session, job, epoch)
        files = await self.desk.parts.db.read(evidence.needed_files, job, name)
        if not files:
            raise NotFound(f"no job that this one needs has kept an artifact {name[:80]!r}")
        return files

    async def artifact_path(self, session: Session, job: JobId, epoch: Epoch, name: str, path: str) -> Path:
        """Where one of those files lies. Raises NotFound."""
        held = self.desk.held(session, job, epoch)
        files = await self.artifact_list(session, job, epoch, name)
        file = next((file for file in files if file.path == path), None)
        if file is None:
            raise NotFound(f"artifact {name[:80]!r} has no file {path[:80]!r}")
        return self.desk.parts.artifacts.path(held.repo, file.sha256)

    async def source(self, session: Session, job: JobId, epoch: Epoch) -> SourceFacts:
        """What may be fetched under this lease, from its grant on."""
        held = self.desk.held(session, job, epoch)
        pinned = await self.desk.parts.db.read(reads.pinned, job)
        self.desk.held(session, job, epoch)
        return SourceFacts(held.repo_name, pinned.commit, pinned.depth)

    async def repository_removed(self, repo: Repo) -> None:
        """After the change that removed it: tell the runners that held its jobs, and forget its files."""
        parts = self.desk.parts
        for ended in await parts.db.read(reads.ended_with_repo, repo.id):
            session = parts.roster.get(ended.session)
            if session is not None:
                session.order(self.desk.order_of(ended))
        await asyncio.to_thread(parts.logs.remove_repo, repo.name)
        await asyncio.to_thread(parts.artifacts.remove_repo, repo.id)
        parts.bells.ring("jobs", "queue", "runners", "people")

    def _upload(self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile) -> Upload:
        return Upload(self.desk.held(session, job, epoch).repo, job, epoch, file)

    def _forget_ended(self) -> None:
        for lease in [lease for lease in self._uploads if lease not in self.desk.parts.index.held]:
            del self._uploads[lease]
