"""Where the next job is: per label set and repository a heap by (enqueued, id), per set the least busy repository.

Memory of the writer: rebuilt from rows at start, read inside a change, altered after its commit. It only says where to
look; the row decides. It also knows the live leases, so that a log append asks no database.
"""

from __future__ import annotations

import gc
import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vole.base.clock import Moment
from vole.base.ids import Epoch, JobId, RepoId
from vole.jobs.match import Ask, serves_labels
from vole.jobs.model import Held

SetId = int
_Place = tuple[int, int]  # (enqueued_at, job id): the order within a line
_Key = tuple[int, int, int, int]  # (leases of the repository, enqueued_at, job id, repository)

FEW = 8  # repositories that are looked at one by one instead of through a set's order
SLACK = 64  # dead entries a heap may carry beyond half of it


@dataclass(eq=False)
class _Line:
    """The queued jobs of one label set in one repository. Entries of `heap` whose job left are dropped when met."""

    labels: SetId
    repo: RepoId
    heap: list[_Place] = field(default_factory=list)
    count: int = 0


@dataclass(eq=False)
class _Front:
    """The repositories with work in one label set.

    Each has one current entry in `heap` that is never above its true key, so the first entry that proves true is the
    least. Keys only fall when a lease ends; the index then puts in a lower entry for those it had raised.
    """

    lines: dict[RepoId, _Line] = field(default_factory=dict)
    heap: list[_Key] = field(default_factory=list)
    current: dict[RepoId, _Key] = field(default_factory=dict)

    def put(self, key: _Key) -> None:
        self.current[RepoId(key[3])] = key
        heapq.heappush(self.heap, key)
        if len(self.heap) > 2 * len(self.current) + SLACK:
            self.heap = list(self.current.values())
            heapq.heapify(self.heap)

    def least(self) -> _Key | None:
        """The least current entry, not removed. Dead ones before it are."""
        while self.heap:
            key = self.heap[0]
            if self.current.get(RepoId(key[3])) == key:
                return key
            heapq.heappop(self.heap)
        return None


@dataclass(frozen=True)
class Candidate:
    """Where the row is that may be leased."""

    job: JobId
    labels: SetId
    repo: RepoId


