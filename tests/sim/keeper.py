"""A model of one runner process: what a keeper says and when, with the real rule of when it must let go.

It has no steps, no disk and no sandbox: a job is a span of time, some bytes of log and a conclusion.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.queueing import a_hello
from tests.sim.clocks import ProcessClock
from vole.base.limits import lease_times
from vole.wire import runner
from vole.wire.runner import ANSWERS, FROM_RUNNER, FROM_SERVER, LeaseRef
from vole_runner.renewals import Held, Renewals

if TYPE_CHECKING:
    from tests.sim.link import Link, Stream
    from tests.sim.world import World

CONCLUSIONS: tuple[Any, ...] = ("success",) * 14 + ("failure",) * 3 + ("errored", "timed_out")


@dataclass(frozen=True)
class Manner:
    """What a runner process is, and how it goes about it."""

    account: str
    labels: tuple[str, ...]
    slots: int
    repos: tuple[str, ...]
    only: bool
    haste: float  # its jobs take this many times as long
    deaf: bool  # it does not hear when it is told to cancel
    mode: Any


@dataclass
class Work:
    """One attempt in this runner's hands."""

    lease: LeaseRef
    slot: int
    held: Held | None
    began_us: int | None = None  # its steps run since
    over: bool = False  # its steps have ended
    log: bytes = b""
    shipped: int = 0
    shipping: Stream | None = None
    conclusion: Any = None
    result: runner.Finish | None = None
    answered: runner.Finished | None = None
    tries: int = 0


