"""What is in a repository, in the API: its front, refs, folders, files, commits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from vole.base import limits
from vole.base.errors import Invalid, NotFound
from vole.base.ids import CommitId
from vole.git import diffs, objects
from vole.git.diffs import FileDiff
from vole.git.objects import Entry, Going, Place
from vole.jobs import reads as jobs
from vole.jobs.rows.shown import RunRow
from vole.store.database import View
from vole.web.api import shapes
from vole.web.api.door import answer
from vole.web.api.paging import asked
from vole.web.api.shapes import Shape
from vole.web.pages import links
from vole.web.pages.commit import said_of
from vole.web.pages.repo import as_text, folder
from vole.web.pages.visit import Visit

_BEFORE_PLACE = 6  # slashes: /api/v1/repositories/NAME/tree/PLACE


async def front(visit: Visit) -> Response:
    """A repository: what it is, how to clone it, its default branch and last run."""
    where = folder(visit)
    branch = await visit.work(lambda _: objects.default_branch(where))
    last = await visit.read(_last, visit)
    return answer({**shapes.repository(visit, visit.repo, last), "default_branch": branch})


async def refs(visit: Visit) -> Response:
    """Branches by name (or tags, the newest name first) with their tips."""
    kind = _kind(visit.request.query_params.get("kind", "branch"))
    page, where = asked(visit, kind, str), folder(visit)
    after = None if page.after is None else str(page.after[0])
    found = await visit.work(lambda _: objects.refs(where, kind, most=page.limit + 1, after=after))
    shown = found.shown[: page.limit]
    more = (shown[-1].name,) if len(found.shown) > len(shown) else None
    items = [{"kind": ref.kind, "name": ref.name, "commit": shapes.commit(visit, ref.commit)} for ref in shown]
    return answer({"items": items, "next": page.next(more), "total": found.total})


async def tree(visit: Visit) -> Response:
    """A folder, folders first; `more` entries are not listed."""
    where, there = folder(visit), await _place(visit)
    found, tip = await visit.work(
        lambda _: (objects.tree(where, there.commit, there.path), objects.commit(where, there.commit))
    )
    return answer(
        {
            **_placed(there),
            "id": found.id,
            "entries": [_entry(visit, there, entry) for entry in found.entries],
            "more": found.total - len(found.entries),
            "tip": shapes.commit(visit, tip),
            "url": shapes.url(visit, links.tree(visit.repo.name, there.name, there.path)),
        }
    )


async def file(visit: Visit) -> Response:
    """A file: its text where it is text and not too large to show; its bytes are at `raw_url`."""
    where, there = folder(visit), await _place(visit)
    most = limits.BLOB_PLAIN_BYTES_MAX
    blob = await visit.work(lambda _: objects.blob(where, there.commit, there.path, most_bytes=most))
    text = None if blob.data is None or blob.binary else blob.data.decode("utf-8", "replace")
    return answer(
        {
            **_placed(there),
            "id": blob.id,
            "kind": blob.kind,
            "size": blob.size,
            "text": text,
            "raw_url": shapes.url(visit, links.raw(visit.repo.name, there.name, there.path)),
            "url": shapes.url(visit, links.file(visit.repo.name, there.name, there.path)),
        }
    )


async def commits(visit: Visit) -> Response:
    """The commits that a place reaches, newest first. A cursor holds the tip: new commits do not shift its pages."""
    where, page = folder(visit), asked(visit, "commits", str, int)
    skip = 0
    if page.after is None:
        tip = (await _place(visit)).commit
    else:
        tip, skip = CommitId.parse(str(page.after[0])), int(page.after[1])
    found, more = await visit.work(lambda going: objects.history(where, tip, skip=skip, going=going))
    shown = found[: page.limit]
    behind = (str(tip), skip + len(shown)) if more or len(found) > len(shown) else None
    return answer({"items": [shapes.commit(visit, one) for one in shown], "next": page.next(behind)})


async def commit(visit: Visit) -> Response:
    """A commit, its runs, and what it changed, line by line as far as a page shows it."""
    try:
        commit_id = CommitId.parse(visit.request.path_params["commit"])
    except Invalid:
        raise NotFound("there is no such commit") from None
    where = folder(visit)
    said = await visit.read(said_of, visit.repo.id, commit_id)
    return answer(await visit.work(lambda going: _commit(visit, where, commit_id, going)) | {
        "runs": [shapes.run(visit, visit.repo, row) for row in said.runs],
        "statuses": [shapes.status(visit, row) for row in said.statuses],
    })  # fmt: skip


def _kind(text: str) -> Literal["branch", "tag"]:
    kinds: tuple[Literal["branch", "tag"], ...] = ("branch", "tag")
    for kind in kinds:
        if text == kind:
            return kind
    raise Invalid("kind: branch or tag")


def _commit(visit: Visit, where: Path, commit_id: CommitId, going: Going) -> Shape:
    found, diff = diffs.of_commit(where, commit_id, going)
    return {
        **shapes.commit(visit, found),
        "added": diff.added,
        "removed": diff.removed,
        "more": diff.more,
        "files": [_file(one) for one in diff.files],
    }


def _file(one: FileDiff) -> Shape:
    return {
        "change": one.change,
        "path": as_text(one.new_path),
        "former": as_text(one.old_path) if one.old_path != one.new_path else None,
        "added": one.added,
        "removed": one.removed,
        "left_out": one.why_not or None,
        "hunks": [
            {
                "old_start": hunk.old_start,
                "new_start": hunk.new_start,
                "section": hunk.section,
                "lines": [line.sign + line.text for line in hunk.lines],
            }
            for hunk in one.hunks
        ],
    }


async def _last(view: View, visit: Visit) -> RunRow | None:
    found = await jobs.runs_of(view, visit.repo.id, None, 1)
    return found[0] if found else None


async def _place(visit: Visit) -> Place:
    """The revision and path that the address names, by its bytes. Raises NotFound."""
    raw: bytes = visit.request.scope["raw_path"]
    address = unquote_to_bytes(raw.split(b"/", _BEFORE_PLACE)[_BEFORE_PLACE]).rstrip(b"/")
    where = folder(visit)
    return await visit.work(lambda _: objects.locate(where, address))


def _placed(there: Place) -> Shape:
    return {"revision": there.name, "commit": there.commit, "path": as_text(there.path)}


def _entry(visit: Visit, there: Place, entry: Entry) -> Shape:
    """`url` is exact whatever bytes the name has; None where it leads out of the repository."""
    path = there.path + b"/" + entry.name if there.path else entry.name
    to = {"tree": links.tree, "submodule": None}.get(entry.kind, links.file)
    href = None if to is None else shapes.url(visit, to(visit.repo.name, there.name, path))
    return {"name": as_text(entry.name), "kind": entry.kind, "id": entry.id, "size": entry.size, "url": href}
