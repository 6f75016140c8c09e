"""A chain of records as a server wrote it, and whoever writes it again with something else in it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pygit2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.aio import run
from tests.queueing import a_job, a_run
from tests.recorded import a_recorder
from vole.base.clock import seconds
from vole.git.records import RUNS
from vole.git.records.sshsig import sign
from vole.wire import runner
from vole.wire.plan import ArtifactPlan

LOG, MADE = b"one\ntwo\n", b"made\n"
ONE, TWO, RETRIED = "runs/000/001/test/1.json", "runs/000/002/test/1.json", "runs/000/002/test/2.json"


@dataclass
class Honest:
    """What the server on `folder` wrote of app, and with which keys, the oldest first."""

    folder: Path
    keys: list[Ed25519PrivateKey]
    signers: bytes

    @property
    def path(self) -> Path:
        return self.folder / "repos" / "app.git"


def a_server_writes(folder: Path) -> Honest:
    """app/1: one attempt with all that one can leave; app/2: lost once, then green; a rotation; app/3: skipped."""
    folder.mkdir()
    return run(_story(folder))


async def _story(folder: Path) -> Honest:
    async with a_recorder(folder) as (server, recording):
        keys = [recording.keys._private]
        await server.account("mac-1", "app")
        session = await server.connects("mac-1")
        plan = a_job("test", artifacts=(ArtifactPlan("out", ("made",)),))
        await server.enqueues(a_run(plan, a_job("after", needs=("test",))))
        await _ends(server, session, await server.takes(session))
        await recording.once()
        await server.enqueues(a_run(), push=2)
        job = await server.takes(session, "u")
        await server.leasing.append_log(session, job.lease.job, job.lease.epoch, 0, b"half a li")
        for _ in range(80):
            server.clock.advance(seconds(1))
            await server.upkeep.once()
        await recording.once()
        server.clock.advance(seconds(5))
        await recording.rotate()
        keys.append(recording.keys._private)
        session = await server.connects("mac-1")
        job = await server.takes(session, "v")
        await server.leasing.finish(session, _result(job, b""))
        await recording.once()
        await server.enqueues(a_run(skipped="filter"), push=3)
        await recording.once()
        return Honest(folder, keys, recording.keys.allowed_signers)


async def _ends(server, session, job) -> None:  # type: ignore[no-untyped-def]
    made = runner.ArtifactFile("out", "made", len(MADE), hashlib.sha256(MADE).hexdigest())
    key = (job.lease.job, job.lease.epoch)
    await server.leasing.append_log(session, *key, 0, LOG)
    await server.leasing.marks(session, runner.Marks(*key, (runner.Mark(0, 5, 1, "begin", "one"),)))
    await server.leasing.artifact_begin(session, *key, made)
    await server.leasing.artifact_append(session, *key, made, 0, MADE)
    await server.leasing.artifact_commit(session, *key, made)
    await server.leasing.finish(
        session,
        _result(
            job, LOG, "failure", reason="exit 1", summary="# no", artifacts=(made,),
            steps=(runner.StepOutcome(1, "failure", "one", exit_code=1, started_us=5, finished_us=9),),
            annotations=(runner.Annotation("error", "no 'ü'", "a.py", 3),),
        ),
    )  # fmt: skip


def _result(job, log: bytes, conclusion="success", **more) -> runner.Finish:  # type: ignore[no-untyped-def]
    seal = runner.LogSeal(len(log), hashlib.sha256(log).hexdigest())
    return runner.Finish(job.lease.job, job.lease.epoch, conclusion, seal, **more)


Bend = Callable[[bytes], bytes]


def as_it_is(data: bytes) -> bytes:
    return data


@dataclass
class Link:
    """A commit: its whole tree, and what makes its bytes. `armour` is the honest signature; None has it made anew."""

    files: dict[str, bytes]
    head: bytes  # author and committer
    message: bytes
    armour: bytes | None
    key: Ed25519PrivateKey
    modes: dict[str, str] = field(default_factory=dict)
    trees: dict[str, Bend] = field(default_factory=dict)  # the bytes of a tree, by its place; "": the root
    payload: Bend = as_it_is  # what is signed, and written
    signed: Callable[[Ed25519PrivateKey, bytes], str] = sign
    commit: Bend = as_it_is  # the bytes at last
    rooted: bool = False  # has no parent

    def again(self) -> None:
        """Sign it anew: its writer has the key."""
        self.armour = None

    def at(self, second: int) -> None:
        """Date it."""
        self.head = re.sub(rb"> \d+", b"> %d" % second, self.head)

    @property
    def second(self) -> int:
        found = re.search(rb"> (\d+)", self.head)
        assert found
        return int(found[1])


@dataclass
class Chain:
    """The links from the first on, in the repository at `path`."""

    path: Path
    links: list[Link]
    signers: bytes
    keys: list[Ed25519PrivateKey]
    written: list[str] = field(default_factory=list)

    @property
    def last(self) -> Link:
        return self.links[-1]

    def resigned(self, since: int = 0) -> None:
        for link in self.links[since:]:
            link.again()

    def place(self, place: str, data: bytes, since: int = 0) -> None:
        """Put a file where it is or was not, in all links from `since` on that have the file or shall have it."""
        for link in self.links[since:]:
            link.files[place] = data

    def bend(self, place: str, old: bytes, new: bytes) -> None:
        """The document says `new` for `old` from its beginning, and whoever signs has the key."""
        for link in self.links:
            if place in link.files:
                assert old in link.files[place], (old, link.files[place])
                link.files[place] = link.files[place].replace(old, new)
        self.resigned()

    def move(self, old: str, new: str) -> None:
        for link in self.links:
            if old in link.files:
                link.files[new] = link.files.pop(old)
        self.resigned()

    def write(self) -> str:
        """Make the objects, set the ref, give the tip."""
        parent = b""
        for link in self.links:
            ident = self._commit(link, b"" if link.rooted else parent)
            self.written.append(ident)
            parent = b"parent %s\n" % ident.encode()
        self.points_at(self.written[-1])
        return self.written[-1]

    def points_at(self, ident: str) -> None:
        (self.path / RUNS).parent.mkdir(parents=True, exist_ok=True)
        (self.path / RUNS).write_text(f"{ident}\n")

    def _commit(self, link: Link, parent: bytes) -> str:
        tree = self._tree(link, "", link.files)
        payload = link.payload(b"tree %s\n%s%s\n%s" % (tree.encode(), parent, link.head, link.message))
        armour = link.signed(link.key, payload).encode() if link.armour is None else link.armour
        head, _, message = payload.partition(b"\n\n")
        whole = b"%s\ngpgsig %s\n\n%s" % (head, armour.replace(b"\n", b"\n "), message)
        return self.put("commit", link.commit(whole if armour else payload))

    def _tree(self, link: Link, place: str, files: dict[str, bytes]) -> str:
        entries: dict[str, tuple[str, str]] = {}
        below: dict[str, dict[str, bytes]] = {}
        for name, data in files.items():
            first, _, rest = name.partition("/")
            if rest:
                below.setdefault(first, {})[rest] = data
            else:
                mode = link.modes.get(f"{place}{name}", "100644")
                entries[name] = mode, "3" * 40 if mode == "160000" else self.put("blob", data)
        for name, inner in below.items():
            entries[f"{name}/"] = "40000", self._tree(link, f"{place}{name}/", inner)
        data = b"".join(
            f"{mode} {name.removesuffix('/')}\0".encode() + bytes.fromhex(ident)
            for name, (mode, ident) in sorted(entries.items())
        )
        return self.put("tree", link.trees.get(place, as_it_is)(data))

    def put(self, kind: str, data: bytes, ident: str | None = None) -> str:
        """Write an object, under another id than its own if so told."""
        whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
        own = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        place = self.path / "objects" / (ident or own)[:2] / (ident or own)[2:]
        if ident is not None or not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(zlib.compress(whole, 1))
        return ident or own


def chain_of(honest: Honest, folder: Path) -> Chain:
    """The honest chain taken apart, to be written to a repository of its own below `folder`."""
    source = pygit2.Repository(str(honest.path))
    links, commit = [], source.references[RUNS].peel(pygit2.Commit)
    while True:
        head, _, message = commit.read_raw().partition(b"\n\n")
        named = re.search(rb"author .*\ncommitter .*\n", head)
        armour = re.search(rb"gpgsig (.*)", head, re.DOTALL)
        assert named
        assert armour
        files = _files(commit.tree)
        links.append(
            Link(
                files, named[0], message, armour[1].replace(b"\n ", b"\n"),
                honest.keys[files["record-signers"].count(b"\n") - 1],
            )
        )  # fmt: skip
        if not commit.parents:
            break
        commit = commit.parents[0]
    path = folder / "app.git"
    subprocess.run(["git", "init", "-q", "--bare", path], check=True)
    return Chain(path, links[::-1], honest.signers, honest.keys)


def _files(tree: pygit2.Tree, place: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            found |= _files(entry, f"{place}{entry.name}/")
        elif isinstance(entry, pygit2.Blob):
            found[f"{place}{entry.name}"] = entry.data
    return found
