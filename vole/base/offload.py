"""Hostile or heavy work in warm child processes with limits. The caller gets an answer or a refusal by name.

A child is started by exec, with an empty environment; questions and answers are JSON over its pipes. What it answers
is data and nothing more. The work is never done in the server's own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import struct
import sys
from pathlib import Path
from typing import Any

from vole.base import errors, limits
from vole.base.errors import Exhausted, Unavailable, VoleError

_HEAD = struct.Struct(">I")
_BOOT = (
    "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; "
    "from vole.base import offload_child; offload_child.main(given['preload'], may_read=given['may_read'])"
)
_KINDS: dict[str, type[VoleError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, VoleError) and kind is not VoleError
}
_THREAD_BYTES = 256 * limits.KIB  # a larger answer is decoded beside the event loop


class Offload:
    """OFFLOAD_CHILDREN children with `preload` imported. `start` before use, `close` at the end.

    A child opens no file after its start, so all it needs is in `preload`; with `may_read` it may (for libraries that
    load their parts late), and gives up less. `what` names the work in refusals.
    """

    def __init__(self, *preload: str, what: str = "the parser", may_read: bool = False) -> None:
        # Our own search path: the child runs the very code that the server runs.
        path = [str(Path(entry).absolute()) for entry in sys.path]
        given = json.dumps({"path": path, "preload": preload, "may_read": may_read})
        self._what = what
        self._places = [_Child(given, what) for _ in range(limits.OFFLOAD_CHILDREN)]
        self._free: asyncio.Queue[_Child] = asyncio.Queue()
        self._closed = False
        self.missing: tuple[str, ...] = ()
        """What the children could not be isolated from, in words; known after `start`."""

    async def start(self) -> None:
        """Start the children and wait until they are ready. Raises Unavailable when one is not."""
        for child in self._places:
            await child.spawn()
        for child in self._places:
            self.missing = await child.ready()
            self._free.put_nowait(child)

    async def close(self) -> None:
        """End the children; calls under way end in Unavailable."""
        self._closed = True
        for child in self._places:
            await child.end()

    async def call(self, function: str, argument: object) -> Any:
        """What `function` (`module:name`) gives for `argument`, both JSON, computed in a child.

        Raises what the function refuses; Exhausted when it is over OFFLOAD_CPU_S, OFFLOAD_WALL_S or
        OFFLOAD_MEMORY_BYTES; Unavailable when no child is free within OFFLOAD_QUEUE_S, or one died otherwise.
        """
        question = json.dumps({"function": function, "argument": argument}).encode()
        try:
            child = await asyncio.wait_for(self._free.get(), limits.OFFLOAD_QUEUE_S)
        except TimeoutError:
            bound = f"{limits.OFFLOAD_QUEUE_S} s (OFFLOAD_QUEUE_S)"
            raise Unavailable(f"{self._what} was not free for {bound}; try again", code="offload_busy") from None
        try:
            answer = await child.ask(question)
        finally:
            await self._put_back(child)
        return self._value(answer)

    async def _put_back(self, child: _Child) -> None:
        """Free again, or begun anew. The next caller, not this one, waits until it is ready."""
        try:
            if not child.usable:
                await child.end()
            if child.ended and not self._closed:
                await child.spawn()
        finally:
            self._free.put_nowait(child)

    def _value(self, answer: dict[str, Any]) -> Any:
        if "memory" in answer:
            needs = f"it needs more than {limits.OFFLOAD_MEMORY_BYTES >> 20} MiB"
            raise _over(self._what, needs, "OFFLOAD_MEMORY_BYTES")
        if "refused" in answer:
            raise _KINDS[answer["refused"]](answer["sentence"], code=answer["code"])
        if "bug" in answer:
            raise RuntimeError(f"in an offload child: {answer['bug']}")
        return answer["value"]


class _Child:
    """A place for one child process at a time. `usable`: it is up, and no question is under way or was cut off."""

    def __init__(self, given: str, what: str) -> None:
        self._given = given
        self._what = what
        self._process: asyncio.subprocess.Process | None = None
        self._calls = 0
        self.usable = False

    @property
    def ended(self) -> bool:
        """No process runs in this place."""
        return self._process is None

    async def spawn(self) -> None:
        """Start a process; one that the system does not give now is tried again by the next call."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        command = (sys.executable, "-I", "-B", "-X", "utf8", "-c", _BOOT, self._given)
        with contextlib.suppress(OSError):
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=nothing, env={}, cwd="/", start_new_session=True
            )

    async def ready(self) -> tuple[str, ...]:
        """Wait until it is up; what it could not be isolated from."""
        hello = await self._read(limits.OFFLOAD_START_S, "OFFLOAD_START_S")
        self.usable, self._calls = True, 0
        return tuple(str(part) for part in hello["missing"])

    async def ask(self, question: bytes) -> dict[str, Any]:
        """The answer to `question`."""
        if self._process is None:
            await self.spawn()
        if not self.usable:
            await self.ready()
        assert self._process is not None
        assert self._process.stdin is not None
        self.usable = False
        self._calls += 1
        self._process.stdin.write(_HEAD.pack(len(question)) + question)
        answer = await self._read(limits.OFFLOAD_WALL_S, "OFFLOAD_WALL_S")
        self.usable = self._calls < limits.OFFLOAD_CALLS_MAX and "memory" not in answer
        return answer

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        process, self._process, self.usable = self._process, None, False
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        # An answer that nobody wants fills the pipe, and `wait` waits for its end. A call under way reads it itself.
        with contextlib.suppress(RuntimeError):
            await process.stdout.read()
        await process.wait()

    async def _read(self, most_s: float, bound: str) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdout is None:
            raise Unavailable(f"{self._what} could not be started; try again", code="offload_died")
        try:
            async with asyncio.timeout(most_s):
                (size,) = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))
                if size > limits.OFFLOAD_ANSWER_BYTES_MAX:
                    raise _over(self._what, "its answer is too long", "OFFLOAD_ANSWER_BYTES_MAX")
                raw = await process.stdout.readexactly(size)
        except TimeoutError:
            raise _over(self._what, f"it was not done after {most_s:g} s", bound) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise _died(self._what, await process.wait()) from None
        answer = json.loads(raw) if size < _THREAD_BYTES else await asyncio.to_thread(json.loads, raw)
        assert isinstance(answer, dict)
        return answer


def _over(what: str, why: str, bound: str) -> Exhausted:
    return Exhausted(f"{what} was ended: {why} ({bound})", code="offload_ended", next_step="make it smaller")


def _died(what: str, status: int) -> VoleError:
    if status == -signal.SIGXCPU:
        return _over(what, f"it used {limits.OFFLOAD_CPU_S} s of processor time", "OFFLOAD_CPU_S")
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return Unavailable(f"{what} died ({how}); try again", code="offload_died")
