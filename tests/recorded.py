"""A server between its sockets that writes records too, and what stands in git then."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.leasing_server import Server
from vole.base.ids import RepoName
from vole.flows.recording import Recording
from vole.git.records import RUNS, RecordKeys
from vole.git.storage import Storage
from vole.verifier import forms


@asynccontextmanager
async def a_recorder(folder: Path, **more: Any) -> AsyncIterator[tuple[Server, Recording]]:
    """One life of a server on `folder`, with its record key; its repository is app."""
    server = await Server.begin(folder, **more)
    (folder / "repos").mkdir(exist_ok=True)
    storage = Storage(folder / "repos")
    if not storage.exists(RepoName("app")):
        storage.create(RepoName("app"))
    keys = RecordKeys.open(folder / "record_ed25519", "0" * 32, server.clock.now())
    try:
        yield server, Recording(server.db, server.bells, storage, server.logs, keys, server.clock, lambda _: None)
    finally:
        storage.close()
        await server.end()


def git(folder: Path, repo: str, *words: str) -> str:
    said = subprocess.run(["git", "-C", folder / "repos" / f"{repo}.git", *words], capture_output=True, check=False)
    return said.stdout.decode()


def documents(folder: Path, repo: str = "app") -> dict[str, dict[str, Any]]:
    """What each record says, by its path: none where there is no ref."""
    names = git(folder, repo, "ls-tree", "-r", "--name-only", RUNS, "runs/").split()
    raw = {name: git(folder, repo, "cat-file", "blob", f"{RUNS}:{name}") for name in names}
    found = {name: json.loads(text) for name, text in raw.items()}
    for name in found:
        forms.read(raw[name].encode())  # the second reader knows every document that is ever written
        assert raw[name].startswith('{"purpose":"vole '), name
    return {name: value["record"] for name, value in found.items()}


def commits(folder: Path, repo: str = "app") -> list[str]:
    """The subjects of the chain, newest first."""
    return git(folder, repo, "log", "--format=%s", RUNS).splitlines()
