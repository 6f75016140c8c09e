from __future__ import annotations

import dataclasses

import pytest

from tests.queueing import Queue, a_job, a_run
from vole.people import ledger as people
from vole.wire import runner


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_a_lease_carries_the_pinned_document_whole(queue):
    queue.runner("mac-1", ["linux"])
    plan = a_job(runs_on=("linux",), env={"A": "1"})
    queue.enqueue(a_run(plan))

    job = queue.lease("mac-1")

    assert job.plan.encode() == plan.document()
    assert job.address == "app/1/test"
    assert (job.lease.epoch, job.lease.ttl_s) == (1, 60.0)
    assert (job.context.run_number, job.context.run_attempt, job.context.server_url) == (1, 1, "http://forge")


def test_an_empty_queue_and_one_with_nothing_for_this_runner_are_told_apart(queue):
    queue.runner("mac-1", ["linux"])
    assert queue.look("mac-1") == ["nothing_queued"]

    queue.job("fast")

    assert queue.look("mac-1") == ["nothing_for_you"]


@pytest.mark.proves("I-03", "I-04")
def test_of_two_who_ask_for_one_job_one_gets_it(queue):
    queue.runner("a")
    queue.runner("b")
    queue.job()

    got = queue.look("a", "b")

    assert [isinstance(answer, runner.Job) for answer in got] == [True, False]


@pytest.mark.proves("SR-24", "I-08")
def test_a_repository_that_is_not_granted_is_never_leased_whatever_the_ask_says(queue):
    ask = queue.runner("mac-1", grant=["app"])
    queue.job(repo="secret")
    forged = dataclasses.replace(ask, serves=frozenset(queue.repos.values()))

    assert queue.look(forged) == ["nothing_for_you"]


@pytest.mark.proves("SR-25")
def test_a_filter_that_names_more_than_the_grant_opens_nothing(queue):
    ask = queue.runner("mac-1", grant=["app"], repos=("app", "secret"))
    queue.job(repo="secret")
    forged = dataclasses.replace(ask, serves=frozenset(queue.repos.values()))

    assert queue.look(forged) == ["nothing_for_you"]


@pytest.mark.proves("SR-24")
def test_a_repository_outside_the_filter_is_never_leased(queue):
    ask = queue.runner("mac-1", grant=["app", "lib"], repos=("lib",))
    queue.job(repo="app")
    wide = dataclasses.replace(ask, serves=frozenset(queue.repos.values()))

    assert queue.look(wide) == ["nothing_for_you"]


@pytest.mark.proves("I-08")
def test_a_grant_that_is_taken_away_counts_in_the_very_next_lease(queue):
    ask = queue.runner("mac-1")
    queue.job()
    account = queue.one("SELECT id FROM accounts WHERE name = 'mac-1'")["id"]
    queue.write(people.revoke_grant, account, queue.repo("app"))

    assert queue.look(ask) == ["nothing_for_you"]


def test_a_key_that_is_gone_leases_nothing(queue):
    ask = queue.runner("mac-1")
    queue.job()
    queue.write(people.remove_key, "SHA256:mac-1")

    assert queue.look(ask) == ["nothing_for_you"]


@pytest.mark.proves("I-10", "SR-38")
def test_a_repository_at_its_cap_is_skipped_and_others_go_on(queue):
    queue.with_policy(cap=1)
    queue.runner("mac-1", grant=["app", "lib"], slots=3)
    queue.job(repo="app")
    queue.job(repo="app")
    queue.job(repo="lib")

    got = queue.look("mac-1", "mac-1", "mac-1")

    assert [getattr(job, "address", job) for job in got] == ["app/1/test", "lib/1/test", "nothing_for_you"]


def test_a_finish_makes_room_under_the_cap(queue):
    queue.with_policy(cap=1)
    queue.runner("mac-1", slots=2)
    queue.job()
    queue.job()
    first = queue.run("mac-1")

    queue.finish(first, "mac-1")

    assert queue.lease("mac-1").address == "app/2/test"


@pytest.mark.proves("I-11", "SR-38")
def test_a_runner_never_gets_more_than_its_slots(queue):
    queue.runner("mac-1", slots=2)
    for _ in range(3):
        queue.job()

    got = queue.look("mac-1", "mac-1", "mac-1")

    assert [isinstance(job, runner.Job) for job in got] == [True, True, False]


def test_the_least_busy_repository_comes_first_then_the_oldest_job(queue):
    queue.runner("mac-1", grant=["app", "lib", "web"], slots=9)
    for repo in ("app", "app", "app", "lib", "web"):
        queue.job(repo=repo)

    order = [queue.lease("mac-1").address for _ in range(5)]

    assert order == ["app/1/test", "lib/1/test", "web/1/test", "app/2/test", "app/3/test"]


