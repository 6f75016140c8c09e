"""One lease from the job's frame to its accepted result: sources, steps, log, artifacts, and nothing left behind.

Holds no connection and no timer of its own; never decides whether the lease lives.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from vole.base import limits, log
from vole.base.clock import Clock, in_seconds
from vole.base.errors import Exhausted, Fenced, Invalid, Unavailable, VoleError
from vole.base.limits import lease_times
from vole.wire import harness_pb2 as pb
from vole.wire.harness import JobEnvelope, fence
from vole.wire.plan import JobPlan, job_digest
from vole.wire.runner import (
    FROM_RUNNER,
    ArtifactFile,
    Finish,
    Finished,
    Handback,
    Job,
    LeaseRef,
    Mark,
    Marks,
    Open,
    Renewal,
)
from vole_runner import artifacts, logship
from vole_runner.away import Folder
from vole_runner.drive import Outcome, Steps
from vole_runner.folders import Folders
from vole_runner.gate import Demand
from vole_runner.harness import kept
from vole_runner.harness.trees import remove_tree
from vole_runner.link import Bytes
from vole_runner.placer import Placer
from vole_runner.renewals import Held, Renewals, machine_load
from vole_runner.runtimes.dial import AttemptRef, Drive
from vole_runner.source import Sources, Wanted
from vole_runner.spool import Spool

_log = log.get("vole_runner.attempt")
T = TypeVar("T")

SOURCE_TRIES = 3
_DEMAND = Demand()  # no key of a job asks anything of the place it runs in yet
End = Literal["cancelled", "timed_out", "stopped", "fenced"]
_REASONS = {"cancelled": pb.USER, "timed_out": pb.TIMEOUT, "stopped": pb.INTERNAL, "fenced": pb.SUPERSEDED}


@dataclass(frozen=True)
class Desk:
    """What every attempt of a runner works with."""

    name: str
    clock: Clock
    folders: Folders
    sources: Sources
    placer: Placer
    renewals: Renewals
    send: Callable[[object], bool]
    open_channel: Callable[[Open], Awaitable[Bytes]]
    finish: Callable[[Finish], Awaitable[Finished]]  # through any number of connections; raises Fenced


@dataclass(frozen=True)
class Ending:
    """Why the attempt must end before its steps have."""

    kind: End
    grace_s: float


class _EndedEarly(Exception):
    """The attempt was told to end while something else was being waited for."""


class Attempt:
    """`run` returns when the slot is free. `end` may be called from anywhere on the loop."""

    def __init__(self, desk: Desk, job: Job) -> None:
        self._desk = desk
        self._job = job
        self.lease = LeaseRef(job.lease.job, job.lease.epoch)
        self.slot = job.slot
        self._times = lease_times(job.lease.ttl_s)
        self._leased_at = desk.clock.now()
        self._ending: Ending | None = None
        self._told = asyncio.Event()
        self._steps: Steps | None = None
        self._spool = Spool(desk.folders.spool(self.lease))
        self._seat = desk.placer.take(job.address, _DEMAND)
        self._held: Held | None = None
        self._marks: list[Mark] = []
        self._marks_sent = 0

    def end(self, ending: Ending) -> None:
        """End it. A lease that is over outdoes every other reason."""
        if self._ending is None or (ending.kind == "fenced" and self._ending.kind != "fenced"):
            self._ending = ending
            self._told.set()

    def fence(self) -> None:
        """The lease is over, or may be: end by ourselves, before the forge offers the job elsewhere."""
        self.end(Ending("fenced", self._times.grace_s))

    async def run(self) -> str:
        """What became of it, for people."""
        shipping = asyncio.create_task(self._ship())
        try:
            return await self._story(shipping)
        except Fenced:
            return "the lease is over; another runner has the job, or it was cancelled"
        finally:
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)
            self._desk.renewals.drop(self.lease)
            await asyncio.to_thread(self._spool.remove)
            if not await asyncio.to_thread(remove_tree, self._seat.folder):
                _log.warning("the work folder could not be removed whole", job=self._job.address)

    async def _story(self, shipping: asyncio.Task[None]) -> str:
        outcome, files = await self._outcome()
        if self._ending is not None and self._ending.kind == "fenced":
            raise Fenced("the lease is over")
        if outcome.conclusion is None:
            self._spool.close()
            await asyncio.wait({shipping}, timeout=self._times.grace_s)  # what it said so far is worth reading
            self._desk.send(Handback(self.lease.job, self.lease.epoch, outcome.reason[: limits.TEXT_CHARS_MAX]))
            return f"handed back: {outcome.reason}"
        self._start()  # a result is one of a lease that was started
        await self._unless_fenced(self._report(outcome, files, shipping))
        return f"{outcome.conclusion}{f': {outcome.reason}' if outcome.reason else ''}"

    async def _outcome(self) -> tuple[Outcome, tuple[ArtifactFile, ...]]:
        """What came of it. What another machine might do better has no conclusion: it is handed back."""
        try:
            plan, outcome = await self._seated()
            if outcome.conclusion in ("success", "failure", "timed_out") and self._ending is None:
                return await self._unless_told(self._keep(plan, outcome, self._seat.folder / "work"))
        except _EndedEarly:
            outcome = self._ended_early()
        except Fenced:
            raise
        except Unavailable as error:
            outcome = Outcome(None, error.sentence)
        except VoleError as error:
            outcome = Outcome("errored", error.sentence)
        except OSError as error:
            outcome = Outcome(None, f"this machine could not: {error}")
        return outcome, ()

    def _plan(self) -> JobPlan:
        document = self._job.plan.encode("utf-8")
        if job_digest(document) != self._job.digest:
            raise Invalid("the plan that came is not the one of the job's digest")
        return JobPlan.read(document)

    def _ended_early(self) -> Outcome:
        assert self._ending is not None
        kind = self._ending.kind
        if kind in ("cancelled", "timed_out"):
            return Outcome(kind)
        return Outcome(None, "the runner was stopped")

    async def _seated(self) -> tuple[JobPlan, Outcome]:
        """The steps, from nothing to none of them left: the slot is not free before that (SR-31)."""
        try:
            plan = self._plan()
            drive = await self._unless_told(self._admitted(plan))
            return plan, await self._run_steps(plan, drive, self._seat.folder)
        finally:
            await self._desk.placer.free(self._seat)
            self._desk.placer.refill()

    async def _admitted(self, plan: JobPlan) -> Drive:
        """A harness past the gate, the sources in place, the lease confirmed: no step begins before all three.

        The gate comes before `started`, so that its no costs the job no attempt; unless it takes so long that the lease
        would go back for that.
        """
        placing = asyncio.create_task(self._desk.placer.place(self._seat, _DEMAND))
        try:
            await asyncio.wait({placing}, timeout=self._times.start_window_s * 3 / 4)
            if placing.done():
                placing.result()
            held = self._start()
            await self._prepare(plan, self._seat.folder / "work")
            self._seat, drive = await placing
            await held.confirmed.wait()
            return drive
        finally:
            placing.cancel()
            await asyncio.gather(placing, return_exceptions=True)

    def _start(self) -> Held:
        """Say `started`, once."""
        if self._held is None:
            ttl_s = self._job.lease.ttl_s
            self._held = self._desk.renewals.take(self.lease, ttl_s, self._progress, self.fence, self._leased_at)
        return self._held

    async def _prepare(self, plan: JobPlan, work: Path) -> None:
        """Sources and needed artifacts in place."""
        wanted = Wanted(plan.repository, plan.commit, plan.checkout_depth)
        for tries_left in reversed(range(SOURCE_TRIES)):
            try:
                await self._desk.sources.bring(wanted, self.lease, work, self._desk.open_channel)
                for needed in plan.needs_artifacts:
                    await artifacts.fetch(needed, self.lease, work, self._desk.open_channel)
                break
            except Unavailable:
                if not tries_left:
                    raise
                await asyncio.sleep(limits.RECONNECT_S[0])

    async def _run_steps(self, plan: JobPlan, drive: Drive, folder: Path) -> Outcome:
        self._steps = steps = Steps(drive, plan, self._spool, self._desk.clock, self._mark)
        away = None if self._desk.placer.shares_folder else Folder(folder / "work")
        uid = f"{self._job.address}@{self.lease.epoch}"
        attempt = AttemptRef(uid, uid, fence(self.lease.epoch, 0))
        envelope = JobEnvelope(
            plan=self._job.plan,
            context=self._job.context,
            folder=str(folder) if away is None else "",
            runner=self._desk.name,
            ttl_s=self._job.lease.ttl_s,
        )
        left_s = max(1.0, plan.timeout_s - in_seconds(self._desk.clock.now() - self._leased_at))
        running = asyncio.create_task(steps.run(attempt, envelope, self._job.digest, left_s, away))
        try:
            await self._see_through(running, steps)
            return self._judged(running.result() if running.done() else Outcome(None, "the harness did not end"))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _see_through(self, running: asyncio.Task[Outcome], steps: Steps) -> None:
        """Returns when the steps have ended, or when they were told to and did not within their grace."""
        while not running.done():
            told = asyncio.create_task(self._told.wait())
            await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if running.done():
                return
            assert self._ending is not None
            self._told.clear()
            ending = self._ending
            await steps.cancel(_REASONS[ending.kind], ending.grace_s)
            told = asyncio.create_task(self._told.wait())
            most_s = ending.grace_s + limits.STEP_KILL_S
            await asyncio.wait({running, told}, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if not self._told.is_set():
                return

    def _judged(self, outcome: Outcome) -> Outcome:
        """The harness's word, seen with what the attempt was told."""
        if self._ending is None:
            return outcome
        if self._ending.kind in ("cancelled", "timed_out"):
            return dataclasses.replace(outcome, conclusion=outcome.conclusion or self._ending.kind)
        return Outcome(None, "the runner was stopped")

    async def _keep(self, plan: JobPlan, outcome: Outcome, work: Path) -> tuple[Outcome, tuple[ArtifactFile, ...]]:
        """Send the artifacts. One that cannot be kept fails a job that was green, and says why in the log."""
        sent: list[ArtifactFile] = []
        wrong: list[str] = []
        for artifact in plan.artifacts:
            try:
                found = await asyncio.to_thread(kept.find, artifact, work)
                if len(sent) + len(found) > limits.ARTIFACT_FILES_MAX:
                    raise Exhausted(f"more than {limits.ARTIFACT_FILES_MAX} files in all (ARTIFACT_FILES_MAX)")
                for path, location in found:
                    measured = await asyncio.to_thread(kept.measure, artifact.name, path, location)
                    await artifacts.send(measured, self.lease, self._desk.open_channel)
                    sent.append(measured.file)
                if not found and artifact.if_empty != "ignore":
                    await self._note(f"artifact {artifact.name}: no file matches {', '.join(artifact.paths)}")
                if not found and artifact.if_empty == "error":
                    wrong.append(f"artifact {artifact.name} is empty")
            except Fenced:
                raise
            except (VoleError, OSError) as error:
                wrong.append(await self._note(f"artifact {artifact.name}: {error}"))
        if wrong and outcome.conclusion == "success":
            outcome = dataclasses.replace(outcome, conclusion="failure", reason=wrong[0])
        return outcome, tuple(sent)

    async def _report(self, outcome: Outcome, files: tuple[ArtifactFile, ...], shipping: asyncio.Task[None]) -> None:
        """The whole log first, then the result, until the forge has both."""
        self._spool.close()
        await shipping
        finish = fitting(self._result(outcome, files))
        finished = await self._desk.finish(finish)
        if finished.log == "incomplete" and finished.log_bytes < self._spool.length:
            await self._complete(finish, finished.log_bytes)

    async def _complete(self, finish: Finish, stored: int) -> None:
        """The forge has lost the end of a log that it had: send it again, if it still takes it. The result stands."""
        self._spool.mark_shipped(stored)
        try:
            await logship.ship(self._spool, self.lease, self._desk.open_channel)
            await self._desk.finish(finish)
        except VoleError as error:
            _log.warning("the log stays incomplete", job=self._job.address, why=error.sentence)

    def _result(self, outcome: Outcome, files: tuple[ArtifactFile, ...]) -> Finish:
        assert outcome.conclusion is not None
        return Finish(
            job=self.lease.job,
            epoch=self.lease.epoch,
            conclusion=outcome.conclusion,
            log=self._spool.seal,
            reason=outcome.reason[: limits.PROBLEM_CHARS_MAX],
            steps=tuple(self._steps.outcomes) if self._steps else (),
            artifacts=files,
            outputs=dict(outcome.outputs),
            annotations=tuple(self._steps.annotations) if self._steps else (),
            summary=outcome.summary,
        )

    async def _ship(self) -> None:
        """Ship the log. A forge that takes no more of it is no reason to end: the result says how long it was."""
        try:
            await logship.ship(self._spool, self.lease, self._desk.open_channel)
        except Fenced:
            self.fence()
        except VoleError as error:
            _log.warning("the forge takes no more of the log", job=self._job.address, why=error.sentence)
            self._spool.give_up()

    async def _note(self, sentence: str) -> str:
        """Say it in the log; as it was said, without what the job asked to hide."""
        text = self._steps.hide(sentence) if self._steps else sentence
        self._spool.append(f"[vole] {text}\n".encode("utf-8", "backslashreplace"))
        return text

    def _mark(self, mark: Mark) -> None:
        self._marks.append(mark)
        self._send_marks()

    def say_again(self) -> None:
        """What was said may not have arrived, or was not taken in. A border said twice is kept once."""
        self._marks_sent = 0
        self._send_marks()

    def _send_marks(self) -> None:
        fresh = tuple(self._marks[self._marks_sent :])
        if fresh and self._desk.send(Marks(self.lease.job, self.lease.epoch, fresh)):
            self._marks_sent = len(self._marks)

    def _progress(self) -> Renewal:
        """What goes with a renewal; borders that found no connection go with it, too."""
        self._send_marks()
        step = self._steps.step if self._steps else 0
        return Renewal(self.lease.job, self.lease.epoch, step, self._spool.length, machine_load())

    async def _unless_told(self, work: Awaitable[T]) -> T:
        """What `work` gives. Raises _EndedEarly when the attempt is told to end before."""
        return await self._racing(work, self._told.wait())

    async def _unless_fenced(self, work: Awaitable[T]) -> T:
        async def fenced() -> None:
            while self._ending is None or self._ending.kind != "fenced":
                self._told.clear()
                await self._told.wait()

        try:
            return await self._racing(work, fenced())
        except _EndedEarly:
            raise Fenced("the lease is over") from None

    async def _racing(self, work: Awaitable[T], end: Coroutine[Any, Any, object]) -> T:
        working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end)
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise _EndedEarly
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)


def fitting(finish: Finish) -> Finish:
    """`finish` so that it fits a frame: what people could miss least goes first, and the reason says so."""
    said = "; ".join(filter(None, (finish.reason, "what the job left to show was too large for its result")))
    smaller = dataclasses.replace(finish, reason=said, summary="", annotations=())
    for candidate in (finish, smaller, dataclasses.replace(smaller, outputs={})):
        try:
            FROM_RUNNER.encode(candidate)
        except Exhausted:
            continue
        return candidate
    return dataclasses.replace(smaller, outputs={}, artifacts=(), steps=(), conclusion="errored")
