"""What a push meant, once it is known which of its refs moved."""

from __future__ import annotations

import pytest

from tests.unit.git.gitrepo import GitRepo
from tests.unit.workflows.files import workflow
from vole.base.clock import Moment
from vole.base.ids import CommitId, JobKey, PushId, RefName, RepoId, RepoName
from vole.flows.push.planning import Candidate, Meant, OpenGit, Sight, plan
from vole.git.quarantine import Quarantine, Tip
from vole.people.model import OPERATOR
from vole.repos.model import PinnedRun, Repo
from vole.wire.hook import RefUpdate
from vole.wire.plan import EventFacts, JobPlan, RunPlan, StepPlan
from vole.workflows.model import Checked

MAIN, TOPIC = RefName("refs/heads/main"), RefName("refs/heads/topic")
A, B = CommitId("a" * 40), CommitId("b" * 40)
SHIP = "on: push\nconcurrency: ship\njobs:\n  ship:\n    steps: [{run: make ship}]\n"


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


@pytest.mark.parametrize(
    ("there", "pushed", "protected"),
    [
        ([], ["trunk", "topic"], ["trunk"]),  # which the first push makes the default branch
        ([], ["topic", "main"], ["main"]),
        (["main"], ["topic"], []),
    ],
)
def test_runs_of_the_branch_that_will_be_the_default_one_are_protected(tmp_path, there, pushed, protected):
    repo = GitRepo(tmp_path / "app.git")
    for branch in there:
        repo.commit({"a": branch}, branch=branch)
    push = OpenGit(OPERATOR, Repo(RepoId(1), RepoName("app"), True, "", Moment(0)), repo.path, "write", frozenset())
    tip = Tip(A, "subject", (), False)
    moves = [RefUpdate(RefName(f"refs/heads/{branch}"), None, A) for branch in pushed]
    sight = Sight(Quarantine(repo.path, ""), [Candidate(update, tip, forced=False) for update in moves], [])

    planned = plan(push, sight, {A: Checked(workflows=(workflow(SHIP),))})

    assert [run.ref.short for run in planned.plans if run.concurrency.spared] == protected