@pytest.mark.proves("I-23")
def test_a_repository_with_one_job_waits_for_at_most_as_many_grants_as_there_are_repositories(queue):
    queue.checked = False
    names = [f"r{n}" for n in range(12)]
    queue.runner("mac-1", grant=[*names, "small"], slots=64)
    for name in names:
        for _ in range(20):
            queue.job(repo=name)
    for _ in range(30):
        queue.lease("mac-1")
    queue.job(repo="small")

    addresses = [queue.lease("mac-1").address for _ in range(len(names) + 1)]

    assert any(address.startswith("small/") for address in addresses)


@pytest.mark.proves("I-23")
def test_jobs_of_one_repository_and_requirement_are_leased_in_their_order(queue):
    queue.runner("mac-1", ["linux"], slots=9)
    jobs = [queue.job("linux") for _ in range(4)]

    assert [queue.lease("mac-1").lease.job for _ in range(4)] == jobs


def test_a_runner_for_labelled_jobs_only_leaves_bare_jobs_alone(queue):
    queue.runner("gpu-1", ["gpu"], only=True)
    queue.job()
    assert queue.look("gpu-1") == ["nothing_for_you"]

    wanted = queue.job("gpu")

    assert queue.lease("gpu-1").lease.job == wanted


@pytest.mark.parametrize("word", [{"draining": True}, {"disk_low": True}])
def test_a_runner_that_is_draining_or_low_on_disk_gets_nothing(queue, word):
    ask = queue.runner("mac-1")
    queue.job()

    assert queue.look(dataclasses.replace(ask, **word)) == ["nothing_for_you"]


def test_a_request_that_is_gone_gets_nothing(queue):
    ask = queue.runner("mac-1")
    job = queue.job()

    assert queue.look(dataclasses.replace(ask, live=lambda: False)) == ["nothing_for_you"]
    assert queue.state(job) == ("queued", None)


def test_the_same_token_asked_again_gets_the_same_lease(queue):
    ask = dataclasses.replace(queue.runner("mac-1", slots=2), token="t1")
    queue.job()
    queue.job()
    first = queue.lease(ask)

    again = queue.lease(ask)

    assert again == first
    assert queue.lease(dataclasses.replace(ask, token="t2")).lease.job != first.lease.job


def test_another_process_that_says_the_same_token_gets_a_lease_of_its_own(queue):
    one = dataclasses.replace(queue.runner("a"), token="t1")
    two = dataclasses.replace(queue.runner("b"), token="t1")
    queue.job()
    queue.job()

    assert queue.lease(one).lease.job != queue.lease(two).lease.job


def test_a_runner_that_gave_a_job_back_is_not_offered_it_for_a_minute(queue):
    queue.runner("a")
    queue.runner("b")
    queue.job()
    queue.hand_back(queue.lease("a"), "a")

    assert queue.look("a") == ["nothing_for_you"]
    queue.pass_time(60)
    assert queue.lease("a").lease.epoch == 2


def test_a_job_that_one_runner_gave_back_goes_to_another_at_once(queue):
    queue.runner("a")
    queue.runner("b")
    job = queue.job()
    queue.hand_back(queue.lease("a"), "a")

    assert queue.lease("b").lease.job == job


def test_a_resting_job_does_not_keep_the_next_one_from_its_runner(queue):
    queue.runner("a")
    queue.job()
    queue.hand_back(queue.lease("a"), "a")
    second = queue.job()

    assert queue.lease("a").lease.job == second


@pytest.mark.proves("I-20", "SR-38")
def test_a_damaged_document_is_set_aside_named_and_stops_no_other_job(queue):
    queue.runner("mac-1")
    broken, whole = queue.job(), queue.job()
    queue.connection.execute("UPDATE job_documents SET document = document || ' ' WHERE job_id = ?", (broken,))
    queue.checked = False

    assert queue.lease("mac-1").lease.job == whole
    assert "not the one that was pinned" in queue.one("SELECT set_aside FROM jobs WHERE id = :job", job=broken)[0]
    queue.restart()
    assert queue.look("mac-1") == ["nothing_queued"]


@pytest.mark.proves("SR-36")
def test_an_attempt_names_the_key_and_the_process_that_made_it(queue):
    ask = queue.runner("mac-1")
    queue.job()

    queue.lease(ask)

    row = queue.one("SELECT * FROM attempts")
    assert (row["key_fingerprint"], row["session_id"], row["runner"], row["account"]) == (
        "SHA256:mac-1", ask.holder.session, "mac-1", "mac-1",
    )  # fmt: skip
