"""What goes after its days or by command, and what is said of it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests import stored
from tests.aio import run
from tests.queueing import a_job
from tests.unit.web.site_to_test import Site, a_site
from vole.base.clock import seconds
from vole.base.errors import Unavailable
from vole.base.ids import AccountName, JobKey, RepoId
from vole.config.server import RetentionConfig
from vole.evidence.model import Upload
from vole.flows.removal import Removal, Removed
from vole.jobs import ledger as jobs
from vole.wire.plan import ArtifactPlan
from vole.wire.runner import ArtifactFile

DAY = 86_400.0
ADA = AccountName("ada")
BYTES = b"made by a job"
FILE = ArtifactFile("dist", "a.txt", len(BYTES), hashlib.sha256(BYTES).hexdigest())


class Kept:
    """A site with runs that are over, each with a log and an artifact."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.settings = RetentionConfig(rerun_s=0, logs_s=0, logs_size=None, runs_s=0)
        parts = site.house.parts
        self.removal = Removal(site.db, parts.logs, parts.artifacts, site.clock, lambda: self.settings)

    async def ran(self, runner: Any, log: bytes = b"hello\n", *, recorded: bool = True) -> Any:
        """A green run of `app`; what was queued."""
        queued = await self.site.run("app", a_job(artifacts=(ArtifactPlan("dist", ("*",), 1, "warn"),)))
        job = await self.site.takes(runner)
        await self.site.logs(runner, job, log)
        artifacts = self.site.house.parts.artifacts
        upload = Upload(RepoId(self.site.repos["app"].id), job.lease.job, job.lease.epoch, FILE)
        artifacts.append(upload, artifacts.begin(upload), BYTES[artifacts.begin(upload) :])
        artifacts.commit(upload)
        await self.site.finishes(runner, job, artifacts=(FILE,))
        if recorded:
            await self.records()
        return queued

    async def records(self) -> None:
        rows = [row["id"] for row in stored.rows(self.site.folder, "SELECT id FROM record_outbox")]
        await self.site.db.write(jobs.mark_recorded, rows)

    def sets(self, **changes: Any) -> None:
        self.settings = RetentionConfig(**({"rerun_s": 0, "logs_s": 0, "logs_size": None, "runs_s": 0} | changes))

    def later(self, days: float) -> None:
        self.site.clock.advance(seconds(days * DAY))

    def files(self, folder: str) -> set[str]:
        below = self.site.folder / folder
        found = {str(path.relative_to(below)) for path in below.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith("partial/")}

    async def words(self, path: str) -> str:
        return (await self.site.get(path)).text

    def count(self, table: str) -> int:
        count: int = stored.rows(self.site.folder, f"SELECT count(*) FROM {table}")[0][0]
        return count


