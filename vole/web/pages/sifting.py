"""Which jobs of the queue are wanted, as an address says it: the page's form and the API's parameters are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from vole.base.errors import Invalid, NotFound
from vole.base.escape import visible
from vole.base.ids import RepoId, RepoName
from vole.base.labels import Label
from vole.jobs.model import State
from vole.jobs.reads.listing import Taker, Wanted
from vole.runners.roster import Session

PARAMETERS = ("repository", "state", "labels", "runner")
STATES = tuple(state for state in State if state is not State.FINISHED)


@dataclass(frozen=True)
class Sift:
    """What was asked for, as it was typed; empty where nothing was."""

    repository: str = ""
    state: str = ""
    labels: str = ""
    runner: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Sift:
        return cls(*(query.get(name, "").strip() for name in PARAMETERS))

    @property
    def query(self) -> str:
        """As the query of an address; empty where nothing is asked for."""
        return urlencode({name: value for name in PARAMETERS if (value := getattr(self, name))})

    def wanted(self, names: Mapping[RepoId, RepoName], runners: Iterable[Session]) -> Wanted:
        """The jobs of the repositories `names` that fit. Raises Invalid, or NotFound for who or what is not there.

        A repository that is not theirs is not among `names`, so it is refused as a missing one is.
        """
        repos = frozenset(repo for repo, name in names.items() if self.repository in ("", name))
        if self.repository and not repos:
            raise NotFound(f"there is no repository '{visible(self.repository, 80)}' that you may read")
        taker = None
        if self.runner:
            # Of twins the one that is connected longest.
            found = next((one for one in runners if one.hello.name == self.runner), None)
            if found is None:
                raise NotFound(f"no connected runner is called '{visible(self.runner, 80)}'")
            repos &= found.serves
            taker = Taker(found.labels, only=found.hello.only)
        return Wanted(repos, self._state(), self._labels(), taker)

    def _state(self) -> State | None:
        if not self.state:
            return None
        if self.state not in STATES:
            known = ", ".join(STATES)
            raise Invalid(f"'{visible(self.state, 80)}' is no state of an unfinished job; there are: {known}")
        return State(self.state)

    def _labels(self) -> frozenset[str]:
        return frozenset(Label.parse(text) for text in self.labels.replace(",", " ").split())
