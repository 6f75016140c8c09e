"""The one rule of whether a job may run on a harness."""

from __future__ import annotations

import dataclasses

import pytest

from vole.wire.harness import PROTOCOL
from vole_runner.gate import Demand, can_place
from vole_runner.runtimes.runtime import Descriptor, Resumability, RuntimeCapabilities

HARNESS = Descriptor(
    id="vole-shell",
    version="1",
    instance_id="i",
    protocol=PROTOCOL,
    resumability=Resumability.RESTART_ONLY,
    step_kinds=("run",),
)
LOCAL = RuntimeCapabilities()


def test_an_ordinary_job_runs_on_an_ordinary_harness() -> None:
    assert can_place(Demand(), HARNESS, LOCAL) is None


@pytest.mark.parametrize(
    ("demand", "harness", "word"),
    [
        (Demand(), {"protocol": PROTOCOL + 1}, "protocol"),
        (Demand(pinned_id="other"), {}, "pinned"),
        (Demand(), {"resumability": Resumability.UNSPECIFIED}, "survive"),
        (Demand(), {"resumability": Resumability.REQUIRES_MEMORY_SNAPSHOT}, "memory snapshots"),
        (Demand(resume_steps=True), {}, "resumes by steps"),
        (Demand(owned=True), {}, "sandbox"),
        (Demand(), {"requires_gpu": True}, "GPU"),
        (Demand(step_kinds=("run", "harness")), {}, "'harness'"),
        (Demand(labels=(("gpu", "a100"),)), {}, "gpu=a100"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(demand: Demand, harness: dict[str, object], word: str) -> None:
    reason = can_place(demand, dataclasses.replace(HARNESS, **harness), LOCAL)

    assert reason is not None
    assert word in reason


def test_a_pinned_identity_is_compared_before_anything_else() -> None:
    other = dataclasses.replace(HARNESS, resumability=Resumability.UNSPECIFIED)

    reason = can_place(Demand(pinned_id="mine"), other, LOCAL)

    assert reason is not None
    assert "pinned" in reason


def test_a_job_that_resumes_by_steps_runs_where_replay_is_promised() -> None:
    replaying = dataclasses.replace(HARNESS, resumability=Resumability.STATELESS_REPLAY)

    assert can_place(Demand(resume_steps=True), replaying, LOCAL) is None