def story(folder: Path, told: Callable[[Kept, Any], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with a_site(folder) as site:
            await site.repo("app")
            await told(Kept(site), await site.runner("one", grant=("app",)))
        stored.check(folder)

    run(tell())


def test_a_log_goes_after_its_days_and_page_api_and_raw_say_so(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        await kept.ran(one)
        kept.sets(logs_s=90 * DAY)
        kept.later(89)
        await kept.removal.once()
        assert kept.files("logs") == {"app/1/test/1"}

        kept.later(2)
        await kept.removal.once()
        await kept.removal.once()

        assert kept.files("logs") == set()
        said = "the log was removed after 90 days, on "
        assert said in await kept.words("/app/runs/1")
        assert said in await kept.words("/app/runs/1/test")
        raw = await kept.site.get("/app/runs/1/test?raw=1")
        assert (raw.status_code, said in raw.text) == (410, True)
        attempt = (await kept.site.get("/api/v1/repositories/app/runs/1")).json()["jobs"][0]["attempts"][0]
        assert attempt["log_removed_why"] == "after 90 days"
        assert attempt["log_removed_at"]
        assert stored.rows(kept.site.folder, "SELECT bytes FROM removed_logs")[0][0] == 6

    story(tmp_path, told)


def test_a_log_stays_while_its_record_is_owed(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        queued = await kept.ran(one, recorded=False)
        kept.sets(logs_s=DAY)
        kept.later(2)

        await kept.removal.once()
        assert await kept.removal.delete_logs(queued.id, None, ADA) == Removed(0, 0)
        assert kept.files("logs") == {"app/1/test/1"}

        await kept.records()
        await kept.removal.once()
        assert kept.files("logs") == set()

    story(tmp_path, told)


def test_the_oldest_logs_go_until_the_rest_fits(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        for _ in range(3):
            await kept.ran(one, b"x" * 1000)
            kept.later(1)
        kept.sets(logs_size=2000)

        await kept.removal.once()

        assert kept.files("logs") == {"app/2/test/1", "app/3/test/1"}
        assert "since the logs of app are over 2.0 KiB" in await kept.words("/app/runs/1/test")

    story(tmp_path, told)


@pytest.mark.proves("I-22")
def test_a_run_is_forgotten_with_all_that_hangs_on_it_and_counted(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        await kept.ran(one)
        kept.later(20)
        await kept.ran(one)
        await kept.site.run("app")
        kept.sets(runs_s=10 * DAY)

        await kept.removal.once()

        assert [row["number"] for row in stored.rows(kept.site.folder, "SELECT number FROM runs")] == [2, 3]
        assert (kept.count("jobs"), kept.count("attempts"), kept.count("artifacts")) == (2, 1, 1)
        assert kept.files("logs") == {"app/2/test/1"}
        assert kept.files("artifacts") == {f"{kept.site.repos['app'].id}/{FILE.sha256[:2]}/{FILE.sha256}"}
        row = stored.rows(kept.site.folder, "SELECT pruned, pruned_jobs FROM run_numbers")[0]
        assert tuple(row) == (1, 1)
        gone = await kept.site.get("/app/runs/1")
        assert (gone.status_code, "runs/000/001/run.json" in gone.text) == (410, True)
        assert "runs/000/009" not in await kept.words("/app/runs/9")
        kept.sets(runs_s=1.0)
        kept.later(1)
        await kept.removal.once()
        assert kept.files("artifacts") == set()

    story(tmp_path, told)


def test_a_run_that_was_run_again_goes_after_the_newer_one(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        await kept.ran(one)
        await kept.site.db.write(_rerun, kept.site)
        kept.later(10)
        kept.sets(runs_s=DAY)

        await kept.removal.once()
        assert kept.count("runs") == 2

        job = await kept.site.takes(one)
        await kept.site.finishes(one, job)
        await kept.records()
        kept.later(10)
        await kept.removal.once()
        assert kept.count("runs") == 0

    story(tmp_path, told)


def _rerun(tx: Any, site: Site) -> None:
    row = tx.one("SELECT id FROM runs")
    jobs.rerun_run(tx, site.index, row["id"], "ada", failed=False)


def test_an_artifact_is_removed_by_name_and_the_page_says_by_whom(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        queued = await kept.ran(one, recorded=False)
        with pytest.raises(Unavailable, match="record"):
            await kept.removal.delete_artifacts(queued.id, None, None, ADA)
        await kept.records()
        assert await kept.removal.delete_artifacts(queued.id, None, "other", ADA) == Removed(0, 0)

        assert await kept.removal.delete_artifacts(queued.id, queued.jobs[0], "dist", ADA) == Removed(1, len(BYTES))

        assert kept.files("artifacts") == set()
        assert "removed by ada, on " in await kept.words("/app/runs/1")
        told_ = (await kept.site.get("/api/v1/repositories/app/runs/1")).json()["artifacts"][0]
        assert told_["removed_why"] == "by ada"
        place = told_["url"].removeprefix("http://forge.test")
        assert "the artifact was removed by ada" in await kept.words(place)

    story(tmp_path, told)


def test_logs_of_one_job_are_removed_by_command_and_no_others(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        queued = await kept.ran(one)
        await kept.ran(one)

        assert await kept.removal.delete_logs(queued.id, JobKey("other"), ADA) == Removed(0, 0)
        assert await kept.removal.delete_logs(queued.id, JobKey("test"), ADA) == Removed(1, 6)

        assert kept.files("logs") == {"app/2/test/1"}

    story(tmp_path, told)


def test_a_removal_cut_short_is_done_again(tmp_path):
    async def told(kept: Kept, one: Any) -> None:
        await kept.ran(one)
        (kept.site.folder / "logs/app/1/test/1").unlink()
        kept.sets(logs_s=DAY)
        kept.later(2)

        await kept.removal.once()

        assert "the log was removed after 1 day" in await kept.words("/app/runs/1/test")

    story(tmp_path, told)
