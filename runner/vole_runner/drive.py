"""The drive of one attempt: grants each step, keeps what the harness says. Reads lengths and frames, never output.

Nothing that a job prints is a word here (SR-33): only frames of the harness are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vole.base import limits, log
from vole.base.clock import Clock
from vole.base.errors import Invalid, Unavailable, VoleError
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope
from vole.wire.plan import JobPlan
from vole.wire.runner import Annotation, Conclusion, Mark, StepOutcome
from vole_runner.masks import Masks
from vole_runner.runtimes.dial import LOST, SILENT, AttemptRef, Drive
from vole_runner.spool import Spool

_log = log.get("vole_runner.drive")

_STATES: Mapping[int, str] = {
    pb.SUCCEEDED: "success",
    pb.FAILED: "failure",
    pb.CANCELED: "cancelled",
    pb.SKIPPED: "skipped",
}
_LEVELS: Mapping[int, str] = {pb.NOTICE: "notice", pb.WARNING: "warning", pb.ERROR: "error"}


@dataclass(frozen=True)
class Outcome:
    """What came of the steps. `conclusion` is None when the harness was lost before it could say."""

    conclusion: Conclusion | None
    reason: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""


class Away(Protocol):
    """The way of a work folder to a harness that cannot see it, and back."""

    async def push(self, drive: Drive) -> pb.BlobRef: ...

    async def fetch(self, drive: Drive, left: Sequence[pb.ArtifactReady]) -> None: ...


class Steps:
    """The steps of one attempt. `marked` hears every border; what was collected is read when `run` has returned."""

    def __init__(self, drive: Drive, plan: JobPlan, spool: Spool, clock: Clock, marked: Callable[[Mark], None]) -> None:
        self._drive = drive
        self._plan = plan
        self._spool = spool
        self._clock = clock
        self._marked = marked
        self._masks = Masks()
        self._granted: set[int] = set()
        self._ack = asyncio.Event()
        self._seq = 0  # of the newest event that was taken
        self._open_intent = 0  # the event that asked for the step at hand; 0: none runs
        self._log_through = 0
        self._away: Away | None = None
        self._cancelled: tuple[pb.Reason, float] | None = None
        self._closed_for = ""  # why no further step is granted
        self.step = 0
        self.outcomes: list[StepOutcome] = []
        self.annotations: list[Annotation] = []
        self.left: list[pb.ArtifactReady] = []  # by a harness that shares no folder with us

    async def run(
        self,
        attempt: AttemptRef,
        envelope: JobEnvelope,
        digest: str,
        timeout_s: float,
        away: Away | None = None,
    ) -> Outcome:
        """Start the attempt and see it through. Raises nothing: a lost harness is an outcome.

        `away`: the harness shares no folder with us, so work goes there and what the job leaves comes back.
        """
        self._away = away
        acking = asyncio.create_task(self._ack_all())
        try:
            source = None if away is None else await away.push(self._drive)
            if self._cancelled is not None:
                return Outcome(None, "it was told to end before its first step")
            await self._drive.start(attempt, envelope, digest, timeout_s, source)
            await self._cancel_again()  # told before Start, the word went nowhere
            return await self._hear_out(limits.lease_times(envelope.ttl_s).reattach_s)
        except VoleError as error:
            at_start = isinstance(error, Invalid) and not self._seq
            return Outcome("errored" if at_start else None, error.sentence)
        finally:
            acking.cancel()
            await asyncio.gather(acking, return_exceptions=True)
            self._spool.append(self._masks.flush())

    async def cancel(self, reason: pb.Reason, grace_s: float) -> None:
        """End the attempt. After SUPERSEDED no step is granted any more, also none that says always()."""
        if reason == pb.SUPERSEDED:
            self._closed_for = "the lease is over"
        self._cancelled = (reason, grace_s)
        try:
            await self._drive.cancel(reason, grace_s)
        except VoleError:
            return  # it is gone already; `run` says so

    async def _cancel_again(self) -> None:
        if self._cancelled is not None:
            await self._drive.cancel(*self._cancelled)

    async def _hear_out(self, reattach_s: float) -> Outcome:
        """Every frame to the End. A stream that is lost is not the job: the harness may still have it."""
        outcome = None
        while outcome is None:
            try:
                async for frame in self._drive.frames():
                    await self._take(frame)
                    if frame.WhichOneof("frame") == "end":
                        outcome = await self._brought(self._ended(frame.end))
            except Unavailable as lost:
                if lost.code not in (LOST, SILENT):
                    raise
                await self._come_back(lost, reattach_s)
        return outcome

    async def _brought(self, outcome: Outcome) -> Outcome:
        """What the job left is here, before the harness hears that its end has arrived and forgets it."""
        if self._away is None:
            return outcome
        try:
            await self._away.fetch(self._drive, self.left)
        except (VoleError, OSError) as error:
            return Outcome(None, f"what the job left could not be fetched: {error}")
        return outcome

    async def _come_back(self, lost: Unavailable, within_s: float) -> None:
        """Take the attempt up on another stream. Raises `lost` where it is not there any more, or nobody answers."""
        _log.warning("the stream of an attempt is lost; asking the harness for it", why=lost.sentence)
        try:
            async with asyncio.timeout(within_s):
                while not await self._taken_up():
                    pass
        except (TimeoutError, VoleError):
            raise Unavailable(lost.sentence) from None
        await self._cancel_again()  # the word may have been lost with the stream

    async def _taken_up(self) -> bool:
        """Whether a harness was asked. Raises Unavailable with code LOST where it is of no use to ask again."""
        if self._drive.gone():
            raise Unavailable("its process has ended", code=LOST)
        try:
            # The step at hand may not know that it was granted: it is to ask again.
            await self._drive.take_up(self._open_intent or self._seq + 1, self._log_through + 1)
        except Unavailable as error:
            if error.code == LOST:
                raise
            await asyncio.sleep(limits.HARNESS_REDIAL_S)
            return False
        return True

    def hide(self, text: str) -> str:
        """`text` without what the job asked to hide."""
        return self._masks.hide_text(text)

    async def _take(self, frame: pb.HarnessFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "log":
            if self._is_next(frame.log.seq, self._log_through):
                self._spool.append(await self._masked(frame.log.data))
                self._log_through = frame.log.seq
            self._ack.set()
        elif kind == "intent":
            await self._intend(frame.intent.step_id, frame.seq)
        elif frame.seq and self._is_next(frame.seq, self._seq):
            await self._happened(frame)
        # A heartbeat has done its work by coming.

    async def _happened(self, frame: pb.HarnessFrame) -> None:
        self._seq = frame.seq
        match frame.WhichOneof("frame"):
            case "result":
                self._open_intent = 0
                self._result(frame.result)
            case "mask":
                await self._mask(frame.mask.value)
            case "annotation":
                self._annotate(frame.annotation)
            case "artifact" if len(self.left) < limits.ARTIFACT_FILES_MAX:
                self.left.append(frame.artifact)

    def _is_next(self, seq: int, newest: int) -> bool:
        """Whether it is new; False for what is said again. Raises Unavailable for a gap: something is lost for good."""
        if seq > newest + 1:
            raise Unavailable(f"the harness went from {newest} to {seq}: what was between is lost")
        return seq == newest + 1

    async def _masked(self, data: bytes) -> bytes:
        if not self._masks:
            return data
        # In a thread: a job that masks much must not hold up another job's renewals.
        return await asyncio.to_thread(self._masks.feed, data)

    async def _intend(self, step_id: str, seq: int) -> None:
        number = self._number(step_id)
        if seq == self._open_intent and number == self.step:  # said again: the answer may have been lost
            await self._drive.grant(step_id)
            return
        if not self._is_next(seq, self._seq):
            return
        self._seq = seq
        reason = self._closed_for or ("" if number not in self._granted else "this step was granted already")
        if number == 0:
            reason = "the plan has no such step"
        if reason:
            await self._drive.refuse(step_id, reason)
            return
        self._granted.add(number)
        self.step, self._open_intent = number, seq
        self._mark(number, "begin")
        await self._drive.grant(step_id)

    def _result(self, result: pb.StepResult) -> None:
        number = self._number(result.step_id)
        if number == 0:
            return
        never_ran = result.started_unix_ms == 0
        conclusion = "timed_out" if result.timed_out else _STATES.get(result.state, "failure")
        self.outcomes.append(
            StepOutcome(
                number=number,
                conclusion=conclusion,  # type: ignore[arg-type]
                name=self._title(number),
                exit_code=None if never_ran or result.signal else result.exit_code,
                signal=result.signal or None,
                continued=result.continued,
                started_us=None if never_ran else result.started_unix_ms * 1000,
                finished_us=None if never_ran else result.finished_unix_ms * 1000,
            )
        )
        self._mark(number, "skipped" if result.state == pb.SKIPPED else "end")

    async def _mask(self, value: bytes) -> None:
        refused = self._masks.add(value)
        if refused is not None:
            self._spool.append(self._masks.feed(f"[vole] ::add-mask:: {refused}\n".encode()))

    def _annotate(self, said: pb.Annotation) -> None:
        if len(self.annotations) < limits.ANNOTATIONS_MAX:
            level = _LEVELS.get(said.level, "notice")
            message = self.hide(said.message)[: limits.ANNOTATION_CHARS_MAX]
            file = self.hide(said.file)[: limits.ANNOTATION_CHARS_MAX]
            self.annotations.append(Annotation(level, message, file, said.line, self._number(said.step_id)))  # type: ignore[arg-type]

    def _ended(self, end: pb.End) -> Outcome:
        outputs = {name: self.hide(value) for name, value in end.outputs.items()}
        return Outcome(_conclusion(end), self.hide(end.error.message), outputs, self.hide(end.summary))

    async def _ack_all(self) -> None:
        """Acknowledge what is spooled, unless the forge is far behind: then the harness holds the steps back."""
        while True:
            await self._ack.wait()
            await asyncio.sleep(limits.LOG_ACK_GAP_S)
            self._ack.clear()
            await self._spool.room()
            try:
                events = self._open_intent - 1 if self._open_intent else self._seq
                await self._drive.ack(log_through=self._log_through, events_through=events)
            except VoleError:
                return

    def _mark(self, step: int, kind: str) -> None:
        self._marked(Mark(self._spool.length, self._clock.now(), step, kind, self._title(step)))  # type: ignore[arg-type]

    def _title(self, number: int) -> str:
        step = self._plan.steps[number - 1]
        return (step.name or step.run.strip().partition("\n")[0])[: limits.TEXT_CHARS_MAX]

    def _number(self, step_id: str) -> int:
        """The step's number, 0 for one that the plan has not."""
        return int(step_id) if step_id.isdecimal() and 0 < int(step_id) <= len(self._plan.steps) else 0


def _conclusion(end: pb.End) -> Conclusion:
    if end.state == pb.End.COMPLETED:
        return "success"
    if end.state == pb.End.CANCELED:
        return "timed_out" if end.reason == pb.TIMEOUT else "cancelled"
    return "errored" if end.HasField("error") else "failure"
