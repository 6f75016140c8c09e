"""Commits are held while a run needs them, and for `retention.rerun` beyond."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import stored
from tests.aio import run
from tests.queueing import a_job, a_run
from vole.base.clock import ManualClock, seconds
from vole.base.entropy import SeededEntropy
from vole.base.ids import AccountName, CommitId, PushId, RefName, RepoName
from vole.flows.retention import Retention
from vole.git import storage as git
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs.index import QueueIndex
from vole.jobs.model import RunSource
from vole.repos import ledger as repos
from vole.repos.model import Intent, Repo, RunDocument
from vole.store.database import Database
from vole.wire import codec
from vole.wire.hook import RefUpdate
from vole.wire.plan import RunPlan

pytestmark = pytest.mark.needs("git")
APP = RepoName("app")
DAY = seconds(86_400)


@dataclass
class House:
    db: Database
    storage: Storage
    clock: ManualClock
    index: QueueIndex
    repo: Repo
    rerun_s: float = 30 * 86_400.0
    pushes: int = 0

    def commit(self, message: str) -> CommitId:
        """A commit that only its keep ref holds."""
        path = self.storage.path(APP)
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        words = ["commit-tree", "-m", message, "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]
        subprocess.run(["git", "-C", path, "hash-object", "-wt", "tree", "/dev/null"], check=True, capture_output=True)
        made = subprocess.run(["git", "-C", path, *identity, *words], check=True, capture_output=True, text=True)
        commit = CommitId(made.stdout.strip())
        git.keep(git.open_repository(path), [commit])
        return commit

    async def runs(self, plan: RunPlan) -> None:
        self.pushes += 1
        await self.db.write(jobs.enqueue_run, self.index, RunSource(self.repo.id, PushId(self.pushes), 0), plan, {})

    async def sweeps(self) -> frozenset[CommitId]:
        """The commits that are held after one sweep."""
        await Retention(self.db, self.storage, lambda: self.rerun_s).once()
        return git.held_commits(self.storage.path(APP))


@asynccontextmanager
async def a_house(folder: Path) -> AsyncIterator[House]:
    clock = ManualClock()
    db = await Database.open(stored.fresh(folder), clock, SeededEntropy())
    (folder / "repos").mkdir()
    storage = Storage(folder / "repos")
    storage.create(APP)
    try:
        repo = await db.write(repos.create_repo, APP, public=True)
        yield House(db, storage, clock, QueueIndex(), repo)
    finally:
        storage.close()
        await db.close()


def story(tmp_path: Path, told: Callable[[House], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with a_house(tmp_path) as house:
            await told(house)

    run(tell())


def finished(commit: CommitId) -> RunPlan:
    return replace(a_run(skipped="filter"), commit=commit)


@pytest.mark.proves("I-28")
def test_a_commit_is_held_for_its_unfinished_run_however_old(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        waiting, over = house.commit("waiting"), house.commit("over")
        await house.runs(replace(a_run(a_job(commit=waiting)), commit=waiting))
        await house.runs(finished(over))

        house.clock.advance(31 * DAY)

        assert await house.sweeps() == {waiting}

    story(tmp_path, told)


def test_a_commit_is_held_as_long_as_its_newest_run_may_run_again(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        commit = house.commit("built twice")
        await house.runs(finished(commit))
        house.clock.advance(29 * DAY)
        await house.runs(finished(commit))

        house.clock.advance(30 * DAY)
        assert await house.sweeps() == {commit}
        house.clock.advance(DAY)
        assert await house.sweeps() == frozenset()

    story(tmp_path, told)


def test_a_push_on_its_way_holds_what_it_means(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        commit = house.commit("pushed again")
        document = RunDocument(RefName("refs/heads/main"), codec.canonical(finished(commit)).decode())
        update = RefUpdate(RefName("refs/heads/main"), None, commit)
        intent = Intent(house.repo.id, AccountName("ada"), "SHA256:x", (), (update,), (document,))
        await house.db.write(repos.intend, intent)

        assert await house.sweeps() == {commit}

    story(tmp_path, told)


def test_no_days_mean_for_ever(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        commit = house.commit("old")
        await house.runs(finished(commit))
        house.rerun_s = 0.0
        house.clock.advance(10_000 * DAY)

        assert await house.sweeps() == {commit}

    story(tmp_path, told)


def test_a_repository_that_is_gone_stops_no_other(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        commit = house.commit("old")
        await house.db.write(repos.create_repo, RepoName("aaa"), public=True)
        assert not house.storage.exists(RepoName("aaa"))

        assert commit not in await house.sweeps()

    story(tmp_path, told)
