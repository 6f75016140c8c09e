"""Everything that may happen in a history. A new action is registered in ACTIONS, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from tests.queueing import EMPTY_SHA256, a_key
from tests.sim.forge import MAIN
from tests.sim.settings import Settings
from vole.base.errors import NotFound
from vole.base.ids import AccountName, CommitId, JobKey, RefName, RepoName, RunNumber
from vole.flows.push.planning import Planned
from vole.flows.starting import Wanted
from vole.wire import runner
from vole.wire.hook import Question, RefUpdate

if TYPE_CHECKING:
    from tests.sim.world import World

DAY_US = 86_400_000_000
BRANCHES = (MAIN, "refs/heads/dev")


@dataclass(frozen=True)
class Action:
    """`deed` does it and says what it was; an empty text when it could not be done now."""

    deed: Callable[[World, Random], str]
    weight: float


def push(world: World, rng: Random) -> str:
    """One or two refs of a repository move, are made or deleted; git may refuse one of them."""
    repo = rng.choice(world.repos)
    refs = world.git.refs.get(repo, {})
    updates = []
    for ref in rng.sample(BRANCHES, rng.choice((1, 1, 1, 2))):
        old = refs.get(ref)
        gone = old is not None and rng.random() < 0.08
        new = world.workload.commit()
        new = new if new != old else world.workload.commit()  # a ref that stays where it is is no update
        updates.append(RefUpdate(RefName(ref), None if old is None else CommitId(old), None if gone else new))
    token = f"push-{len(world.plans)}"
    world.plans[token] = planned = world.workload.planned(
        repo, [(one.ref, one.new) for one in updates if one.new is not None]
    )
    world.do(_pushed(world, rng, repo, Question(token, (), tuple(updates)), planned))
    return f"push {token} to {repo}: {len(updates)} refs, {len(planned.plans)} runs"


async def _pushed(world: World, rng: Random, repo: str, question: Question, planned: Planned) -> None:
    life = world.life
    person = world.person("ada")
    assert person is not None
    opened = await life.pushes.open(person, repo, "write")
    await life.pushes.check(opened, question)
    assert opened.meant is not None
    told = world.checker.push_meant(opened.meant.push, repo, question, planned)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def git(moves: bool, *, killed: bool = False) -> None:
        """The git child: it moves the refs, or some of them, or it dies first."""
        if child not in world.children:
            return
        world.children.remove(child)
        for update in question.updates:
            if moves and rng.random() < 0.95 and world.git.move(repo, update.ref, update.old, update.new):
                told.moved.add(update.ref)
        if not killed and not life.store.dead:
            life.loop.call_soon(_said, ended)

    def child(moves: bool) -> None:
        git(moves, killed=True)

    world.children.append(child)
    world.after(world.within(0.001, 0.3), lambda: git(rng.random() < 0.95))
    await ended
    await life.pushes.confirm(opened)
    told.answered = True


def _said(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def runner_comes(world: World, rng: Random) -> str:
    if len(world.alive()) >= 50 or len(world.alive()) > 2 * len(world.accounts) + 4:
        return ""
    keeper = world.starts_runner(rng.choice(world.accounts))
    return f"runner {keeper.name}#{keeper.number} comes: {keeper.manner}"


def runner_dies(world: World, rng: Random) -> str:
    if not (alive := world.alive()):
        return ""
    keeper = rng.choice(alive)
    keeper.die(noticed_us=rng.choice((0, 1_000, 500_000, 4_000_000, 45_000_000)))
    world.after(world.within(0.2, 6), lambda: world.starts_runner(keeper.manner.account) and None)
    return f"runner {keeper.name}#{keeper.number} dies with {len(keeper.works)} jobs"


def link_is_cut(world: World, rng: Random) -> str:
    if not (linked := [keeper for keeper in world.alive() if keeper.link is not None]):
        return ""
    keeper = rng.choice(linked)
    link = keeper.link
    assert link is not None
    link.cut(noticed_us=rng.choice((0, 50_000, 2_000_000, 20_000_000)))
    world.after(world.within(0.0, 4), lambda: keeper.dropped(link))
    return f"the link of {keeper.name}#{keeper.number} is cut"


def runner_drains(world: World, rng: Random) -> str:
    if not (alive := world.alive()):
        return ""
    keeper = rng.choice(alive)
    keeper.drain()
    return f"runner {keeper.name}#{keeper.number} drains"


def disk_changes(world: World, rng: Random) -> str:
    if not (alive := world.alive()):
        return ""
    keeper = rng.choice(alive)
    keeper.feels_disk(low=not keeper.disk_low)
    return f"the disk of {keeper.name}#{keeper.number} is {'low' if keeper.disk_low else 'free'}"


def runner_lies(world: World, rng: Random) -> str:
    """A stale or foreign word: wrong holder, wrong epoch, or another result of what has one."""
    offers = world.jobs_offered()
    alive = [keeper for keeper in world.alive() if keeper.welcomed]
    if not offers or not alive:
        return ""
    keeper = rng.choice(alive)
    job, epoch = rng.choice(offers[-12:])
    if rng.random() < 0.25:
        epoch += rng.choice((1, -1))
    mine = {(ref.job, ref.epoch) for ref in keeper.works}
    if (job, epoch) in mine or epoch < 1:
        return ""
    word: Any = rng.choice(("started", "renew", "handback", "finish", "finish"))
    ref: Any = (job, epoch)
    keeper.lies(
        runner.Started(*ref)
        if word == "started"
        else runner.Renew((runner.Renewal(*ref),))
        if word == "renew"
        else runner.Handback(*ref, "not mine to give")
        if word == "handback"
        else runner.Finish(*ref, rng.choice(("success", "failure")), runner.LogSeal(0, EMPTY_SHA256), reason="a lie")
    )
    return f"runner {keeper.name}#{keeper.number} says `{word}` of {job}@{epoch}, which it does not hold"


def cancel(world: World, rng: Random) -> str:
    chosen = world.checker.some_run(rng)
    if chosen is None:
        return ""
    repo, number, keys = chosen
    key = JobKey(rng.choice(keys)) if keys and rng.random() < 0.4 else None
    world.do(_cancelled(world, RepoName(repo), RunNumber(number), key))
    return f"cancel {repo}/{number}{f'/{key}' if key else ''}"


async def _cancelled(world: World, repo: RepoName, number: RunNumber, key: JobKey | None) -> None:
    person = world.person("ada")
    assert person is not None
    await world.life.leasing.cancel(person, repo, number, key, "enough")
    world.checker.was_cancelled(repo, number, key)


def rerun(world: World, rng: Random) -> str:
    """A finished run once more; now and then one that goes on, or that was run again already."""
    chosen = world.checker.some_ended_run(rng) if rng.random() < 0.9 else world.checker.some_run(rng)
    if chosen is None:
        return ""
    repo, number, _ = chosen
    failed = rng.random() < 0.7
    person = world.person("ada")
    assert person is not None
    world.do(world.life.starting.rerun(person, RepoName(repo), RunNumber(number), failed=failed))
    return f"rerun {repo}/{number}{' --failed' if failed else ''}"


def start(world: World, rng: Random) -> str:
    """A person starts a workflow at the default branch, or at another one, which may not be there."""
    repo, ref = RepoName(rng.choice(world.repos)), rng.choice((None, None, *BRANCHES))
    inputs = {"to": rng.choice(("test", "live", "nowhere"))}
    wanted = Wanted("deploy", ref, inputs) if rng.random() < 0.7 else Wanted("minutely", ref)
    world.do(_started(world, repo, wanted))
    return f"start {wanted.workflow} of {repo} at {ref}"


async def _started(world: World, repo: RepoName, wanted: Wanted) -> None:
    person = world.person("ada")
    assert person is not None
    begun = await world.life.starting.start(person, repo, wanted)
    world.checker.begun.append((begun.run.id, wanted.ref or MAIN))


def cap_changes(world: World, rng: Random) -> str:
    if world.life.store.dead or not world.life.up:
        return ""
    world.policy = replace(world.policy, cap=rng.choice((None, 1, 2, 3)), queue_timeout_s=rng.choice((0.0, 15.0, 60.0)))
    world.caps.append((world.ran_us / 1e6, world.policy.cap))

    async def taken() -> None:
        settings = Settings(world.policy.cap, world.policy.queue_timeout_s)
        world.life.leasing.reconfigure(settings)
        world.life.upkeep.reconfigure(settings)

    world.do(taken())
    return f"the cap is {world.policy.cap}, queue_timeout {world.policy.queue_timeout_s}"


def grant_changes(world: World, rng: Random) -> str:
    account, repo = AccountName(rng.choice(world.accounts)), RepoName(rng.choice(world.repos))
    given = rng.random() < 0.6
    world.do(_granted(world, account, repo, given=given))
    return f"{account} is {'granted' if given else 'refused'} {repo}"


async def _granted(world: World, account: AccountName, repo: RepoName, *, given: bool) -> None:
    administration = world.life.administration
    if given:
        await administration.grant(account, repo, "run")
    else:
        await administration.revoke_grant(account, repo, "run")


def key_goes(world: World, rng: Random) -> str:
    account = rng.choice(world.accounts)
    world.do(world.life.administration.remove_key(f"SHA256:{account}", None))
    world.after(world.within(1, 15), lambda: _key_returns(world, account))
    return f"the key of {account} is removed"


def _key_returns(world: World, account: str) -> None:
    if world.life.store.dead or not world.life.up or world.frozen:
        world.after(1_000_000, lambda: _key_returns(world, account))
        return
    if world.person(account) is None:
        world.do(world.life.administration.add_key(AccountName(account), a_key(account), "runner"))
    if not any(keeper.alive and keeper.manner.account == account for keeper in world.keepers):
        world.starts_runner(account)


def repo_goes(world: World, rng: Random) -> str:
    repo = RepoName(rng.choice(world.repos))
    world.do(_removed(world, repo, [AccountName(account) for account in world.accounts if rng.random() < 0.7]))
    return f"repository {repo} is removed and made again"


async def _removed(world: World, repo: RepoName, granted: list[AccountName]) -> None:
    administration = world.life.administration
    await administration.remove_repo(repo)
    await asyncio.sleep(1.0)
    await administration.create_repo(repo, public=False, description="")
    await administration.grant(AccountName("ada"), repo, "write")
    for account in granted:
        await administration.grant(account, repo, "run")


def repo_is_mended(world: World, rng: Random) -> str:
    """A removal that a crash cut short is done again by a person."""
    repo = RepoName(rng.choice(world.repos))
    if world.life.store.dead or not world.life.up or (world.checker.has_repo(repo) and repo in world.git.refs):
        return ""
    world.do(_mended(world, repo))
    return f"repository {repo} is mended"


async def _mended(world: World, repo: RepoName) -> None:
    administration = world.life.administration
    if world.checker.has_repo(repo):
        await administration.remove_repo(repo)
    await administration.create_repo(repo, public=False, description="")
    for account in ("ada", *world.accounts):
        await administration.grant(AccountName(account), repo, "write" if account == "ada" else "run")


def explain(world: World, rng: Random) -> str:
    chosen = world.checker.some_run(rng)
    if chosen is None or world.life.store.dead:
        return ""
    world.do(_explained(world, *chosen[:2]))
    return f"why {chosen[0]}/{chosen[1]}"


async def _explained(world: World, repo: str, number: int) -> None:
    found = await world.life.store.read(_repo_id, repo)
    if found is None:
        return
    try:
        await world.life.leasing.why(found, RunNumber(number), None)
    except NotFound:
        return


async def _repo_id(view: Any, name: str) -> Any:
    row = await view.one("SELECT id FROM repos WHERE name = :name", name=name)
    return None if row is None else row["id"]


def server_dies(world: World, rng: Random) -> str:
    """Now, or in the middle of what it does next."""
    if world.life.store.dead:
        return ""
    late = rng.choice((0, 0, 3, 10, 30, 80))
    if late:
        world.life.loop.fuse = late
    else:
        world.crash()
    return f"the server dies {f'after {late} more callbacks' if late else 'now'}"


def server_stalls(world: World, rng: Random) -> str:
    if world.life.store.dead or world.frozen:
        return ""
    span_s = rng.choice((0.5, 2.0, 4.0, 6.0, 12.0))
    world.stall(round(span_s * 1e6))
    return f"the server is stopped for {span_s} s"


def disk_slows(world: World, rng: Random) -> str:
    world.life.store.slow_s = slow = rng.choice((0.0, 0.0, 0.05, 0.3))
    return f"a commit takes {slow} s"


def wall_clock_jumps(world: World, rng: Random) -> str:
    days = rng.choice((1, -1))
    world.time.wall_offset_us += days * DAY_US
    return f"the wall clock jumps by {days} day"


def row_is_damaged(world: World, rng: Random) -> str:
    """A byte of a pinned document flips on the disk."""
    job = world.checker.some_waiting(rng)
    if job is None:
        return ""
    world.checker.damaged.add(job)
    world.connection.execute("UPDATE job_documents SET document = document || ' ' WHERE job_id = ?", (job,))
    world.connection.execute("DELETE FROM touched")
    return f"the document of job {job} is damaged"


ACTIONS: dict[str, Action] = {
    "push": Action(push, 30),
    "runner_comes": Action(runner_comes, 5),
    "runner_dies": Action(runner_dies, 7),
    "link_is_cut": Action(link_is_cut, 7),
    "runner_drains": Action(runner_drains, 2),
    "disk_changes": Action(disk_changes, 2),
    "runner_lies": Action(runner_lies, 8),
    "cancel": Action(cancel, 8),
    "rerun": Action(rerun, 10),
    "start": Action(start, 5),
    "cap_changes": Action(cap_changes, 3),
    "grant_changes": Action(grant_changes, 5),
    "key_goes": Action(key_goes, 1.5),
    "repo_goes": Action(repo_goes, 1.5),
    "repo_is_mended": Action(repo_is_mended, 1.5),
    "explain": Action(explain, 3),
    "server_dies": Action(server_dies, 3),
    "server_stalls": Action(server_stalls, 3),
    "disk_slows": Action(disk_slows, 1),
    "wall_clock_jumps": Action(wall_clock_jumps, 2),
    "row_is_damaged": Action(row_is_damaged, 0.5),
}
