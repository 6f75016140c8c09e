"""What is in a repository: its front, folders, files, and raw bytes that no browser runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from vole.base import limits
from vole.base.errors import Exhausted, Unavailable
from vole.base.ids import RepoName
from vole.git import objects
from vole.git.objects import Blob, Entry, Place, Tree
from vole.git.service import blob_bytes
from vole.web.pages import links
from vole.web.pages.repo import CommitLine, RepoHead, as_text, commit_line, folder, head, place
from vole.web.pages.visit import Visit
from vole.web.render import shown

_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_RAW_HEADERS = {"content-security-policy": "default-src 'none'; sandbox"}


@dataclass(frozen=True)
class Crumb:
    name: str
    href: str


@dataclass(frozen=True)
class EntryLine:
    name: str
    href: str | None  # None: it leads out of the repository
    kind: str
    size: int | None

    @property
    def note(self) -> str:
        """What a reader would not expect of a plain name."""
        return "" if self.kind in ("tree", "file") else self.kind


@dataclass(frozen=True)
class Clone:
    """How to get the repository. `http` is None for a private one: git over HTTP has no credentials."""

    ssh: str
    http: str | None


@dataclass(frozen=True)
class TreePage:
    """A folder. The root of the default branch is the front of the repository, with how to clone it."""

    template: ClassVar[str] = "repos/tree.html"
    repo: RepoHead
    place: str
    crumbs: tuple[Crumb, ...]
    tip: CommitLine
    commits_href: str
    entries: tuple[EntryLine, ...]
    more: int  # entries that are not shown
    readme_name: str
    readme: Markup
    clone: Clone | None

    @property
    def title(self) -> str:
        return self.repo.name if self.clone else f"{self.crumbs[-1].name} · {self.repo.name}"


@dataclass(frozen=True)
class EmptyPage:
    """A repository that nobody pushed to."""

    template: ClassVar[str] = "repos/empty.html"
    repo: RepoHead
    clone: Clone

    @property
    def title(self) -> str:
        return self.repo.name


@dataclass(frozen=True)
class FilePage:
    """A file. `lines` are HTML; where there are none, `note` says why."""

    template: ClassVar[str] = "repos/file.html"
    repo: RepoHead
    place: str
    crumbs: tuple[Crumb, ...]
    tip: CommitLine
    blob: Blob
    lines: tuple[Markup, ...]
    picture: str | None
    note: str
    raw_href: str

    @property
    def title(self) -> str:
        return f"{self.crumbs[-1].name} · {self.repo.name}"


async def front(visit: Visit) -> Response:
    where = folder(visit)
    branch = await visit.work(lambda _: objects.default_branch(where))
    if branch is None:
        return visit.page(EmptyPage(head(visit, "code"), clone_of(visit)))
    there = await visit.work(lambda _: objects.locate(where, b"HEAD"))
    return visit.page(await _tree_page(visit, there, clone_of(visit)))


async def tree(visit: Visit) -> Response:
    return visit.page(await _tree_page(visit, await place(visit), None))


async def file(visit: Visit) -> Response:
    where, there = folder(visit), await place(visit)
    name = as_text(there.path.rpartition(b"/")[2])
    blob, tip = await visit.work(
        lambda _: (
            objects.blob(where, there.commit, there.path, most_bytes=limits.BLOB_PLAIN_BYTES_MAX),
            objects.commit(where, there.commit),
        )
    )
    lines, note = await _lines(visit, blob, name)
    raw_href = links.raw(visit.repo.name, there.name, there.path)
    page = FilePage(
        repo=head(visit, "code"),
        place=there.name,
        crumbs=(
            *_crumbs(visit.repo.name, there)[:-1],
            Crumb(name, links.file(visit.repo.name, there.name, there.path)),
        ),
        tip=commit_line(visit.repo.name, tip),
        blob=blob,
        lines=lines,
        picture=raw_href if blob.binary and _picture(name) else None,
        note=note,
        raw_href=raw_href,
    )
    return visit.page(page)


async def raw(visit: Visit) -> Response:
    """The bytes: text as text, anything else as a download. Nothing of it runs, whatever it is."""
    where, there = folder(visit), await place(visit)
    blob = await visit.work(
        lambda _: objects.blob(where, there.commit, there.path, most_bytes=limits.BLOB_SHOWN_BYTES_MAX)
    )
    name = as_text(there.path.rpartition(b"/")[2])
    headers = _RAW_HEADERS | {"content-length": str(blob.size)}
    if blob.data is not None and not blob.binary:
        return Response(blob.data, media_type="text/plain; charset=utf-8", headers=headers)
    headers["content-disposition"] = attachment(name)
    media_type = _picture(name) or "application/octet-stream"
    if blob.data is not None:
        return Response(blob.data, media_type=media_type, headers=headers)
    return _Large(visit, blob.id, media_type, headers)


def attachment(name: str) -> str:
    """A `Content-Disposition` that downloads, under a name of plain characters."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)[-100:]
    return f'attachment; filename="{plain or "file"}"'


