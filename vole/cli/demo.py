"""`vole demo`: a temporary forge on loopback, a runner, a pushed pipeline, until it is green and beyond.

Everything of it lies in one folder with keys of its own: it reads and writes nothing in the home folder.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from vole.app import App
from vole.base import limits
from vole.base.clock import Moment, in_seconds, seconds
from vole.base.errors import Unavailable, VoleError
from vole.base.ids import AccountName, RepoId, RepoName
from vole.cli import demo_sample
from vole.cli.demo_place import Place, a_place
from vole.cli.demo_screen import JobLine, Screen, screen_for
from vole.cli.founding import found
from vole.config import server
from vole.evidence import reads as evidence
from vole.jobs import reads as jobs
from vole.jobs.reads import JobLine as JobRow
from vole.jobs.reads import RunLine
from vole.people import keys as public_keys
from vole.people import reads as people
from vole.repos import reads as repos
from vole.ssh.hostkey import host_key_fingerprint, make_host_key

TOOLS = {"git": "git", "ssh": "openssh-client"}  # and the package that brings each
GREEN_S = 120.0  # seconds the pipeline may take
_RUNNER_S = 30.0  # seconds until the runner has connected
_END_S = 15.0  # seconds the runner gets to end
_ADA, _RUNNER, _REPO = AccountName("ada"), AccountName("demo-runner"), RepoName("demo")


@click.command("demo")
@click.option("--keep", type=click.Path(path_type=Path), help="Leave the forge in this new folder.")
@click.option("--exit", "leave", is_flag=True, help="End after the run: status 0 when it was green.")
def demo_command(keep: Path | None, leave: bool) -> None:
    """Start a temporary forge and a runner, push a small pipeline over SSH, and show it run."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    for tool in missing:
        click.echo(f"vole demo needs {tool}: apt-get install {TOOLS[tool]}", err=True)
    if missing:
        sys.exit(1)
    sys.exit(asyncio.run(_demo(keep, leave=leave)))


async def _demo(keep: Path | None, *, leave: bool) -> int:
    """The exit status. TERM and INT cancel it, whatever it waits for, and everything it started ends."""
    this, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert this is not None, "a coroutine runs in a task"
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the first one cancels: a second would cancel the cleaning up.
        loop.add_signal_handler(number, lambda: this.cancelling() or this.cancel())
    green = False
    try:
        with screen_for(sys.stdout) as screen, a_place(keep) as place:
            async with _forge(place) as app:
                await _people(app, place)
                screen.say(f"forge    {app.url}  and  {app.ssh_url}")
                async with _runner(app, place):
                    green = await _show_a_run(app, place, screen)
                    if not leave:
                        await _say_what_next(app, place, screen, keep)
                        await asyncio.Event().wait()
    except asyncio.CancelledError:
        this.uncancel()
    return 0 if green else 1


@asynccontextmanager
async def _forge(place: Place) -> AsyncIterator[App]:
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


async def _people(app: App, place: Place) -> None:
    """An account that pushes and one that runs, each with a new key, and a public repository."""
    people = app.administration
    for name, path in ((_ADA, place.ada_key), (_RUNNER, place.runner_key)):
        make_host_key(path)
        await people.add_user(name, admin=False)
        public = public_keys.parse(path.with_suffix(".pub").read_text())
        await people.add_key(name, public, "git" if name == _ADA else "runner")
    await people.create_repo(_REPO, public=True, description="what `vole demo` pushed")
    await people.grant(_ADA, _REPO, "write")
    await people.grant(_RUNNER, _REPO, "run")
    host, _, port = app.ssh_url.rpartition("@")[2].rpartition(":")
    public_host_key = app.config.paths.host_key.with_suffix(".pub").read_text().split(" ")
    place.known_hosts.write_text(f"[{host}]:{port} {' '.join(public_host_key[:2])}\n")


