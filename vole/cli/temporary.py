"""A forge for the time of one command: a server on loopback, a person, a runner, in one folder with keys of its own.

It reads and writes nothing in the home folder, and nothing of it outlives the command.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from vole.app import App
from vole.base.clock import seconds
from vole.base.errors import Unavailable, VoleError
from vole.base.ids import AccountName, RepoName
from vole.cli.founding import found
from vole.config import server
from vole.people import keys as public_keys
from vole.ssh.hostkey import host_key_fingerprint, make_host_key

TOOLS = {"git": "git", "ssh": "openssh-client"}  # and the package that brings each
_RUNNER_S = 30.0  # seconds until the runner has connected
_END_S = 15.0  # seconds the runner gets to end


@dataclass(frozen=True)
class Place:
    """Where a temporary forge keeps everything: itself, two keys, a runner."""

    root: Path

    @property
    def forge(self) -> Path:
        return self.root / "forge"

    @property
    def ada_key(self) -> Path:
        return self.root / "ada_key"

    @property
    def runner_key(self) -> Path:
        return self.root / "runner_key"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def sample(self) -> Path:
        return self.root / "sample"

    @property
    def ssh(self) -> str:
        """The ssh command of its person: no configuration, no agent, no key but theirs."""
        options = (
            "-F /dev/null -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes "
            f"-o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile='{self.known_hosts}'"
        )
        return f"ssh {options} -i '{self.ada_key}'"

    @property
    def environment(self) -> dict[str, str]:
        """For git and the runner: nothing of the caller's but the path."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": self.ssh,
        }


@contextmanager
def a_place(keep: Path | None) -> Iterator[Place]:
    """A new temporary folder that goes with the block, or `keep`, which stays."""
    if keep is not None:
        yield Place(keep.absolute())
        return
    root = Path(tempfile.mkdtemp(prefix="vole-"))
    try:
        yield Place(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True)
class Admitted:
    """Who and what the forge knows."""

    person: AccountName
    runner: AccountName
    repo: RepoName
    description: str = ""


def missing_tools(program: str) -> bool:
    """Whether one of TOOLS is not here; it says which, and the command that installs it."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    for tool in missing:
        click.echo(f"{program} needs {tool}: apt-get install {TOOLS[tool]}", err=True)
    return bool(missing)


@contextmanager
def until_interrupted() -> Iterator[None]:
    """TERM and INT end the block, whatever it waits for, and everything it started ends."""
    this, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert this is not None, "a coroutine runs in a task"
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the first one cancels: a second would cancel the cleaning up.
        loop.add_signal_handler(number, lambda: this.cancelling() or this.cancel())
    try:
        yield
    except asyncio.CancelledError:
        this.uncancel()


@asynccontextmanager
async def forge(place: Place) -> AsyncIterator[App]:
    """A server that listens on loopback, and ends when the block does; a failure of it ends the block."""
    found(place.forge, server.template(ssh_listen="127.0.0.1:0", web_listen="127.0.0.1:0"))
    async with App.open_doors(server.load(place.forge)) as app:
        # A forge that is kept is found at the same addresses later.
        app.config.paths.settings.write_text(
            server.template(ssh_listen=app.ssh_url.rpartition("@")[2], web_listen=app.url.rpartition("/")[2])
        )
        ready, ended = asyncio.Event(), asyncio.Event()
        refused: VoleError | None = None  # as itself, not in the group's wrapping
        async with asyncio.TaskGroup() as group:
            group.create_task(app.run(ended, ready=ready.set))
            await ready.wait()
            try:
                yield app
            except VoleError as error:
                refused = error
            finally:
                ended.set()
        if refused is not None:
            raise refused


async def admit(app: App, place: Place, admitted: Admitted) -> None:
    """An account that pushes and one that runs, each with a new key, and a public repository."""
    people = app.administration
    for name, path in ((admitted.person, place.ada_key), (admitted.runner, place.runner_key)):
        make_host_key(path)
        await people.add_user(name, admin=False)
        public = public_keys.parse(path.with_suffix(".pub").read_text())
        await people.add_key(name, public, "git" if name == admitted.person else "runner")
    await people.create_repo(admitted.repo, public=True, description=admitted.description)
    await people.grant(admitted.person, admitted.repo, "write")
    await people.grant(admitted.runner, admitted.repo, "run")
    host, _, port = app.ssh_url.rpartition("@")[2].rpartition(":")
    public_host_key = app.config.paths.host_key.with_suffix(".pub").read_text().split(" ")
    place.known_hosts.write_text(f"[{host}]:{port} {' '.join(public_host_key[:2])}\n")


@asynccontextmanager
async def runner(app: App, place: Place, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A runner process with `flags`, connected; it ends with the block, by its own id."""
    command = [
        sys.executable, "-m", "vole_runner",
        "--server", app.ssh_url, "--key", str(place.runner_key),
        "--host-key", host_key_fingerprint(app.config.paths.host_key),
        "--work", str(place.root / "runner"), *flags,
    ]  # fmt: skip
    with (place.root / "runner.log").open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *command, env=place.environment, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        if not await _connected(app, process):
            last = (place.root / "runner.log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
            raise Unavailable("the runner did not connect; its last words follow", next_step=last or "(none)")
        yield process
    finally:
        await end(process)


async def _connected(app: App, process: asyncio.subprocess.Process) -> bool:
    """Whether the runner is on the roster, before it ended and within _RUNNER_S."""
    deadline = app.clock.now() + seconds(_RUNNER_S)
    with app.bells.listening("runners") as listener:
        while not len(app.roster):
            if process.returncode is not None or app.clock.now() > deadline:
                return False
            await listener.wait(1.0)
    return True


async def end(process: asyncio.subprocess.Process) -> None:
    """TERM, and KILL for a process that does not go."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
