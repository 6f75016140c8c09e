"""`vole run`: a workflow of the working tree, here and now: a temporary forge, the runner's own keeper and harness.

What is not committed yet runs too: it becomes a commit that only the temporary forge ever sees.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import click

from vole.app import App
from vole.base import limits
from vole.base.errors import Invalid, NotFound, Unavailable
from vole.base.escape import visible
from vole.base.ids import AccountName, CommitId, Epoch, JobKey, RepoName, RunNumber
from vole.cli import temporary
from vole.cli.authoring import EXIT_PROBLEMS, files_below
from vole.cli.temporary import Admitted, Place
from vole.evidence.model import LogKey
from vole.flows.starting.by_hand import Wanted, chosen
from vole.git.records import RUNS, documents
from vole.jobs import reads
from vole.jobs.rows.shown import JobRow, RunRow
from vole.people import reads as people
from vole.people.model import Person
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.ssh.answers.terminal import TerminalText
from vole.workflows import checks
from vole.workflows.model import Workflow

# Whatever the caller's configuration adds to a push, this one moves one branch.
_AS_SAID = ("-c", "push.followTags=false", "-c", "push.gpgSign=false", "-c", "push.recurseSubmodules=no")
_RUNNER = AccountName("here")
_RUNS = "runs"  # where records stand, in git and in the folder
_RECORD = "vole/last-run"  # in the git folder: what `vole run` leaves behind


@dataclass(frozen=True)
class Tree:
    """The working tree, as it would be pushed."""

    root: Path
    git_folder: Path
    branch: str
    commit: CommitId
    environment: dict[str, str]  # with it git finds the commit of what is not committed yet


@dataclass(frozen=True)
class JobOfRun:
    run: RunRow
    job: JobRow


@dataclass(frozen=True)
class Here:
    """The temporary forge, the one who pushes to it, and their repository."""

    app: App
    person: Person
    repo: Repo

    @classmethod
    async def of(cls, app: App, admitted: Admitted) -> Self:
        person = await app.db.read(people.person_named, admitted.person)
        repo = await app.db.read(repos.repo_named, admitted.repo)
        assert person is not None, "made a moment ago"
        assert repo is not None, "made a moment ago"
        return cls(app, person, repo)

    async def jobs(self, run: RunRow) -> list[JobRow]:
        return await self.app.db.read(reads.job_rows, run.id)

    async def run_numbered(self, number: RunNumber) -> RunRow:
        run = await self.app.db.read(reads.run_numbered, self.repo.id, number)
        assert run is not None, "nothing is removed here"
        return run

    async def cancel(self, run: RunRow, job: JobKey | None) -> None:
        await self.app.leasing.cancel(self.person, self.repo.name, run.number, job, "")


@dataclass(frozen=True)
class Choice:
    """What of it is to run. `workflow` None: whatever a push would start."""

    workflow: Workflow | None
    job: str | None
    inputs: dict[str, str]


@click.command("run")
@click.argument("workflow", required=False)
@click.option("--job", help="Only this job and those it needs.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Of a workflow that is started by hand.")
@click.option("--runtime", help="How steps are run: the runner's own choice of runtimes.")
@click.option("--as", "actor", help="Who pushes, for the workflow and the record. Default: your user name.")
@click.option("--repository", help="The repository's name there. Default: the folder's.")
@click.option("--record", type=click.Path(path_type=Path), help="Folder for the record. Default: .git/vole/last-run.")
def run_command(  # noqa: PLR0913, PLR0917  one for each word
    workflow: str | None,
    job: str | None,
    inputs: tuple[str, ...],
    runtime: str | None,
    actor: str | None,
    repository: str | None,
    record: Path | None,
) -> None:
    """Run what a push of the working tree would start, or WORKFLOW alone: here, with the runner's keeper and harness.

    Exit status 0: all green; 1: not; 2: a push would be refused. The record is what a server would sign.
    """
    if temporary.missing_tools("vole run"):
        sys.exit(1)
    root = Path(_git(Path(), "rev-parse", "--show-toplevel"))
    choice = Choice(_chosen(root, workflow), job, dict(_pair(text) for text in inputs))
    admitted = Admitted(
        AccountName.parse(actor or _plain(getpass.getuser())), _RUNNER, RepoName.parse(repository or _plain(root.name))
    )
    with temporary.a_place(None) as place:
        tree = _tree(root, place)
        into = record or tree.git_folder / _RECORD
        flags = ("--runtime", runtime) if runtime else ()
        sys.exit(asyncio.run(_run(place, tree, admitted, choice, into, flags)))


async def _run(place: Place, tree: Tree, admitted: Admitted, choice: Choice, into: Path, flags: Sequence[str]) -> int:
    """The exit status. Raises Unavailable when the runner goes."""
    green = False
    with temporary.until_interrupted():
        async with temporary.forge(place) as app:
            await temporary.admit(app, place, admitted)
            here = await Here.of(app, admitted)
            if await _pushed(here, place, tree):
                return EXIT_PROBLEMS
            wanted = await _started(here, choice, tree.branch)
            labels = sorted({label for one in wanted for label in one.job.labels})
            carried = [word for label in labels for word in ("--label", label)]
            named = ("--name", _RUNNER, "--repos", admitted.repo, *flags)
            async with temporary.runner(app, place, *named, *carried) as runner:
                green = await _seen(here, wanted, runner)
            await _keep_record(here, into)
    return 0 if green else 1


# ---- What is to run


def _tree(root: Path, place: Place) -> Tree:
    """What is there, committed or not. Its objects go to the temporary folder."""
    git_folder = Path(_git(root, "rev-parse", "--absolute-git-dir"))
    objects = Path(_git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects"))
    (place.root / "objects").mkdir()
    environment = {
        **os.environ,
        "GIT_INDEX_FILE": str(place.root / "index"),
        "GIT_OBJECT_DIRECTORY": str(place.root / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects),
    }
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD", fails_with="")
    branch = _git(root, "symbolic-ref", "--quiet", "--short", "HEAD", fails_with="") or "main"
    if head and not _git(root, "status", "--porcelain"):
        return Tree(root, git_folder, branch, CommitId(head), environment)
    _git(root, "add", "--all", environment=environment)
    tree = _git(root, "write-tree", environment=environment)
    identity = ("-c", "user.name=vole run", "-c", "user.email=run@vole.invalid")
    parent = ("-p", head) if head else ()
    made = _git(root, *identity, "commit-tree", *parent, "-m", "The working tree", tree, environment=environment)
    click.echo(f"with what is not committed yet, as commit {made[:12]}", err=True)
    return Tree(root, git_folder, branch, CommitId(made), environment)


def _chosen(root: Path, said: str | None) -> Workflow | None:
    """The workflow that is meant. Problems of the files are left to the push, which names them all."""
    checked = checks.parse(files_below(root), frozenset())
    return None if said is None or checked.problems else chosen(checked.workflows, said, "the working tree")


async def _pushed(here: Here, place: Place, tree: Tree) -> bool:
    """Push the commit; whether that was refused. What the server says through git is shown."""
    git = await asyncio.create_subprocess_exec(
        "git", *_AS_SAID, "push", "--no-verify", "-q",
        f"{here.app.ssh_url}/{here.repo.name}.git", f"{tree.commit}:refs/heads/{tree.branch}",
        cwd=tree.root, env={**tree.environment, "GIT_SSH_COMMAND": place.ssh}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = await git.communicate()
    finally:
        await temporary.end(git)
    if git.returncode:
        click.echo(said, nl=False, err=True)
    return bool(git.returncode)


async def _started(here: Here, choice: Choice, branch: str) -> list[JobOfRun]:
    """The jobs that are wanted; all others are cancelled before a runner is there. Raises NotFound."""
    workflow = choice.workflow
    of_push = await here.app.db.read(reads.runs_of, here.repo.id, None, limits.LIST_MAX)
    found = [run for run in reversed(of_push) if run.state == "queued"]
    runs = [run for run in found if workflow is None or run.workflow_path == workflow.path]
    for run in found:
        if run not in runs:
            await here.cancel(run, None)
    if not runs and workflow is not None and workflow.manual is not None:
        begun = await here.app.starting.start(here.person, here.repo.name, Wanted(workflow.path, inputs=choice.inputs))
        runs = [await here.run_numbered(begun.run.number)]
    if not runs:
        what = "no workflow starts" if workflow is None else f"{workflow.path} does not start"
        raise NotFound(f"{what} on a push of branch {branch!r}", next_step="look at `on` in .vole/workflows")
    jobs = [JobOfRun(run, job) for run in runs for job in await here.jobs(run)]
    return jobs if choice.job is None else await _narrowed(here, jobs, choice.job)


async def _narrowed(here: Here, jobs: list[JobOfRun], only: str) -> list[JobOfRun]:
    """`only` and what it needs; the rest is cancelled. Raises NotFound."""
    ids = {one.job.job for one in jobs}
    if only not in ids:
        raise NotFound(f"there is no job {only!r}; there are: {', '.join(sorted(ids))}")
    wanted = []
    for run in {one.run.id: one.run for one in jobs}.values():
        of_run = [one for one in jobs if one.run.id == run.id]
        needed = _closure([one.job for one in of_run], only)
        wanted += [one for one in of_run if one.job.job in needed]
    for one in jobs:
        if one not in wanted:
            await here.cancel(one.run, one.job.key)
    return wanted


def _closure(jobs: Sequence[JobRow], only: str) -> set[str]:
    """The id and those of all jobs that it needs, directly or not."""
    needs = {job.job: job.needs for job in jobs}
    found, left = set(), [only]
    while left:
        if (one := left.pop()) in needs and one not in found:
            found.add(one)
            left += needs[one]
    return found


# ---- What is shown, and what is kept


async def _seen(here: Here, wanted: Sequence[JobOfRun], runner: asyncio.subprocess.Process) -> bool:
    """Show every job to its end; whether all were green. Raises Unavailable when the runner ends before."""
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show_all(here, wanted))
        gone = group.create_task(runner.wait())
        await asyncio.wait({showing, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (showing, gone):
            task.cancel()
    if showing.cancelled():
        raise Unavailable("the runner ended before the jobs did", next_step="`vole-runner` may say why by itself")
    return showing.result()


async def _show_all(here: Here, wanted: Sequence[JobOfRun]) -> bool:
    async with asyncio.TaskGroup() as group:
        shown = [group.create_task(_show(here, one.run, one.job)) for one in wanted]
    return all(task.result() for task in shown)


async def _show(here: Here, run: RunRow, job: JobRow) -> bool:
    """A job's log as it comes, each line behind the job's key, and how it ended; whether that was no failure."""
    text, epoch, offset, reason = TerminalText(), Epoch(0), 0, ""
    with here.app.bells.listening(f"log:{job.id}", f"run:{run.id}") as listener:
        while True:
            # Asked before reading: what is written until the end is read after it.
            now = await here.app.db.read(reads.job_line, job.id)
            if now.epoch != epoch:
                epoch, offset = now.epoch, 0
            key = LogKey(here.repo.name, run.number, job.key, epoch)
            while epoch and (data := here.app.logs.read(key, offset, limits.LOG_TAIL_BYTES)):
                offset += len(data)
                _say(job, text.lines(data))
            if now.conclusion is not None:
                _say(job, text.rest())
                click.echo(f"{job.key}  {now.conclusion}" + (f": {visible(now.reason)}" if now.reason else ""))
                return now.conclusion in ("success", "skipped") or job.continue_on_error
            if now.reason not in ("", reason) and now.state == "queued":
                click.echo(f"{job.key}  waits: {visible(now.reason)}")
            reason = now.reason
            await listener.wait(limits.LOOK_S)


def _say(job: JobRow, lines: bytes) -> None:
    for line in lines.splitlines():
        click.echo(f"{job.key} | ".encode() + line)


async def _keep_record(here: Here, into: Path) -> None:
    """What a server would have signed, as plain files in the place of what was there."""
    await here.app.recording.once()
    shutil.rmtree(into / _RUNS, ignore_errors=True)
    for files in documents(here.app.storage.path(here.repo.name), RUNS, _RUNS, 2):
        for path, data in files.items():
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    click.echo(f"record in {into}", err=True)


def _git(cwd: Path, *words: str, environment: dict[str, str] | None = None, fails_with: str | None = None) -> str:
    """What git says, without the last line's end. Raises Unavailable, unless `fails_with` says what to answer then."""
    said = subprocess.run(["git", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if said.returncode and fails_with is None:
        why = said.stderr.strip() or f"`git {words[0]}` ended with status {said.returncode}"
        raise Unavailable(why, next_step="`vole run` is said in a git repository: git init")
    return fails_with if said.returncode and fails_with is not None else said.stdout.strip()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Invalid(f"--input {text[:80]!r}: write it as NAME=VALUE")
    return name, value


def _plain(text: str) -> str:
    """A name of the forge's kind, as near to `text` as may be."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in text.lower())
    return kept.strip("-_.")[:40] or "here"
