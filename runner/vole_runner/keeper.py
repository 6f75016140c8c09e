"""The runner's main story: slots that ask for work, and attempts that are told what the forge says. Runs no step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from vole.base import limits, log
from vole.base.clock import Clock, Moment, in_seconds
from vole.base.entropy import Entropy
from vole.base.errors import Fenced, Unavailable, VoleError
from vole.wire import runner
from vole.wire.runner import Finish, Finished, Job, LeaseRef, Nothing, Want, Welcome
from vole_runner.attempt import Attempt, Desk, End, Ending
from vole_runner.folders import Folders
from vole_runner.placer import Placer
from vole_runner.refusals import exit_code
from vole_runner.renewals import Renewals
from vole_runner.source import Sources
from vole_runner.uplink import Uplink

_log = log.get("vole_runner.keeper")

WAIT_S_MAX = 60.0  # however long the forge asks us to wait, a result is not held back for longer
STOP_GRACE_S = 5.0  # what an interrupted job gets between TERM and KILL


@dataclass(frozen=True)
class Manner:
    """How this runner goes about it."""

    name: str
    forge: str
    slots: int
    once: bool
    idle_timeout_s: float | None
    min_free: int | None


@dataclass
class _Parked:
    """A want that waits for its answer, through any number of connections."""

    want: Want
    answer: asyncio.Future[Job | Nothing]


class Keeper:
    """One runner process. `run` returns its exit code; the rest is told to it."""

    def __init__(
        self, manner: Manner, uplink: Uplink, folders: Folders, placer: Placer, clock: Clock, entropy: Entropy
    ) -> None:
        self._manner = manner
        self._uplink = uplink
        self._folders = folders
        self._clock = clock
        self._entropy = entropy
        self._renewals = Renewals(clock, uplink.send)
        self._placer = placer
        self._desk = Desk(
            manner.name,
            clock,
            folders,
            Sources(folders.root / "cache", manner.forge),
            placer,
            self._renewals,
            uplink.send,
            uplink.channel,
            self._finish,
        )
        self._attempts: dict[LeaseRef, Attempt] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}  # by slot: the next job, asked for before it is free
        self._parked: dict[int, _Parked] = {}
        self._finishing: dict[LeaseRef, tuple[Finish, asyncio.Future[Finished]]] = {}
        self._draining = asyncio.Event()
        self._idle_since: Moment = clock.now()
        self._leased = 0
        self._signals = 0
        self._welcomed = False
        self._say: Callable[[str], None] = _say

    @property
    def busy(self) -> bool:
        return bool(self._attempts)

    @property
    def pause_most_s(self) -> float:
        """While leases are held, several tries fit between two renewals."""
        return min(limits.RECONNECT_S[1], self._renewals.renew_s / 4) if self.busy else limits.RECONNECT_S[1]

    async def run(self) -> int:
        """The exit code: runner.md, section 1."""
        link = asyncio.create_task(self._uplink.run(self))
        beat = asyncio.create_task(self._renewals.run())
        slots = [asyncio.create_task(self._slot(number)) for number in range(self._manner.slots)]
        watch = asyncio.create_task(self._watch())
        self._placer.refill()
        try:
            work = asyncio.ensure_future(asyncio.gather(*slots))
            waited: set[asyncio.Future[Any]] = {link, work}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return self._refused(link)
            work.result()
            return self._done()
        finally:
            await self._stop(slots, [watch, beat, link])

    def terminate(self) -> None:
        """TERM: finish what runs, take no more; the second time end it at once."""
        self._signals += 1
        if self._signals == 1:
            self._say("draining: what runs is finished, nothing more is taken; a second TERM ends it")
            self.drain()
        else:
            self._end_all("stopped", 0.0)

    def interrupt(self) -> None:
        """INT: end what runs, with grace; its jobs go back to the queue."""
        self._say("stopping: what runs is ended and handed back")
        self.drain()
        self._end_all("stopped", STOP_GRACE_S if self._signals == 0 else 0.0)
        self._signals += 1

    def drain(self) -> None:
        if not self._draining.is_set():
            self._draining.set()
            self._uplink.send(runner.Drain())

    def connected(self, welcome: Welcome) -> None:
        """Ask again for everything that the last connection left unanswered."""
        if not self._welcomed:
            self._introduce(welcome)
        else:
            self._say("connected again")
        self._welcomed = True
        self._renewals.connected()
        for attempt in self._attempts.values():
            attempt.say_again()
        self._ask_again()

    def disconnected(self, why: str) -> None:
        self._say(f"not connected: {why}; trying again")

    def heard(self, message: object) -> None:
        match message:
            case Job():
                self._answer(message.slot, message.token, message)
            case Nothing():
                self._answer(message.slot, message.token, message)
            case runner.Renewed():
                self._renewals.answered(message)
            case runner.Finished():
                self._settle(LeaseRef(message.job, message.epoch), message)
            case runner.FencedLease():
                self._fenced(LeaseRef(message.job, message.epoch))
            case runner.Cancel():
                self._cancel(message)
            case runner.Drain():
                self.drain()
            case runner.Wait():
                asyncio.get_running_loop().call_later(min(message.seconds, WAIT_S_MAX), self._wait_is_over)

    async def _slot(self, number: int) -> None:
        try:
            while not self._draining.is_set():
                job = await self._lease(number)
                if job is None:
                    return
                await self._attempt(job)
                if self._manner.once:
                    return
        finally:
            if (asking := self._asking.pop(number, None)) is not None:
                asking.cancel()
            self._parked.pop(number, None)

    async def _lease(self, number: int) -> Job | None:
        """The next job of a slot; None when there will be none. It may have been asked for with the last result."""
        asking = self._asking.pop(number, None) or asyncio.create_task(self._ask(number))
        draining = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait({asking, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return None
            asking.result()
            parked = self._parked[number]
            waited: set[asyncio.Future[Any]] = {parked.answer, draining}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            answer = parked.answer.result() if parked.answer.done() else None
            return answer if isinstance(answer, Job) else None
        finally:
            asking.cancel()
            draining.cancel()
            self._parked.pop(number, None)

    async def _ask(self, number: int) -> None:
        await self._placer.up()
        want = await self._want(number, self._entropy.token())
        self._parked[number] = _Parked(want, asyncio.get_running_loop().create_future())
        self._uplink.send(want)

    def _ask_ahead(self, number: int) -> None:
        """With the result goes the want for the next job: nothing of the last one runs any more."""
        if not (self._manner.once or self._draining.is_set() or number in self._asking):
            self._asking[number] = asyncio.create_task(self._ask(number))

    async def _attempt(self, job: Job) -> None:
        attempt = Attempt(self._desk, job)
        self._leased += 1
        self._attempts[attempt.lease] = attempt
        began = self._clock.now()
        self._say(f"{job.address}: started (attempt {job.lease.epoch})")
        try:
            ended = await attempt.run()
        except Exception as error:
            # A fault of ours in one job must not take the other slots' jobs with it.
            _log.error("attempt failed", job=job.address, trace=error)
        else:
            self._say(f"{job.address}: {ended} ({in_seconds(self._clock.now() - began):.1f} s)")
        finally:
            del self._attempts[attempt.lease]
            self._idle_since = self._clock.now()

    async def _finish(self, finish: Finish) -> Finished:
        """The forge's answer to a result. Raises Fenced when it takes none from us."""
        lease = LeaseRef(finish.job, finish.epoch)
        answer: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._finishing[lease] = (finish, answer)
        try:
            self._uplink.send(finish)
            self._ask_ahead(self._attempts[lease].slot)
            return await answer
        finally:
            del self._finishing[lease]

    def _answer(self, slot: int, token: str, answer: Job | Nothing) -> None:
        parked = self._parked.get(slot)
        if parked is not None and parked.want.token == token:
            if not parked.answer.done():
                parked.answer.set_result(answer)
        elif isinstance(answer, Job) and LeaseRef(answer.lease.job, answer.lease.epoch) not in self._attempts:
            self._uplink.send(runner.Handback(answer.lease.job, answer.lease.epoch, "this runner takes no more work"))

    def _settle(self, lease: LeaseRef, finished: Finished) -> None:
        waiting = self._finishing.get(lease)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(finished)

    def _fenced(self, lease: LeaseRef) -> None:
        waiting = self._finishing.get(lease)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(Fenced("the forge takes no result of this attempt"))
        if (attempt := self._attempts.get(lease)) is not None:
            attempt.fence()

    def _cancel(self, cancel: runner.Cancel) -> None:
        attempt = self._attempts.get(LeaseRef(cancel.job, cancel.epoch))
        if attempt is not None:
            kind: End = "timed_out" if cancel.reason == "timed_out" else "cancelled"
            attempt.end(Ending(kind, min(cancel.grace_s, limits.CANCEL_GRACE_S)))

    def _ask_again(self) -> None:
        for finish, _ in self._finishing.values():
            self._uplink.send(finish)
        for parked in self._parked.values():
            self._uplink.send(parked.want)

    def _wait_is_over(self) -> None:
        """Say again what the forge could not take in just now; it does not say which word that was."""
        self._renewals.start_again()
        for attempt in self._attempts.values():
            attempt.say_again()
        self._ask_again()

    async def _want(self, number: int, token: str) -> Want:
        low = await asyncio.to_thread(self._folders.disk_low, self._manner.min_free)
        return Want(number, token, disk_low=low)

    async def _watch(self) -> None:
        """A disk that fills or empties changes what is wanted; a runner that idled long enough drains."""
        while True:
            await asyncio.sleep(min(limits.LOOK_S, self._manner.idle_timeout_s or limits.LOOK_S))
            for number, parked in list(self._parked.items()):
                fresh = await self._want(number, parked.want.token)
                if fresh != parked.want and self._parked.get(number) is parked:
                    parked.want = fresh
                    self._uplink.send(fresh)
            self._drain_when_idle()

    def _drain_when_idle(self) -> None:
        timeout_s = self._manner.idle_timeout_s
        idle_s = in_seconds(self._clock.now() - self._idle_since)
        if timeout_s is not None and not self.busy and self._welcomed and idle_s >= timeout_s:
            self._say(f"idle for {timeout_s:g} s: ending")
            self.drain()

    def _end_all(self, kind: Literal["stopped"], grace_s: float) -> None:
        for attempt in self._attempts.values():
            attempt.end(Ending(kind, grace_s))

    def _refused(self, link: asyncio.Task[None]) -> int:
        """What the link ended with, as an exit code. Raises what only a bug could."""
        error = link.exception()
        if isinstance(error, VoleError):
            for line in error.lines:
                self._say(f"refused: {line}" if not isinstance(error, Unavailable) else line)
            return exit_code(error)
        if error is not None:
            raise error
        return 0

    def _done(self) -> int:
        if self._manner.once and not self._leased and not self._signals:
            self._say("nothing to do")
            return runner.EXIT_NOTHING_LEASED
        return 0

    async def _stop(self, slots: list[asyncio.Task[None]], others: list[asyncio.Task[None]]) -> None:
        """The link has ended for good, and so have its leases, or all work is done: nothing of a step is left."""
        self._draining.set()
        for attempt in self._attempts.values():
            attempt.fence()
        await asyncio.wait(slots)
        await self._placer.aclose()
        await self._uplink.close()
        for task in others:
            task.cancel()
        await asyncio.gather(*slots, *others, return_exceptions=True)

    def _introduce(self, welcome: Welcome) -> None:
        floor = f", floor {welcome.floor}" if welcome.floor else ""
        self._say(f"connected to {self._manner.forge} (vole {welcome.server_version}{floor})")
        self._say(f"granted: {', '.join(welcome.grant) or 'no repository yet'}")
        if welcome.serves != welcome.grant:
            self._say(f"the filter leaves: {', '.join(welcome.serves) or 'nothing'}")
        for warning in welcome.warnings:
            self._say(f"warning: {warning}")
        self._say("ready")


def _say(line: str) -> None:
    print(f"vole-runner: {line}", flush=True)
