"""The answer to "may they?". Pure: the caller brings the person as they are now."""

from __future__ import annotations

from typing import Protocol

from vole.base.errors import Denied
from vole.base.ids import RepoId, RepoName
from vole.people.model import Level, Person


class Hosted(Protocol):
    """What is asked about: a repository."""

    @property
    def id(self) -> RepoId: ...

    @property
    def name(self) -> RepoName: ...

    @property
    def public(self) -> bool: ...


def may(person: Person | None, level: Level, repo: Hosted) -> bool:
    """Whether `person` (None: anonymous) has `level` on `repo`.

    `write` includes `read`. `run` is apart: a runner key has it by grant and has nothing else, and no other key has it.
    A token's scope takes away from what its account may, a public repository included.
    """
    if person is None:
        return level == "read" and repo.public
    if person.bounds is not None and not person.bounds.leave(level, repo.id):
        return False
    granted = person.levels.get(repo.id, frozenset())
    if level == "run" or person.key_kind == "runner":
        return level == "run" and person.key_kind == "runner" and "run" in granted
    if person.admin or "write" in granted:
        return True
    return level == "read" and (repo.public or "read" in granted)


def lacking(person: Person | None, level: Level, repo: Hosted) -> Denied:
    """The refusal of `person`, who may read `repo` and not more, at every door the same."""
    who = "who is not logged in" if person is None else person.name
    remedy = "log in" if person is None else f"an admin gives rights: grant USER REPO {level}"
    return Denied(f"{who} may not do that in {repo.name}: it takes `{level}`", next_step=remedy)