async def _show_a_run(app: App, place: Place, screen: Screen) -> bool:
    """Push the sample, show its run until it has ended, and the timings; whether it was green."""
    demo_sample.write(place.sample)
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=Ada", "-c", "user.email=ada@demo.invalid", "commit", "-q", "-m", "Say hello"],
        ["remote", "add", "origin", f"{app.ssh_url}/{_REPO}.git"],
    ):
        await _git(place, screen, *words)
    screen.say("$ git push origin main")
    begun = app.clock.now()
    await _git(place, screen, "push", "origin", "main")
    pushed = app.clock.now()
    (run,) = await app.db.read(jobs.recent_runs, await _repos(app), 1)
    conclusion = await _followed(app, screen, run)
    ended = app.clock.now()
    lines = await app.db.read(jobs.jobs_of_run, run.id)
    first_step = await app.db.read(evidence.first_step_at, [line.id for line in lines])
    screen.say(f"{run.repo}/{run.number} ended: {conclusion}")
    screen.say(f"push                {_seconds(begun, pushed)}")
    screen.say(f"push to first step  {_seconds(run.created_at, first_step)}")
    screen.say(f"total               {_seconds(begun, ended)}")
    return conclusion == "success"


async def _followed(app: App, screen: Screen, run: RunLine) -> str:
    """Show how the run's jobs stand at every change, until it has ended; its conclusion. Raises Unavailable."""
    deadline = app.clock.now() + seconds(GREEN_S)
    with app.bells.listening(f"run:{run.id}") as listener:
        while True:
            lines = await app.db.read(jobs.jobs_of_run, run.id)
            screen.jobs([_shown(line) for line in lines])
            (now,) = await app.db.read(jobs.recent_runs, await _repos(app), 1)
            if now.conclusion is not None:
                return now.conclusion
            if app.clock.now() > deadline:
                raise Unavailable(
                    f"the run did not end within {GREEN_S:g} s", next_step=f"see {app.url}/{_REPO}/runs/1"
                )
            await listener.wait(limits.LOOK_S)


def _shown(line: JobRow) -> JobLine:
    where = f"on {line.runner}" if line.runner else line.reason
    return JobLine(line.address, line.conclusion or line.state, where)


async def _repos(app: App) -> list[RepoId]:
    return [repo.id for repo in await app.db.read(repos.repos)]


async def _git(place: Place, screen: Screen, *words: str) -> None:
    """Run git in the sample; what the server says through it is shown as it comes."""
    git = await asyncio.create_subprocess_exec(
        "git", *words, cwd=place.sample, env=place.environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert git.stdout is not None
    try:
        async for line in git.stdout:
            screen.say(f"  {line.decode('utf-8', 'replace').rstrip()}")
        status = await git.wait()
    finally:
        await _end(git)
    if status:
        raise Unavailable(f"`git {words[0]}` ended with status {status}; its words stand above")


async def _say_what_next(app: App, place: Place, screen: Screen, keep: Path | None) -> None:
    person = await app.db.read(people.person_named, _ADA)
    assert person is not None, "made a moment ago"
    link = await app.administration.make_login_link(person.account)
    screen.say("")
    screen.say(f"pages    {app.url}/{_REPO}")
    screen.say(f"log in   {app.url}/login/{link}")
    screen.say(f"clone    git clone {app.url}/git/{_REPO}.git")
    screen.say(f"sample   {place.sample}")
    screen.say(f"command  {place.ssh} -p {app.ssh_url.rpartition(':')[2]} git@127.0.0.1 help")
    if keep is not None:
        screen.say(f"later    vole serve {place.forge}")
    screen.say("Ctrl-C ends it")


def _seconds(begun: Moment, ended: Moment | None) -> str:
    return "-" if ended is None else f"{in_seconds(ended - begun):.3f} s"


@asynccontextmanager
async def _runner(app: App, place: Place) -> AsyncIterator[None]:
    """A runner process, connected; it ends with the block, by its own id."""
    command = [
        sys.executable, "-m", "vole_runner",
        "--server", app.ssh_url, "--key", str(place.runner_key),
        "--host-key", host_key_fingerprint(app.config.paths.host_key),
        "--name", "demo-runner", "--label", "linux", "--repos", _REPO, "--work", str(place.root / "runner"),
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
        yield
    finally:
        await _end(process)


async def _connected(app: App, process: asyncio.subprocess.Process) -> bool:
    """Whether the runner is on the roster, before it ended and within _RUNNER_S."""
    deadline = app.clock.now() + seconds(_RUNNER_S)
    with app.bells.listening("runners") as listener:
        while not len(app.roster):
            if process.returncode is not None or app.clock.now() > deadline:
                return False
            await listener.wait(1.0)
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
