"""Rendered pages of commits, kept for whoever is not logged in. Never the judge of who may see one.

A page is served unasked only while nothing at all was committed to the store since its facts were read, and not for
long; after that its facts are read again, which is cheap, and it is made anew only if they differ.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from vole.base import limits
from vole.base.clock import Clock, Moment, after, seconds
from vole.store.database import Database

_UNASKED = seconds(10)  # ages on the page are true to the minute


@dataclass(frozen=True)
class KeptPage:
    """The bytes, and what they were made from beside the commit."""

    body: bytes
    facts: object
    made_at: Moment  # when the commit was: facts hold its age in words
    commits: int  # of the store, before the facts were read
    until: Moment


class Kept:
    """Pages by path, PAGES_KEPT_BYTES_MAX together; the one that was not asked for longest goes first."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._pages: OrderedDict[str, KeptPage] = OrderedDict()
        self._bytes = 0

    def unasked(self, path: str) -> bytes | None:
        """The page, if nothing can have changed."""
        page = self._pages.get(path)
        if page is None or page.commits != self._db.commits or self._clock.now() > page.until:
            return None
        return page.body

    @property
    def commits(self) -> int:
        """Ask before reading facts; hand it to `same` and `keep`."""
        return self._db.commits

    def same(self, path: str, facts: Callable[[Moment], object], commits: int) -> bytes | None:
        """The page, if `facts` of when its commit was made are those that it was made from."""
        page = self._pages.get(path)
        if page is None or page.facts != facts(page.made_at):
            return None
        self._pages[path] = replace(page, commits=commits, until=self._until())
        self._pages.move_to_end(path)
        return page.body

    def keep(self, path: str, facts: object, made_at: Moment, commits: int, body: bytes) -> None:
        """Keep the page for the next who asks."""
        former = self._pages.pop(path, None)
        self._bytes -= len(former.body) if former is not None else 0
        if len(body) > limits.PAGES_KEPT_BYTES_MAX // 8:
            return
        self._pages[path] = KeptPage(body, facts, made_at, commits, self._until())
        self._bytes += len(body)
        while self._bytes > limits.PAGES_KEPT_BYTES_MAX:
            self._bytes -= len(self._pages.popitem(last=False)[1].body)

    def _until(self) -> Moment:
        return after(self._clock.now(), _UNASKED)
