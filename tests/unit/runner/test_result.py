"""A result always fits its frame, and says what it left out."""

from __future__ import annotations

import pytest

from vole.base.ids import Epoch, JobId
from vole.wire.runner import FROM_RUNNER, Annotation, ArtifactFile, Finish, LogSeal, StepOutcome
from vole_runner.attempt import fitting

MIB = 1 << 20


def a_result(**more: object) -> Finish:
    return Finish(JobId(1), Epoch(1), "success", LogSeal(1, "0" * 64), **more)


def test_a_result_that_fits_is_sent_as_it_is() -> None:
    result = a_result(summary="s" * 1000, annotations=(Annotation("notice", "n"),))

    assert fitting(result) is result


@pytest.mark.parametrize(
    "more",
    [
        {"summary": "\1" * 256_000},
        {"outputs": {"k": "\1" * 200_000}},
        {"annotations": tuple(Annotation("error", "\1" * 1024) for _ in range(400))},
    ],
)
def test_what_is_left_to_show_goes_before_the_result(more: dict[str, object]) -> None:
    result = a_result(steps=(StepOutcome(1, "success"),), **more)

    fitted = fitting(result)

    assert len(FROM_RUNNER.encode(fitted)) <= MIB
    assert (fitted.conclusion, fitted.steps) == ("success", result.steps)
    assert "too large" in fitted.reason


def test_a_result_that_no_leaving_out_makes_fit_is_an_error() -> None:
    files = tuple(ArtifactFile("a", "\1" * 512, 1, "0" * 64) for _ in range(1000))

    fitted = fitting(a_result(artifacts=files))

    assert len(FROM_RUNNER.encode(fitted)) <= MIB
    assert fitted.conclusion == "errored"
