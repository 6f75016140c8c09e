"""Answers about repositories and labels."""

from __future__ import annotations

from vole.base.errors import Denied, Invalid
from vole.base.ids import RefName, RepoName
from vole.base.labels import Label
from vole.runners import reads as runners
from vole.ssh.answers.counter import Cell, Counter, described, when


async def repo_create(at: Counter) -> None:
    repo = await at.desk.administration.create_repo(
        RepoName.parse(at.call["NAME"]),
        public=at.call.has("--public"),
        description=at.call.get("--description") or "",
    )
    kind = "public" if repo.public else "private"
    await at.say(f"{repo.name} is a {kind} repository now; push to {at.desk.ssh_url}/{repo.name}.git")


async def repo_list(at: Counter) -> None:
    rows = [
        (repo.name, repo.public, repo.description, when(repo.created_at)) for repo in (await at.readable()).values()
    ]
    await at.table(("name", "public", "description", "since"), rows, empty="no repositories that you may read")


async def repo_settings(at: Counter) -> None:
    if at.call.has("--public") and at.call.has("--private"):
        raise Invalid("a repository is public or private, not both")
    name, branch = RepoName.parse(at.call["NAME"]), at.call.get("--default-branch")
    public = True if at.call.has("--public") else False if at.call.has("--private") else None
    repo = await at.desk.administration.change_repo(name, public=public, description=at.call.get("--description"))
    if branch is not None:
        await at.desk.administration.set_default_branch(name, RefName.parse(f"refs/heads/{branch}".encode()))
    facts: dict[str, Cell] = {
        "name": repo.name,
        "public": repo.public,
        "description": repo.description,
        "default branch": (await at.desk.administration.default_branch(name)).short,
        "clone": f"{at.desk.ssh_url}/{repo.name}.git",
        "page": f"{at.desk.url}/{repo.name}",
    }
    await (at.json(facts) if at.call.json else at.say(*described(facts)))


async def repo_remove(at: Counter) -> None:
    repo = await at.repo(at.call["NAME"])
    if not at.call.has("--yes"):
        raise Invalid(
            f"{repo.name} would be forgotten with every commit, run, log and artifact of it",
            next_step=f"say it: repo remove {repo.name} --yes",
        )
    await at.desk.administration.remove_repo(repo.name)
    await at.say(f"{repo.name} is removed")


async def label_declare(at: Counter) -> None:
    # Whoever may push is told to declare a label, so whoever may push somewhere may do it.
    if not (at.person.admin or any("write" in levels for levels in at.person.levels.values())):
        raise Denied(
            "a label is declared by who may push somewhere", next_step="an admin gives rights: grant USER REPO write"
        )
    labels = [Label.parse(text) for text in (at.call["LABEL"], *at.call.rest)]
    for label in labels:
        await at.desk.administration.declare_label(label, at.person.name)
    await at.say(f"known from now on: {', '.join(labels)}")


async def label_list(at: Counter) -> None:
    found = await at.desk.db.read(runners.labels)
    rows = [(known.label, known.declared_by, known.carried) for known in found]
    await at.table(("label", "declared by", "carried"), rows, empty="no labels yet: a runner brings its own")
