"""Who asks and what they asked about, in one read. What they may not see is what is not there."""

from __future__ import annotations

from vole.base.errors import Denied, Invalid, NotFound
from vole.base.ids import RepoName
from vole.people import reads as people
from vole.people.access import may
from vole.people.model import Level, Person
from vole.repos import reads as repos
from vole.repos.model import Repo
from vole.store.database import View


async def admit(view: View, session: str | None, name: str | None, level: Level) -> tuple[Person | None, Repo | None]:
    """The person of `session`, and the repository called `name` if they have `level` on it.

    Raises NotFound alike for a repository that is missing and for one that is not theirs: the same statements run.
    Denied for one that they may read, where that is not enough.
    """
    person = None if session is None else await people.person_of_session(view, session)
    if name is None:
        return person, None
    try:
        repo = await repos.repo_named(view, RepoName.parse(name))
    except Invalid:
        repo = None
    if repo is None or not may(person, "read", repo):
        raise NotFound("there is no such repository")
    if not may(person, level, repo):
        who = "who is not logged in" if person is None else person.name
        remedy = "log in" if person is None else "an admin gives rights: grant USER REPO write"
        raise Denied(f"{who} may not do that in {repo.name}: it takes `{level}`", next_step=remedy)
    return person, repo
