"""What a server's folder takes on the disk, by repository. Reads only, served or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vole.base.clock import Clock
from vole.base.ids import RepoId, RepoName
from vole.config.server import Paths
from vole.evidence.logs import bytes_below
from vole.evidence.reads import stored
from vole.evidence.reads.stored import Freed
from vole.git import copies as git
from vole.git.storage import Storage
from vole.jobs import reads as jobs
from vole.jobs.reads import RunsKept
from vole.repos import reads as hosted
from vole.store import copies


@dataclass(frozen=True)
class RepoSpace:
    """Bytes, but for what is called a number."""

    repository: RepoName
    git: int  # the whole repository; its records are in it
    logs: int
    artifacts: int
    records: int  # as they are read
    records_number: int
    runs: RunsKept
    freed: Freed  # by retention and by command, of runs that still have rows


@dataclass(frozen=True)
class Space:
    repositories: tuple[RepoSpace, ...]
    database: int
    rest: int  # of the folder: what jobs are sending, what no repository has

    @property
    def total(self) -> int:
        return self.database + self.rest + sum(one.git + one.logs + one.artifacts for one in self.repositories)


def measure(paths: Paths, clock: Clock) -> Space:
    """Walk through the folder. Raises NotFound for a repository whose folder is missing, Unavailable, Conflict."""
    with copies.opened(paths.database, clock.now()) as store:
        repos = store.read(hosted.repos)
        kept, freed = store.read(jobs.runs_kept), store.read(stored.freed)
    found = tuple(_repository(paths, repo.id, repo.name, kept[repo.id], freed[repo.id]) for repo in repos)
    database = sum(path.stat().st_size for path in _database(paths))
    told = database + sum(one.git + one.logs + one.artifacts for one in found)
    return Space(found, database, max(0, bytes_below(paths.root) - told))


def _repository(paths: Paths, repo: RepoId, name: RepoName, runs: RunsKept, freed: Freed) -> RepoSpace:
    path = Storage(paths.repos).path(name)
    number, recorded = git.recorded(path)
    logs, artifacts = bytes_below(paths.logs / name), bytes_below(paths.artifacts / str(repo))
    return RepoSpace(name, bytes_below(path), logs, artifacts, recorded, number, runs, freed)


def _database(paths: Paths) -> Iterator[Path]:
    return paths.root.glob(f"{paths.database.name}*")
