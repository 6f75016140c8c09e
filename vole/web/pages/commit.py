"""A commit: its message whole, its parents, its runs, and what it changed. Kept for whoever is not logged in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from starlette.responses import Response

from vole.base.clock import Moment
from vole.base.errors import Invalid, NotFound
from vole.base.ids import CommitId, RepoId, RepoName
from vole.evidence.model import Status
from vole.evidence.reads.gates import statuses_of
from vole.git import diffs
from vole.git.diffs import Diff, FileDiff, Hunk
from vole.git.objects import Commit, Going
from vole.jobs import reads as jobs
from vole.jobs.rows.shown import RunRow
from vole.store.database import View
from vole.web.pages import links
from vole.web.pages.repo import RepoHead, as_text, folder, head
from vole.web.pages.shown import RunLine, StatusLine, run_line, status_lines
from vole.web.pages.visit import Visit
from vole.web.render import ago, shown

_WHY_NOT = {
    "": "nothing of its lines changed",
    "binary": "not text",
    "large": "too large to show here",
    "enough": "its lines are not shown: the page has enough",
    "submodule": "a submodule",
}
_SIGNS = {"+": "add", "-": "del", " ": ""}


@dataclass(frozen=True)
class FileLine:
    """A changed file. `body` are the rows of its table; where there are none, `note` says why."""

    number: int
    change: str
    name: str
    former: str | None  # of a renamed one
    href: str | None
    added: int | None
    removed: int | None
    body: Markup
    note: str


@dataclass(frozen=True)
class CommitPage:
    template: ClassVar[str] = "repos/commit.html"
    repo: RepoHead
    commit: Commit
    parents: tuple[tuple[str, str], ...]  # short id, address
    tree_href: str
    runs: tuple[RunLine, ...]
    statuses: tuple[StatusLine, ...]
    files: tuple[FileLine, ...]
    added: int
    removed: int
    more: bool

    @property
    def title(self) -> str:
        return f"{self.commit.subject[:80] or self.commit.id[:10]} · {self.repo.name}"

    @property
    def heading(self) -> str:
        return self.commit.subject or "(no message)"

    @property
    def committer(self) -> str | None:
        """Who committed it, where that is not its author."""
        same = self.commit.committer.name == self.commit.author.name
        return None if same else self.commit.committer.name


async def commit(visit: Visit) -> Response:
    """Raises NotFound for what is no commit id of this repository."""
    kept, path = visit.house.kept, visit.request.scope["path"]
    commits = kept.commits
    try:
        commit_id = CommitId.parse(visit.request.path_params["commit"])
    except Invalid:
        raise NotFound("there is no such commit") from None
    said = visit.house.parts.db.glance(said_of, visit.repo.id, commit_id)
    if visit.person is not None:
        return _html((await _page(visit, commit_id, said))[0])
    same = kept.same(path, lambda at: _facts(visit, said, at), commits)
    if same is not None:
        return _html(same)
    body, when = await _page(visit, commit_id, said)
    kept.keep(path, _facts(visit, said, when), when, commits, body)
    return _html(body)


@dataclass(frozen=True)
class Said:
    """What is said of a commit: by its runs and by outside systems."""

    runs: list[RunRow]
    statuses: list[Status]


async def said_of(view: View, repo: RepoId, commit_id: CommitId) -> Said:
    """At most LIST_MAX runs, newest first, and the statuses by context."""
    return Said(await jobs.runs_of_commit(view, repo, commit_id), await statuses_of(view, repo, commit_id))


def _facts(visit: Visit, said: Said, at: Moment) -> object:
    """All that the page says beside what the commit's id already fixes."""
    states = tuple((run.id, run.state, run.conclusion, run.marked) for run in said.runs)
    return visit.repo, states, said.statuses, ago(visit.house.parts.clock.now(), at)


def _html(body: bytes) -> Response:
    return Response(body, media_type="text/html; charset=utf-8")


async def _page(visit: Visit, commit_id: CommitId, said: Said) -> tuple[bytes, Moment]:
    """The page as bytes, and when the commit was made: ages on it hang on that. A small one is made on the loop."""
    where = folder(visit)
    try:
        small = diffs.of_small_commit(visit.house.held, where, commit_id)
    except diffs.CostlyError:
        return await visit.work(lambda going: _made(visit, said, diffs.of_commit(where, commit_id, going), going))
    return _made(visit, said, small, lambda: None)


def _made(visit: Visit, said: Said, compared: tuple[Commit, Diff], going: Going) -> tuple[bytes, Moment]:
    (found, diff), name = compared, visit.repo.name
    page = CommitPage(
        repo=head(visit, "commits"),
        commit=found,
        parents=tuple((parent[:10], links.commit(name, parent)) for parent in found.parents),
        tree_href=links.tree(name, found.id),
        runs=tuple(run_line(name, run) for run in said.runs),
        statuses=status_lines(said.statuses),
        files=_files(name, found.id, diff, going),
        added=diff.added,
        removed=diff.removed,
        more=diff.more,
    )
    return visit.house.renderer.render(page, visit.frame), found.author.at


def _files(repo: RepoName, commit_id: CommitId, diff: Diff, going: Going) -> tuple[FileLine, ...]:
    lines = []
    for number, file in enumerate(diff.files, 1):
        going()
        lines.append(_file(repo, commit_id, number, file))
    return tuple(lines)


def _file(repo: RepoName, commit_id: CommitId, number: int, file: FileDiff) -> FileLine:
    gone = file.change == "removed"
    linked = not gone and file.why_not != "submodule"
    return FileLine(
        number=number,
        change=file.change,
        name=as_text(file.new_path),
        former=as_text(file.old_path) if file.old_path != file.new_path else None,
        href=links.file(repo, commit_id, file.new_path) if linked else None,
        added=file.added,
        removed=file.removed,
        body=Markup("".join(_rows(number, hunk) for hunk in file.hunks)),  # noqa: S704  each text in it went through `shown`
        note="" if file.hunks else _WHY_NOT[file.why_not],
    )


def _rows(number: int, hunk: Hunk) -> str:
    """The rows of a hunk: old number, new number, sign and text. Written here, since a diff has thousands of them."""
    rows = [f'<tr class="hunk"><td colspan="3">{shown(hunk.section)}</td></tr>']
    texts = str(shown("\n".join(line.text for line in hunk.lines))).split("\n")  # no line has an end in it
    for line, text in zip(hunk.lines, texts, strict=True):
        look = _SIGNS[line.sign]
        side, at = ("R", line.new) if line.new is not None else ("L", line.old)
        ends = "" if line.ends else ' <span class="dim">(no line end)</span>'
        rows.append(
            f'<tr id="f{number}{side}{at}" class="{look}"><td>{line.old or ""}</td><td>{line.new or ""}</td>'
            f"<td><span>{line.sign}</span>{text}{ends}</td></tr>"
        )
    return "".join(rows)
