"""The verdicts on workflow files, each remembered for as long as it is asked for: most pushes change no workflow.

Never judges by itself; the check is a pure function of what it is remembered by.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from vole.base import limits
from vole.base.offload import Offload
from vole.evidence.gates import Declared
from vole.git.quarantine import Tip
from vole.workflows import checks
from vole.workflows.model import Checked, WorkflowFile

_Asked = tuple[tuple[WorkflowFile, ...], frozenset[str]]


class Verdicts:
    """Asks a child of `offload` what it does not remember. Remembered by the bytes themselves, not by their ids."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._lock = threading.Lock()
        self._remembered: OrderedDict[_Asked, Checked] = OrderedDict()

    async def of(self, tip: Tip, known_labels: frozenset[str]) -> Checked:
        """What the files at `tip` mean, asked of a child. Raises Exhausted or Unavailable as `checks.check` does."""
        files, _ = asked = _asked(tip, known_labels)
        verdict = await checks.check(self._offload, files, known_labels)
        if _is_worth_it(files, verdict):
            with self._lock:
                self._remembered[asked] = verdict
                if len(self._remembered) > limits.VERDICTS_KEPT_MAX:
                    self._remembered.popitem(last=False)
        return verdict

    def recalled(self, tip: Tip, known_labels: frozenset[str]) -> Checked | None:
        """What `of` gave for these files and labels; None when it was not asked or is forgotten. For any thread."""
        asked = _asked(tip, known_labels)
        with self._lock:
            verdict = self._remembered.get(asked)
            if verdict is not None:
                self._remembered.move_to_end(asked)
        return verdict


def declared(verdict: Checked) -> tuple[Declared, ...]:
    """The workflows of a commit as gates know them; files with problems declare nothing."""
    return tuple(
        Declared(one.path, one.blob, one.name, tuple((job.job, job.key) for job in one.jobs))
        for one in verdict.workflows
    )


def _asked(tip: Tip, known_labels: frozenset[str]) -> _Asked:
    files = tuple(WorkflowFile(found.path, found.blob, found.content, found.mode) for found in tip.files)
    return files, known_labels


def _is_worth_it(files: tuple[WorkflowFile, ...], verdict: Checked) -> bool:
    """Small and good. What was refused comes back changed."""
    size = sum(len(file.content) for file in files) + verdict.plan_bytes
    return not verdict.problems and size <= limits.VERDICT_KEPT_BYTES_MAX
