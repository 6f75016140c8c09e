"""What a bearer token may be used for: the closed set of scopes. Pure; a scope only ever takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.base.ids import RepoId, RepoName
from vole.people.model import Bounds, Person, Verb

# What each verb means, in the words of refusals and of docs/security.md.
MEANS: Mapping[Verb, str] = {
    "read": "reads what the account may read",
    "start": "starts, reruns and cancels runs, and reads them",
    "status": "sets statuses of commits, and nothing else",
}
FORMS = ("read", "read:REPO", "start:REPO", "status:REPO")


@dataclass(frozen=True)
class Scope:
    """A verb, and the one repository that it is about; None: every one (of `read` alone)."""

    verb: Verb
    repo: RepoName | None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Raises Invalid, naming the forms there are."""
        verb, colon, name = text.partition(":")
        for known in MEANS:
            if verb == known and (colon or known == "read"):
                return cls(known, RepoName.parse(name) if colon else None)
        raise Invalid(f"'{visible(text, 80)}' is no scope; there are: {', '.join(FORMS)}")


def bounded(person: Person, scope: Scope, repo: RepoId | None) -> Person:
    """`person` with no more than `scope` lets through; `repo` is the scope's repository, None where that is gone.

    An admin's token for one repository is no admin's.
    """
    if scope.repo is None:
        return replace(person, bounds=Bounds(scope.verb, None))
    return replace(person, bounds=Bounds(scope.verb, frozenset() if repo is None else frozenset({repo})))
