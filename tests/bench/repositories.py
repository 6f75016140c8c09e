"""Repositories of a known shape, made once and kept in the cache. Always bare, with one pack and a branch `main`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.clients import git_env, run
from tests.bench.machine import BrokenError

BULK_FILES = 300  # of 1 MB that no compression makes smaller
MANY_COMMITS = 12_500  # each with a blob, a folder and a root: 50,000 objects
PAGES_COMMITS = 30_000  # more than wrk can ask for in a run, so that no page is asked for twice

Stream = Iterator[bytes]


def bulk(cache: Path) -> Path:
    return _kept(cache, f"bulk-{BULK_FILES}", _bulk_stream)


def many(cache: Path) -> Path:
    return _kept(cache, f"many-{MANY_COMMITS}", lambda: _commits(MANY_COMMITS))


def pages(cache: Path) -> Path:
    return _kept(cache, f"pages-{PAGES_COMMITS}", lambda: _commits(PAGES_COMMITS))


def commits(repository: Path) -> list[str]:
    """Every commit of `main`, newest first."""
    return run(["git", "rev-list", "main"], git_env(repository), repository).split()


def _kept(cache: Path, name: str, stream: Callable[[], Stream]) -> Path:
    folder = cache / f"{name}.git"
    if folder.exists():
        return folder
    draft = cache / f"{name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    env = git_env(cache)
    run(["git", "init", "-q", "--bare", "-b", "main", draft], env)
    importer = subprocess.Popen(["git", "fast-import", "--quiet"], cwd=draft, env=env, stdin=subprocess.PIPE)
    assert importer.stdin is not None
    with importer.stdin as pipe:
        for part in stream():
            pipe.write(part)
    if importer.wait():
        raise BrokenError(f"git fast-import of {name}: exit {importer.returncode}")
    run(["git", "repack", "-q", "-a", "-d"], env, draft)
    draft.rename(folder)
    return folder


def _bulk_stream() -> Stream:
    yield _commit_head(0)
    for number in range(BULK_FILES):
        yield _file(f"part-{number:03}.bin", os.urandom(1_000_000))


def _commits(count: int) -> Stream:
    for number in range(count):
        yield _commit_head(number)
        text = f"line {number}\n" * 8 + f"changed at {number}\n"
        yield _file(f"src/file-{number % 40:02}.txt", text.encode())


def _commit_head(number: int) -> bytes:
    message = f"Change number {number}\n\nA paragraph that says why.\n".encode()
    head = f"commit refs/heads/main\ncommitter Ada <ada@bench.invalid> {1_700_000_000 + number} +0000\n"
    return head.encode() + b"data %d\n%s\n" % (len(message), message)


def _file(path: str, content: bytes) -> bytes:
    return b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(content), content)
