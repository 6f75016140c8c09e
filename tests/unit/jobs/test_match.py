from __future__ import annotations

import dataclasses

import pytest

from vole.base.ids import RepoId, RepoName, SessionId
from vole.jobs.match import Ask, Counted, Demand, Why, missing_label, reason, serves_labels
from vole.jobs.model import Holder, State

HOLDER = Holder(SessionId(1), "rui", "SHA256:x", "mac-1", "0", "linux", "x64")
ASK = Ask(HOLDER, frozenset({"linux"}), frozenset(), frozenset({RepoId(1)}), slots=2)
DEMAND = Demand(frozenset({"linux"}), RepoId(1), RepoName("app"))
FREE = Counted(granted=True, running_here=0, running_repo=0, cap=None)

EIGHT_CASES = [
    ((), (), True),
    ((), ("linux",), True),
    (("linux",), ("linux",), True),
    (("linux", "arm64"), ("arm64", "linux"), True),  # order is nothing
    (("linux",), ("linux", "arm64", "fast"), True),  # extra labels
    (("linux", "fast"), ("linux",), False),  # one missing
    (("linux",), ("macos",), False),  # wrong
    (("linux",), (), False),  # a bare runner takes bare jobs only
]


@pytest.mark.proves("SR-24", "I-08")
@pytest.mark.parametrize(("job", "runner", "matches"), EIGHT_CASES)
def test_a_job_goes_to_a_runner_that_carries_all_its_labels(job, runner, matches):
    assert (missing_label(frozenset(job), frozenset(runner)) is None) is matches
    assert serves_labels(frozenset(job), frozenset(runner), only=False) is matches
    demand = dataclasses.replace(DEMAND, labels=frozenset(job))
    ask = dataclasses.replace(ASK, labels=frozenset(runner))
    assert (reason(demand, ask, FREE) is None) is matches


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"demand": {"set_aside": "unreadable"}}, "set_aside unreadable"),
        ({"demand": {"state": State.RUNNING}}, "not_queued running"),
        ({"demand": {"state": State.BLOCKED, "waits_for": "build"}}, "waits_for build"),
        ({"demand": {"state": State.BLOCKED, "group": "held by app/11"}}, "concurrency_group held by app/11"),
        ({"demand": {"labels": frozenset({"linux", "fast", "arm64"})}}, "lacks_label arm64"),
        ({"demand": {"labels": frozenset()}, "ask": {"only": True}}, "only_labelled"),
        ({"counted": {"granted": False}}, "not_granted app"),
        ({"ask": {"filter": frozenset({"lib"})}}, "filtered_out app"),
        ({"ask": {"draining": True}}, "draining"),
        ({"ask": {"disk_low": True}}, "disk_low"),
        ({"counted": {"rest_s": 60}}, "resting 60"),
        ({"counted": {"running_repo": 4, "cap": 4}}, "repo_at_cap 4 of 4"),
        ({"counted": {"running_here": 2}}, "busy 2 of 2"),
        ({"ask": {"asking": False}}, "not_asking"),
    ],
)
def test_each_refusal_has_its_code_and_detail(change, expected):
    demand = dataclasses.replace(DEMAND, **change.get("demand", {}))
    ask = dataclasses.replace(ASK, **change.get("ask", {}))
    counted = dataclasses.replace(FREE, **change.get("counted", {}))

    found = reason(demand, ask, counted)

    assert found is not None
    assert found.text == expected
    assert "{}" not in found.sentence


def test_every_code_has_a_case_above():
    cases = test_each_refusal_has_its_code_and_detail.pytestmark[0].args[1]

    assert {expected.partition(" ")[0] for _, expected in cases} == set(Why)


def test_what_only_people_can_change_is_said_before_what_passes_by_itself():
    demand = dataclasses.replace(DEMAND, labels=frozenset({"fast"}))
    busy = dataclasses.replace(FREE, running_here=2, cap=1, running_repo=1)

    found = reason(demand, dataclasses.replace(ASK, draining=True), busy)

    assert found is not None
    assert found.code is Why.LACKS_LABEL
