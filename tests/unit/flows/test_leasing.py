"""Leasing as a door calls it: sessions, parked wants, orders, bytes under a lease. On a real store in a folder."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from contextlib import asynccontextmanager

import pytest

from tests.aio import run
from tests.leasing_server import Server
from tests.queueing import POLICY, a_hello, a_job, a_result, a_run
from tests.unit.evidence.test_junit import PYTEST
from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import Conflict, Denied, Exhausted, Fenced, Invalid, NotFound, Unavailable
from vole.base.ids import CommitId, JobKey, RepoName, RunNumber
from vole.base.supervise import Sweep
from vole.evidence.model import WrongOffset
from vole.flows.leasing import SourceFacts
from vole.jobs import ledger
from vole.people import ledger as people
from vole.people.model import OPERATOR
from vole.repos import ledger as repos
from vole.store.database import Database
from vole.wire import runner
from vole.wire.plan import JUNIT_REPORTS, ArtifactPlan, NeededArtifact
from vole.wire.runner import Refusal


@asynccontextmanager
async def a_server(folder, **policy):
    server = await Server.begin(folder, policy=dataclasses.replace(POLICY, **policy))
    await server.account("mac-1", "app", "lib")
    try:
        yield server
        server.check()
    finally:
        await server.end()


async def refused(deed):
    """The code of the refusal that `deed` ends in."""
    with pytest.raises((Denied, Invalid)) as found:
        await deed
    return found.value


# ---- Coming and going


def test_a_welcome_says_what_is_granted_and_what_the_filter_leaves(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", ["linux"], repos=("lib", "other"))

            assert session.welcome.grant == ("app", "lib")
            assert session.welcome.serves == ("lib",)
            assert (session.welcome.ttl_s, session.welcome.start_window_s) == (60.0, 15.0)
            assert session.welcome.warnings == ("--repos other: not granted to mac-1, so no job of it comes here",)

    run(story())


@pytest.mark.proves("SR-25")
@pytest.mark.parametrize("names", [("secret",), ("No Such Name",), ("app.git",), ("secret", "hidden")])
def test_a_filter_that_can_never_match_is_refused_at_hello(tmp_path, names):
    async def story():
        async with a_server(tmp_path) as server:
            await server.repo("secret")

            error = await refused(server.connects("mac-1", repos=names))

            assert (type(error), error.code) == (Denied, Refusal.GRANT)
            assert len(server.roster) == 0

    run(story())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"wire": runner.Wire(2, 3)}, Refusal.WIRE_UNSUPPORTED),
        ({"labels": ("Linux",)}, Refusal.INVALID),
        ({"labels": ("linux ",)}, Refusal.INVALID),
        ({"labels": ("linux", "linux")}, Refusal.INVALID),
        ({"labels": tuple(f"l{n}" for n in range(65))}, Refusal.INVALID),
        ({"slots": 0}, Refusal.INVALID),
        ({"slots": 65}, Refusal.INVALID),
        ({"name": ""}, Refusal.INVALID),
        ({"name": "x" * 201}, Refusal.INVALID),
        ({"version": "1\x1b[31m"}, Refusal.INVALID),
    ],
)
def test_a_hello_that_breaks_a_rule_is_refused_with_its_code(tmp_path, change, code):
    async def story():
        async with a_server(tmp_path) as server:
            hello = dataclasses.replace(a_hello("mac-1"), **change)

            error = await refused(server.leasing.hello(await server.person("mac-1"), hello))

            assert error.code == code

    run(story())


@pytest.mark.proves("SR-01")
def test_a_git_key_leases_nothing(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            await server.account("ada", "app", kind="git")

            error = await refused(server.connects("ada"))

            assert (type(error), error.code) == (Denied, Refusal.GRANT)

    run(story())


@pytest.mark.proves("SR-36")
def test_two_processes_under_one_key_are_both_there(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            one = await server.connects("mac-1", incarnation="x")
            two = await server.connects("mac-1", incarnation="y")

            assert one.id != two.id
            assert [session.id for session in server.roster] == [one.id, two.id]

    run(story())


def test_a_process_that_reconnects_comes_back_to_its_leases_and_its_old_connection_is_superseded(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            old = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(old)
            new = await server.connects("mac-1")

            renew = runner.Renew((runner.Renewal(job.lease.job, job.lease.epoch),))
            renewed, fenced = await server.leasing.renew(new, renew)

            assert new.id == old.id
            assert (len(renewed.leases), fenced) == (1, ())
            assert (await old.orders.get()).code is Refusal.SUPERSEDED
            with pytest.raises(Denied):
                await server.leasing.next_job(old, runner.Want(0, "t9"))
            await server.leasing.goodbye(old, cause="lost")
            assert server.roster.get(new.id) is new
            assert server.rows("SELECT disconnected_at FROM runners")[0][0] is None

    run(story())


def test_a_process_that_comes_back_hears_again_what_is_being_cancelled(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            await server.leasing.goodbye(session, cause="lost")
            await server.leasing.cancel(OPERATOR, RepoName("app"), RunNumber(1), None, "")

            again = await server.connects("mac-1")

            order = again.orders.get_nowait()
            assert order == runner.Cancel(job.lease.job, job.lease.epoch, "cancelled", 10)

    run(story())


def test_a_goodbye_gives_back_what_was_not_started_and_keeps_the_rest(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run(a_job("x"), a_job("y")))
            await server.takes(session, "t1")
            await server.gets(session, "t2")

            await server.leasing.goodbye(session, cause="lost")

            states = [row["state"] for row in server.rows("SELECT state FROM jobs ORDER BY ordinal")]
            assert states == ["running", "queued"]

    run(story())


def test_a_ping_is_welcomed_and_on_no_roster(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", mode="ping")

            assert session.welcome.serves == ("app", "lib")
            assert len(server.roster) == 0
            assert server.rows("SELECT * FROM runners") == []

    run(story())


def test_labels_that_a_runner_carries_become_known(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            await server.connects("mac-1", ["linux", "fast"])

            assert [row["label"] for row in server.rows("SELECT label FROM labels")] == ["fast", "linux"]

    run(story())


@pytest.mark.proves("SR-27", "I-14")
def test_a_removed_key_ends_its_session_its_wants_and_its_leases_at_the_next_recheck(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run())
            await server.takes(session)
            parked = await server.asks(session, "t2")
            await server.db.write(people.remove_key, "SHA256:mac-1")

            await server.leasing.recheck()

            assert (await session.orders.get()).code is Refusal.GRANT
            assert [row["end_cause"] for row in server.rows("SELECT end_cause FROM attempts")] == ["key_removed"]
            await asyncio.wait([parked])
            assert parked.cancelled()
            with pytest.raises(Fenced):
                await server.leasing.log_position(session, *_ids(server))

    run(story())


@pytest.mark.proves("SR-27", "I-14")
def test_a_key_that_is_removed_while_its_runner_is_gone_ends_the_leases_it_still_had(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            await server.leasing.started(session, runner.Started(job.lease.job, job.lease.epoch))
            await server.leasing.goodbye(session, cause="its link was cut")
            await server.db.write(people.remove_key, "SHA256:mac-1")

            await server.leasing.recheck()

            assert [row["end_cause"] for row in server.rows("SELECT end_cause FROM attempts")] == ["key_removed"]

    run(story())


@pytest.mark.proves("SR-27", "I-13")
def test_a_grant_that_is_taken_or_given_counts_for_parked_wants(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            account = await server.account("rui", "app")
            session = await server.connects("rui")
            parked = await server.asks(session)
            await server.db.write(people.revoke_grant, account, (await server.repo("app")).id)
            await server.enqueues(a_run())
            await server.leasing.look()
            assert not parked.done()
            await server.leasing.recheck()
            await server.db.write(people.grant, account, (await server.repo("app")).id, "run")

            with server.bells.listening("jobs") as bell:
                await server.leasing.recheck()
                assert await bell.wait(0.1)
            await server.leasing.look()

            assert (await parked).address == "app/1/test"

    run(story())


def _ids(server):
    row = server.rows("SELECT job_id, epoch FROM attempts")[0]
    return row["job_id"], row["epoch"]


# ---- Wants


@pytest.mark.proves("I-12")
def test_one_look_serves_every_parked_want_in_one_change(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            await server.account("two", "app")
            one, two = await server.connects("mac-1"), await server.connects("two")
            parked = [await server.asks(one), await server.asks(two)]
            await server.enqueues(a_run(a_job("x"), a_job("y"), a_job("z")))

            assert await server.leasing.look() == 2

            assert {(await want).key for want in parked} == {"x", "y"}

    run(story())


@pytest.mark.proves("I-13")
@pytest.mark.parametrize("deed", ["want", "finish", "handback", "goodbye", "cancel", "expiry", "cap", "connect"])
def test_whatever_can_make_work_leasable_rings(tmp_path, deed):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run())
            job = await server.gets(session)
            key = (job.lease.job, job.lease.epoch)
            with server.bells.listening("jobs", "want") as bell:
                await _do(server, session, key, deed)

                assert await bell.wait(0.1)

    run(story())


@pytest.mark.proves("I-12", "I-13")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_was_given_back_goes_when_its_rest_is_over_though_nothing_rings(tmp_path, restarted):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.gets(session)
            await server.leasing.handback(session, runner.Handback(job.lease.job, job.lease.epoch, "disk"))
            if restarted:
                await server.upkeep.on_start()
            server.clock.advance(seconds(limits.HANDBACK_REST_S - 0.5))
            want = await server.asks(session, "t2")
            sweep = Sweep("dispatch", server.leasing.look, limits.LOOK_S, due_s=server.leasing.rest_s)
            await sweep.step()
            assert not want.done()

            server.clock.advance(seconds(pause_s := sweep.pause_s()))
            await sweep.step()

            assert (await want).lease.epoch == 2
            assert 0.49 < pause_s <= 0.5  # the next life begins a millisecond later
            assert sweep.pause_s() == limits.LOOK_S

    run(story())


async def _do(server, session, key, deed):
    leasing = server.leasing
    if deed == "want":
        (await server.asks(session, "t2")).cancel()
    elif deed == "finish":
        await leasing.finish(session, a_result(*key))
    elif deed == "handback":
        await leasing.handback(session, runner.Handback(*key, "disk"))
    elif deed == "goodbye":
        await leasing.goodbye(session, cause="lost")
    elif deed == "cancel":
        await leasing.cancel(OPERATOR, RepoName("app"), RunNumber(1), None, "")
    elif deed == "expiry":
        await _window_passes(server)
    elif deed == "cap":
        leasing.reconfigure(_Queue())
    else:
        await server.connects("mac-1", incarnation="another")


@dataclasses.dataclass
class _Queue:
    max_jobs_per_repo: int | None = 3
    queue_timeout_s: float = 0.0


def test_a_want_in_once_mode_is_told_that_there_is_nothing_and_why(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", mode="once")
            first = await server.asks(session)
            await server.leasing.look()
            assert await first == runner.Nothing(0, "t", "nothing_queued")
            await server.enqueues(a_run(a_job(runs_on=("fast",))))

            second = await server.asks(session, "t2")
            await server.leasing.look()

            assert await second == runner.Nothing(0, "t2", "nothing_for_you")

    run(story())


def test_a_daemons_want_stays_parked_until_there_is_work(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            parked = await server.asks(session)
            await server.leasing.look()
            assert not parked.done()
            await server.enqueues(a_run())

            await server.leasing.look()

            assert (await parked).key == "test"

    run(story())


def test_a_want_that_was_withdrawn_leases_nothing(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            parked = await server.asks(session)
            await server.enqueues(a_run())
            parked.cancel()
            await asyncio.wait([parked])

            await server.leasing.look()

            assert server.rows("SELECT * FROM attempts") == []

    run(story())


class _Late(Database):
    """A store where something happens between the commit of a lease and its answer."""

    then = None

    async def write(self, change, /, *args, **kwargs):
        result = await super().write(change, *args, **kwargs)
        if change is ledger.lease_many and _Late.then is not None:
            _Late.then()
            _Late.then = None
            await asyncio.sleep(0)
        return result


@pytest.mark.parametrize("moment", ["while the lease commits", "before it wakes"])
def test_a_want_that_is_withdrawn_too_late_gives_its_lease_back(tmp_path, moment):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            parked = await server.asks(session)
            await server.enqueues(a_run())
            if moment == "while the lease commits":
                server.db.__class__ = _Late
                _Late.then = parked.cancel
            await server.leasing.look()
            parked.cancel()
            await asyncio.gather(parked, return_exceptions=True)

            (attempt,) = server.rows("SELECT end_cause FROM attempts")
            assert attempt["end_cause"] == "disconnected"
            assert (await server.gets(session, "t2")).lease.epoch == 2

    run(story())


class _Refusing(_Late):
    """The store that cannot write one change just now: `refused` is its name."""

    refused = ""

    async def write(self, change, /, *args, **kwargs):
        if change.__name__ == self.refused:
            raise Unavailable("the store cannot write just now: disk full")
        return await super().write(change, *args, **kwargs)


async def _window_passes(server):
    for _ in range(16):  # one gap of all of it would move the deadline
        server.clock.advance(seconds(1))
        await server.upkeep.once()


@pytest.mark.proves("I-18")
def test_a_goodbye_that_could_not_be_written_leaves_nobody_behind_and_the_start_window_gives_the_job_back(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            await server.gets(session)
            server.db.__class__, server.db.refused = _Refusing, "_disconnect"

            with pytest.raises(Unavailable):
                await server.leasing.goodbye(session, cause="lost")

            server.db.refused = ""
            assert list(server.roster) == []
            await _window_passes(server)
            await server.account("two", "app")
            assert (await server.gets(await server.connects("two"), "t2")).lease.epoch == 2

    run(story())


@pytest.mark.proves("I-18")
def test_a_give_back_that_fails_keeps_nobody_elses_answer_and_the_start_window_gives_the_job_back(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            gone, other = await server.asks(session, "t1", 0), await server.asks(session, "t2", 1)
            await server.enqueues(a_run(a_job("x"), a_job("y")))
            server.db.__class__, server.db.refused = _Refusing, "_undelivered"
            _Late.then = gone.cancel

            assert await server.leasing.look() == 2

            assert (await other).key == "y"
            assert gone.cancelled()
            await _window_passes(server)
            assert server.rows("SELECT end_cause FROM attempts ORDER BY job_id")[0]["end_cause"] == "not_started"

    run(story())


def test_the_same_token_asked_again_gets_the_same_lease_also_after_a_restart(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run(a_job("x"), a_job("y")))
            first = await server.gets(session, "same")
            again = await server.gets(session, "same")
            assert again == first
            clock = server.clock
        server = await Server.begin(tmp_path, clock=clock)
        try:
            assert await server.gets(await server.connects("mac-1", slots=2), "same") == first
        finally:
            await server.end()

    run(story())


def test_a_want_without_a_token_is_refused(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")

            with pytest.raises(Invalid):
                await server.leasing.next_job(session, runner.Want(0, ""))

    run(story())


def test_a_runner_that_drains_or_is_low_on_disk_gets_nothing(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=2)
            await server.enqueues(a_run())
            low = asyncio.create_task(server.leasing.next_job(session, runner.Want(0, "t", disk_low=True)))
            await asyncio.sleep(0)
            assert await server.leasing.look() == 0
            low.cancel()
            await asyncio.gather(low, return_exceptions=True)
            await server.leasing.drain(session)

            parked = await server.asks(session, "t2")
            assert await server.leasing.look() == 0
            parked.cancel()

    run(story())


def test_idle_runners_write_nothing(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            parked = await server.asks(session)
            await server.leasing.look()
            before = [(path.name, path.stat().st_size) for path in sorted(tmp_path.glob("vole.db*"))]

            for _ in range(5):
                server.clock.advance(seconds(1))
                await server.leasing.look()
                await server.leasing.recheck()
                await server.upkeep.once()

            assert [(path.name, path.stat().st_size) for path in sorted(tmp_path.glob("vole.db*"))] == before
            parked.cancel()

    run(story())


# ---- Results, logs, artifacts, source


@pytest.mark.proves("I-34", "I-33")
def test_a_result_is_accepted_with_its_log_and_said_again_it_is_answered_alike(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            key = (job.lease.job, job.lease.epoch)
            await server.leasing.append_log(session, *key, 0, b"abc")
            with pytest.raises(WrongOffset) as wrong:
                await server.leasing.append_log(session, *key, 0, b"abc")
            seal = runner.LogSeal(3, hashlib.sha256(b"abc").hexdigest())
            result = dataclasses.replace(a_result(*key), log=seal)

            first = await server.leasing.finish(session, result)
            again = await server.leasing.finish(session, result)

            assert wrong.value.offset == 3
            assert first == again == runner.Finished(*key, "complete", 3)
            with pytest.raises(Conflict):
                await server.leasing.finish(session, dataclasses.replace(result, conclusion="failure"))
            with pytest.raises(Fenced):
                await server.leasing.append_log(session, *key, 3, b"more")

    run(story())


@pytest.mark.proves("SR-26", "I-05", "I-35")
@pytest.mark.parametrize("wrong", ["epoch", "holder", "connection"])
def test_bytes_under_a_lease_that_is_not_theirs_are_fenced_and_stored_nowhere(tmp_path, wrong):
    async def story():
        async with a_server(tmp_path) as server:
            await server.account("two", "app")
            mine, theirs = await server.connects("mac-1"), await server.connects("two")
            await server.enqueues(a_run())
            job = await server.takes(mine)
            session = theirs if wrong == "holder" else mine
            epoch = job.lease.epoch + (wrong == "epoch")
            if wrong == "connection":
                await server.connects("mac-1")
            file = runner.ArtifactFile("dist", "a", 1, "0" * 64)
            leasing = server.leasing

            for deed in (
                leasing.append_log(session, job.lease.job, epoch, 0, b"x"),
                leasing.log_position(session, job.lease.job, epoch),
                leasing.artifact_begin(session, job.lease.job, epoch, file),
                leasing.artifact_append(session, job.lease.job, epoch, file, 0, b"x"),
                leasing.artifact_commit(session, job.lease.job, epoch, file),
                leasing.artifact_list(session, job.lease.job, epoch, "dist"),
                leasing.source(session, job.lease.job, epoch),
            ):
                with pytest.raises(Fenced):
                    await deed
            assert not list((tmp_path / "logs").rglob("*"))

    run(story())


@pytest.mark.proves("I-34")
def test_no_byte_is_stored_between_the_seal_of_a_log_and_the_result(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            key = (job.lease.job, job.lease.epoch)
            await server.leasing.append_log(session, *key, 0, b"early")
            seal, late = server.logs.seal, []

            def sealing(log):
                found = seal(log)
                with pytest.raises(Conflict):
                    server.logs.append_at(log, 0, b"late")
                late.append(log)
                return found

            server.logs.seal = sealing
            await server.leasing.finish(session, a_result(*key))

            assert len(late) == 1

    run(story())


def test_a_late_goodbye_does_not_disconnect_a_process_that_is_back(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            old = await server.connects("mac-1")
            server.clock.advance(seconds(1))
            new = await server.connects("mac-1")
            server.roster.enter(old)  # as if its goodbye had begun before the new connection was entered

            await server.leasing.goodbye(old, cause="lost")

            assert new.id == old.id
            assert server.rows("SELECT disconnected_at FROM runners")[0][0] is None

    run(story())


@pytest.mark.proves("SR-28")
def test_the_source_of_a_lease_is_one_repository_at_one_commit_until_the_lease_ends(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run(a_job(checkout_depth=3)))
            job = await server.gets(session)
            key = (job.lease.job, job.lease.epoch)

            assert await server.leasing.source(session, *key) == SourceFacts("app", CommitId("1" * 40), 3)
            await server.leasing.finish(session, a_result(*key))
            with pytest.raises(Fenced):
                await server.leasing.source(session, *key)

    run(story())


DATA = b"the build"
FILE = runner.ArtifactFile("dist", "out/a.txt", len(DATA), hashlib.sha256(DATA).hexdigest())


async def _built(server, session, *, keeps=("dist",)):
    """A run whose first job has kept an artifact, and the second job leased."""
    plans = tuple(ArtifactPlan(name, ("*",)) for name in keeps)
    test = a_job("test", needs=("build",), needs_artifacts=(NeededArtifact("dist"),))
    await server.enqueues(a_run(a_job("build", artifacts=plans), test, a_job("other")))
    job = await server.takes(session)
    key = (job.lease.job, job.lease.epoch)
    assert await server.leasing.artifact_begin(session, *key, FILE) == 0
    await server.leasing.artifact_append(session, *key, FILE, 0, DATA)
    await server.leasing.artifact_commit(session, *key, FILE)
    return key


async def _reported(server, *reports, start=True):
    """What is stored of a job's test reports."""
    session = await server.connects("mac-1")
    await server.enqueues(a_run(a_job(artifacts=(ArtifactPlan(JUNIT_REPORTS, ("*.xml",)),))))
    job = await server.takes(session)
    files = [await server.stores(session, job, JUNIT_REPORTS, f"{at}.xml", one) for at, one in enumerate(reports)]
    if start:
        await server.offload.start()
    await server.leasing.finish(session, a_result(job.lease.job, job.lease.epoch, artifacts=tuple(files)))
    assert [row["conclusion"] for row in server.rows("SELECT conclusion FROM jobs")] == ["success"]
    return [json.loads(row["document"]) for row in server.rows("SELECT document FROM reports")]