class QueueIndex:
    """Queued jobs and live leases of the whole server."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.held: dict[tuple[JobId, Epoch], Held] = {}
        self._labels: dict[SetId, frozenset[str]] = {}
        self._fronts: dict[SetId, _Front] = {}
        self._with_work: set[SetId] = set()
        self._lines: dict[JobId, _Line] = {}
        self._running: defaultdict[RepoId, int] = defaultdict(int)
        self._raised: defaultdict[RepoId, set[SetId]] = defaultdict(set)
        self._views: dict[tuple[frozenset[str], bool], set[SetId]] = {}
        self._rests: deque[Moment] = deque()  # when they end, in order

    @property
    def queued(self) -> int:
        """How many jobs wait for a runner."""
        return len(self._lines)

    def labels_of(self, labels: SetId) -> frozenset[str]:
        return self._labels[labels]

    def add(self, place: _Place, labels: SetId, names: frozenset[str], repo: RepoId) -> None:
        """A job is queued: `place` is (enqueued_at, job id)."""
        job = JobId(place[1])
        if job in self._lines:
            return
        line = self._line(labels, names, repo)
        heapq.heappush(line.heap, place)
        line.count += 1
        self._lines[job] = line
        front = self._fronts[labels]
        if repo not in front.current or line.heap[0] == place:
            front.put((0, *line.heap[0], repo))

    def remove(self, job: JobId) -> None:
        """A job is queued no more: leased, cancelled, expired."""
        line = self._lines.pop(job, None)
        if line is None:
            return
        line.count -= 1
        if line.count == 0:
            self._drop(line)
        elif len(line.heap) > 2 * line.count + SLACK:
            line.heap = [place for place in line.heap if self._lines.get(JobId(place[1])) is line]
            heapq.heapify(line.heap)

    def take(self, job: JobId, epoch: Epoch, held: Held) -> None:
        """A queued job has a lease now."""
        self.remove(job)
        self.held[job, epoch] = held
        self._running[held.repo] += 1

    def release(self, job: JobId, epoch: Epoch) -> None:
        """A lease ended."""
        held = self.held.pop((job, epoch), None)
        if held is None:
            return
        self._running[held.repo] -= 1
        for labels in self._raised.pop(held.repo, ()):
            front = self._fronts.get(labels)
            if front is not None and held.repo in front.current:
                front.put((0, *front.current[held.repo][1:]))
        if self._running[held.repo] == 0:
            del self._running[held.repo]

    def rest(self, until: Moment) -> None:
        """A job is back that its runner may have again at that moment."""
        self._rests.append(until)

    def rest_over(self, now: Moment) -> Moment | None:
        """When the next rest ends; None when none goes on at `now`."""
        while self._rests and self._rests[0] <= now:
            self._rests.popleft()
        return self._rests[0] if self._rests else None

    def load(
        self,
        sets: dict[SetId, frozenset[str]],
        queued: Iterable[tuple[int, int, int, int]],
        held: Iterable[tuple[JobId, Epoch, Held]],
        rests: Iterable[Moment] = (),
    ) -> None:
        """Begin anew. `queued` are (enqueued_at, job id, label set, repository), `rests` their ends; both in order."""
        self._clear()
        self._rests.extend(rests)
        lines: dict[tuple[int, int], _Line] = {}
        collecting = gc.isenabled()
        gc.disable()  # a million small tuples would be walked a dozen times
        try:
            for enqueued, job, labels, repo in queued:
                line = lines.get((labels, repo))
                if line is None:
                    line = lines[labels, repo] = self._line(labels, sets[labels], RepoId(repo))
                line.heap.append((enqueued, job))
                self._lines[JobId(job)] = line
        finally:
            if collecting:
                gc.enable()
        for line in lines.values():
            line.count = len(line.heap)
            self._fronts[line.labels].put((0, *line.heap[0], line.repo))
        for job_id, epoch, lease in held:
            self.held[job_id, epoch] = lease
            self._running[lease.repo] += 1

    @contextmanager
    def drafting(self) -> Iterator[Draft]:
        """Look for work inside a change: what the draft takes is taken for its next look only."""
        draft = Draft(self)
        try:
            yield draft
        finally:
            draft.close()

    def _line(self, labels: SetId, names: frozenset[str], repo: RepoId) -> _Line:
        if labels not in self._labels:
            self._labels[labels] = names
            for (carried, only), sets in self._views.items():
                if serves_labels(names, carried, only=only):
                    sets.add(labels)
        front = self._fronts.setdefault(labels, _Front())
        self._with_work.add(labels)
        return front.lines.setdefault(repo, _Line(labels, repo))

    def _drop(self, line: _Line) -> None:
        front = self._fronts[line.labels]
        del front.lines[line.repo]
        front.current.pop(line.repo, None)
        if not front.lines:
            del self._fronts[line.labels]
            self._with_work.discard(line.labels)

    def _view(self, ask: Ask) -> set[SetId]:
        """Every label set that the ask serves; kept, since runners ask again and again."""
        key = (ask.labels, ask.only)
        view = self._views.get(key)
        if view is None:
            if len(self._views) > SLACK:
                self._views.clear()
            view = {labels for labels, names in self._labels.items() if serves_labels(names, ask.labels, only=ask.only)}
            self._views[key] = view
        return view


@dataclass
class Avoid:
    """What the rows already refused to one ask."""

    repos: set[RepoId] = field(default_factory=set)
    jobs: set[JobId] = field(default_factory=set)


class Draft:
    """Looks of one change. Nothing of it outlives the change: `close` puts back whatever it lifted."""

    def __init__(self, index: QueueIndex) -> None:
        self._index = index
        self._taken: set[JobId] = set()
        self._more: defaultdict[RepoId, int] = defaultdict(int)
        self._local: defaultdict[SetId, list[_Key]] = defaultdict(list)
        self._popped: defaultdict[SetId, list[RepoId]] = defaultdict(list)
        self._lifted: list[tuple[_Line, _Place]] = []

    def pick(self, ask: Ask, avoid: Avoid, cap: int | None) -> Candidate | None:
        """Of all that the ask serves: the least busy repository's oldest job. At the cap is a skip."""
        lifted: list[tuple[_Line, _Place]] = []
        best: tuple[_Key, SetId] | None = None
        for labels in self._index._view(ask) & self._index._with_work:
            key = self._least(labels, ask, avoid, lifted)
            if key is not None and (cap is None or key[0] < cap) and (best is None or key < best[0]):
                best = (key, labels)
        for line, place in lifted:
            heapq.heappush(line.heap, place)
        return None if best is None else Candidate(JobId(best[0][2]), best[1], RepoId(best[0][3]))

    def take(self, candidate: Candidate) -> None:
        """The row was leased: later looks of this change count it."""
        self._taken.add(candidate.job)
        self._more[candidate.repo] += 1

    def pass_over(self, candidate: Candidate) -> None:
        """The row is queued no more, whatever the index says: a change of the same commit was first."""
        self._taken.add(candidate.job)

    def close(self) -> None:
        """Put back what was lifted; what was committed leaves through `QueueIndex.take`."""
        index = self._index
        for line, place in self._lifted:
            heapq.heappush(line.heap, place)
        for labels, repos in self._popped.items():
            front = index._fronts[labels]
            for repo in repos:
                line = front.lines[repo]
                busy = index._running.get(repo, 0)
                front.put((busy, *line.heap[0], repo))
                if busy:
                    index._raised[repo].add(labels)

    def _least(self, labels: SetId, ask: Ask, avoid: Avoid, lifted: list[tuple[_Line, _Place]]) -> _Key | None:
        lines = self._index._fronts[labels].lines
        if len(ask.serves) <= FEW or len(lines) <= FEW:
            wanted = ask.serves if len(ask.serves) < len(lines) else lines
            keys = (
                self._key(lines[repo], avoid, lifted)
                for repo in wanted
                if repo in lines and repo in ask.serves and repo not in avoid.repos
            )
            return min((key for key in keys if key is not None), default=None)
        return self._least_in_order(labels, ask, avoid, lifted)

    def _least_in_order(self, labels: SetId, ask: Ask, avoid: Avoid, lifted: list[tuple[_Line, _Place]]) -> _Key | None:
        local = self._local[labels]
        passed: list[_Key] = []
        best: _Key | None = None
        while (key := self._first(labels)) is not None and (best is None or key < best):
            passed.append(heapq.heappop(local))
            repo = RepoId(key[3])
            if repo in ask.serves and repo not in avoid.repos:
                mine = self._key(self._index._fronts[labels].lines[repo], avoid, lifted)
                if mine is not None and (best is None or mine < best):
                    best = mine
        for key in passed:
            heapq.heappush(local, key)
        return best

    def _first(self, labels: SetId) -> _Key | None:
        """The least entry of the set with what this draft took counted in. It stays in the local heap."""
        front, local = self._index._fronts[labels], self._local[labels]
        nobody = Avoid()
        while True:
            shared = front.least()
            if shared is not None and (not local or shared < local[0]):
                heapq.heappop(front.heap)
                repo = RepoId(shared[3])
                self._popped[labels].append(repo)
                known = self._key(front.lines[repo], nobody, self._lifted)
                if known is not None:
                    heapq.heappush(local, known)
            elif not local:
                return None
            else:
                known = self._key(front.lines[RepoId(local[0][3])], nobody, self._lifted)
                if known == local[0]:
                    return known
                if known is None:
                    heapq.heappop(local)
                else:
                    heapq.heapreplace(local, known)

    def _key(self, line: _Line, avoid: Avoid, lifted: list[tuple[_Line, _Place]]) -> _Key | None:
        """The line's key as this draft sees it; None when nothing of it is left."""
        known = self._index._lines
        while line.heap:
            place = line.heap[0]
            job = JobId(place[1])
            if job in self._taken:
                self._lifted.append((line, heapq.heappop(line.heap)))
            elif known.get(job) is not line:
                heapq.heappop(line.heap)
            elif job in avoid.jobs:
                lifted.append((line, heapq.heappop(line.heap)))
            else:
                return (self._index._running.get(line.repo, 0) + self._more[line.repo], *place, line.repo)
        return None
