"""Walking a job's plan: condition, intent, grant, process, result. Runs a step only when the host granted it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from vole.base import expressions, limits
from vole.base.clock import Clock
from vole.base.errors import Exhausted, VoleError
from vole.base.expressions import Status
from vole.wire import harness_pb2 as pb
from vole.wire.plan import StepPlan
from vole_runner.harness import files
from vole_runner.harness.commands import Remark
from vole_runner.harness.environment import Surroundings, input_digest
from vole_runner.harness.processes import Child, Command, Leftover, Processes
from vole_runner.harness.spool import Remarks, Spool, StepLog

_SHELLS: Mapping[str, tuple[str, tuple[str, ...], str]] = {  # program, arguments, suffix of the script
    "bash": ("bash", ("--noprofile", "--norc", "-eo", "pipefail"), ".sh"),
    "sh": ("sh", ("-e",), ".sh"),
    "python": ("python3", (), ".py"),
}


@dataclass(frozen=True)
class Stop:
    """The attempt is to end: why, and when what still runs is killed (loop time)."""

    reason: pb.Reason
    kill_at: float
    error: str = ""  # where the harness, not the host, is why


_Watched: TypeAlias = "asyncio.Future[int] | asyncio.Future[str] | asyncio.Future[Stop] | asyncio.Future[pb.StepGrant]"


class Refused(Exception):
    """The host did not grant the step."""


@dataclass
class Outcome:
    """How a step ended, as its StepResult will say."""

    state: pb.StepState = pb.SUCCEEDED
    exit_code: int = 0
    signal: str = ""
    reason: str = ""
    timed_out: bool = False
    leftovers: tuple[Leftover, ...] = ()
    outputs: dict[str, str] = field(default_factory=dict)
    started_us: int = 0
    finished_us: int = 0

    def fail(self, reason: str) -> None:
        if self.state == pb.SUCCEEDED:
            self.state = pb.FAILED
        self.reason = self.reason or reason[: limits.PROBLEM_CHARS_MAX]


@dataclass(frozen=True)
class Prepared:
    """A step that may be asked for: nothing of it has run."""

    step: StepPlan
    script: str
    folder: Path
    env: dict[str, str]
    shell: str


class Job:
    """One attempt of one job. `run` is called once; the rest is what the host, or the loss of it, tells us."""

    def __init__(
        self, surroundings: Surroundings, spool: Spool, processes: Processes, clock: Clock, grace_s: float
    ) -> None:
        self.current = ""  # the step at hand, for heartbeats
        self.unfit = ""  # why no other job may follow this one here
        self._around = surroundings
        self._plan = surroundings.facts.plan
        self._spool = spool
        self._processes = processes
        self._clock = clock
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._stop: asyncio.Future[Stop] = self._loop.create_future()
        self._grant: asyncio.Future[pb.StepGrant] = self._loop.create_future()
        self._asked = ""
        self._answered: set[str] = set()  # steps
        self._failed = False
        self._summary: list[str] = []
        self._remarks = Remarks(spool)

    def stop(self, reason: pb.Reason, grace_s: float, error: str = "") -> None:
        """End the attempt within `grace_s`, at most CANCEL_GRACE_S. The first reason stays."""
        if not self._stop.done():
            grace_s = min(max(grace_s, 0.0), limits.CANCEL_GRACE_S)
            self._stop.set_result(Stop(reason, self._loop.time() + grace_s, error))
            self._spool.nudge()

    def granted(self, grant: pb.StepGrant) -> bool:
        """The host's answer to the open intent; one that it gives again, on another stream, changes nothing.

        False when it answers what was never asked.
        """
        if grant.step_id == self._asked and not self._grant.done():
            self._answered.add(grant.step_id)
            self._grant.set_result(grant)
        return grant.step_id in self._answered

    async def run(self, timeout_s: float) -> pb.End:
        """Every step in order; returns how the attempt ended. Nothing of it runs any more then."""
        timer = self._loop.call_later(timeout_s, self.stop, pb.TIMEOUT, self._grace_s)
        try:
            for step in self._plan.steps:
                self.current = str(step.number)
                await self._step(step)
        except Refused as refusal:
            if not self._stop.done():
                return pb.End(state=pb.End.FAILED, error=pb.Error(code=_ABORTED, message=str(refusal)))
        finally:
            timer.cancel()
        return self._end()

    async def _step(self, step: StepPlan) -> None:
        log = StepLog(str(step.number), self._spool, self._remarks)
        outcome = Outcome()
        try:
            prepared = self._prepare(step)
        except VoleError as problem:
            outcome.fail(problem.sentence)
            log.say(f"vole: {outcome.reason}")
        else:
            if prepared is None:
                outcome.state = pb.SKIPPED
            else:
                await self._ask(prepared)
                await self._run(prepared, log, outcome)
        self._record(step, log, outcome)

    # ---- Before the step

    def _prepare(self, step: StepPlan) -> Prepared | None:
        """The step with its texts evaluated, or None where it does not run. Raises Invalid."""
        stop = self._stop.result() if self._stop.done() else None
        if stop is not None and (stop.reason not in (pb.USER, pb.TIMEOUT) or stop.kill_at <= self._loop.time()):
            return None
        status: Status = "cancelled" if stop else "failure" if self._failed else "success"
        if step.if_ is None and status != "success":
            return None
        env = self._around.step_env(step)
        if not expressions.condition(step.if_, self._around.contexts(env), status):
            return None
        script = expressions.interpolate(step.run, {"matrix": dict(self._plan.matrix)})
        folder = files.inside(self._around.facts.places, step.working_directory)
        return Prepared(step, script, folder, env, self._shell(step))

    def _shell(self, step: StepPlan) -> str:
        if step.shell is not None:
            return step.shell
        return "bash" if shutil.which("bash", path=self._around.environment({}, {})["PATH"]) else "sh"

    async def _ask(self, prepared: Prepared) -> None:
        """Ask for the step and wait. Raises Refused; returns also when the attempt is stopped meanwhile."""
        self._asked, self._grant = str(prepared.step.number), self._loop.create_future()
        stopping = self._stop.done()
        while self._spool.full and not self._stop.done():
            await self._spool.changed()
        if self._stop.done() and not stopping:
            return
        digest = input_digest(prepared.step, prepared.script, prepared.folder, prepared.env)
        self._spool.event(intent=pb.StepIntent(step_id=self._asked, input_digest=digest))
        await self._first(self._left(), self._grant)
        if self._grant.done() and self._grant.result().decision != pb.RUN:
            raise Refused(self._grant.result().reason or f"step {self._asked} was not granted")

    # ---- The step

    async def _run(self, prepared: Prepared, log: StepLog, outcome: Outcome) -> None:
        if not self._grant.done():
            outcome.state = pb.CANCELED
            return
        outcome.started_us = self._clock.now()
        try:
            made, command, output = self._command(prepared, log)
        except (OSError, ValueError) as problem:
            outcome.fail(f"the step cannot begin: {problem}")
            log.say(f"vole: {outcome.reason}")
        else:
            await self._execute(prepared.step, command, log, outcome, output)
            self._collect(made, log, outcome)
        outcome.finished_us = self._clock.now()

    def _command(self, prepared: Prepared, log: StepLog) -> tuple[files.StepFiles, Command, int]:
        """What to execute, and the reading end of its pipe. Raises OSError or ValueError."""
        program, arguments, suffix = _SHELLS[prepared.shell]
        number = prepared.step.number
        made = files.make_step_files(self._around.facts.places, number, prepared.script, suffix)
        env = self._around.environment(prepared.env, made.variables)
        argv = (program, *arguments, str(made.script))
        log.say(shlex.join(argv))
        executable = shutil.which(program, path=env["PATH"])
        if executable is None:
            raise FileNotFoundError(f"there is no {program!r} on PATH")
        reading, writing = os.pipe()
        with suppress(OSError):  # of a user who has many pipes; the usual size does
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, limits.STEP_PIPE_BYTES)
        return made, Command(executable, argv, prepared.folder, env, writing), reading

    async def _execute(self, step: StepPlan, command: Command, log: StepLog, outcome: Outcome, reading: int) -> None:
        try:
            child = self._processes.spawn(command)
        except (OSError, ValueError) as problem:
            os.close(reading)
            outcome.fail(f"the step cannot begin: {problem}")
            log.say(f"vole: {outcome.reason}")
            return
        finally:
            os.close(command.output)
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(log.pump(reading))
            await self._supervise(step, child, log, outcome)
            log.ended()
            # With every process gone the pipe ends; one that survived KILL must not hold us.
            await asyncio.wait({pump}, timeout=limits.STEP_KILL_S)
            pump.cancel()
        for leftover in outcome.leftovers:
            what = "killed" if leftover.killed else "ended"
            log.say(f"vole: {what} what the step left running: {leftover.name} (pid {leftover.pid})")
        if outcome.reason:
            log.say(f"vole: {outcome.reason}")

    async def _supervise(self, step: StepPlan, child: Child, log: StepLog, outcome: Outcome) -> None:
        left = [bound for bound in (step.timeout_s, self._left()) if bound is not None]
        await self._first(min(left, default=None), child.ended, log.trouble)
        if child.ended.done():
            outcome.leftovers = await self._processes.end_leftovers(child)
        else:
            kill_at = self._why_ended(step, log, outcome)
            outcome.leftovers = await self._processes.end_tree(child, kill_at)
            outcome.leftovers = tuple(left for left in outcome.leftovers if left.killed)
        if not self._processes.empty(child):
            self.unfit = f"step {step.number} left a process that cannot be killed"
            self.stop(pb.INTERNAL, 0, self.unfit)
        if child.ended.done():
            _say_how(child.ended.result(), outcome)

    def _why_ended(self, step: StepPlan, log: StepLog, outcome: Outcome) -> float:
        """Note why the step is ended before its time. Returns when it is killed (loop time)."""
        if log.trouble.done():
            outcome.state, outcome.reason = pb.FAILED, log.trouble.result()
        elif self._stop.done():
            outcome.state = pb.CANCELED
            return self._stop.result().kill_at
        else:
            outcome.state, outcome.timed_out = pb.FAILED, True
            outcome.reason = f"the step took longer than its timeout of {step.timeout_s} s"
        return self._loop.time() + self._grace_s

    # ---- After the step

    def _collect(self, made: files.StepFiles, log: StepLog, outcome: Outcome) -> None:
        """Read what the step wrote into its files. A bad line fails it, with the line."""
        try:
            outcome.outputs = files.read_outputs(made.output)
            self._around.added |= files.read_variables(made.env)
            self._around.folders[:0] = files.read_path(made.path)
        except VoleError as problem:
            outcome.fail(problem.sentence)
            log.say(f"vole: {problem.sentence}")
        room = limits.SUMMARY_BYTES_MAX - sum(len(text.encode("utf-8")) + 1 for text in self._summary)
        try:
            if text := files.read_summary(made.summary, max(room, 0)):
                self._summary.append(text)
        except VoleError as problem:
            log.say(f"vole: {problem.sentence}; this summary is not kept")
            self._remarks.annotate(self.current, Remark("warning", f"{problem.sentence}; it is not kept", "", 0))

    def _record(self, step: StepPlan, log: StepLog, outcome: Outcome) -> None:
        continued = outcome.state == pb.FAILED and step.continue_on_error
        if outcome.state == pb.FAILED and not continued:
            self._failed = True
        if step.id is not None:
            self._around.steps[step.id] = {"outcome": _OUTCOMES[outcome.state], "outputs": dict(outcome.outputs)}
        leftovers = [pb.Leftover(pid=left.pid, name=left.name, killed=left.killed) for left in outcome.leftovers]
        result = pb.StepResult(
            step_id=str(step.number),
            state=outcome.state,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            outputs=outcome.outputs,
            log_bytes=log.bytes,
            log_sha256=log.sha256,
            started_unix_ms=outcome.started_us // 1000,
            finished_unix_ms=outcome.finished_us // 1000,
            timed_out=outcome.timed_out,
            continued=continued,
            reason=outcome.reason,
            leftovers=leftovers,
        )
        self._spool.event(result=result)

    def _end(self) -> pb.End:
        end = pb.End(state=pb.End.COMPLETED, summary="\n".join(self._summary))
        if self._stop.done() and (stop := self._stop.result()):
            end.state, end.reason = pb.End.CANCELED, stop.reason
            if stop.error:
                end.state, end.error.code, end.error.message = pb.End.FAILED, _INTERNAL, stop.error
        elif self._failed:
            end.state = pb.End.FAILED
        try:
            end.outputs.update(self._outputs())
        except VoleError as problem:
            self._remarks.annotate("", Remark("error", problem.sentence, "", 0))
            if end.state == pb.End.COMPLETED:
                end.state = pb.End.FAILED
        return end

    def _outputs(self) -> dict[str, str]:
        """The job's outputs. Raises Invalid for an expression that cannot be evaluated, or for too much."""
        contexts = self._around.contexts(self._around.job_env())
        outputs = {name: expressions.interpolate(text, contexts) for name, text in self._plan.outputs.items()}
        size = sum(len(name.encode()) + len(value.encode("utf-8", "replace")) for name, value in outputs.items())
        if size > limits.OUTPUT_BYTES_MAX:
            raise Exhausted(
                f"the job's outputs have {size} bytes; at most {limits.OUTPUT_BYTES_MAX} (OUTPUT_BYTES_MAX)"
            )
        return outputs

    # ---- Time

    async def _first(self, timeout_s: float | None, *watched: _Watched) -> None:
        """Returns when one of `watched` is done, or a stop comes, or after `timeout_s`."""
        every = {*watched, *(() if self._stop.done() else (self._stop,))}
        await asyncio.wait(every, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def _left(self) -> float | None:
        """Seconds until KILL, once the attempt is stopping."""
        return max(self._stop.result().kill_at - self._loop.time(), 0.0) if self._stop.done() else None


_ABORTED = 10  # numbers of google.rpc.Code
_INTERNAL = 13
_OUTCOMES = {pb.SUCCEEDED: "success", pb.FAILED: "failure", pb.CANCELED: "cancelled", pb.SKIPPED: "skipped"}


def _say_how(code: int, outcome: Outcome) -> None:
    if code < 0:
        with suppress(ValueError):
            outcome.signal = signal.Signals(-code).name
        outcome.signal = outcome.signal or f"SIG{-code}"
        outcome.fail(f"ended by {outcome.signal}")
    elif code:
        outcome.exit_code = code
        outcome.fail("")
