"""Answers about runs, jobs, logs and runners."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterable

from vole.base import limits
from vole.base.clock import iso
from vole.base.errors import Gone, Invalid, NotFound
from vole.base.ids import Address, Epoch, JobId, RepoId, RepoName
from vole.evidence.logs import LogKey
from vole.evidence.reads import stored
from vole.flows.starting import Begun, Wanted
from vole.jobs import reads
from vole.repos.model import Repo
from vole.ssh.answers.counter import Counter, when
from vole.ssh.answers.terminal import TerminalText
from vole.store.database import View


async def run_list(at: Counter) -> None:
    name = at.call.get("REPO")
    repos = await at.readable() if name is None else {(repo := await at.repo(name)).id: repo}
    if at.call.json:
        await at.json(await at.desk.db.read(_runs_with_jobs, repos))
        return
    found = await at.desk.db.read(reads.recent_runs, repos, limits.LIST_MAX)
    rows = [
        (
            f"{run.repo}/{run.number}",
            run.conclusion or run.state,
            run.workflow,
            run.ref,
            run.commit[:10],
            run.actor,
            when(run.created_at),
        )
        for run in found
    ]
    columns = ("run", "state", "workflow", "ref", "commit", "by", "since")
    await at.table(columns, rows, empty="no runs yet: push a commit with .vole/workflows/")


async def run_start(at: Counter) -> None:
    inputs: dict[str, str] = {}
    for said in at.call.repeated.get("--input", ()):
        name, equals, value = said.partition("=")
        if not equals or not name:
            raise Invalid(f"--input takes NAME=VALUE, not {said[:60]!r}")
        if name in inputs:
            raise Invalid(f"input {name[:60]} was said twice")
        inputs[name] = value
    wanted = Wanted(at.call["WORKFLOW"], at.call.get("--ref"), inputs)
    await _say_begun(at, await at.desk.starting.start(at.person, RepoName.parse(at.call["REPO"]), wanted))


async def rerun(at: Counter) -> None:
    address = Address.parse(at.call["RUN"])
    if address.job is not None:
        whole = f"{address.repo}/{address.run}"
        raise Invalid(f"{address} is a job, and runs are run again", next_step=f"say: rerun {whole} --failed")
    failed = at.call.has("--failed")
    await _say_begun(at, await at.desk.starting.rerun(at.person, address.repo, address.run, failed=failed))


async def _say_begun(at: Counter, begun: Begun) -> None:
    """The new run with its prospects, as a push prints them."""
    number = begun.run.number
    first, *rest = await at.desk.leasing.prospects(begun.run.id, len(begun.run.jobs)) or ["queued"]
    url = f"{at.desk.url}/{begun.repo}/runs/{number}"
    await at.say(f"{begun.repo}/{number}  {begun.workflow}  {url}  {first}", *(f"  {line}" for line in rest))


async def queue(at: Counter) -> None:
    found = await at.desk.db.read(reads.unfinished_jobs, await at.readable(), limits.LIST_MAX)
    rows = [
        (job.address, job.state, " ".join(job.labels), job.runner, await _reason(at, job), when(job.enqueued_at))
        for job in found
    ]
    await at.table(("job", "state", "labels", "runner", "reason", "since"), rows, empty="nothing waits, nothing runs")


async def _reason(at: Counter, job: reads.JobLine) -> str:
    """What the row says; for a job that could be leased, what the function that leases says."""
    if job.state != "queued":
        return job.reason
    try:
        return await at.desk.leasing.waits(job.id)
    except NotFound:
        return "ended just now"


async def why(at: Counter) -> None:
    address, repo = await _addressed(at)
    await at.say(*await at.desk.leasing.why(repo.id, address.run, address.job))


async def cancel(at: Counter) -> None:
    address, repo = await _addressed(at)
    reason = at.call.get("--reason") or ""
    touched = await at.desk.leasing.cancel(at.person, repo.name, address.run, address.job, reason)
    await at.say(f"{address}: {touched} {'job' if touched == 1 else 'jobs'} cancelled")


async def log(at: Counter) -> None:
    address, repo = await _addressed(at)
    if address.job is None:
        raise Invalid(f"{address} is a run; name one of its jobs, as {address}/test")
    run = await at.desk.db.read(reads.find_run, repo.id, address.run)
    job = await at.desk.db.read(reads.find_job, run, address.job)
    newest = (await at.desk.db.read(reads.job_line, job)).epoch
    epoch = newest if address.epoch is None else address.epoch
    if epoch > newest or (newest == 0 and not at.call.has("-f")):
        raise NotFound(f"{address} has no such attempt yet", next_step=f"why {address} says what it waits for")
    removed = (await at.desk.db.read(stored.removed_logs, [job])).get((job, epoch))
    if removed is not None:
        raise Gone(f"the log of {address} was removed {removed.why}, on {iso(removed.at)[:10]}")
    begin = Address(repo.name, address.run, address.job, epoch)
    await _Tail(at, repo, job, begin, pinned=address.epoch is not None).run()


async def runner_list(at: Counter) -> None:
    names = await at.readable()
    busy = Counted(held.session for held in at.desk.index.held.values())
    rows = [
        (
            session.hello.name,
            session.account_name,
            " ".join(sorted(session.labels)) or "any job",
            " ".join(sorted(names[repo].name for repo in session.serves if repo in names)),
            f"{busy[session.id]} of {session.hello.slots}",
            session.hello.version,
            f"{session.hello.platform} {session.hello.machine}",
            when(session.last_contact),
            session.key_fingerprint,
        )
        for session in at.desk.roster
    ]
    columns = ("name", "account", "labels", "repositories", "busy", "version", "machine", "last contact", "key")
    await at.table(columns, rows, empty="no runner is connected")


class _Tail:
    """The log of an attempt up to its end, and with -f beyond: the job's later attempts too, unless one was named."""

    def __init__(self, at: Counter, repo: Repo, job: JobId, address: Address, *, pinned: bool) -> None:
        self._at = at
        self._repo = repo
        self._job = job
        self._address = address
        self._pinned = pinned
        self._text = TerminalText()

    async def run(self) -> None:
        with self._at.desk.bells.listening(f"log:{self._job}", "people") as listener:
            offset = 0
            while True:
                await self._at.still_reads(self._repo)
                # Asked before reading: what is written until the end is read after it.
                now = await self._at.desk.db.read(reads.job_line, self._job)
                offset = await self._send_from(offset)
                if not self._at.call.has("-f") or (now.conclusion and now.epoch <= (self._address.epoch or 0)):
                    break
                if now.epoch > (self._address.epoch or 0):
                    if self._pinned:
                        break
                    offset = await self._turn_to(now.epoch)
                    continue
                await listener.wait(limits.LOOK_S)
        await self._at.streams.out(self._text.rest())

    async def _send_from(self, offset: int) -> int:
        key = _key(self._address)
        while data := self._at.desk.logs.read(key, offset, limits.LOG_TAIL_BYTES):
            offset += len(data)
            await self._at.streams.out(data if self._at.call.has("--raw") else self._text.lines(data))
        return offset

    async def _turn_to(self, epoch: Epoch) -> int:
        await self._at.streams.out(self._text.rest())
        await self._at.streams.err(f"--- attempt {epoch}\n".encode())
        self._address = Address(self._address.repo, self._address.run, self._address.job, epoch)
        return 0


async def _runs_with_jobs(view: View, repos: Iterable[RepoId]) -> list[dict[str, object]]:
    found = []
    for run in await reads.recent_runs(view, repos, limits.LIST_MAX):
        jobs = [
            {
                "key": job.key,
                "state": job.state,
                "conclusion": job.conclusion,
                "epoch": job.epoch,
                "runner": job.runner,
                "reason": job.reason,
            }
            for job in await reads.jobs_of_run(view, run.id)
        ]
        found.append(
            {
                "repository": run.repo,
                "number": run.number,
                "state": run.state,
                "conclusion": run.conclusion,
                "workflow": run.workflow,
                "ref": run.ref,
                "commit": run.commit,
                "by": run.actor,
                "event": run.event,
                "attempt": run.attempt,
                "rerun_of": run.older,
                "since": when(run.created_at),
                "finished": when(run.finished_at),
                "jobs": jobs,
            }
        )
    return found


async def _addressed(at: Counter) -> tuple[Address, Repo]:
    address = Address.parse(at.call["JOB"])
    return address, await at.repo(address.repo)


def _key(address: Address) -> LogKey:
    assert address.job is not None, "only jobs have logs"
    return LogKey(address.repo, address.run, address.job, address.epoch or Epoch(0))
