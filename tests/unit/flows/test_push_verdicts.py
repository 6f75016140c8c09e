"""Verdicts that are remembered: by what, which, and how many."""

from __future__ import annotations

import pytest

from tests.aio import run
from vole.base import limits
from vole.base.ids import CommitId
from vole.base.offload import Offload
from vole.flows.push.verdicts import Verdicts
from vole.git.quarantine import FileBlob, Tip
from vole.workflows import checks
from vole.workflows.model import WorkflowFile

GOOD = b"on: push\njobs:\n  test:\n    runs-on: linux\n    steps:\n      - run: make test\n"
BLOB = CommitId("b" * 40)
NO_LABELS: frozenset[str] = frozenset()


def a_tip(content: bytes, mode: int = 0o100644) -> Tip:
    return Tip(CommitId("c" * 40), "a change", (FileBlob(".vole/workflows/ci.yml", BLOB, content, mode),), False)


def story(told) -> None:  # type: ignore[no-untyped-def]
    async def whole() -> None:
        offload = Offload("vole.workflows.checks")
        await offload.start()
        try:
            await told(Verdicts(offload))
        finally:
            await offload.close()

    run(whole())


@pytest.mark.proves("I-30")
def test_a_remembered_verdict_is_the_check_of_the_same_bytes_mode_and_labels() -> None:
    async def told(verdicts: Verdicts) -> None:
        tip, known = a_tip(GOOD), frozenset({"linux"})
        assert verdicts.recalled(tip, known) is None

        asked = await verdicts.of(tip, known)

        file = WorkflowFile(".vole/workflows/ci.yml", BLOB, GOOD, 0o100644)
        assert verdicts.recalled(a_tip(GOOD), known) == asked == checks.parse((file,), known)
        assert verdicts.recalled(a_tip(GOOD + b"\n"), known) is None  # under the same blob id
        assert verdicts.recalled(a_tip(GOOD, 0o120000), known) is None
        assert verdicts.recalled(tip, frozenset({"linux", "lnux"})) is None

    story(told)


def test_a_refusal_and_a_large_verdict_are_asked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(verdicts: Verdicts) -> None:
        broken = a_tip(GOOD.replace(b"steps", b"stpes"))
        assert (await verdicts.of(broken, NO_LABELS)).problems
        assert verdicts.recalled(broken, NO_LABELS) is None

        monkeypatch.setattr(limits, "VERDICT_KEPT_BYTES_MAX", len(GOOD))
        assert not (await verdicts.of(a_tip(GOOD), NO_LABELS)).problems
        assert verdicts.recalled(a_tip(GOOD), NO_LABELS) is None

    story(told)


def test_the_verdict_that_was_not_asked_for_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERDICTS_KEPT_MAX", 2)
    first, second, third = (a_tip(GOOD + b"\n" * more) for more in range(3))

    async def told(verdicts: Verdicts) -> None:
        await verdicts.of(first, NO_LABELS)
        await verdicts.of(second, NO_LABELS)
        assert verdicts.recalled(first, NO_LABELS)

        await verdicts.of(third, NO_LABELS)

        assert verdicts.recalled(second, NO_LABELS) is None
        assert verdicts.recalled(first, NO_LABELS)
        assert verdicts.recalled(third, NO_LABELS)

    story(told)
