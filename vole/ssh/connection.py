"""One SSH connection of a known key, as its channels see it. Holds no rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import asyncssh

from vole.people.model import Person
from vole.ssh.transport import Transport


class Watched(Protocol):
    """A channel whose right to go on is looked at again when people or repositories change."""

    async def look_again(self, person: Person) -> None:
        """End if `person`, as they are now, may not do any more what this channel does."""
        ...


@dataclass(eq=False)
class Connection:
    """Channels of one connection belong together through this. `runner` belongs to the runner sessions."""

    person: Person
    address: str
    ssh: Transport
    runner: object | None = None
    open_channels: int = 0
    watched: set[Watched] = field(default_factory=set)

    def close(self, reason: str) -> None:
        """End the connection and every channel of it; the client is told `reason`."""
        self.ssh.disconnect(asyncssh.DISC_BY_APPLICATION, reason)
