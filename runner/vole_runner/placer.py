"""Finds the compute for an attempt and a stream to it, by the gate; keeps one ready so that no job waits for Python.

Runs nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vole.base import limits, log
from vole.base.errors import Unavailable, VoleError
from vole_runner import gate
from vole_runner.gate import Demand
from vole_runner.runtimes.dial import Connection, Drive
from vole_runner.runtimes.runtime import Descriptor, Incarnation, JobSpec, Runtime

_log = log.get("vole_runner.placer")

UNPLACEABLE = "unplaceable"  # code of Unavailable: this runner cannot run the job, another one may
UNFIT = "unfit"  # code of Unavailable: no job at all may run on what answers


@dataclass(frozen=True)
class Placed:
    """A harness of one attempt, past its Hello."""

    incarnation: Incarnation
    connection: Connection
    drive: Drive


@dataclass(frozen=True)
class Seat:
    """Room for one attempt: its folder, and the harness that is on its way. `job`: whose guard it holds, if any."""

    folder: Path
    coming: asyncio.Task[Placed]
    ahead: bool  # made before there was a job
    job: str | None = None


class Placer:
    """Places attempts on one runtime, by the gate. `new_folder` makes a fresh folder; `spare`: a seat ahead of a job.

    The order is guard, describe and gate, create, dial, Hello and gate. A spare seat was made without a job: what
    stands before create is then asked again with the job, before the seat is its own.
    """

    def __init__(
        self, runtime: Runtime, new_folder: Callable[[], Path], *, spare: bool, pinned_id: str | None = None
    ) -> None:
        self._runtime = runtime
        self._new_folder = new_folder
        self._spare_wanted = spare
        self._pinned_id = pinned_id
        self._spare: Seat | None = None
        self._jobs: set[str] = set()
        self._up = asyncio.Event()
        self._up.set()
        self._probing: asyncio.Task[None] | None = None

    async def up(self) -> None:
        """Returns while the runtime is not known to be down: no work is asked for before that."""
        await self._up.wait()

    @property
    def shares_folder(self) -> bool:
        return self._runtime.shares_folder

    def refill(self) -> None:
        """Make the next seat ready, behind everybody's back."""
        if self._spare_wanted and self._spare is None and self._up.is_set():
            self._spare = self._seat(Demand(), ahead=True)

    def take(self, job: str, demand: Demand) -> Seat:
        """A seat for an attempt of `job`: the one that is ready, or a new one. It must be given to `free`."""
        if job in self._jobs:
            return Seat(self._new_folder(), asyncio.create_task(_busy(job)), ahead=False)
        self._jobs.add(job)
        seat, self._spare = self._spare or self._seat(demand, ahead=False), None
        return replace(seat, job=job)

    async def place(self, seat: Seat, demand: Demand) -> tuple[Seat, Drive]:
        """The seat with its harness there, past the gate on the very stream that runs the job.

        Raises Unavailable: with code UNPLACEABLE where the gate says no, else the runtime is down from now on.
        """
        try:
            seat = await self._living(seat, demand)
            placed = seat.coming.result()
            self._admit(demand, placed.drive.hello)
        except VoleError as error:
            if error.code == UNPLACEABLE:
                raise
            self._is_down(error.sentence)
            raise Unavailable(f"the runtime {self._runtime.name} is down: {error.sentence}") from None
        return seat, placed.drive

    async def free(self, seat: Seat) -> None:
        """Give the compute back. Returns only when nothing of its attempt is left (SR-31).

        A harness that is still on its way is waited for: half started, nobody would end it.
        """
        await asyncio.wait([seat.coming])
        if seat.coming.exception() is None:
            await self._release(seat.coming.result())
        if seat.job is not None:
            self._jobs.discard(seat.job)

    async def aclose(self) -> None:
        self._spare_wanted = False
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        if self._spare is not None:
            await self.free(self._spare)
        await self._runtime.aclose()

    def _seat(self, demand: Demand, *, ahead: bool) -> Seat:
        folder = self._new_folder()
        return Seat(folder, asyncio.create_task(self._make(folder, demand)), ahead)

    def _admit(self, demand: Demand, offered: Descriptor) -> None:
        for asked, code in ((Demand(), UNFIT), (demand, UNPLACEABLE)):
            pinned = replace(asked, pinned_id=self._pinned_id)
            reason = gate.can_place(pinned, offered, self._runtime.capabilities())
            if reason is not None:
                raise Unavailable(reason, code=code)

    async def _living(self, seat: Seat, demand: Demand) -> Seat:
        """`seat`, or another one in the same folder where its harness has gone while it waited."""
        await asyncio.wait([seat.coming])
        try:
            placed = seat.coming.result()
            described = await placed.connection.describe()
        except VoleError as error:
            if error.code == UNPLACEABLE or not seat.ahead:
                raise
            _log.warning("the harness that waited is gone", why=error.sentence)
        else:
            self._admit(demand, described)
            if described.instance_id == placed.drive.hello.instance_id:
                return seat
        await self._abandon(seat)
        again = replace(seat, coming=asyncio.create_task(self._make(seat.folder, demand)))
        try:
            await asyncio.shield(again.coming)
        except BaseException:
            await self._abandon(again)
            raise
        return again

    async def _abandon(self, seat: Seat) -> None:
        await self.free(replace(seat, job=None))

    async def _make(self, folder: Path, demand: Demand) -> Placed:
        """Describe, gate, create, dial, gate. Refused before `create` nothing was made, after it nothing is left."""
        self._admit(demand, await self._runtime.describe())
        incarnation = await self._runtime.create(JobSpec(uid=folder.name, folder=str(folder)))
        connection = Connection(incarnation.address, token=incarnation.token)
        try:
            drive = await connection.open()
            self._admit(demand, drive.hello)
            return Placed(incarnation, connection, drive)
        except BaseException:
            await connection.aclose()
            await self._runtime.stop(incarnation)
            raise

    def _is_down(self, why: str) -> None:
        if self._up.is_set():
            self._up.clear()
            _log.warning("the runtime is down; no work is taken until it answers", runtime=self._runtime.name, why=why)
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Ask until it answers and may run a job that asks for nothing."""
        pause_s, most_s = limits.RECONNECT_S
        while True:
            try:
                self._admit(Demand(), await self._runtime.describe())
                break
            except VoleError as error:
                _log.info("the runtime is still down", runtime=self._runtime.name, why=error.sentence)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, most_s)
        _log.warning("the runtime answers again", runtime=self._runtime.name)
        self._up.set()
        self.refill()

    async def _release(self, placed: Placed) -> None:
        await placed.drive.aclose()
        await placed.connection.aclose()
        await self._runtime.stop(placed.incarnation)


async def _busy(job: str) -> Placed:
    raise Unavailable(f"an earlier attempt of {job} is still ending here", code=UNPLACEABLE)
