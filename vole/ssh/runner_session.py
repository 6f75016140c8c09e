"""The runner's end of the forge: what each channel of a runner's connection is, and its control channel.

Speaks `vole.wire.runner` and calls `flows.leasing`; never decides who gets a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from vole.base import limits, log
from vole.base.clock import Clock
from vole.base.errors import Denied, Exhausted, Fenced, Invalid, Unavailable, VoleError
from vole.base.ids import Epoch, JobId
from vole.base.supervise import carried_through
from vole.flows.leasing import Leasing
from vole.git.storage import Storage
from vole.people.model import Person
from vole.runners.roster import Session
from vole.ssh import runner_bulk
from vole.ssh.channel import Channel
from vole.ssh.connection import Connection
from vole.ssh.runner_bulk import refusal_of
from vole.wire import codec, runner
from vole.wire.runner import FROM_RUNNER, FROM_SERVER, Refusal, Refused

_log = log.get("vole.ssh")


@dataclass(frozen=True)
class RunnerDoor:
    """Serves the channels of runners' connections."""

    leasing: Leasing
    storage: Storage
    clock: Clock

    def session(self, connection: Connection) -> Channel:
        """A new channel of `connection`."""
        return Channel(runner.SUBSYSTEM, partial(self._serve, connection))

    async def _serve(self, connection: Connection, channel: Channel) -> None:
        try:
            await self._dispatch(connection, channel)
        except VoleError as error:
            channel.send(FROM_SERVER.encode(refusal_of(error)))
        except Exception as error:
            _log.error("runner channel failed", account=connection.person.name, trace=error)
            sentence = "the server failed on this channel; its log says why"
            channel.send(FROM_SERVER.encode(Refused(Refusal.INTERNAL, sentence)))

    async def _dispatch(self, connection: Connection, channel: Channel) -> None:
        if connection.person.key_kind != "runner":
            raise Denied("this key is for git: a runner needs a key of kind `runner`")
        opening = runner.read_opening(await _said(channel, "an opening"))
        if opening.open == "control":
            await self._control(connection, channel)
            return
        if not isinstance(connection.runner, Session):
            raise Invalid(f"a {opening.open} channel before `welcome` on the control channel")
        bulk = runner_bulk.Bulk(self.leasing, self.storage, self.clock, connection.runner)
        await bulk.serve(opening, channel)

    async def _control(self, connection: Connection, channel: Channel) -> None:
        if connection.runner is not None:
            raise Invalid("this connection has a control channel already")
        hello = _read_hello(await _said(channel, "hello"))
        session = await self.leasing.hello(connection.person, hello)
        connection.runner = session
        control = _Control(self.leasing, connection.person, channel, session)
        cause = "the connection was lost"
        try:
            cause = await control.serve()
        finally:
            await carried_through(self._leave(control, connection, cause))

    async def _leave(self, control: _Control, connection: Connection, cause: str) -> None:
        try:
            await control.end()
            await self.leasing.goodbye(control.session, cause=cause)
            if control.refused:
                await control.channel.gone(limits.RUNNER_PARTING_S)
        finally:
            connection.close(cause)


