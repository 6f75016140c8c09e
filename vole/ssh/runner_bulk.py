"""The runner's bulk channels: logs and artifacts in, sources and needed artifacts out. The lease is the credential.

Bytes go by as they are; never looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vole.base import limits
from vole.base.clock import Clock, after, seconds
from vole.base.errors import (
    Conflict,
    Denied,
    Exhausted,
    Fenced,
    Invalid,
    NotFound,
    Unavailable,
    VoleError,
)
from vole.base.ids import Epoch, JobId
from vole.evidence.logs import WrongOffset
from vole.flows.leasing import Leasing
from vole.git import service
from vole.git.service import SourcePack
from vole.git.storage import Storage
from vole.runners.roster import Session
from vole.ssh.channel import Channel
from vole.wire.runner import ANSWERS, Accepted, ArtifactFile, Open, Refusal, Refused

T = TypeVar("T")

_REFUSALS: dict[type[VoleError], Refusal] = {
    Invalid: Refusal.INVALID,
    Denied: Refusal.GRANT,
    NotFound: Refusal.NOT_FOUND,
    Conflict: Refusal.CONFLICT,
    Fenced: Refusal.FENCED,
    Exhausted: Refusal.EXHAUSTED,
    Unavailable: Refusal.UNAVAILABLE,
}


def refusal_of(error: VoleError) -> Refused:
    """How a runner is told. A code of the error that is on the wire goes before its kind."""
    message = " ".join(error.lines)
    if error.code in list(Refusal):
        return Refused(Refusal(error.code), message)
    kind = next((kind for kind in _REFUSALS if isinstance(error, kind)), None)
    offset = error.offset if isinstance(error, WrongOffset) else None
    return Refused(_REFUSALS[kind] if kind else Refusal.INTERNAL, message, offset)


@dataclass(frozen=True)
class Bulk:
    """Serves the bulk channels of one session."""

    leasing: Leasing
    storage: Storage
    clock: Clock
    session: Session

    async def serve(self, opening: Open, channel: Channel) -> None:
        """Raises what the lease or the request is refused for."""
        job, epoch = _required("job", opening.job), _required("epoch", opening.epoch)
        match opening.open:
            case "log":
                await self._log(opening, channel, job, epoch)
            case "artifact":
                await self._artifact(opening, channel, job, epoch)
            case "fetch":
                await self._fetch(opening, channel, job, epoch)
            case _:
                await self._source(opening, channel, job, epoch)

    async def _log(self, opening: Open, channel: Channel, job: JobId, epoch: Epoch) -> None:
        length = await self.leasing.log_position(self.session, job, epoch)
        if opening.offset != length:
            sentence = f"the log of this attempt has {length} bytes; go on from there"
            channel.send(ANSWERS.encode(Refused(Refusal.CONFLICT, sentence, length)))
            return
        channel.send(ANSWERS.encode(Accepted(length)))
        acked = length
        while data := await channel.some():
            length = await self.leasing.append_log(self.session, job, epoch, length, data)
            if length - acked >= limits.LOG_ACK_BYTES or not await channel.arrives(limits.LOG_ACK_GAP_S):
                channel.send(ANSWERS.encode(Accepted(length)))
                acked = length

    async def _artifact(self, opening: Open, channel: Channel, job: JobId, epoch: Epoch) -> None:
        file = ArtifactFile(
            _required("name", opening.name),
            _required("path", opening.path),
            _required("size", opening.size),
            _required("sha256", opening.sha256),
        )
        held = await self.leasing.artifact_begin(self.session, job, epoch, file)
        if held < file.size:
            channel.send(ANSWERS.encode(Accepted(held)))
        while held < file.size and (data := await channel.some()):
            held = await self.leasing.artifact_append(self.session, job, epoch, file, held, data)
            if held < file.size:
                channel.send(ANSWERS.encode(Accepted(held)))
        if held == file.size:
            await self.leasing.artifact_commit(self.session, job, epoch, file)
            channel.send(ANSWERS.encode(Accepted(held)))

    async def _fetch(self, opening: Open, channel: Channel, job: JobId, epoch: Epoch) -> None:
        name = _required("name", opening.name)
        files = await self.leasing.artifact_list(self.session, job, epoch, name)
        channel.send(ANSWERS.encode(Accepted(files=files)))
        for file in files:
            location = await self.leasing.artifact_path(self.session, job, epoch, name, file.path)
            await _send_file(location, file.size, channel)

    async def _source(self, opening: Open, channel: Channel, job: JobId, epoch: Epoch) -> None:
        facts = await self.leasing.source(self.session, job, epoch)
        haves = opening.haves[: limits.SOURCE_HAVES_MAX]
        pack = await service.source_pack(self.storage.path(facts.repo), facts.commit, facts.depth, haves)
        try:
            channel.send(ANSWERS.encode(Accepted(shallow=pack.shallow)))
            await self._pump(pack, channel, lambda: self.leasing.source(self.session, job, epoch))
        finally:
            await _end(pack.process)

    async def _pump(self, pack: SourcePack, channel: Channel, still_leased: Callable[[], Awaitable[object]]) -> None:
        assert pack.process.stdout is not None
        check_at = after(self.clock.now(), seconds(limits.SOURCE_CHECK_S))
        while data := await pack.process.stdout.read(limits.PUMP_READ_BYTES):
            channel.send(data)
            await channel.drain()
            if self.clock.now() >= check_at:
                await still_leased()  # the channel dies with the lease (SR-28)
                check_at = after(self.clock.now(), seconds(limits.SOURCE_CHECK_S))


async def _send_file(location: Path, size: int, channel: Channel) -> None:
    with location.open("rb") as file:
        left = size
        while left and (data := await asyncio.to_thread(file.read, min(left, limits.PUMP_READ_BYTES))):
            channel.send(data)
            await channel.drain()
            left -= len(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _required(name: str, value: T | None) -> T:
    if value is None:
        raise Invalid(f"the opening of this channel has no {name}")
    return value
