"""Who asks and what they asked about, in one read. What they may not see is what is not there."""

from __future__ import annotations

from vole.base.errors import Denied, Invalid, NotFound
from vole.base.ids import RepoName
from vole.people import reads as people
from vole.people.access import lacking, may
from vole.people.model import Level, Person, Verb
from vole.people.scopes import MEANS, Scope, bounded
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.store.database import View

_SERVES: dict[Verb, tuple[Verb, ...]] = {"read": ("read", "start"), "start": ("start",), "status": ("status",)}


async def admit(view: View, session: str | None, name: str | None, level: Level) -> tuple[Person | None, Repo | None]:
    """The person of `session`, and the repository called `name` if they have `level` on it.

    Raises NotFound alike for a repository that is missing and for one that is not theirs: the same statements run.
    Denied for one that they may read, where that is not enough.
    """
    person = None if session is None else await people.person_of_session(view, session)
    return person, await _repo(view, person, name, level)


async def admit_bearer(
    view: View, token: str, name: str | None, wanted: tuple[Verb, Level]
) -> tuple[Person, Repo | None]:
    """The person of a token, as its scope bounds them now, and the repository called `name` if they have the level.

    Raises Denied for a token that is unknown, or whose scope is not for `verb`, whatever repository is asked about.
    """
    verb, level = wanted
    found = await people.person_of_token(view, token)
    if found is None:
        raise Denied(
            "this token is not valid, or not any more", code="unknown_token", next_step="ssh git@host token create NAME"
        )
    person, text = found
    if text is not None:
        scope = Scope.parse(text)
        if scope.verb not in _SERVES[verb]:
            raise Denied(
                f"the scope of this token is {text}: it {MEANS[scope.verb]}",
                code="scope",
                next_step=f"make one for this: ssh git@host token create NAME --scope {verb}:REPO",
            )
        within = None if scope.repo is None else await repos.repo_named(view, scope.repo)
        person = bounded(person, scope, None if within is None else within.id)
    return person, await _repo(view, person, name, level)


async def _repo(view: View, person: Person | None, name: str | None, level: Level) -> Repo | None:
    if name is None:
        return None
    try:
        repo = await repos.repo_named(view, RepoName.parse(name))
    except Invalid:
        repo = None
    if repo is None or not may(person, "read", repo):
        raise NotFound("there is no such repository")
    if not may(person, level, repo):
        raise lacking(person, level, repo)
    return repo
