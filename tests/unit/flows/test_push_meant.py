"""What a push meant, once it is known which of its refs moved."""

from __future__ import annotations

import pytest

from vole.base.ids import CommitId, JobKey, PushId, RefName, RepoName
from vole.flows.push.planning import Meant
from vole.repos.model import PinnedRun
from vole.wire.plan import EventFacts, JobPlan, RunPlan, StepPlan

MAIN, TOPIC = RefName("refs/heads/main"), RefName("refs/heads/topic")
A, B = CommitId("a" * 40), CommitId("b" * 40)


def a_run(ref, commit, *, jobs=True):
    event = EventFacts("push", ref, ref.short, "branch", None, commit, "ada")
    job = JobPlan(RepoName("app"), commit, "ci", ".vole/workflows/ci.yml", B, "test", JobKey("test"), "test", event,
                  (StepPlan("true", 1),))  # fmt: skip
    return RunPlan(ref, commit, "ci", ".vole/workflows/ci.yml", B, event, (job,) if jobs else ())


@pytest.mark.proves("I-27")
def test_only_the_refs_that_moved_start_their_runs_and_need_their_commits():
    meant = Meant(PushId(1), (), (PinnedRun(0, a_run(TOPIC, B)), PinnedRun(1, a_run(MAIN, A))))

    assert meant.started(frozenset({MAIN})) == (PinnedRun(1, a_run(MAIN, A)),)
    assert meant.needed(frozenset({MAIN})) == {A}
    assert meant.started(frozenset()) == ()
    assert meant.needed(frozenset()) == set()


def test_a_run_without_jobs_needs_no_commit():
    meant = Meant(PushId(1), (), (PinnedRun(0, a_run(MAIN, A, jobs=False)),))

    assert len(meant.started(frozenset({MAIN}))) == 1
    assert meant.needed(frozenset({MAIN})) == set()
