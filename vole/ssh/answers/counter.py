"""What a command's answer has at hand: who asks, what was said, where words go. Writes nothing unescaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vole.base import clock, limits
from vole.base.bell import Bells
from vole.base.clock import Moment
from vole.base.errors import Denied, Exhausted, Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import AccountName, RepoId, RepoName
from vole.evidence.logs import LogStore
from vole.flows.administration import Administration
from vole.flows.gating import Gating
from vole.flows.leasing import Leasing
from vole.flows.recording import Recording
from vole.flows.removal import Removal
from vole.flows.starting import Starting
from vole.jobs.index import QueueIndex
from vole.people import reads as people
from vole.people.access import lacking, may
from vole.people.model import OPERATOR, Level, Person
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.runners.roster import Roster
from vole.ssh.commands import Call, Streams
from vole.store.database import Database

Cell = str | int | bool | None


@dataclass(frozen=True)
class Desk:
    """What answers are made from."""

    db: Database
    bells: Bells
    administration: Administration
    leasing: Leasing
    starting: Starting
    recording: Recording
    gating: Gating
    removal: Removal
    index: QueueIndex
    roster: Roster
    logs: LogStore
    url: str
    ssh_url: str
    version: str


@dataclass(frozen=True)
class Counter:
    """One command being answered."""

    desk: Desk
    person: Person
    call: Call
    streams: Streams

    async def say(self, *lines: str) -> None:
        """Print lines for a person."""
        await self.streams.out("".join(f"{visible(line)}\n" for line in lines).encode())

    async def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> None:
        """Print rows, aligned; as JSON objects when that was asked for; `empty` when there are none."""
        if self.call.json:
            await self.json([dict(zip(columns, row, strict=True)) for row in rows])
        elif not rows:
            await self.streams.err(f"{empty}\n".encode())
        else:
            await self.say(*aligned(columns, rows))

    async def json(self, value: object) -> None:
        """Print a value for a machine."""
        await self.streams.out(json.dumps(value, indent=1).encode() + b"\n")

    async def read_text(self) -> str:
        """All of standard input. Raises Exhausted over COMMAND_STDIN_BYTES_MAX, Invalid for what is no text."""
        data = b""
        while chunk := await self.streams.read(limits.COMMAND_STDIN_BYTES_MAX + 1 - len(data)):
            data += chunk
            if len(data) > limits.COMMAND_STDIN_BYTES_MAX:
                raise Exhausted(f"more than {limits.COMMAND_STDIN_BYTES_MAX} bytes (COMMAND_STDIN_BYTES_MAX)")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid("standard input is no UTF-8 text") from None

    async def repo(self, name: str, level: Level = "read") -> Repo:
        """The repository `name`. Raises NotFound in one shape for a missing one and one that is not theirs to know."""
        repo = await self.desk.db.read(repos.repo_named, RepoName.parse(name))
        if repo is None or not may(self.person, "read", repo):
            raise NotFound(f"there is no repository {name!r} that you may read")
        if not may(self.person, level, repo):
            raise lacking(self.person, level, repo)
        return repo

    async def still_reads(self, repo: Repo) -> None:
        """Raises NotFound once the caller, as they are now, may not read `repo` any more."""
        person: Person | None = self.person
        if self.person is not OPERATOR:
            person = await self.desk.db.read(people.person_of_key, self.person.key_fingerprint)
        there = await self.desk.db.read(repos.repo_named, repo.name)
        if there is None or there.id != repo.id or not may(person, "read", there):
            raise NotFound(f"there is no repository {repo.name!r} that you may read, any more")

    async def readable(self) -> dict[RepoId, Repo]:
        """Every repository that the caller may read, by id."""
        return {repo.id: repo for repo in await self.desk.db.read(repos.repos) if may(self.person, "read", repo)}

    async def subject(self) -> Person:
        """Whom a command of one's own is about: the caller, or whom the operator names with --user."""
        name = self.call.get("--user")
        if name is None and self.person is OPERATOR:
            raise Invalid("on the server machine you are no account: name one with --user USER")
        if name is None or name == self.person.name:
            return self.person
        if self.person is not OPERATOR:
            raise Denied("only on the server machine may you speak for another account")
        person = await self.desk.db.read(people.person_named, AccountName.parse(name))
        if person is None:
            raise NotFound(f"there is no account {name!r}")
        return person

    async def account(self, name: str) -> Person:
        """The account `name`, which must be the caller's unless they are admin."""
        if name != self.person.name and not self.person.admin:
            raise Denied("that is for the account itself and for admins")
        person = await self.desk.db.read(people.person_named, AccountName.parse(name))
        if person is None:
            raise NotFound(f"there is no account {name!r}")
        return person


def aligned(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The rows as text below a head, each column as wide as its widest cell."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(line[at]) for line in [list(columns), *cells]) for at in range(len(columns))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [list(columns), *cells]
    ]


def when(moment: Moment | None) -> str | None:
    """A moment as tables and JSON show it."""
    return None if moment is None else clock.iso(moment)


def described(pairs: Mapping[str, Cell]) -> list[str]:
    """Facts of one thing, a line each."""
    width = max(map(len, pairs)) + 1
    return [f"{name + ':':<{width}} {_text(value)}" for name, value in pairs.items()]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return visible(str(cell), limits.PROBLEM_CHARS_MAX)
