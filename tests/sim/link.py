"""One connection between a runner and a server: the real channels of the door on a network that may do anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vole.people.model import Person
from vole.ssh.connection import Connection
from vole.wire import runner

if TYPE_CHECKING:
    from tests.sim.forge import Life
    from tests.sim.world import World

Heard = Callable[[bytes | None], None]  # a frame, or None at the end of the stream


class Stream:
    """A channel. To the server's side it is what asyncssh gives a session; the runner's side says and hears frames."""

    def __init__(self, link: Link, opening: runner.Open, heard: Heard) -> None:
        self._link, self._heard = link, heard
        self._closing = False
        self._to_server_at = self._to_runner_at = 0
        self.channel = channel = link.life.door.session(link.connection)
        channel.connection_made(self)  # type: ignore[arg-type]
        link.life.loop.call_soon(channel.session_started)
        self.say(runner.opening(opening), safe=True)

    # ---- the runner's side

    def say(self, frame: bytes, *, safe: bool = False) -> None:
        """`safe`: what may not be lost without the connection, and is only late."""
        for late_us in self._link.fate(safe=safe):
            at = self._link.world.time.now_us + late_us
            if not self._link.wild:
                at = self._to_server_at = max(at, self._to_server_at)
            self._link.world.at(at, lambda: self._arrive(frame))

    def end(self) -> None:
        at = self._to_server_at = max(self._link.world.time.now_us, self._to_server_at)
        self._link.world.at(at, lambda: self._arrive(None))

    def _arrive(self, frame: bytes | None) -> None:
        if not self._link.carries or self._link.life.store.dead:
            return
        if frame is None:
            self.channel.eof_received()
        else:
            self.channel.data_received(frame, None)

    # ---- what asyncssh is to the server's side

    def write(self, data: bytes) -> None:
        world, link = self._link.world, self._link
        for late_us in link.fate(safe=link.control is not self, doubled=False):
            at = world.time.now_us + late_us
            if not link.wild:
                at = self._to_runner_at = max(at, self._to_runner_at)
            world.at(at, lambda: self._hear(data))

    def _hear(self, data: bytes | None) -> None:
        if self._link.carries and self._link.keeper.link is self._link:
            self._heard(data)

    def write_eof(self) -> None: ...

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._link.world.at(self._to_runner_at, lambda: self._hear(None))

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, **_: Any) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Link:
    """An SSH connection of a known key."""

    def __init__(self, world: World, life: Life, keeper: Any, person: Person, *, wild: bool) -> None:
        self.world, self.life, self.keeper, self.wild = world, life, keeper, wild
        self.connection = Connection(person, "sim", self)  # type: ignore[arg-type]
        self.carries = True  # false once the network between the two is gone
        self._streams: list[Stream] = []
        self.control: Stream | None = None

    def open(self, opening: runner.Open, heard: Heard) -> Stream:
        stream = Stream(self, opening, heard)
        self._streams.append(stream)
        return stream

    def fate(self, *, safe: bool, doubled: bool = True) -> list[int]:
        """How late a frame arrives, in microseconds: once, or twice, or never."""
        rng = self.world.rng
        late_us = rng.randrange(200, 5_000) if rng.random() < 0.9 else rng.randrange(5_000, 700_000)
        if safe or not self.wild:
            return [late_us]
        dice = rng.random()
        if dice < 0.05:
            return []
        return [late_us, late_us + rng.randrange(0, 300_000)] if doubled and dice < 0.10 else [late_us]

    def cut(self, *, noticed_us: int) -> None:
        """The network between the two is gone. The server's side learns of it after `noticed_us`."""
        self.carries = False
        self.world.after(noticed_us, self.lost)

    def lost(self) -> None:
        """The server's side is told that the connection is no more."""
        self.carries = False
        if not self.life.store.dead:
            for stream in self._streams:
                self.life.loop.call_soon(stream.channel.connection_lost, None)

    def disconnect(self, code: int, reason: str) -> None:
        """The server ends the connection."""
        keeper = self.keeper
        self.world.after(2_000, lambda: keeper.dropped(self))
        self.lost()
