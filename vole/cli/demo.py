"""`vole demo`: a temporary forge on loopback, a runner, a pushed pipeline, until it is green and beyond.

Everything of it lies in one folder with keys of its own: it reads and writes nothing in the home folder.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from vole.app import App
from vole.base import limits
from vole.base.clock import Moment, in_seconds, seconds
from vole.base.errors import Unavailable
from vole.base.ids import AccountName, RepoId, RepoName
from vole.cli import demo_sample, temporary
from vole.cli.demo_screen import JobLine, Screen, screen_for
from vole.cli.temporary import Admitted, Place
from vole.evidence import reads as evidence
from vole.jobs import reads as jobs
from vole.jobs.reads import JobLine as JobRow
from vole.jobs.reads import RunLine
from vole.people import reads as people
from vole.repos import reads as repos

GREEN_S = 120.0  # seconds the pipeline may take
_ADA, _REPO = AccountName("ada"), RepoName("demo")
_ADMITTED = Admitted(_ADA, AccountName("demo-runner"), _REPO, "what `vole demo` pushed")


@click.command("demo")
@click.option("--keep", type=click.Path(path_type=Path), help="Leave the forge in this new folder.")
@click.option("--exit", "leave", is_flag=True, help="End after the run: status 0 when it was green.")
def demo_command(keep: Path | None, leave: bool) -> None:
    """Start a temporary forge and a runner, push a small pipeline over SSH, and show it run."""
    if temporary.missing_tools("vole demo"):
        sys.exit(1)
    sys.exit(asyncio.run(_demo(keep, leave=leave)))


async def _demo(keep: Path | None, *, leave: bool) -> int:
    """The exit status."""
    green = False
    with temporary.until_interrupted(), screen_for(sys.stdout) as screen, temporary.a_place(keep) as place:
        async with temporary.forge(place) as app:
            await temporary.admit(app, place, _ADMITTED)
            screen.say(f"forge    {app.url}  and  {app.ssh_url}")
            async with temporary.runner(app, place, "--name", "demo-runner", "--label", "linux", "--repos", _REPO):
                green = await _show_a_run(app, place, screen)
                if not leave:
                    await _say_what_next(app, place, screen, keep)
                    await asyncio.Event().wait()
    return 0 if green else 1


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
        await temporary.end(git)
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
