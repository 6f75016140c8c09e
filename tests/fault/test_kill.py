"""kill -9 of everything at random moments under load: nothing lost, nothing double, every run ends. `make kill N=…`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.endtoend.actors import program
from tests.fault.books import Books
from tests.fault.kill import Kills

pytestmark = [pytest.mark.needs("git", "ssh")]
PROVEN = ("I-06", "I-07", "I-27", "I-29", "I-33", "I-34", "I-35")


@contextmanager
def seen(books: Books, words: str) -> Iterator[None]:
    """The books do not agree about what the block did."""
    yield
    with pytest.raises(AssertionError, match=words):
        books.compare()


def assert_they_would_see(books: Books) -> None:
    """One lie of each kind, told and taken back."""
    place, commit = next(iter(books.accepted.items()))
    bare = books.forge.dir / "repos" / f"{place[0]}.git"
    with seen(books, "was accepted at .* and stands at None"):
        program("git", "update-ref", "-d", place[1], folder=bare)
    with seen(books, "stands at .*, its runs are of None"):
        program("git", "update-ref", "refs/heads/stray", commit, folder=bare)
    program("git", "update-ref", "-d", "refs/heads/stray", folder=bare)
    program("git", "update-ref", place[1], commit, folder=bare)
    log = next(path for path in books.forge.dir.glob("logs/*/*/*/*") if b"this is" in path.read_bytes())
    said = log.read_bytes()
    with seen(books, "is called complete|has a gap"):
        log.write_bytes(said + b"line 7\n")
    with seen(books, "says 'this is another'"):
        log.write_bytes(b"this is another\n" + said)
    log.write_bytes(said)
    job = next(line for lines in books.runners for line in lines if "started (attempt" in line)
    with seen(books, "was told"):
        ends = [f"{job.partition(' started')[0]} {word}\n" for word in ("success", "failure")]
        books.runners.append([job, *ends])  # one of the two is not so
    books.runners.pop()


@pytest.mark.timeout(240)
@pytest.mark.proves(*PROVEN)
def test_a_few_kills_lose_nothing_and_double_nothing(tmp_path):
    kills = Kills(tmp_path, secrets.randbelow(1 << 32), repos=("app",), most=4)

    counts = kills.run(4)

    assert kills.done == {"server": 2, "runner": 1, "harness": 1}
    assert counts["runs"] > 0
    assert_they_would_see(kills.books)
    kills.books.compare()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3_600)
@pytest.mark.proves(*PROVEN)
def test_a_thousand_kills_lose_nothing_and_double_nothing(tmp_path):
    kills = Kills(tmp_path, secrets.randbelow(1 << 32))

    kills.run(1_000)

    assert kills.done.total() == 1_000
