from __future__ import annotations

import pytest

from vole.jobs.model import MOVES, Conclusion, Happening, State, run_state, worst

B, Q, L, R, C, F = State.BLOCKED, State.QUEUED, State.LEASED, State.RUNNING, State.CANCELLING, State.FINISHED

# The table of states, row by row: from, event, to.
TABLE = [
    (None, Happening.ENQUEUED, {B, Q}),
    (None, Happening.CARRIED, {F}),
    (B, Happening.READIED, {Q}),
    (B, Happening.SKIPPED, {F}),
    (B, Happening.MISJUDGED, {F}),
    (B, Happening.ENTANGLED, {F}),
    (Q, Happening.LEASED, {L}),
    (L, Happening.STARTED, {R}),
    (L, Happening.RETURNED, {Q}),
    (R, Happening.CONCLUDED, {F}),
    (R, Happening.LOST, {Q, F}),
    (Q, Happening.CANCELLED, {F}),
    (B, Happening.CANCELLED, {F}),
    (L, Happening.CANCELLING, {C}),
    (R, Happening.CANCELLING, {C}),
    (C, Happening.CONCLUDED, {F}),
    (Q, Happening.EXPIRED, {F}),
    (R, Happening.TIMED_OUT, {C}),
    *((state, Happening.FORGOTTEN, {F}) for state in (B, Q, L, R, C)),
    *((state, Happening.RESTORED, {F}) for state in (B, Q, L, R, C)),
]


@pytest.mark.parametrize(("source", "happening", "targets"), TABLE)
def test_a_job_may_move_along_each_row_of_the_table(source, happening, targets):
    assert MOVES[source, happening] == targets


@pytest.mark.proves("I-02")
def test_there_is_no_other_row_and_none_leaves_finished():
    assert set(MOVES) == {(source, happening) for source, happening, _ in TABLE}
    assert not [happening for source, happening in MOVES if source is State.FINISHED]


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], "skipped"),
        (["skipped", "skipped"], "skipped"),
        (["success", "skipped"], "success"),
        (["success", "cancelled", "skipped"], "cancelled"),
        (["cancelled", "failure", "success"], "failure"),
        (["timed_out"], "failure"),
        (["expired"], "failure"),
        (["errored"], "failure"),
        (["lost", "cancelled"], "failure"),
    ],
)
def test_a_run_is_the_worst_of_its_jobs(jobs, expected):
    assert worst(Conclusion(job) for job in jobs) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([Q, B], "queued"),
        ([Q, L], "running"),
        ([R, Q], "running"),
        ([C], "running"),
        ([F, B], "running"),
        ([F, F], "finished"),
    ],
)
def test_a_run_is_queued_until_a_job_has_a_lease_and_finished_when_all_are(states, expected):
    pairs = [(state, Conclusion.SUCCESS if state is F else None) for state in states]

    assert run_state(pairs)[0] == expected
