"""What a keeper hands to a harness in Start, and the numbers both sides count with. Frames: harness.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vole.base.errors import Invalid
from vole.wire import codec
from vole.wire.plan import JobContext, JobPlan, job_digest

PROTOCOL = 1
DESCRIPTOR_ID = "vole-shell"
DIALS_PER_EPOCH = 1 << 16  # the fence on this wire is epoch * this + dial; the journal's fence stays the epoch


@dataclass(frozen=True)
class JobEnvelope:
    """Start.plan: the pinned document beside what is known only now.

    `folder` is the attempt's own folder: absolute, ours, made new by the keeper. The harness uses `work` (sources,
    put there by the keeper before Start), `temp` (RUNNER_TEMP) and `files` (scripts, event, VOLE_OUTPUT and its
    like) in it. The keeper removes the folder after the attempt. Empty where Start names a blob as source: then the
    harness makes a folder of its own.
    """

    plan: str  # the pinned document's text, so that its digest can be checked byte by byte
    context: JobContext
    folder: str
    runner: str  # RUNNER_NAME
    ttl_s: float  # of the lease; the orphan limit follows from it
    v: Literal[1] = 1

    def document(self) -> bytes:
        """The canonical JSON that Start.plan holds."""
        return codec.canonical(self)

    @classmethod
    def read(cls, document: bytes, digest: str) -> tuple[JobEnvelope, JobPlan]:
        """The envelope and its plan. Raises Invalid, also for a plan that is not the one of `digest`."""
        envelope = codec.from_json(cls, codec.parse(document))
        text = envelope.plan.encode("utf-8")
        if job_digest(text) != digest:
            raise Invalid(f"the plan's SHA-256 is {job_digest(text)}, Start says {digest[:64]!r}: not the pinned job")
        return envelope, JobPlan.read(text)


def fence(epoch: int, dial: int) -> int:
    """The fence of the keeper's `dial`th connection (from 0) within the lease of `epoch`."""
    assert 0 <= dial < DIALS_PER_EPOCH, dial
    return epoch * DIALS_PER_EPOCH + dial