class Keeper:
    """Reacts to frames and to time. Everything it does is called by the world."""

    def __init__(self, world: World, manner: Manner, number: int) -> None:
        self.world, self.manner, self.number = world, manner, number
        self.name = f"{manner.account}-{number}" if world.rng.random() < 0.5 else manner.account
        self.clock = ProcessClock(world.time)
        self.renewals = Renewals(self.clock, self._send)
        self.alive = True
        self.link: Link | None = None
        self.welcomed = False
        self.session = 0
        self.draining = False
        self.disk_low = False
        self.works: dict[LeaseRef, Work] = {}
        self.wants: dict[int, str] = {}
        self.past: list[Work] = []
        self.lied_of: set[tuple[int, int]] = set()  # leases that it spoke of when they were not its own
        self._tokens = 0
        self._ticking = False

    # ---- the link

    def connect(self) -> None:
        from tests.sim.link import Link  # noqa: PLC0415 - the two know each other

        if not self.alive or self.link is not None:
            return
        world = self.world
        person = world.person(self.manner.account) if world.life.up and not world.frozen else None
        if person is None:
            world.after(world.within(0.3, 3), self.connect)
            return
        self.link = link = Link(world, world.life, self, person, wild=world.wild and world.rng.random() < 0.7)
        self.welcomed = False
        link.control = link.open(runner.Open("control"), self._heard)
        manner = self.manner
        hello = a_hello(
            self.name,
            manner.labels,
            incarnation=f"{manner.account}/{self.number}",
            slots=manner.slots,
            repos=manner.repos,
            only=manner.only,
            mode=manner.mode,
        )
        link.control.say(FROM_RUNNER.encode(hello), safe=True)

    def dropped(self, link: Link | None) -> None:
        """This side learns that a connection is gone."""
        if link is None or self.link is not link:
            return
        link.carries = False
        self.link, self.welcomed = None, False
        for work in self.works.values():
            work.shipping = None
        if self.alive:
            self.world.after(self.world.within(0.2, 3), self.connect)

    def die(self, *, noticed_us: int) -> None:
        """The process is gone. Its steps run on until they notice."""
        self.alive = False
        if self.link is not None:
            self.link.cut(noticed_us=noticed_us)
            self.link = None
        orphan_us = round(lease_times(self.world.policy.ttl_s).orphan_s * 1e6)
        for work in self.works.values():
            self.world.after(self.world.rng.randrange(1, orphan_us), partial(self._stop, work))

    def leave(self) -> None:
        """It ends in good order, or what is left of it does."""
        if not self.works:
            self._send(runner.Bye())
        self.die(noticed_us=0)

    def _send(self, message: object) -> bool:
        if self.link is None or not self.welcomed or self.link.control is None:
            return False
        said = self.world.checker.said
        for ref in _leases(message):
            said.add((_word(message), ref.job, ref.epoch, self.session))
        self.link.control.say(FROM_RUNNER.encode(message))
        return True

    # ---- what it hears

    def _heard(self, frame: bytes | None) -> None:  # noqa: C901 - one case for each frame
        if not self.alive:
            return
        if frame is None:
            self.dropped(self.link)
            return
        message = FROM_SERVER.decode(frame.rstrip(b"\n"), strict=False)
        match message:
            case runner.Welcome():
                self._welcome(message)
            case runner.Job():
                self._job(message)
            case runner.Renewed():
                self.renewals.answered(message)
                self._begin_confirmed()
            case runner.Cancel():
                self._cancel(message)
            case runner.FencedLease():
                self._fenced(LeaseRef(message.job, message.epoch))
            case runner.Finished():
                self._finished(message)
            case runner.Wait():
                self.world.after(round(message.seconds * 1e6), self._ask_again)
            case runner.Nothing() if self.wants.get(message.slot) == message.token:
                del self.wants[message.slot]
                if not self.works:
                    self.leave()
            case runner.Refused():
                self.world.checker.refusals[str(message.code)] += 1
                self.die(noticed_us=1_000)

    def _welcome(self, welcome: runner.Welcome) -> None:
        self.welcomed, self.session = True, int(welcome.session)
        self.world.checker.sessions.add(self.session)
        self.renewals.connected()
        self._ask_again()
        for work in list(self.works.values()):
            if work.over:
                self._deliver(work)
        self._want()

    def _ask_again(self) -> None:
        if self.link is None or not self.welcomed:
            return
        for slot, token in self.wants.items():
            self._send(runner.Want(slot, token, self.disk_low))

    def _want(self) -> None:
        busy = {work.slot for work in self.works.values()} | self.wants.keys()
        if self.draining or not self.alive or (self.manner.mode == "once" and self.past):
            return
        for slot in range(self.manner.slots):
            if slot not in busy:
                self._tokens += 1
                self.wants[slot] = f"{self.name}/{self.number}/{self._tokens}"
                self._send(runner.Want(slot, self.wants[slot], self.disk_low))

    def feels_disk(self, *, low: bool) -> None:
        self.disk_low = low
        self._ask_again()

    def drain(self) -> None:
        self.draining = True
        self._send(runner.Drain())

    def _job(self, job: runner.Job) -> None:
        ref = LeaseRef(job.lease.job, job.lease.epoch)
        if ref in self.works:
            return
        if self.wants.get(job.slot) != job.token:
            self._send(runner.Handback(ref.job, ref.epoch, "this runner takes no more work"))
            return
        del self.wants[job.slot]
        self.world.checker.offered(job, self)
        rng = self.world.rng
        work = Work(ref, job.slot, None, conclusion=rng.choice(CONCLUSIONS))
        self.works[ref] = work
        dice = 1.0 if self.world.peace else rng.random()
        if dice < 0.06:
            self._send(runner.Handback(ref.job, ref.epoch, "it could not begin"))
            self._drop(work)
        elif dice < 0.09:  # it dies with the job in its hands
            self.die(noticed_us=rng.choice((0, 100_000, 3_000_000)))
        elif dice < 0.12:  # it never says that it has the job
            self.world.after(round(job.lease.ttl_s / 4 * 1e6), partial(self._drop, work))
        else:
            work.held = self.renewals.take(ref, job.lease.ttl_s, partial(_progress, work), partial(self._let_go, work))
            self._tick()

    # ---- the work

    def _tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._look()

    def _look(self) -> None:
        if not self.alive or not self.works:
            self._ticking = False
            return
        pause_s = self.renewals.look()
        self.world.after(max(1_000, round(pause_s * 1e6)), self._look)

    def _begin_confirmed(self) -> None:
        for work in self.works.values():
            if work.held is not None and work.held.confirmed.is_set() and work.began_us is None and not work.over:
                rng, world = self.world.rng, self.world
                work.began_us = world.time.now_us
                work.log = rng.randbytes(rng.choice((0, 5, 40)))
                span = round(rng.choice((0.1, 0.5, 2, 6, 14)) * self.manner.haste * 1e6)
                if rng.random() < 0.04:  # after its start, it gives up
                    world.after(span, partial(self._give_back, work))
                else:
                    world.after(span, partial(self._steps_ended, work))

    def _steps_ended(self, work: Work) -> None:
        if self.alive and not work.over and self.works.get(work.lease) is work:
            self._stop(work)
            self._deliver(work)

    def _give_back(self, work: Work) -> None:
        if self.alive and not work.over and self.works.get(work.lease) is work:
            self._stop(work)
            self._send(runner.Handback(work.lease.job, work.lease.epoch, "the runner was stopped"))
            self._drop(work)

    def _stop(self, work: Work) -> None:
        """No step of it runs any more."""
        if not work.over:
            work.over = True
            if work.began_us is not None:
                self.world.checker.executed(work.lease, work.began_us, self.world.time.now_us)

    def _let_go(self, work: Work) -> None:
        """It could not renew in time: its steps end within the grace, whatever the server believes."""
        self.world.after(self._grace_us(), partial(self._stop, work))
        self.world.after(self._grace_us(), partial(self._drop, work))

    def _fenced(self, lease: LeaseRef) -> None:
        self.world.checker.fenced(self, lease)
        work = self.works.get(lease)
        if work is not None:
            self.world.after(self._grace_us(), partial(self._stop, work))
            self._drop(work)

    def _cancel(self, cancel: runner.Cancel) -> None:
        work = self.works.get(LeaseRef(cancel.job, cancel.epoch))
        if work is None or work.over or self.manner.deaf:
            return
        work.conclusion = "timed_out" if cancel.reason == "timed_out" else "cancelled"
        if work.began_us is None:
            self._steps_ended(work)
        else:
            self.world.after(self._grace_us(), partial(self._steps_ended, work))

    def _grace_us(self) -> int:
        return round(lease_times(self.world.policy.ttl_s).grace_s * 1e6 * self.world.rng.random())

    def _drop(self, work: Work) -> None:
        if self.works.get(work.lease) is not work:
            return
        del self.works[work.lease]
        self.renewals.drop(work.lease)
        self.past.append(work)
        if work.shipping is not None:
            work.shipping.end()
        if self.alive:
            self.world.after(self.world.within(0.001, 0.1), self._next)

    def _next(self) -> None:
        if not self.alive:
            return
        if not self.works and (self.draining or self.manner.mode == "once"):
            self.leave()
        else:
            self._want()

    # ---- log and result

    def _deliver(self, work: Work) -> None:
        """The whole log, then the result, until the server has both."""
        if self.works.get(work.lease) is not work or self.link is None or not self.welcomed:
            return
        if work.result is not None or work.tries > 4:
            self._finish(work)
            return
        work.tries += 1
        opening = runner.Open("log", work.lease.job, work.lease.epoch, offset=work.shipped)
        work.shipping = self.link.open(opening, partial(self._log_answered, work))
        self.world.checker.spooled[work.lease] = work.log

    def _log_answered(self, work: Work, line: bytes | None) -> None:
        if line is None or work.shipping is None or self.works.get(work.lease) is not work or work.result is not None:
            return
        answer = ANSWERS.decode(line.rstrip(b"\n"), strict=True)
        if isinstance(answer, runner.Accepted):
            work.shipped = answer.offset
            rest = work.log[work.shipped :]
            if not rest:
                self._finish(work)
                return
            first = self.world.rng.random() < 0.5
            work.shipping.say(rest[: len(rest) // 2 + 1] if first else rest, safe=True)
        elif answer.code is runner.Refusal.FENCED:
            self._fenced(work.lease)
        elif answer.offset is not None and answer.offset <= len(work.log):
            work.shipped = answer.offset
            self._deliver(work)
        else:
            self._finish(work)

    def _finish(self, work: Work) -> None:
        if work.shipping is not None:
            work.shipping.end()
            work.shipping = None
        seal = runner.LogSeal(len(work.log), hashlib.sha256(work.log).hexdigest())
        work.result = work.result or runner.Finish(work.lease.job, work.lease.epoch, work.conclusion, seal)
        self.world.checker.said_results.setdefault(work.lease, set()).add((self.session, work.conclusion))
        self._send(work.result)
        if self.world.rng.random() < 0.1:
            self._send(work.result)

    def _finished(self, finished: runner.Finished) -> None:
        lease = LeaseRef(finished.job, finished.epoch)
        self.world.checker.answered(self, finished)
        work = self.works.get(lease)
        if work is not None:
            work.answered = finished
            self._drop(work)

    # ---- what no honest keeper says

    def lies(self, message: Any) -> None:
        """Say something about a lease that this process does not hold."""
        if isinstance(message, runner.Finish):
            lease = LeaseRef(message.job, message.epoch)
            self.world.checker.said_results.setdefault(lease, set()).add((self.session, message.conclusion))
        for lease in message.leases if isinstance(message, runner.Renew) else (message,):
            self.lied_of.add((lease.job, lease.epoch))
        self._send(message)


def _progress(work: Work) -> runner.Renewal:
    return runner.Renewal(work.lease.job, work.lease.epoch, 1, work.shipped)


def _word(message: object) -> str:
    return type(message).__name__.lower()


def _leases(message: object) -> list[LeaseRef]:
    if isinstance(message, runner.Renew):
        return [LeaseRef(renewal.job, renewal.epoch) for renewal in message.leases]
    if isinstance(message, runner.Started | runner.Finish | runner.Handback):
        return [LeaseRef(message.job, message.epoch)]
    return []