class _Control:
    """The control channel of one connection, after its welcome."""

    def __init__(self, leasing: Leasing, person: Person, channel: Channel, session: Session) -> None:
        self.channel = channel
        self.session = session
        self.refused = False  # the runner was told no, which it must get to read
        self._leasing = leasing
        self._person = person
        self._wants: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ended in the order in which they began
        self._words: set[asyncio.Task[Any]] = set()  # last words on a lease

    async def serve(self) -> str:
        """Why the link ended. A frame that breaks the rules ends it, and the runner is told which rule."""
        self._send(self.session.welcome)
        running = [self._spawn(part) for part in (self._frames(), self._orders())]
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        try:
            return str(next(task for task in running if task in done).result())
        except VoleError as error:
            self._send(refusal_of(error))
            return error.sentence

    async def end(self) -> None:
        """Nothing of this link runs on: parked wants are withdrawn.

        What was said last of a lease is carried through: cut short between its change and the bell, it would free a
        place that nobody hears of.
        """
        for task in list(self._tasks):
            if (
                task not in self._words and not task.cancelling()
            ):  # once: it may be giving back what nobody was there to take
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, part: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(part)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _carry_through(self, part: Coroutine[Any, Any, Any]) -> None:
        self._words.add(self._spawn(part))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        self._words.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, VoleError):
            _log.error("runner link failed", account=self._person.name, trace=error)
            sentence = "the server failed at a word of this runner; its log says why"
            self.session.orders.put_nowait(Refused(Refusal.INTERNAL, sentence))

    def _send(self, message: object) -> None:
        self.refused = self.refused or isinstance(message, Refused)
        self.channel.send(FROM_SERVER.encode(message))

    async def _frames(self) -> str:
        while (line := await self.channel.line()) is not None:
            message = FROM_RUNNER.decode(line, strict=True)
            if isinstance(message, runner.Bye):
                return "the runner said bye"
            await self._take(message)
        return "the runner closed its control channel"

    async def _take(self, message: object) -> None:
        # Renewals are answered in order and one by one: the keeper matches them by that.
        match message:
            case runner.Want():
                self._park(message)
            case runner.Renew():
                await self._renew(message)
            case runner.Started():
                await self._fenced_or(message, self._started(message))
            case runner.Marks():
                await self._fenced_or(message, self._leasing.marks(self.session, message))
            case runner.Finish():
                # Its fsync must not hold up the renewals of other jobs.
                self._carry_through(self._fenced_or(message, self._finish(message)))
            case runner.Handback():
                self._carry_through(self._fenced_or(message, self._leasing.handback(self.session, message)))
            case runner.Drain():
                await self._leasing.drain(self.session)
            case _:
                raise Invalid("hello was said already")

    def _park(self, want: runner.Want) -> None:
        slots = self.session.hello.slots
        if not 0 <= want.slot < slots:
            raise Invalid(f"a want for slot {want.slot}; hello said {slots} slots, counted from 0")
        former = self._wants.get(want.slot)
        if former is not None:
            former[1].cancel()
        self._wants[want.slot] = (want.token, self._spawn(self._want(want, former[1] if former else None)))

    async def _want(self, want: runner.Want, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            await asyncio.wait([former])  # the same token asked again must not meet itself half withdrawn
        try:
            self._send(await self._leasing.next_job(self.session, want))
        except Unavailable as error:
            self._send(runner.Wait(limits.LOOK_S, error.sentence))
        except VoleError as error:
            self.session.orders.put_nowait(refusal_of(error))

    async def _started(self, started: runner.Started) -> None:
        renewed: tuple[runner.LeaseRef, ...] = ()
        try:
            await self._leasing.started(self.session, started)
            renewed = (runner.LeaseRef(started.job, started.epoch),)
        finally:
            self._send(runner.Renewed(renewed))  # one for each `started` and `renew`, in their order

    async def _renew(self, renew: runner.Renew) -> None:
        try:
            renewed, fenced = await self._leasing.renew(self.session, renew)
        except Unavailable as error:
            # No answer to this renewal would shift every later one: the empty one says that none counts.
            _log.warning("renewal not taken in", account=self._person.name, why=error.sentence)
            renewed, fenced = runner.Renewed(()), ()
        self._send(renewed)
        for lease in fenced:
            self._send(lease)

    async def _finish(self, finish: runner.Finish) -> None:
        self._send(await self._leasing.finish(self.session, finish))

    async def _fenced_or(self, message: Leased, deed: Coroutine[Any, Any, None]) -> None:
        try:
            await deed
        except Unavailable as error:
            self._send(runner.Wait(1.0, error.sentence))
        except VoleError as error:
            if not isinstance(error, Fenced):
                _log.warning(
                    "runner's word refused", account=self._person.name, job=message.job, epoch=message.epoch, why=error
                )
            self._send(runner.FencedLease(message.job, message.epoch))

    async def _orders(self) -> str:
        while True:
            order = await self.session.orders.get()
            self._send(order)
            if isinstance(order, Refused):
                await self.channel.drain()
                return order.message


class Leased(Protocol):
    """A message about one lease."""

    @property
    def job(self) -> JobId: ...

    @property
    def epoch(self) -> Epoch: ...


async def _said(channel: Channel, what: str) -> bytes:
    try:
        async with asyncio.timeout(limits.RUNNER_OPENING_S):
            line = await channel.line()
    except TimeoutError:
        sentence = f"nothing was said for {limits.RUNNER_OPENING_S} s; {what} was due (RUNNER_OPENING_S)"
        raise Exhausted(sentence) from None
    if line is None:
        raise Invalid(f"the channel was closed before {what}")
    return line


def _read_hello(line: bytes) -> runner.Hello:
    """The hello in `line`. One of a newer wire that still speaks ours may hold fields that we do not know."""
    value = codec.parse(line)
    if not isinstance(value, dict) or value.pop("type", None) != "hello":
        raise Invalid("the first frame is hello")
    wire = codec.from_json(runner.Wire, value.get("wire"), strict=False, where="hello.wire")
    if wire.max < runner.WIRE_MIN or wire.min > runner.WIRE_MAX:
        raise Invalid(
            f"the runner speaks wire {wire.min} to {wire.max}, this server {runner.WIRE_MIN} to {runner.WIRE_MAX}",
            code=Refusal.WIRE_UNSUPPORTED,
            next_step="install the vole-runner of the server's version",
        )
    return codec.from_json(runner.Hello, value, strict=wire.max <= runner.WIRE_MAX, where="hello")
