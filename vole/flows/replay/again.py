"""The log told again with every grant decided anew: by the function that leases, from the state that it saw then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vole.base.clock import Moment
from vole.base.ids import Epoch, JobId, SessionId
from vole.flows.replay.story import Book, Story
from vole.jobs import ledger
from vole.jobs.model import Happening, Policy, Told
from vole.runners.reads import FleetTold
from vole.store.database import Tx
from vole.wire import runner

TTL_S = 60.0  # decides nothing here: nobody expires but by the log


@dataclass(frozen=True)
class Difference:
    """A grant that is decided otherwise now. `job` None: nothing is given now."""

    at: Moment
    runner: str
    was: JobId
    job: JobId | None


@dataclass
class Replayed:
    """What came of it. `unknown`: grants to runners that came before the log of the fleet began."""

    since: Moment
    until: Moment
    decisions: int = 0
    unknown: int = 0
    different: list[Difference] = field(default_factory=list)


def replay(story: Story) -> Replayed:
    """Every grant from `story.since` on decided again; one that comes out otherwise is noted, and then as it was."""
    book, done = Book(), Replayed(story.since, story.until)
    look: list[Told] = []
    batch: int | None = None
    for told in story:
        if isinstance(told, FleetTold):
            _decide(book, look, done)
            book.tell_fleet(told)
            continue
        if told.batch is None or told.batch != batch:
            _decide(book, look, done)
            book.scratch.settle()  # the commit that they shared is over: the index follows
            batch = told.batch
        if told.kind == Happening.LEASED and told.at >= story.since:
            look.append(told)
            continue
        if told.kind != "set_aside":  # which happens within a look, to a row that it passes over
            _decide(book, look, done)
        if told.kind == Happening.LEASED:
            book.tell_lease(told)
        else:
            book.tell(told)
    _decide(book, look, done)
    book.scratch.close()
    return done


def _decide(book: Book, look: list[Told], done: Replayed) -> None:
    """One look: the grants of one change, in the order in which they were given. Empties `look`."""
    known = all(told.detail["session"] in book.runners and "serves" in told.detail for told in look)
    if look and not known:
        done.unknown += len(look)
        for told in look:
            book.tell_lease(told)
    elif look:
        done.decisions += len(look)
        try:
            book.scratch.change(look[0].at, _again, book, tuple(look))
        except _OtherwiseError as otherwise:
            done.different += otherwise.differences
            for told in look:
                book.tell_lease(told)
    look.clear()


class _OtherwiseError(Exception):
    """A look gave something else; what it changed is undone."""

    def __init__(self, differences: list[Difference]) -> None:
        super().__init__()
        self.differences = differences


def _again(tx: Tx, book: Book, look: Sequence[Told]) -> None:
    asks = [
        book.ask(book.runners[SessionId(told.detail["session"])], f"{told.job}@{told.epoch}", told.detail["serves"])
        for told in look
    ]
    given = ledger.lease_many(tx, book.index, asks, policy(look[0].detail["cap"]))
    differences = []
    for told, answer in zip(look, given.answers, strict=True):
        job, epoch = (answer.lease.job, answer.lease.epoch) if isinstance(answer, runner.Job) else (None, Epoch(0))
        if (job, epoch) != (told.job, told.epoch):
            differences.append(Difference(told.at, str(told.detail["runner"]), told.job, job))
    if differences:
        raise _OtherwiseError(differences)


def policy(cap: int | None) -> Policy:
    """What the machine decided then."""
    return Policy(ttl_s=TTL_S, cap=cap, queue_timeout_s=0, url="", version="")
