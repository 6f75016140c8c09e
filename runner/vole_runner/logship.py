"""Ships a spooled log: raw bytes after one line, from the offset the forge names. Loses none, sends none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from vole.base.errors import Fenced, Unavailable, VoleError
from vole.wire.runner import ANSWERS, Accepted, LeaseRef, Open, Refusal, Refused
from vole_runner.link import Bytes
from vole_runner.spool import Spool

PAUSE_S = 0.2  # before a channel that ended too early is opened again
OpenChannel = Callable[[Open], Awaitable[Bytes]]


async def ship(spool: Spool, lease: LeaseRef, open_channel: OpenChannel) -> None:
    """Returns when the spool is closed and the forge has written all of it.

    A lost connection is waited out. Raises Fenced when the lease is over, and the forge's refusal otherwise.
    """
    while not spool.all_shipped:
        channel = await open_channel(Open("log", lease.job, lease.epoch, offset=spool.shipped))
        try:
            if await _started(channel, spool):
                await _pump(channel, spool)
        except Unavailable:
            await asyncio.sleep(PAUSE_S)
        finally:
            channel.close()


async def answer(channel: Bytes) -> Accepted | Refused:
    """The forge's next word on a bulk channel. Raises Unavailable when there is none any more."""
    line = await channel.line()
    if line is None:
        raise Unavailable("the forge closed the channel")
    said = ANSWERS.decode(line, strict=False)
    if not isinstance(said, (Accepted, Refused)):
        raise Unavailable("the forge said something that this version does not know")
    return said


def refusal(refused: Refused) -> VoleError:
    """A refused channel as an error of ours."""
    if refused.code is Refusal.FENCED:
        return Fenced(refused.message)
    if refused.code in (Refusal.UNAVAILABLE, Refusal.INTERNAL):
        return Unavailable(refused.message)
    return VoleError(refused.message, code=refused.code)


async def _started(channel: Bytes, spool: Spool) -> bool:
    said = await answer(channel)
    if isinstance(said, Accepted):
        spool.mark_shipped(said.offset)
        return True
    if said.code is Refusal.CONFLICT and said.offset is not None:
        spool.mark_shipped(said.offset)
        return False
    raise refusal(said)


async def _pump(channel: Bytes, spool: Spool) -> None:
    """Returns when the forge has closed the channel, which it does after our end."""
    sending = asyncio.create_task(_send(channel, spool))
    hearing = asyncio.create_task(_hear(channel, spool))
    try:
        await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_EXCEPTION)
        if sending.done():
            sending.result()
        await hearing
    finally:
        sending.cancel()
        hearing.cancel()
        await asyncio.gather(sending, hearing, return_exceptions=True)


async def _send(channel: Bytes, spool: Spool) -> None:
    at = spool.shipped
    while await spool.more(at):
        data = spool.read(at)
        channel.send(data)
        await channel.drain()
        at += len(data)
    channel.end()


async def _hear(channel: Bytes, spool: Spool) -> None:
    while True:
        try:
            said = await answer(channel)
        except Unavailable:
            if spool.all_shipped:
                return
            raise
        if isinstance(said, Refused):
            raise refusal(said)
        spool.mark_shipped(said.offset)
