"""The git part of the server in this process, and real clients of it: OpenSSH and git, each with a key of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from vole.base.bell import Bells
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.base.errors import VoleError
from vole.base.ids import AccountId, AccountName, RepoName
from vole.base.offload import Offload
from vole.flows.gating import Gating, GatingParts
from vole.flows.push import Pushes, PushParts
from vole.flows.push.verdicts import Verdicts
from vole.flows.recovery import Recovery
from vole.git.records import RecordKeys
from vole.git.service import GitPrograms
from vole.git.storage import Storage
from vole.jobs.index import QueueIndex
from vole.people import keys
from vole.people import ledger as people
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.ssh import commands, refusals
from vole.ssh.git_session import GitDoor
from vole.ssh.server import DoorParts, SshDoor
from vole.store.database import Database

ROOT = Path(__file__).parents[2]
CI = """\
on: push
jobs:
  test:
    runs-on: linux
    steps:
      - run: make test
"""
CLIENT = {
    "PATH": os.environ["PATH"],
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
CLIENT_S = 18.0


@dataclass(frozen=True)
class Said:
    """What a client program printed, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def remote(self) -> list[str]:
        return [line[8:].rstrip() for line in self.err.splitlines() if line.startswith("remote: ")]


async def said(
    *argv: str | Path, cwd: Path, env: dict[str, str] | None = None, given: bytes = b"", shown: Path | None = None
) -> Said:
    """Run a client program to its end, within CLIENT_S. `shown`: where its stderr can be read meanwhile."""
    argv = argv if shown is None else ("sh", "-c", '"$@" 2>"$0"', shown, *argv)
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        cwd=cwd,
        env={**CLIENT, "HOME": str(cwd), **(env or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CLIENT_S):
            out, err = await process.communicate(given)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # what it started too: git's ssh
        await process.wait()
        raise
    err = err if shown is None else shown.read_bytes()
    return Said(process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def group_of(leader: int) -> list[int]:
    """Processes of a group that still live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@dataclass(frozen=True)
class Who:
    """A client with one key."""

    name: str
    account: AccountId
    key: Path
    fingerprint: str


@dataclass
class Forge:
    """A running server and what its stories need."""

    folder: Path
    db: Database
    storage: Storage
    pushes: Pushes
    programs: GitPrograms
    recovery: Recovery
    door: SshDoor
    port: int
    index: QueueIndex
    bells: Bells
    commands: list[tuple[Person, str]] = field(default_factory=list)

    async def account(self, name: str, *, admin: bool = False, kind: str = "git") -> Who:
        key = asyncssh.generate_private_key("ssh-ed25519", comment=f"{name}@test")
        file = self.folder / f"{name}.key"
        file.touch(0o600)
        key.write_private_key(file)
        public = keys.parse(key.export_public_key().decode())
        account = await self.db.write(people.add_account, AccountName.parse(name), admin=admin)
        await self.db.write(people.add_key, account, public, kind)
        return Who(name, account, file, public.fingerprint)

    async def repo(self, name: str, *writers: Who, public: bool = False) -> Repo:
        repo = await self.db.write(repos.create_repo, RepoName.parse(name), public=public)
        await self.storage.run(self.storage.create, repo.name)
        for who in writers:
            await self.db.write(people.grant, who.account, repo.id, "write")
        return repo

    def url(self, name: str) -> str:
        return f"ssh://git@127.0.0.1:{self.port}/{name}.git"

    def ssh_words(self, who: Who, *options: str) -> list[str]:
        known = self.folder / "known_hosts"
        fixed = ("-F", "/dev/null", "-i", str(who.key), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
                 "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known}", "-p", str(self.port))  # fmt: skip
        return ["ssh", *fixed, *options]

    async def ssh(self, who: Who, *words: str, options: tuple[str, ...] = (), given: bytes = b"") -> Said:
        line = [*self.ssh_words(who, *options), "git@127.0.0.1", *words]
        return await said(*line, cwd=self.folder, given=given)

    async def git(
        self, who: Who, *words: str | Path, cwd: Path | None = None, shown: Path | None = None, **env: str
    ) -> Said:
        command = " ".join(self.ssh_words(who))
        return await said("git", *words, cwd=cwd or self.folder, env={"GIT_SSH_COMMAND": command, **env}, shown=shown)

    async def work(self, name: str, files: dict[str, str] | None = None) -> Path:
        """A work tree with one commit on `main`."""
        path = self.folder / name
        await said("git", "init", "-q", "-b", "main", path, cwd=self.folder)
        await self.commit(path, files if files is not None else {"readme": "hello\n", ".vole/workflows/ci.yml": CI})
        return path

    async def commit(self, work: Path, files: dict[str, str], message: str = "a change") -> str:
        for name, text in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        await said("git", "add", "-A", cwd=work)
        ended = await said("git", "commit", "-q", "--allow-empty", "-m", message, cwd=work)
        assert ended.status == 0, ended.err
        return await self.head(work)

    async def head(self, work: Path) -> str:
        return (await said("git", "rev-parse", "HEAD", cwd=work)).out.strip()

    async def push(self, who: Who, work: Path, name: str, *words: str) -> Said:
        """`git push` of `words`, flags and refs; of `main` without."""
        flags = [word for word in words if word.startswith("-")]
        refs = [word for word in words if not word.startswith("-")] or ["main"]
        return await self.git(who, "push", *flags, self.url(name), *refs, cwd=work)

    def bare(self, name: str) -> Path:
        return self.storage.path(RepoName(name))

    async def refs(self, name: str) -> dict[str, str]:
        shown = await said("git", "for-each-ref", "--format=%(refname) %(objectname)", cwd=self.bare(name))
        return dict(line.split(" ") for line in shown.out.splitlines())

    async def rows(self, sql: str, **values: object) -> list[tuple[object, ...]]:
        async def read(view):  # type: ignore[no-untyped-def]
            return [tuple(row) for row in await view.all(sql, **values)]

        return await self.db.read(read)

    async def idle(self) -> None:
        """Wait until no session is left."""
        async with asyncio.timeout(10):
            while self.door._sessions:
                await asyncio.wait(set(self.door._sessions))


@asynccontextmanager
async def forge(folder: Path, database: type[Database] = Database, *, parser: bool = True) -> AsyncIterator[Forge]:
    """The server in `folder`; one that was there before goes on. Without a parser, no push may bring workflows."""
    hooks = folder / "hooks"
    if not hooks.exists():
        shutil.copytree(ROOT / "hooks", hooks)
        (folder / "repos").mkdir(mode=0o700)
    db = await database.open(folder / "vole.db", SystemClock(), SystemEntropy())
    bells, storage, index = Bells(), Storage(folder / "repos"), QueueIndex()
    offload = Offload("vole.workflows.checks")
    if parser:
        await offload.start()
    programs = GitPrograms(hooks, folder / "git.lock")
    verdicts, keys = Verdicts(offload), RecordKeys.open(folder / "record_ed25519", "0" * 32, SystemClock().now())
    gating = Gating(GatingParts(db, bells, storage, verdicts, keys, "http://forge.test"))
    pushes = Pushes(
        PushParts(db, bells, storage, verdicts, index, _prospects, lambda _: None, gating.demand, "http://forge.test")
    )
    recovery = Recovery(db, storage, pushes.settle_left)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    key_file = folder / "host.key"
    host_key = (
        asyncssh.read_private_key(key_file) if key_file.exists() else asyncssh.generate_private_key("ssh-ed25519")
    )
    host_key.write_private_key(key_file)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    made: list[Forge] = []

    async def command(person, line, streams):  # type: ignore[no-untyped-def]
        made[0].commands.append((person, line))
        if line == "cat":
            while data := await streams.read(65536):
                await streams.out(data)
            return 0
        if line == "forever":
            await asyncio.Event().wait()
        try:
            commands.parse(commands.split(line))
        except VoleError as error:
            refusal = refusals.of(error)
            await streams.err("".join(f"{text}\n" for text in refusal.lines).encode())
            return refusal.status
        await streams.out(f"{person.name}: {line}\n".encode())
        return 3

    parts = DoorParts(db, GitDoor(pushes, programs), command, _no_runner, host_key)
    door = SshDoor(parts, sock)
    made.append(Forge(folder, db, storage, pushes, programs, recovery, door, port, index, bells))
    try:
        await recovery.on_start(programs)
        await door.start()
        yield made[0]
    finally:
        await door.stop()
        if parser:
            await offload.close()
        programs.close()
        storage.close()
        await db.close()


async def _prospects(run: object, jobs: int) -> list[str]:
    return ["waits: no runner is connected"]


class _NoRunner(asyncssh.SSHServerSession[bytes]):
    def connection_made(self, chan):  # type: ignore[no-untyped-def]
        self.chan = chan

    def subsystem_requested(self, subsystem: str) -> bool:
        return True

    def session_started(self) -> None:
        self.chan.write(b"runner link\n")
        self.chan.exit(0)


def _no_runner(connection: object) -> asyncssh.SSHServerSession[bytes]:
    return _NoRunner()
