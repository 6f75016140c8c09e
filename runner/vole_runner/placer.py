"""Finds the compute for an attempt and a stream to it, by the gate; keeps one ready so that no job waits for Python.

Runs nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vole.base import log
from vole.base.errors import Unavailable, VoleError
from vole_runner import gate
from vole_runner.gate import Demand
from vole_runner.runtimes.dial import Connection, Drive
from vole_runner.runtimes.runtime import Incarnation, JobSpec, Runtime

_log = log.get("vole_runner.placer")

UNPLACEABLE = "unplaceable"  # code of Unavailable: this runner cannot run the job, another one may


@dataclass(frozen=True)
class Placed:
    """A harness of one attempt, past its Hello."""

    incarnation: Incarnation
    connection: Connection
    drive: Drive


@dataclass(frozen=True)
class Seat:
    """Room for one attempt: its folder, and the harness that is on its way."""

    folder: Path
    coming: asyncio.Task[Placed]


class Placer:
    """Places attempts on one runtime. `new_folder` makes a fresh folder; `spare`: a seat ahead of the next job."""

    def __init__(self, runtime: Runtime, new_folder: Callable[[], Path], *, spare: bool) -> None:
        self._runtime = runtime
        self._new_folder = new_folder
        self._spare_wanted = spare
        self._spare: Seat | None = None

    def refill(self) -> None:
        """Make the next seat ready, behind everybody's back."""
        if self._spare_wanted and self._spare is None:
            self._spare = self._seat()

    def take(self) -> Seat:
        """A seat for an attempt: the one that is ready, or a new one. It must be given to `free`."""
        seat, self._spare = self._spare or self._seat(), None
        return seat

    async def place(self, seat: Seat, demand: Demand) -> tuple[Seat, Drive]:
        """The seat with its harness there. Raises Unavailable, code UNPLACEABLE where the gate says no."""
        seat = await self._living(seat)
        placed = seat.coming.result()
        reason = gate.can_place(demand, placed.drive.hello, self._runtime.capabilities())
        if reason is not None:
            raise Unavailable(reason, code=UNPLACEABLE)
        return seat, placed.drive

    async def free(self, seat: Seat) -> None:
        """Give the compute back. Returns only when nothing of its attempt is left (SR-31).

        A harness that is still on its way is waited for: half started, nobody would end it.
        """
        await asyncio.wait([seat.coming])
        if seat.coming.exception() is None:
            await self._release(seat.coming.result())

    async def aclose(self) -> None:
        self._spare_wanted = False
        if self._spare is not None:
            await self.free(self._spare)
        await self._runtime.aclose()

    def _seat(self) -> Seat:
        folder = self._new_folder()
        return Seat(folder, asyncio.create_task(self._make(folder)))

    async def _living(self, seat: Seat) -> Seat:
        """`seat`, or another one in the same folder where its harness has gone while it waited."""
        await asyncio.wait([seat.coming])
        try:
            placed = seat.coming.result()
            described = await placed.connection.describe()
            if described.instance_id == placed.drive.hello.instance_id:
                return seat
        except VoleError as error:
            _log.warning("the harness that waited is gone", why=error.sentence)
        await self.free(seat)
        again = Seat(seat.folder, asyncio.create_task(self._make(seat.folder)))
        try:
            await asyncio.shield(again.coming)
        except BaseException:
            await self.free(again)
            raise
        return again

    async def _make(self, folder: Path) -> Placed:
        """Describe, gate, create, dial. The gate of Hello is `place`'s, with the demand of the job."""
        described = await self._runtime.describe()
        reason = gate.can_place(Demand(), described, self._runtime.capabilities())
        if reason is not None:
            raise Unavailable(reason, code=UNPLACEABLE)
        incarnation = await self._runtime.create(JobSpec(uid=folder.name, folder=str(folder)))
        connection = Connection(incarnation.address)
        try:
            return Placed(incarnation, connection, await connection.open())
        except BaseException:
            await connection.aclose()
            await self._runtime.stop(incarnation)
            raise

    async def _release(self, placed: Placed) -> None:
        await placed.drive.aclose()
        await placed.connection.aclose()
        await self._runtime.stop(placed.incarnation)
