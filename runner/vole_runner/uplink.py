"""The runner's session with the forge, through any number of connections. Decides nothing about leases.

One control channel at a time; a lost connection is made again with a growing, uneven pause. What was asked for and
not answered is the keeper's to ask again, in `connected`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from vole.base import limits
from vole.base.entropy import Entropy
from vole.base.errors import Denied, Invalid, Unavailable, VoleError
from vole.wire import runner
from vole.wire.runner import FROM_RUNNER, FROM_SERVER, Hello, Open, Refusal, Welcome
from vole_runner.link import Bytes, Link, Target
from vole_runner.refusals import RefusedByForge

BYE_S = 1.0  # for the forge to close the connection after our bye


class Listener(Protocol):
    """Who hears what the forge says."""

    def connected(self, welcome: Welcome) -> None: ...

    def disconnected(self, why: str) -> None: ...

    def heard(self, message: object) -> None: ...

    @property
    def busy(self) -> bool:
        """Whether leases are held: then a lost connection is never given up."""
        ...

    @property
    def pause_most_s(self) -> float:
        """How long a pause between two tries may be just now."""
        ...


class Uplink:
    """`run` keeps a session up until `close`, or until a refusal that ends the runner.

    The first refusal always does. `impatient`: so does every later one, and a forge that cannot be reached.
    """

    def __init__(self, target: Target, hello: Hello, entropy: Entropy, *, impatient: bool) -> None:
        self._target = target
        self._hello = hello
        self._entropy = entropy
        self._impatient = impatient
        self._link: Link | None = None
        self._control: Bytes | None = None
        self._up = asyncio.Event()
        self._closing = False
        self._welcomed = False  # ever
        self._in = False  # by the present connection, or the last one

    async def run(self, listener: Listener) -> None:
        """Returns after `close`. Raises RefusedByForge, Denied or Invalid, and Unavailable when impatient."""
        pause_s = 0.0
        while not self._closing:
            try:
                await self._session(listener)
                pause_s = 0.0
            except VoleError as error:
                if self._is_final(error, busy=listener.busy):
                    raise
                if not self._closing:
                    listener.disconnected(error.sentence)
            if not self._closing:
                low = limits.RECONNECT_S[0]
                pause_s = min(listener.pause_most_s, self._entropy.between(low, max(3 * pause_s, 2 * low)))
                await asyncio.sleep(pause_s)

    def send(self, message: object) -> bool:
        """Queue `message` on the control channel; False when there is no connection just now."""
        if self._control is None:
            return False
        try:
            self._control.send(FROM_RUNNER.encode(message))
        except Unavailable:
            return False
        return True

    async def channel(self, opening: Open) -> Bytes:
        """A bulk channel, as soon as there is a connection."""
        while True:
            await self._up.wait()
            link = self._link
            if link is not None:
                with contextlib.suppress(Unavailable):
                    return await link.channel(opening)
            await asyncio.sleep(limits.RECONNECT_S[0])

    async def close(self) -> None:
        """Say bye, and leave when the forge has heard it or is slow to."""
        self._closing = True
        link = self._link
        if link is not None and self.send(runner.Bye()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BYE_S):
                    await link.lost()

    async def _session(self, listener: Listener) -> None:
        self._in = False
        link = await Link.connect(self._target)
        try:
            control = await link.channel(Open("control"))
            control.send(FROM_RUNNER.encode(self._hello))
            listener.connected(await self._welcome(control, link))
            await self._listen(control, listener)
        finally:
            self._up.clear()
            self._link = self._control = None
            link.abort()

    async def _welcome(self, control: Bytes, link: Link) -> Welcome:
        try:
            async with asyncio.timeout(limits.SSH_LOGIN_S):
                said = await _next(control)
        except TimeoutError:
            raise Unavailable(f"the forge did not answer hello within {limits.SSH_LOGIN_S} s") from None
        if isinstance(said, runner.Refused):
            raise RefusedByForge(said)
        if not isinstance(said, Welcome):
            raise Unavailable("the forge did not answer hello with welcome")
        self._link, self._control = link, control
        self._welcomed = self._in = True
        self._up.set()
        return said

    async def _listen(self, control: Bytes, listener: Listener) -> None:
        while True:
            said = await _next(control)
            if isinstance(said, runner.Refused):
                raise RefusedByForge(said)
            if said is not None:
                listener.heard(said)

    def _is_final(self, error: VoleError, *, busy: bool) -> bool:
        if self._closing:
            return False
        refusal = error.refusal if isinstance(error, RefusedByForge) else None
        if refusal in (Refusal.SUPERSEDED, Refusal.INVALID):
            return True  # another process has our place, or we are at fault: trying again helps nobody
        if isinstance(error, Unavailable) and self._in:
            return False  # a connection that was lost is made again once, to hear why
        if self._impatient and not busy:
            return True
        refused = refusal in runner.EXIT_CODES or isinstance(error, (Denied, Invalid))
        return refused and not self._welcomed


async def _next(control: Bytes) -> object:
    line = await control.line()
    if line is None:
        raise Unavailable("the forge closed the connection")
    try:
        return FROM_SERVER.decode(line, strict=False)
    except Invalid as error:
        raise Unavailable(f"the forge said something unreadable: {error.sentence}") from None
