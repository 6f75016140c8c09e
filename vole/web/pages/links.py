"""Addresses of pages, as paths. Every link of a page is made here, so that a name is quoted once and rightly."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from vole.base.ids import Epoch, JobKey, RepoName, RunNumber


def repo(name: RepoName) -> str:
    return f"/{name}"


def tree(name: RepoName, rev: str, path: bytes = b"") -> str:
    return f"/{name}/tree/{_rev(rev)}{_path(path)}"


def file(name: RepoName, rev: str, path: bytes) -> str:
    return f"/{name}/file/{_rev(rev)}{_path(path)}"


def raw(name: RepoName, rev: str, path: bytes) -> str:
    return f"/{name}/raw/{_rev(rev)}{_path(path)}"


def commits(name: RepoName, rev: str, page: int = 1) -> str:
    return f"/{name}/commits/{_rev(rev)}" + (f"?page={page}" if page > 1 else "")


def commit(name: RepoName, commit_id: str) -> str:
    return f"/{name}/commit/{commit_id}"


def refs(name: RepoName, page: int = 1) -> str:
    return f"/{name}/refs" + (f"?page={page}" if page > 1 else "")


def runs(name: RepoName, before: int | None = None) -> str:
    return f"/{name}/runs" + (f"?before={before}" if before is not None else "")


def run(name: RepoName, number: RunNumber) -> str:
    return f"/{name}/runs/{number}"


def atom(name: RepoName) -> str:
    return f"/atom/{name}.xml"


def badge(name: RepoName) -> str:
    return f"/badges/{name}.svg"


def start(name: RepoName) -> str:
    return f"/{name}/start"


def cancel(name: RepoName, number: RunNumber, key: JobKey | None = None) -> str:
    return f"/{name}/runs/{number}/{key}/cancel" if key else f"/{name}/runs/{number}/cancel"


def rerun(name: RepoName, number: RunNumber) -> str:
    return f"/{name}/runs/{number}/rerun"


def job(name: RepoName, number: RunNumber, key: JobKey, epoch: Epoch | None = None, **more: int) -> str:
    query = urlencode(({} if epoch is None else {"attempt": epoch}) | more)
    return f"/{name}/runs/{number}/{key}" + (f"?{query}" if query else "")


def artifact(name: RepoName, number: RunNumber, key: JobKey, epoch: Epoch, sha256: str, path: str) -> str:
    """By its digest; the name at the end is for people and for the file that a browser writes."""
    return f"/{name}/runs/{number}/{key}/artifacts/{epoch}/{sha256}/{quote(path.rpartition('/')[2], safe='')}"


def events(name: RepoName, number: RunNumber, after: int | None = None) -> str:
    return f"/{name}/events/{number}" + (f"?after={after}" if after is not None else "")


def queue(query: str, **more: str) -> str:
    both = "&".join(filter(None, (query, urlencode(more))))
    return "/queue" + (f"?{both}" if both else "")


def _rev(rev: str) -> str:
    return quote(rev.encode("utf-8", "surrogateescape"), safe="/")


def _path(path: bytes) -> str:
    return "/" + quote(path, safe="/") if path else ""
