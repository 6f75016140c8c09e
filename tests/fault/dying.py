"""A server that kills itself (kill -9) before, inside or after the first change of one name, or a move of a record ref.

python -m tests.fault.dying DIR NAME before|inside|after
python -m tests.fault.dying DIR --note FILE      note every change's name and die at none
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from vole import app, telemetry
from vole.cli import serving
from vole.config import server
from vole.git.records import commits
from vole.store.database import Database


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Database):
    """The store, with a death at one change."""

    name = ""
    when = ""
    note: Path | None = None

    async def write_each(self, change, one, /, *args):  # type: ignore[no-untyped-def, override]
        return (await self.write(change, [one], *args))[0]

    async def write(self, change, /, *args, **kwargs):  # type: ignore[no-untyped-def, override]
        name = getattr(change, "__name__", str(change))
        if self.note is not None:
            with self.note.open("a") as file:
                file.write(f"{name}\n")
        if name != self.name:
            return await super().write(change, *args, **kwargs)
        if self.when == "before":
            _die()

        def dying(tx):  # type: ignore[no-untyped-def]
            result = change(tx, *args, **kwargs)
            if self.when == "inside":
                _die()
            return result

        result = await super().write(dying)
        _die()
        return result


def _dying_ref(when: str) -> None:
    """`move_ref` is no change of the store: the objects are there before it, the ref after it."""
    move = commits.move_ref

    def move_ref(*given):  # type: ignore[no-untyped-def]
        if when == "before":
            _die()
        move(*given)
        _die()

    commits.move_ref = move_ref


def main() -> None:
    folder, name, detail = sys.argv[1:4]
    if name == "--note":
        Dying.note = Path(detail)
    elif name == "move_ref":
        _dying_ref(detail)
    else:
        Dying.name, Dying.when = name, detail
    app.Database = Dying  # type: ignore[misc]
    telemetry.set_up()
    asyncio.run(serving._serve(server.load(Path(folder))))


main()