class _Large(StreamingResponse):
    """A file as git gives it, piece by piece. The program has ended when the client has all of it, or has left."""

    def __init__(self, visit: Visit, blob_id: str, media_type: str, headers: dict[str, str]) -> None:
        super().__init__(self._pieces(), media_type=media_type, headers=headers)
        self._visit = visit
        self._blob_id = blob_id
        self._stack = AsyncExitStack()
        visit.house.git_places.take(visit.client)
        self._stack.callback(visit.house.git_places.give_back, visit.client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)

    async def _pieces(self) -> AsyncIterator[bytes]:
        process = await self._stack.enter_async_context(blob_bytes(folder(self._visit), self._blob_id))
        assert process.stdout is not None
        while piece := await process.stdout.read(limits.PUMP_READ_BYTES):
            yield piece


async def _tree_page(visit: Visit, there: Place, clone: Clone | None) -> TreePage:
    where, name = folder(visit), visit.repo.name
    found, tip = await visit.work(
        lambda _: (objects.tree(where, there.commit, there.path), objects.commit(where, there.commit))
    )
    return TreePage(
        repo=head(visit, "code"),
        place=there.name,
        crumbs=_crumbs(name, there),
        tip=commit_line(name, tip),
        commits_href=links.commits(name, there.name),
        entries=tuple(_entry(name, there, entry) for entry in found.entries),
        more=found.total - len(found.entries),
        readme_name=as_text(found.readme or b""),
        readme=await _readme(visit, there, found),
        clone=clone,
    )


def _entry(repo: RepoName, there: Place, entry: Entry) -> EntryLine:
    path = there.path + b"/" + entry.name if there.path else entry.name
    to = {"tree": links.tree, "submodule": None}.get(entry.kind, links.file)
    return EntryLine(
        as_text(entry.name) + ("/" if entry.kind == "tree" else ""),
        to and to(repo, there.name, path),
        entry.kind,
        entry.size,
    )


async def _readme(visit: Visit, there: Place, found: Tree) -> Markup:
    if found.readme is None:
        return Markup("")
    where, repo = folder(visit), visit.repo.name
    path = there.path + b"/" + found.readme if there.path else found.readme
    blob = await visit.work(lambda _: objects.blob(where, there.commit, path, most_bytes=limits.README_BYTES_MAX))
    if blob.data is None or blob.binary:
        return Markup("")
    text = blob.data.decode("utf-8", "replace")
    if not found.readme.lower().endswith((b".md", b".markdown")):
        return _plain(text)
    addresses = {"files": links.file(repo, there.name, b""), "raw": links.raw(repo, there.name, b"")}
    return await markdown(visit, text, prefix="readme-", folder=as_text(there.path), **addresses)


async def markdown(visit: Visit, text: str, *, prefix: str, folder: str = "", files: str = "", raw: str = "") -> Markup:
    """`text` as safe HTML; as it stands when it cannot be rendered within the bounds."""
    given = {"text": text, "prefix": prefix, "folder": folder, "files": files, "raw": raw}
    try:
        return Markup(await visit.house.offload.call("vole.web.pages.markup:markdown", given))  # noqa: S704  made safe there
    except (Exhausted, Unavailable):
        return _plain(text)


async def _lines(visit: Visit, blob: Blob, name: str) -> tuple[tuple[Markup, ...], str]:
    if blob.data is None:
        return (), "too large to show here"
    if blob.binary:
        return (), "not text"
    text = blob.data.decode("utf-8", "replace").removesuffix("\n").replace("\r\n", "\n")
    painted = None
    if blob.size <= limits.BLOB_SHOWN_BYTES_MAX and blob.kind != "link":
        try:
            painted = await visit.house.offload.call("vole.web.pages.markup:highlight", {"name": name, "text": text})
        except (Exhausted, Unavailable):
            painted = None
    if painted is None:
        return tuple(shown(line) for line in text.split("\n")), ""
    return tuple(Markup(line) for line in painted[: text.count("\n") + 1]), ""  # noqa: S704  escaped by the highlighter


def _picture(name: str) -> str | None:
    return _PICTURES.get(name.rpartition(".")[2].lower())


def _plain(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(shown(text))


def _crumbs(repo: RepoName, there: Place) -> tuple[Crumb, ...]:
    parts = there.path.split(b"/") if there.path else []
    folders = [
        Crumb(as_text(part), links.tree(repo, there.name, b"/".join(parts[: at + 1]))) for at, part in enumerate(parts)
    ]
    return (Crumb(repo, links.tree(repo, there.name)), *folders)


def clone_of(visit: Visit) -> Clone:
    """The addresses of the repository, of the configured ones of the server."""
    parts, name = visit.house.parts, visit.repo.name
    return Clone(f"{parts.ssh_url}/{name}.git", f"{parts.url}/git/{name}.git" if visit.repo.public else None)
