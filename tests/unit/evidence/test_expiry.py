from __future__ import annotations

import pytest

from vole.base.clock import ManualClock, seconds
from vole.base.entropy import SeededEntropy
from vole.base.ids import Epoch, JobId, RepoId, RunId
from vole.evidence import ledger
from vole.evidence.artifacts import ArtifactStore
from vole.store.database import Tx, open_writer
from vole.wire.runner import ArtifactFile, Finish, LogSeal

DAY = seconds(86_400)
SHA = "a" * 64


class House:
    """Artifacts of two repositories, and a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.connection = open_writer(":memory:")

    @property
    def tx(self) -> Tx:
        return Tx(self.connection, self.clock.now(), SeededEntropy())

    def keeps(self, *, repo: int = 1, job: int, sha256: str = SHA, days: int | None) -> None:
        attempt = ledger.Attempt(RepoId(repo), RunId(1), JobId(job), Epoch(1))
        file = ArtifactFile("dist", "a.txt", 3, sha256)
        finish = Finish(JobId(job), Epoch(1), "success", LogSeal(0, ""), artifacts=(file,))
        ledger.add_result(self.tx, attempt, finish, {"dist": days})

    def expires(self, *, busy: frozenset[int] = frozenset()) -> list[tuple[int, str]]:
        return ledger.expire_artifacts(self.tx, {RepoId(repo) for repo in busy})

    @property
    def names(self) -> int:
        return self.tx.one("SELECT COUNT(*) AS n FROM artifacts WHERE removed_at IS NULL")["n"]


@pytest.fixture
def house():
    house = House()
    yield house
    house.connection.close()


def test_an_artifact_goes_when_its_days_are_over_and_not_before(house):
    house.keeps(job=1, days=2)

    house.clock.advance(seconds(2 * 86_400 - 1))
    assert house.expires() == []
    house.clock.advance(seconds(1))

    assert house.expires() == [(1, SHA)]
    assert house.names == 0


@pytest.mark.parametrize("days", [None, 0])
def test_an_artifact_without_days_or_with_none_is_kept(house, days):
    house.keeps(job=1, days=days)
    house.clock.advance(seconds(1000 * 86_400))

    assert house.expires() == []
    assert house.names == 1


def test_bytes_that_another_artifact_names_stay(house):
    house.keeps(job=1, days=1)
    house.keeps(job=2, days=9)
    house.keeps(repo=2, job=3, days=1)
    house.clock.advance(DAY)

    assert house.expires() == [(2, SHA)]
    assert house.names == 1


def test_a_repository_with_a_job_at_work_waits(house):
    house.keeps(job=1, days=1)
    house.clock.advance(DAY)

    assert house.expires(busy=frozenset({1})) == []
    assert house.expires() == [(1, SHA)]


def test_a_removed_file_is_gone_and_removing_it_again_is_nothing(tmp_path):
    store = ArtifactStore(tmp_path)
    final = tmp_path / "1" / SHA[:2] / SHA
    final.parent.mkdir(parents=True)
    final.write_bytes(b"abc")
    assert store.has(RepoId(1), SHA, 3)

    store.remove(RepoId(1), SHA)
    store.remove(RepoId(1), SHA)

    assert not store.has(RepoId(1), SHA, 3)
