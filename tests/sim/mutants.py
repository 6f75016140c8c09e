"""Faults planted in the real modules, each of which the simulation must find, or a test that is named.

python -m tests.sim.mutants [NAME…]      plant each (or these), say after how many histories it was caught
A mutant is a change of text in the source of one function; its code object is exchanged in place, so that whoever has
imported the function meets it, and put back afterwards.
"""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import io
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sim.history import play
from vole.base import bell
from vole.evidence import logs
from vole.flows import upkeep
from vole.flows.leasing import attempts, desk, dispatch, sessions
from vole.flows.push import planning, story
from vole.flows.starting import by_clock, tips
from vole.jobs import index, lease, match, model, rows
from vole.jobs.ledger import cancel, enqueue, grant, groups, leases, moves, rerun, settle, sweeps
from vole.repos import ledger as repos
from vole.runners import roster
from vole.ssh import runner_session

finish: Any = importlib.import_module("vole.jobs.ledger.finish")  # the package's name for it is its function

HISTORIES_MAX = 300  # within which a mutant is to be caught


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in the source of `place`; for a text of SQL, `place` is (module, name)."""

    name: str
    place: Any
    old: str
    new: str
    promise: str  # what it breaks, in a word


def _m(name: str, place: Any, old: str, new: str, promise: str) -> Mutant:
    return Mutant(name, place, old, new, promise)


MUTANTS: tuple[Mutant, ...] = (
    # the fence
    _m("any epoch will do", lease.check, "lease.epoch != epoch or ", "", "I-05"),
    _m("any holder will do", lease.check, " or lease.holder != holder", "", "I-05"),
    _m("epochs stand still", lease.granted, "last + 1", "max(last, 1)", "I-04"),
    _m("a grant is a start", lease.granted, "State.LEASED, after(now, seconds(times.start_window_s))",
       "State.LEASED, after(now, seconds(times.ttl_s * 4))", "I-18"),
    _m("a start gets too little", lease.started, "seconds(times.ttl_s)", "seconds(times.ttl_s / 2)", "I-15"),
    _m("a renewal gets too little", lease.renewed, "max(lease.deadline, after(now, seconds(times.ttl_s)))",
       "after(now, seconds(times.ttl_s / 3))", "I-15"),
    _m("a renewal moves what is being cancelled", lease.renewed, "lease.state is not State.RUNNING",
       "lease.state is State.LEASED", "I-17"),
    _m("a restart gives no fresh span", lease.refreshed, "return lease._replace(deadline=after(now, seconds(span)))",
       "return lease", "I-16"),
    _m("a job is lost for ever again", lease.after_loss, "losses >= limits.ATTEMPTS_MAX",
       "losses > limits.ATTEMPTS_MAX", "I-19"),
    # time
    _m("a stall expires leases", sweeps.sweep, "tx.now - last > seconds(limits.LEASE_GAP_S)", "False", "I-16"),
    _m("leases never expire", sweeps._expire, "job.deadline_at is None or job.deadline_at > tx.now",
       "job.deadline_at is None or job.state is State.RUNNING", "I-15"),
    _m("jobs run on past their time", sweeps._time_out, "job.state is not State.RUNNING", "True", "I-01"),
    _m("the queue's timeout is forgotten", sweeps._give_up_waiting, "job.state is not State.QUEUED", "True", "I-01"),
    _m("a start leaves the index empty", sweeps.rebuild_index, "index.load(sets, queued, held, rests)",
       "index.load(sets, [], held, rests)", "I-12"),
    _m("a start forgets who holds what", sweeps.rebuild_index, "index.load(sets, queued, held, rests)",
       "index.load(sets, queued, [], rests)", "I-23"),
    _m("time begins anew at a start", upkeep.Upkeep.on_start, "self._parts.clock.not_before(after(",
       "min(0, after(", "I-21"),
    # the grant
    _m("labels are no matter", match.serves_labels, "wanted <= carried and ", "", "I-08"),
    _m("only labelled takes all", match.serves_labels, "not (only and not wanted)", "True", "I-08"),
    _m("a grant is no matter", match._of_pair, "not counted.granted", "False", "I-08"),
    _m("a filter is no matter", match._of_pair, "ask.filter and demand.repo_name not in ask.filter", "False", "I-08"),
    _m("the cap is one more", match._of_moment, "counted.running_repo >= counted.cap",
       "counted.running_repo > counted.cap", "I-10"),
    _m("slots are one more", match._of_moment, "counted.running_here >= ask.slots",
       "counted.running_here > ask.slots", "I-11"),
    _m("nobody rests", match._of_moment, "counted.rest_s is not None", "False", "I-08"),
    _m("a drain is not heard", match._of_moment, "ask.draining", "False", "I-24"),
    _m("the newest comes first", index.Draft.pick, "key < best[0]", "key > best[0]", "I-23"),
    _m("the busiest comes first", index.Draft._key,
       "self._index._running.get(line.repo, 0) + self._more[line.repo]",
       "-(self._index._running.get(line.repo, 0) + self._more[line.repo])", "I-23"),
    _m("what ended keeps its place", index.QueueIndex.release, "self._running[held.repo] -= 1",
       "self._running[held.repo] -= 0", "I-12"),
    _m("a lease stays in the index", index.QueueIndex.take, "self.remove(job)", "pass", "I-12"),
    _m("a damaged document is leased", grant._readable, "job_digest(row[\"document\"].encode()) != row[\"digest\"]",
       "False", "I-20"),
    _m("a want asked twice gets two jobs", grant._serve, "ask.first_look and (again", "False and (again", "I-11"),
    # states
    _m("a move asks for no state", moves._update, " AND state = ? AND epoch = ?",
       " AND ? IS NOT NULL AND ? IS NOT NULL", "I-01"),
    _m("a cancel makes the deadline later", moves.stop, '"ending_as": Conclusion.CANCELLED, "reason": reason',
       '"ending_as": Conclusion.CANCELLED, "reason": reason, "deadline_at": (job.deadline_at or 0) + 9_000_000',
       "I-17"),
    _m("a cancel forgets what runs", moves.stop, "job.state not in (State.LEASED, State.RUNNING)", "True", "I-12"),
    _m("a requeue is not told to the index", moves.queue,
       "tx.after_commit(lambda: index.add((job.enqueued_at, job.id), labels, names, job.repo))", "pass", "I-12"),
    _m("a requeue goes to the end", moves.queue, "(job.enqueued_at, job.id), labels", "(tx.now, job.id), labels",
       "I-23"),
    _m("a state without its event", moves.move_all, "event_all(tx, told)",
       "event_all(tx, [one for one in told if one.kind != Happening.READIED])", "I-21"),
    _m("losses are not counted", leases._lose, "losses = job.losses + 1", "losses = min(job.losses + 1, 1)", "I-19"),
    _m("a hand-back loses nothing", leases.give_up, "if job.state is State.LEASED:",
       "if job.state in (State.LEASED, State.RUNNING):", "I-01"),
    _m("a lost connection loses what runs", leases.disconnect, "if job.state is State.LEASED:", "if True:", "I-14"),
    _m("a removed key keeps its leases", leases.end_session, "touched |= give_up(tx, index, rows.job(row), cause, why)",
       "pass", "SR-27"),
    _m("another result is taken too", finish._repeated, "row[\"result_digest\"] != digest", "False", "I-06"),
    _m("a cancelled job keeps its result", finish._concluding, "if job.state is State.CANCELLING:", "if False:",
       "I-01"),
    _m("an unfinished need is enough", settle._Waiting.may_move,
       "all(other.state is State.FINISHED", "any(other.state is State.FINISHED", "I-21"),
    _m("max-parallel is one less than nothing", settle._decide, "active >= plan.max_parallel", "active >= 0", "I-12"),
    _m("nobody is readied", settle._settle, "any(job.state is State.BLOCKED for job in unfinished)", "False", "I-12"),
    _m("a run ends with its first job", model.run_state, "all(state is State.FINISHED for state, _ in pairs)",
       "any(state is State.FINISHED for state, _ in pairs)", "I-21"),
    _m("a removed repository leaves jobs", cancel.drop_repo, "touched |= Touched(ended=_forget(tx, index, job))",
       "pass", "I-12"),
    # groups and reruns
    _m("a job does not wait for its group", settle._take_turn, 'place["held_at"] is not None', "True", "strict groups"),
    _m("a run does not wait for its group", groups.waits, "return tx.one(sql, run=run) is not None", "return False",
       "strict groups"),
    _m("a group is never freed", settle._settle, "moved |= groups.leave(tx, run)", "pass", "I-12"),
    _m("a freed group calls nobody", groups.leave,
       "return {next_ for line in lines if (next_ := _admit(tx, line)) is not None}",
       "return {next_ for line in lines if (next_ := _admit(tx, line)) is None}", "I-12"),
    _m("the last of a line comes first", groups._admit, "ORDER BY place LIMIT 1", "ORDER BY place DESC LIMIT 1",
       "strict groups"),
    _m("a newer one cancels its own run", groups._older, "AND run_id <> :run ", "", "strict groups"),
    _m("a rerun carries what failed", rerun._left_out, "job.conclusion not in _UNDONE and ", "", "I-30"),
    _m("a rerun forgets its group", rerun.rerun_run, "concurrency_of(tx, run)", "None", "strict groups"),
    _m("what is carried has another result", rerun._carried, "job.id, job.conclusion, job.marked",
       "job.id, Conclusion.SUCCESS, job.marked", "I-30"),
    _m("of a full matrix one says so", settle._wait_for_room, " AND job = :job AND state = 'blocked'",
       " AND job = :job AND state = 'blocked' AND id = (SELECT min(id) FROM jobs WHERE run_id = :run)", "I-24"),
    _m("who has the group is not said", rows._group, "row[\"group_holder\"] is None", "True", "I-24"),
    # starts
    _m("a start rings no bell", tips.StartingParts.tell, 'self.bells.ring("jobs", "queue",',
       'self.bells.ring("queue",', "I-13"),
    _m("a minute is never due", by_clock.Schedules.once, "hosted.due_schedules, now", "hosted.due_schedules, 0",
       "a schedule"),
    _m("a start by the clock starts nothing", by_clock.start_by_clock, "start is None", "True", "a start"),
    # pushes
    _m("a push starts its runs twice", enqueue._known, 'if row is None:', "if True:", "I-27"),
    _m("a settled push is settled again", repos.confirm, " AND state = 'intended'", "", "I-27"),
    _m("two intents at a time", repos.intend, "AND state = 'intended'", "AND state = 'nothing'", "I-29"),
    _m("a ref that did not move has runs", planning.Meant.started, "if pinned.plan.ref in moved", "", "I-27"),
    _m("any ref has moved", story._moved, "and targets[update.ref] == update.new", "", "I-27"),
    _m("commits are let go", story._moved, "git.keep(repository, meant.needed(refs))", "pass", "I-28"),
    _m("numbers begin again", enqueue._next_number, "next = next + 1", "next = next + 2", "I-22"),
    # bells and memory
    _m("a push rings no bell", story.Pushes._settle, 'self._parts.bells.ring("jobs", "queue",',
       'self._parts.bells.ring("queue",', "I-13"),
    _m("an end rings no bell", desk.Desk.tell, "if touched.leasable:", "if False:", "I-13"),
    _m("a broken link takes back the word", runner_session._Control.end,
       "task not in self._words and not task.cancelling()", "not task.cancelling()", "I-13"),
    _m("a new cap rings no bell", desk.Desk.reconfigure, 'self.parts.bells.ring("jobs", "queue")', "pass", "I-13"),
    _m("a new grant rings no bell", sessions.Sessions.recheck, 'parts.bells.ring("jobs", "runners", "queue")', "pass",
       "I-13"),
    _m("a bell is heard by nobody", bell.Bells.ring, "event.set()", "pass", "I-13"),
    _m("the end of a rest is not waited for", index.QueueIndex.rest, "self._rests.append(until)", "pass", "I-12"),
    _m("a want rings no bell", dispatch.Dispatch.next_job, 'self.desk.parts.bells.ring("want")', "pass", "I-13"),
    _m("a gone request is served", dispatch.Dispatch._answer, "await self._return(answer, parked.session)", "pass",
       "I-12"),
    _m("a superseded link lives on", roster._close, "session.alive = False", "pass", "I-05"),
    _m("a finish says nothing", attempts.Attempts._result, "self.desk.tell(accepted.touched)", "pass", "I-13"),
    # logs
    _m("a log begins anywhere", logs.LogStore.append_at, "offset != length", "False", "I-33"),
    _m("any log is complete", finish._end_all, "moves.end_attempts(tx, jobs, [_ending(one) for one in taken])",
       "moves.end_attempts(tx, jobs, [_ending(one) | {'log_state': 'complete'} for one in taken])", "I-34"),
)  # fmt: skip


# Which the simulation does not see, for it is too rare or another guard stands behind it, and the test that does.
ELSEWHERE = {
    "a job is lost for ever again": "jobs/test_lease.py::test_a_lost_job_is_run_again_until_it_was_lost_three_times",
    "a new cap rings no bell": "flows/test_leasing.py::test_whatever_can_make_work_leasable_rings",
    "a newer one cancels its own run": "jobs/test_groups.py::test_combinations_of_one_group_go_one_after_the_other_and_cancel_none_of_their_own",  # noqa: E501
    "what is carried has another result": "jobs/test_rerun.py::test_what_was_skipped_and_is_not_run_again_is_still_skipped",  # noqa: E501
    "a lease stays in the index": "jobs/test_index.py::test_a_repository_whose_leases_ended_comes_first_again",
    "a want asked twice gets two jobs": "jobs/test_granting.py::test_the_same_token_asked_again_gets_the_same_lease",
    "a move asks for no state": "jobs/test_moves.py::test_a_move_from_where_the_row_no_longer_is_changes_nothing",
    "losses are not counted": "jobs/test_leases.py::test_a_job_that_lost_its_runner_three_times_is_lost_with_that_reason",  # noqa: E501
    "another result is taken too": "jobs/test_leases.py::test_another_result_for_the_same_attempt_is_refused",
    "a settled push is settled again": "repos/test_repos_ledger.py::test_confirming_twice_is_confirming_once",
    "a push starts its runs twice": "jobs/test_runs.py::test_a_source_makes_its_run_once",
    "two intents at a time": "repos/test_repos_ledger.py",
    "a broken link takes back the word": "ssh/test_runner_door.py::test_a_last_word_is_carried_through_when_its_connection_is_lost",  # noqa: E501
    "a gone request is served": "flows/test_leasing.py::test_a_want_that_is_withdrawn_too_late_gives_its_lease_back",
    "a superseded link lives on": "flows/test_leasing.py::test_a_process_that_reconnects_comes_back_to_its_leases_and_its_old_connection_is_superseded",  # noqa: E501
    "a log begins anywhere": "evidence/test_logs.py::test_an_append_elsewhere_is_answered_with_the_right_offset_and_writes_nothing",  # noqa: E501
    "any log is complete": "jobs/test_leases.py::test_a_log_is_complete_or_marked_with_the_reason",
    "the end of a rest is not waited for": "flows/test_leasing.py::test_a_job_that_was_given_back_goes_when_its_rest_is_over_though_nothing_rings",  # noqa: E501
}
PROVEN = tuple(mutant for mutant in MUTANTS if mutant.name not in ELSEWHERE)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """While it lasts, the fault is in the code. Raises LookupError when its text is not there any more."""
    function: Any = inspect.unwrap(mutant.place)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant.name}: its text stands {source.count(mutant.old)} times in {function.__qualname__}")
    names = dict(function.__globals__)
    flags = __future__.annotations.compiler_flag
    exec(compile(source.replace(mutant.old, mutant.new), f"<{mutant.name}>", "exec", flags, True), names)
    changed = inspect.unwrap(names[function.__name__])
    kept = function.__code__
    function.__code__ = changed.__code__
    clear: Callable[[], None] = getattr(mutant.place, "cache_clear", lambda: None)
    clear()
    try:
        yield
    finally:
        function.__code__ = kept
        clear()


def hunted(mutant: Mutant, *, most: int = HISTORIES_MAX) -> tuple[int, str]:
    """After how many histories the fault was caught, and by what; 0 when it was not."""
    with planted(mutant):
        return hunted_once(mutant, most=most)


def hunted_once(mutant: Mutant, *, most: int = HISTORIES_MAX) -> tuple[int, str]:
    """As `hunted`, with the fault planted already."""
    for seed in range(most):
        try:
            broken = play(seed).broken
        except Exception as error:  # a fault may bring down more than a promise
            broken = [f"the simulation itself: {error!r}"]
        if broken:
            return seed + 1, broken[0].partition("\n")[0]
    return 0, ""


def hunt(name: str) -> tuple[str, int, str]:
    """`hunted` by name, for another process; by its test, where the simulation does not see it."""
    (mutant,) = (one for one in MUTANTS if one.name == name)
    if (test := ELSEWHERE.get(name)) is None:
        return name, *hunted(mutant)
    with planted(mutant), contextlib.redirect_stdout(io.StringIO()):
        ended = pytest.main(["-q", "-x", "-p", "no:cacheprovider", f"tests/unit/{test}"])
    return name, int(ended == pytest.ExitCode.TESTS_FAILED), test


def main(names: list[str]) -> int:
    chosen = [mutant.name for mutant in MUTANTS if not names or mutant.name in names]
    missed = 0
    with ProcessPoolExecutor(2) as pool:
        for name, after, by in pool.map(hunt, chosen):
            print(f"{'caught after ' + str(after) if after else 'NOT CAUGHT':18} {name}: {by[:150]}", flush=True)
            missed += not after
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
