"""What people push: runs of every shape of the dialect that the queue can tell apart, made once and used again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from tests.queueing import a_job, a_run
from tests.unit.workflows.files import a_file
from vole.base.ids import CommitId, RefName, RepoName
from vole.flows.push.planning import Planned
from vole.git.quarantine import Tip
from vole.repos.model import RunDocument
from vole.wire import codec
from vole.wire.plan import Concurrency, JobPlan, RunPlan
from vole.workflows.checks import parse
from vole.workflows.model import Checked

SETS: tuple[tuple[str, ...], ...] = ((), (), (), ("linux",), ("linux",), ("arm64", "linux"), ("fast",), ("gpu",))
DEPLOY, STAGE = Concurrency("deploy"), Concurrency("stage")
# Of whole runs; most have none. Together with the groups of jobs below they come to wait for each other.
GROUPS: tuple[Concurrency | None, ...] = (
    *(None,) * 10,
    DEPLOY,
    STAGE,
    Concurrency("deploy", queue="latest"),
    Concurrency("deploy", cancel_in_progress=True),
    Concurrency("deploy", spared=True),
    Concurrency("stage", cancel_in_progress=True, queue="latest"),
)
BAD_IF = "fromJSON('[') == 1"  # cannot be evaluated once its needs are done


def _matrix(count: int, **more: Any) -> list[JobPlan]:
    return [a_job(f"m.{number}", **more) for number in range(1, count + 1)]


SHAPES: dict[str, Any] = {
    "one": lambda: [a_job("one")],
    "two": lambda: [a_job("a", timeout_s=3), a_job("b", on_lost="fail")],
    "chain": lambda: [a_job("x", timeout_s=4), a_job("y", needs=("x",)), a_job("z", needs=("y",), if_="always()")],
    "fork": lambda: [a_job("x"), a_job("y", needs=("x",)), a_job("n", needs=("x",), if_="failure()")],
    "join": lambda: [a_job("a"), a_job("b"), a_job("c", needs=("a", "b")), a_job("d", needs=("c",))],
    "matrix": lambda: [*_matrix(3), a_job("after", needs=("m",))],
    "narrow": lambda: [*_matrix(4, max_parallel=2), a_job("after", needs=("m",), if_="always()")],
    "slow-fail": lambda: [*_matrix(3, fail_fast=False), a_job("after", needs=("m",))],
    "gentle": lambda: [a_job("x", continue_on_error=True, on_lost="fail"), a_job("y", needs=("x",))],
    "frail": lambda: [a_job("one", on_lost="fail")],
    "short": lambda: [a_job("one", timeout_s=2)],
    "soon": lambda: [a_job("one", timeout_s=6), a_job("y", needs=("one",), if_="cancelled()")],
    "muddled": lambda: [a_job("x"), a_job("y", needs=("x",), if_=BAD_IF)],
    "deploy": lambda: [a_job("x"), a_job("d", needs=("x",), concurrency=DEPLOY)],
    "stages": lambda: [
        a_job("s", concurrency=STAGE),
        a_job("d", concurrency=replace(DEPLOY, queue="latest")),
        a_job("z", needs=("s", "d"), if_="always()"),
    ],
    "hasty": lambda: _matrix(2, concurrency=replace(STAGE, cancel_in_progress=True)),
    "knot": lambda: [a_job("x"), a_job("s", needs=("x",), concurrency=STAGE), a_job("d", concurrency=DEPLOY)],
    "never": lambda: [a_job("x", if_="false")],
    "skipped": list,
}


# What stands in `.vole/workflows` of every tip, for starts without a push.
FILES = {
    "deploy.yml": """\
on: {manual: {inputs: {to: {type: choice, options: [test, live], default: test}}}}
concurrency: deploy
jobs:
  build: {steps: [{run: make}]}
  ship: {needs: build, steps: [{run: make ship}]}
""",
    "minutely.yml": """\
on: {manual: {}, schedule: [{cron: "* * * * *"}]}
jobs:
  check: {runs-on: linux, steps: [{run: make check}]}
""",
}


class Known:
    """The verdicts on every tip: FILES, judged once."""

    def __init__(self) -> None:
        self._verdict = _judged()

    def recalled(self, _: Tip, __: frozenset[str]) -> Checked:
        return self._verdict


@cache
def _judged() -> Checked:
    verdict = parse(tuple(a_file(text, name) for name, text in FILES.items()), frozenset({"linux"}))
    assert not verdict.problems, verdict.lines
    return verdict


@cache
def _shaped(shape: str, repo: str, labels: tuple[str, ...]) -> tuple[JobPlan, ...]:
    return tuple(replace(job, repository=RepoName(repo), runs_on=labels) for job in SHAPES[shape]())


@cache
def _run(
    shape: str, repo: str, labels: tuple[str, ...], ref: str, commit: int, group: Concurrency | None
) -> tuple[RunPlan, RunDocument]:
    jobs = tuple(replace(job, commit=_commit(commit)) for job in _shaped(shape, repo, labels))
    skipped: Any = "filter" if shape == "skipped" else None
    plan = replace(a_run(*jobs, skipped=skipped), ref=RefName(ref), commit=_commit(commit), concurrency=group)
    return plan, RunDocument(plan.ref, codec.canonical(plan).decode())


def _commit(number: int) -> CommitId:
    return CommitId(f"{number:040x}")


COMMITS = 40  # of a branch; then it begins again


class Workload:
    """Draws pushes."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._commits = 0

    def commit(self) -> CommitId:
        self._commits = self._commits % COMMITS + 1
        return _commit(self._commits)

    def planned(self, repo: str, refs: list[tuple[str, CommitId]]) -> Planned:
        """Zero to two workflows for each ref that moves to a commit."""
        planned = Planned()
        for ref, commit in refs:
            for _ in range(self._rng.choice((0, 1, 1, 1, 1, 2))):
                shape = self._rng.choice(tuple(SHAPES))
                plan, document = _run(
                    shape, repo, self._rng.choice(SETS), ref, int(commit, 16), self._rng.choice(GROUPS)
                )
                planned.plans.append(plan)
                planned.documents.append(document)
            if self._rng.random() < 0.03:  # two that wait for each other, if both come to have their group
                for group in (DEPLOY, STAGE):
                    plan, document = _run("knot", repo, (), ref, int(commit, 16), group)
                    planned.plans.append(plan)
                    planned.documents.append(document)
        return planned
