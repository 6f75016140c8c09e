"""Answers about removing logs, artifacts and old runs, with the space that was freed."""

from __future__ import annotations

from vole.base.clock import moment
from vole.base.errors import Invalid, NotFound
from vole.base.ids import Address, RunId
from vole.base.quantities import count, size
from vole.jobs import reads
from vole.ssh.answers.counter import Counter


async def log_delete(at: Counter) -> None:
    address, run = await _written(at)
    removed = await at.desk.removal.delete_logs(run, address.job, at.person.name)
    if not removed.count:
        raise NotFound(
            f"{address} has no log to remove", next_step="a log is there once its attempt is over and recorded"
        )
    await at.say(f"{address}: {count(removed.count, 'log')} removed, {size(removed.bytes)} freed")


async def artifact_delete(at: Counter) -> None:
    address, run = await _written(at)
    job = None if address.job is None else await at.desk.db.read(reads.find_job, run, address.job)
    removed = await at.desk.removal.delete_artifacts(run, job, at.call.get("--name"), at.person.name)
    if not removed.count:
        raise NotFound(f"{address} has no such artifact to remove")
    await at.say(f"{address}: {count(removed.count, 'file')} removed, {size(removed.bytes)} freed")


async def run_prune(at: Counter) -> None:
    repo, before = await at.repo(at.call["REPO"]), moment(at.call["TIME"])
    if not at.call.has("--yes"):
        raise Invalid(
            f"the runs of {repo.name} that finished before {at.call['TIME']} would be forgotten, logs and all",
            next_step=f"say it: run prune {repo.name} {at.call['TIME']} --yes",
        )
    removed = await at.desk.removal.prune(repo, before)
    await at.say(f"{count(removed.count, 'run')} of {repo.name} forgotten, {size(removed.bytes)} freed")


async def _written(at: Counter) -> tuple[Address, RunId]:
    """The run that the address names. It takes the right to write. Raises NotFound, Denied."""
    address = Address.parse(at.call["JOB"])
    repo = await at.repo(address.repo, "write")
    if address.epoch is not None:
        raise Invalid(f"{address} is an attempt; name its job, as {address.repo}/{address.run}/{address.job}")
    return address, await at.desk.db.read(reads.find_run, repo.id, address.run)
