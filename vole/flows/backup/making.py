"""The backup of a folder that may be served meanwhile: the database first, then what it refers to. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import vole
from vole.base.clock import Clock, Span, iso, seconds
from vole.base.errors import Conflict, NotFound, Unavailable
from vole.config import server
from vole.config.server import Config, Paths
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.evidence.reads import stored as evidence
from vole.flows.backup import files
from vole.flows.backup.files import About, Copier, Progress
from vole.git import copies as git
from vole.git.storage import Storage
from vole.jobs import reads as jobs
from vole.repos import reads as hosted
from vole.store import copies
from vole.store.copies import Copy

_KEYS = ("keys/record_ed25519", "keys/ssh_host_ed25519")  # private ones
_PUBLIC = ("keys/record_signers", "keys/ssh_host_ed25519.pub")


@dataclass(frozen=True)
class Made:
    """What a backup holds, and what it does not."""

    place: Path
    repositories: int
    refs: int
    files: int
    bytes: int
    left_out: tuple[str, ...]


def back_up(paths: Paths, place: Path, clock: Clock, progress: Progress, *, keys: bool) -> Made:
    """Make the backup `place`, a folder or by its name a tar file, and hold it against what it should be.

    Raises NotFound where no server was made, Conflict for a place that is taken or a repository that was removed
    meanwhile, Unavailable for a backup that is not whole; `place` is as before then.
    """
    config = server.load(paths.root)
    place = place.absolute()
    if not files.is_tar(place):
        with files.made_whole(place) as making:
            return _make(config, making, place, (clock, progress), keys=keys)
    if place.exists():
        raise Conflict(f"{place} is there already; nothing was changed", next_step="name another file")
    if not place.parent.is_dir():
        raise NotFound(f"there is no folder {place.parent}")
    with TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as folder:
        made = _make(config, Path(folder), place, (clock, progress), keys=keys)
        progress(f"packing {place.name}", 0)
        files.pack(Path(folder), place)
        return made


def _make(config: Config, making: Path, place: Path, with_: tuple[Clock, Progress], *, keys: bool) -> Made:
    (clock, progress), paths = with_, config.paths
    copier = Copier(paths.root, making, progress)
    progress("the database", 0)
    copies.snapshot(paths.database, making / paths.database.name)
    copier.note(making / paths.database.name)
    with copies.opened(making / paths.database.name, clock.now()) as store:
        refs, repositories = _repositories(paths, store, copier)
        progress("logs", 0)
        copier.put_all("logs")
        progress("artifacts", 0)
        for folder in paths.artifacts.glob("[0-9]*"):  # beside them lies what jobs are sending
            copier.put_all(str(folder.relative_to(paths.root)))
        for name in (server.FILE, paths.deployment_id.name, *_PUBLIC, *(_KEYS if keys else ())):
            copier.put_if_there(name)
        progress("holding it against the original", 0)
        other, removed = _files(paths, store, copier)
        wrong = [*store.problems(), *_problems(making, store, config.retention.rerun_s), *other]
    if wrong:
        raise Unavailable(
            "\n".join(["the backup is not whole; it was thrown away", *wrong]), next_step="run `vole doctor`"
        )
    left_out = _left_out(paths, removed, keys=keys)
    about = About(iso(clock.now()), vole.__version__, server.deployment(paths), keys, left_out)
    copier.close(about)
    size = sum((making / name).stat().st_size for name in copier.sums)
    return Made(place, repositories, refs, len(copier.sums), size, left_out)


def _repositories(paths: Paths, store: Copy, copier: Copier) -> tuple[int, int]:
    """How many refs, of how many repositories."""
    (copier.into / paths.repos.name).mkdir(mode=0o700)
    storage, refs = Storage(paths.repos), 0
    found = store.read(hosted.repos)
    for repo in found:
        copier.progress(f"repository {repo.name}", 0)
        path = storage.path(repo.name)
        try:
            refs += git.copy(path, copier.into / path.relative_to(paths.root), copier)
        except (NotFound, FileNotFoundError):
            raise Conflict(
                f"the repository {repo.name} is not there, or was removed while the backup was made",
                next_step="run it again; if it says so again, run `vole doctor`",
            ) from None
    if paths.admin_repository.exists():
        git.copy(paths.admin_repository, copier.into / paths.admin_repository.name, copier)
    return refs, len(found)


def _problems(making: Path, store: Copy, rerun_s: float) -> list[str]:
    """What the database names and the backup has not."""
    admin = Paths(making).admin_repository
    wrong: list[str] = git.problems(admin) if admin.exists() else []
    for repo in store.read(hosted.repos):
        path = making / "repos" / f"{repo.name}.git"
        wrong += git.problems(path)
        needed = store.read(jobs.commits_since, repo.id, seconds(rerun_s) if rerun_s else Span(store.now))
        wrong += [f"{repo.name}: the commit {one} of a run is missing" for one in git.missing_commits(path, needed)]
    admin = Paths(making).admin_repository
    return wrong + (git.problems(admin) if admin.exists() else [])


def _files(paths: Paths, store: Copy, copier: Copier) -> tuple[list[str], list[str]]:
    """Which files of logs and artifacts are not as rows say, and which were removed since the database was taken."""
    named = _named(paths, store)
    wrong = [
        f"{name} has other bytes than it had" for name in named if copier.sums.get(name, named[name]) != named[name]
    ]
    missing = named.keys() - copier.sums.keys()
    with copies.opened(paths.database, store.now) as now:
        removed = missing - _named(paths, now).keys() if missing else set()
    return wrong + [f"{name} is missing" for name in sorted(missing - removed)], sorted(removed)


def _named(paths: Paths, store: Copy) -> dict[str, str | None]:
    """The files that rows name, with their SHA-256."""
    logs, artifacts = LogStore(paths.logs), ArtifactStore(paths.artifacts)
    named = [(logs.path(log.key), log.sha256) for log in store.read(evidence.whole_logs)]
    named += [(artifacts.place(repo, sha256), sha256) for repo, sha256 in store.read(evidence.stored_artifacts)]
    return {str(place.relative_to(paths.root)): sha256 for place, sha256 in named}


def _left_out(paths: Paths, removed: list[str], *, keys: bool) -> tuple[str, ...]:
    told = ["run/ (locks, hooks, sockets): made at each start"]
    if not keys:
        told.append(f"private keys ({', '.join(_KEYS)}): --with-keys takes them")
    told.append("files that vole.yaml names elsewhere (web.tls): back them up with it")
    told += [f"{name}: removed while the backup was made" for name in removed]
    if any(paths.artifacts.glob("partial/*/*")):
        told.append("artifacts/partial/ (files that jobs are sending): sent again")
    return tuple(told)