def test_what_test_reports_say_is_kept_with_the_result(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            (told,) = await _reported(server, PYTEST.encode(), b"<!DOCTYPE x>")

            assert (told["passed"], told["failed"], told["errors"], told["skipped"]) == (1, 1, 1, 1)
            assert [one["name"] for one in told["failures"]] == ["test_no[1-<2>]", "tests.test_broken"]
            assert [problem[:26] for problem in told["problems"]] == ["1.xml: line 1: a document "]

    run(story())


def test_no_report_can_keep_a_result_from_being_taken(tmp_path, monkeypatch):
    async def story():
        monkeypatch.setattr(limits, "OFFLOAD_QUEUE_S", 0.01)
        async with a_server(tmp_path) as server:
            (told,) = await _reported(server, PYTEST.encode(), start=False)

            assert told["problems"] == [
                "the reports were not read: the parser was not free for 0.01 s (OFFLOAD_QUEUE_S); try again"
            ]

    run(story())


def test_reports_beyond_their_bounds_are_named_and_the_rest_is_read(tmp_path, monkeypatch):
    async def story():
        monkeypatch.setattr(limits, "REPORT_FILES_MAX", 1)
        monkeypatch.setattr(limits, "REPORT_BYTES_MAX", len(PYTEST))
        async with a_server(tmp_path) as server:
            (told,) = await _reported(server, b"<testsuite>" + b" " * 5_000 + b"</testsuite>", PYTEST.encode(), b"<x/>")

            assert told["failed"] == 1
            assert [problem[:31] for problem in told["problems"]] == ["0.xml and 1 more: not read; at "]

    run(story())


def test_an_artifact_reaches_the_job_that_needs_its_job_and_no_other(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=3)
            key = await _built(server, session)
            await server.leasing.finish(session, dataclasses.replace(a_result(*key), artifacts=(FILE,)))
            jobs = {job.key: job.lease for job in [await server.takes(session, t) for t in ("t1", "t2")]}
            test, other = jobs["test"], jobs["other"]

            assert await server.leasing.artifact_list(session, test.job, test.epoch, "dist") == (FILE,)
            path = await server.leasing.artifact_path(session, test.job, test.epoch, "dist", "out/a.txt")
            assert path.read_bytes() == DATA
            with pytest.raises(NotFound):
                await server.leasing.artifact_list(session, other.job, other.epoch, "dist")
            with pytest.raises(NotFound):
                await server.leasing.artifact_path(session, test.job, test.epoch, "dist", "b.txt")

    run(story())


def test_a_result_with_an_artifact_that_is_not_stored_or_not_pinned_is_refused_whole(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", slots=3)
            key = await _built(server, session, keeps=("docs",))
            absent = dataclasses.replace(FILE, name="docs", sha256="1" * 64)

            for file in (FILE, absent):
                with pytest.raises(Invalid):
                    await server.leasing.finish(session, dataclasses.replace(a_result(*key), artifacts=(file,)))

            assert server.rows("SELECT state FROM jobs ORDER BY ordinal")[0]["state"] == "running"
            assert await server.leasing.append_log(session, *key, 0, b"x") == 1

    run(story())


@pytest.mark.proves("SR-34")
def test_a_job_sends_no_more_files_than_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("vole.base.limits.ARTIFACT_FILES_MAX", 2)

    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            files = [dataclasses.replace(FILE, sha256=str(n) * 64) for n in range(3)]
            for file in files[:2]:
                await server.leasing.artifact_begin(session, job.lease.job, job.lease.epoch, file)

            with pytest.raises(Exhausted, match="ARTIFACT_FILES_MAX"):
                await server.leasing.artifact_begin(session, job.lease.job, job.lease.epoch, files[2])

    run(story())


# ---- Cancel, removal, why


def test_a_cancel_reaches_the_runner_that_holds_the_job(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)

            count = await server.leasing.cancel(OPERATOR, RepoName("app"), RunNumber(1), JobKey("test"), "no need")

            assert count == 1
            assert session.orders.get_nowait() == runner.Cancel(job.lease.job, job.lease.epoch, "cancelled", 10)
            assert server.rows("SELECT reason FROM jobs")[0][0] == "cancelled by operator: no need"

    run(story())


def test_a_cancel_takes_write_and_says_nothing_of_what_may_not_be_read(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            await server.account("ada", kind="git")
            await server.enqueues(a_run())
            ada = await server.person("ada")

            with pytest.raises(NotFound):
                await server.leasing.cancel(ada, RepoName("app"), RunNumber(1), None, "")
            with pytest.raises(NotFound):
                await server.leasing.cancel(ada, RepoName("nothing"), RunNumber(1), None, "")

    run(story())


@pytest.mark.proves("I-14")
def test_a_removed_repository_takes_its_leases_logs_and_artifacts_with_it(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run())
            job = await server.takes(session)
            key = (job.lease.job, job.lease.epoch)
            await server.leasing.append_log(session, *key, 0, b"abc")
            repo = await server.repo("app")
            await server.db.write(_remove, server.index, repo)

            await server.leasing.repository_removed(repo)

            assert session.orders.get_nowait() == runner.Cancel(*key, "repository_removed", 10)
            assert not (tmp_path / "logs" / "app").exists()
            with pytest.raises(Fenced):
                await server.leasing.append_log(session, *key, 3, b"abc")
            with pytest.raises(Fenced):
                await server.leasing.finish(session, a_result(*key))

    run(story())


def _remove(tx, index, repo):
    ledger.drop_repo(tx, index, repo.id)
    repos.remove_repo(tx, repo.id)


@pytest.mark.proves("I-24")
@pytest.mark.parametrize("jobs", [1, limits.AT_ONCE_VERDICTS_MAX])
def test_prospects_and_why_say_what_the_lease_would(tmp_path, jobs):
    """A small run is explained where the loop stands, a large one on a reader's thread: the words are the same."""

    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1", ["linux", "fasts"])
            free = await server.enqueues(a_run(a_job(runs_on=("linux",))), push=1)
            assert await server.leasing.prospects(free.id, jobs) == ["waits: mac-1 asks for no work just now"]
            parked = await server.asks(session)
            assert await server.leasing.prospects(free.id, jobs) == ["starts now on mac-1"]
            await server.leasing.look()
            await parked

            stuck = await server.enqueues(a_run(a_job(runs_on=("linux", "fast"))), push=2)

            assert await server.leasing.prospects(stuck.id, jobs) == [
                "waits: no connected runner carries 'fast' (mac-1 lacks fast; nearest label: 'fasts')"
            ]
            app = (await server.repo("app")).id
            assert (await server.leasing.why(app, RunNumber(2), JobKey("test")))[1] == "  mac-1: lacks fast"
            assert await server.leasing.why(app, RunNumber(1), None) == ["app/1/test: starts now on mac-1"]
            with pytest.raises(NotFound):
                await server.leasing.why(app, RunNumber(2), JobKey("nothing"))

    run(story())


# ---- Upkeep


def test_upkeep_expires_tells_and_explains(tmp_path):
    async def story():
        async with a_server(tmp_path, queue_timeout_s=100.0) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run(a_job("x"), a_job("y", runs_on=("fast",))))
            job = await server.takes(session)
            await server.upkeep.once()
            for _ in range(61):
                server.clock.advance(seconds(1))
                await server.upkeep.once()
            assert session.orders.get_nowait() == runner.FencedLease(job.lease.job, job.lease.epoch)

            for _ in range(45):
                server.clock.advance(seconds(1))
                await server.upkeep.once()

            expired = server.rows("SELECT conclusion, reason FROM jobs WHERE key = 'y'")[0]
            assert expired["conclusion"] == "expired"
            assert "no connected runner carries 'fast'" in expired["reason"]

    run(story())


def test_a_start_forgets_who_was_connected_and_pieces_of_leases_that_are_over(tmp_path):
    async def story():
        async with a_server(tmp_path) as server:
            session = await server.connects("mac-1")
            await server.enqueues(a_run(a_job(artifacts=(ArtifactPlan("dist", ("*",)),))))
            job = await server.takes(session)
            key = (job.lease.job, job.lease.epoch)
            await server.leasing.artifact_append(session, *key, FILE, 0, DATA[:3])
            await server.leasing.finish(session, a_result(*key))
            clock = server.clock
        server = await Server.begin(tmp_path, clock=clock)
        try:
            assert server.rows("SELECT disconnected_at FROM runners")[0][0] is not None
            assert not list((tmp_path / "artifacts" / "partial").rglob("*-*-*"))
        finally:
            await server.end()

    run(story())
