"""Running the git program: receive-pack with our hook, upload-pack, and the pack of one commit.

Every git command of the server is built here, from an argument list, with an empty listed environment and no
configuration but ours. Never decides who may push.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pygit2

from vole.base import limits
from vole.base.errors import Exhausted, Unavailable
from vole.base.ids import AccountName, CommitId
from vole.git.advertisement import Advertised, Advertisements
from vole.git.child import Child, HookPipes, Sink
from vole.git.storage import commit_of, is_empty, open_repository, refuse_borrowed, tidy_after_push

PATH = "/usr/local/bin:/usr/bin:/bin"
_PROTOCOL = re.compile(r"version=[0-2]")

# Old public repositories have these; what is refused beside them can do harm (docs/security.md).
_RELAXED = ("badTimezone", "badDateOverflow", "missingEmail", "zeroPaddedFilemode")
_SETTINGS = (
    "core.fsync=committed,loose-object,reference",
    "core.useReplaceRefs=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "protocol.file.allow=never",
    # A push's quarantine borrows from its own repository, whose refs git has listed already: not once more.
    "core.alternateRefsCommand=true",
)
_RECEIVE = (
    "receive.autogc=false",
    "receive.fsckObjects=true",
    *(f"receive.fsck.{name}=warn" for name in _RELAXED),
    f"receive.maxInputSize={limits.PACK_BYTES_MAX}",
    # Its threads share a lock while they judge small objects, and the server has to go on beside a push.
    f"pack.threads={max(1, (os.cpu_count() or 1) // 2)}",
    "receive.advertisePushOptions=true",
    "receive.denyDeleteCurrent=refuse",
    "receive.hideRefs=refs/vole",
)
_NICE = 10  # of what nobody waits for
_UPLOAD = ("uploadpack.hideRefs=refs/vole", "uploadpack.hideRefs=!refs/vole/runs")


@cache
def program() -> str:
    """The git program. Raises Unavailable where there is none."""
    found = shutil.which("git", path=PATH)
    if found is None:
        raise Unavailable(f"there is no git in {PATH}", next_step="install git 2.39 or newer")
    return found


def command(settings: Sequence[str], verb: str, *arguments: str) -> list[str]:
    """The argument list of one git call. Operands stand behind `--end-of-options` in `arguments`."""
    flags = [word for setting in settings for word in ("-c", setting)]
    return [program(), *flags, verb, *arguments]


def environment(protocol: str | None = None, **more: str) -> dict[str, str]:
    """All that a git child sees. A client's `protocol` counts only in the form `version=N`."""
    plain = {
        "PATH": PATH,
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    if protocol is not None and _PROTOCOL.fullmatch(protocol):
        plain["GIT_PROTOCOL"] = protocol
    return plain | more


class GitPrograms:
    """The git children of the SSH door: how many, whose, and what a killed one leaves behind.

    Every receive-pack inherits a lock on the file `lock`, so that a server that starts after a crash can wait until
    no child of the former one may still move a ref.
    """

    def __init__(self, hooks: Path, lock: Path) -> None:
        self._settings = (*_SETTINGS, f"core.hooksPath={hooks}")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._running: Counter[AccountName] = Counter()
        self._receiving: Counter[Path] = Counter()
        self._untidy: set[Path] = set()
        self._advertisements = Advertisements()
        self._tidying: dict[Path, asyncio.Future[None]] = {}
        self.used: dict[Path, float] = {}  # when each repository was first served since `Bitmaps` looked; loop's clock

    async def alone(self) -> None:
        """Wait until no receive-pack of an earlier server runs. Raises Unavailable after PUSH_LOCK_S."""
        try:
            async with asyncio.timeout(limits.PUSH_LOCK_S):
                while not self._locked_alone():  # noqa: ASYNC110  another process: nothing rings here
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise Unavailable("a git receive-pack of an earlier server still runs; end it, then start again") from None
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """When no child runs any more."""
        os.close(self._lock)

    @asynccontextmanager
    async def receive_pack(self, who: AccountName, path: Path, protocol: str | None, sink: Sink) -> AsyncIterator[Push]:
        """A receive-pack with its hook's pipes. It has ended, with all of its group, when the block is left."""
        refuse_borrowed(path)
        if (tidying := self._tidying.get(path)) is not None:
            await tidying
        try:
            with self._counted(who), self._counted_in(path):
                advertised = Advertised(sink, self._advertisements, path, protocol)
                pipes = HookPipes(first=is_empty(path))
                child = await self._receiver(path, protocol, advertised, pipes)
                try:
                    yield Push(child, pipes)
                finally:
                    pipes.close()
                    if await _ended(child) < 0 or child.was_ended:
                        self._untidy.add(path)
        finally:
            await self._tidy(path)
            self.note(path)

    @asynccontextmanager
    async def upload_pack(self, who: AccountName, path: Path, protocol: str | None, sink: Sink) -> AsyncIterator[Child]:
        """An upload-pack. It has ended, with all of its group, when the block is left."""
        refuse_borrowed(path)
        with self._counted(who):
            argv = command((*self._settings, *_UPLOAD), "upload-pack", "--strict", "--end-of-options", str(path))
            child = await _start(argv, environment(protocol), sink, ())
            try:
                yield child
            finally:
                await _ended(child)
                self.note(path)

    async def _receiver(self, path: Path, protocol: str | None, sink: Sink, pipes: HookPipes) -> Child:
        env = environment(protocol, VOLE_ASK=str(pipes.ask), VOLE_TELL=str(pipes.tell))
        # What this prints rev-list takes for reachable already.
        first = () if pipes.known is None else (f"core.alternateRefsCommand=cat /dev/fd/{pipes.known};:",)
        argv = command((*self._settings, *_RECEIVE, *first), "receive-pack", "--end-of-options", str(path))
        try:
            child = await _start(argv, env, sink, (*pipes.ends, self._lock))
        except BaseException:
            pipes.given()
            pipes.close()
            raise
        pipes.given()
        # A delta bomb is to end in this child, not in the machine. Mapped packs do not count as heap.
        bound = (limits.GIT_DATA_BYTES_MAX, limits.GIT_DATA_BYTES_MAX)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_DATA, bound)
        return child

    @contextlib.contextmanager
    def _counted(self, who: AccountName) -> Iterator[None]:
        if self._running.total() >= limits.GIT_CHILDREN_MAX:
            raise Exhausted(f"{limits.GIT_CHILDREN_MAX} git programs run already (GIT_CHILDREN_MAX)")
        if self._running[who] >= limits.GIT_CHILDREN_PER_ACCOUNT_MAX:
            most = limits.GIT_CHILDREN_PER_ACCOUNT_MAX
            raise Exhausted(f"{most} git programs run for {who} already (GIT_CHILDREN_PER_ACCOUNT_MAX)")
        self._running[who] += 1
        try:
            yield
        finally:
            self._running[who] -= 1

    @contextlib.contextmanager
    def _counted_in(self, path: Path) -> Iterator[None]:
        self._receiving[path] += 1
        try:
            yield
        finally:
            self._receiving[path] -= 1

    def note(self, path: Path) -> None:
        """The repository is in use: whoever looks after packs looks at it."""
        self.used.setdefault(path, asyncio.get_running_loop().time())

    async def _tidy(self, path: Path) -> None:
        """What killed receive-packs left goes with the last that runs in the repository."""
        if path not in self._untidy or self._receiving[path]:
            return
        self._untidy.discard(path)
        self._tidying[path] = done = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(tidy_after_push, path)
        finally:
            del self._tidying[path]
            done.set_result(None)

    def _locked_alone(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@dataclass(frozen=True)
class Push:
    """A running receive-pack and the pipes to its hook."""

    child: Child
    hook: HookPipes


@dataclass(frozen=True)
class SourcePack:
    """A pack on its way: `process.stdout`. `shallow` goes into the taker's `shallow` file."""

    shallow: tuple[CommitId, ...]
    process: asyncio.subprocess.Process


@asynccontextmanager
async def http_upload_pack(
    path: Path, protocol: str | None, mode: Literal["advertise", "rpc"]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """One request of read-only smart HTTP: feed `stdin`, read `stdout`. It has ended when the block is left."""
    refuse_borrowed(path)
    flags = ("--stateless-rpc", "--http-backend-info-refs") if mode == "advertise" else ("--stateless-rpc",)
    settings = (*_SETTINGS, "core.hooksPath=/dev/null", *_UPLOAD)
    argv = command(settings, "upload-pack", "--strict", *flags, "--end-of-options", str(path))
    process = await _streams(argv, environment(protocol))
    try:
        yield process
    finally:
        await end(process)


@asynccontextmanager
async def blob_bytes(path: Path, blob: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A file's bytes on `stdout`, however large. It has ended when the block is left."""
    argv = command((*_SETTINGS, "core.hooksPath=/dev/null"), "cat-file", "blob", "--end-of-options", blob)
    process = await _streams(argv, environment(GIT_DIR=str(path)))
    try:
        yield process
    finally:
        await end(process)


async def source_pack(repository: Path, commit: CommitId, depth: int, haves: tuple[CommitId, ...]) -> SourcePack:
    """The objects of one commit and `depth` of history (0: all) that a taker with `haves` lacks. The caller ends it.

    With a depth, of each have only its own tree is taken as held; without, its whole history.
    """
    shallow, known = await asyncio.to_thread(_source_facts, repository, commit, depth, haves)
    lines = [f"--shallow {one}" for one in (*shallow, *(known if depth else ()))]
    lines += [commit, *(f"^{have}" for have in known)]
    flags = ("--shallow",) if depth else ()
    argv = command((*_SETTINGS, "core.hooksPath=/dev/null"), "pack-objects", "--revs", "--thin", "--stdout",
                   "--delta-base-offset", "-q", *flags)  # fmt: skip
    process = await _streams(argv, environment(GIT_DIR=str(repository)))
    assert process.stdin is not None
    process.stdin.write(("\n".join(lines) + "\n").encode())
    process.stdin.close()
    return SourcePack(shallow, process)


async def map_packs(path: Path) -> bool:
    """Pack what lies loose, join small packs, each to be twice the next, and write one index with bitmaps over all.

    Whether git could. Others go first.
    """
    argv = command((*_SETTINGS, "core.hooksPath=/dev/null"), "repack", "-d", "-n", "-q", "--geometric=2",
                   "--write-midx", "--write-bitmap-index")  # fmt: skip
    process = await _streams(argv, environment(GIT_DIR=str(path)))
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (limits.GIT_DATA_BYTES_MAX, limits.GIT_DATA_BYTES_MAX))
        async with asyncio.timeout(limits.BITMAPS_S):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process with its group, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def object_sizes(path: Path, quarantine: Path) -> Iterator[int]:
    """Inflated bytes of every object in a quarantine, as git says them. Blocks; bounded by PUSH_CHECK_S."""
    argv = command(_SETTINGS, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectsize)")
    env = environment(GIT_DIR=str(path), GIT_OBJECT_DIRECTORY=str(quarantine))
    with subprocess.Popen(argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        late = threading.Timer(limits.PUSH_CHECK_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            yield from map(int, process.stdout)
        finally:
            late.cancel()
            process.kill()


def missing_objects(path: Path) -> list[str]:
    """What git says of objects that the refs at `path` reach and that are not there; nothing of a whole one. Blocks."""
    argv = command((*_SETTINGS, "core.hooksPath=/dev/null"), "fsck", "--connectivity-only", "--no-dangling",
                   "--no-progress")  # fmt: skip
    said = subprocess.run(
        argv, env=environment(GIT_DIR=str(path)), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if said.returncode == 0:
        return []
    return (said.stdout + said.stderr).decode("utf-8", "replace").splitlines()[:20] or [f"git fsck: {said.returncode}"]


def _source_facts(
    path: Path, commit: CommitId, depth: int, haves: tuple[CommitId, ...]
) -> tuple[tuple[CommitId, ...], tuple[CommitId, ...]]:
    """The commits whose parents are cut away, and which of `haves` are commits here."""
    repository = open_repository(path)
    known = tuple(have for have in haves if commit_of(repository, have) == have)
    level, boundary = {str(commit)}, []
    seen = set(level)
    for distance in range(1, depth + 1):
        parents = {one: _parents(repository, one) for one in sorted(level)}
        if distance == depth:
            boundary = [one for one, above in parents.items() if set(above) - seen]
        level = {parent for above in parents.values() for parent in above} - seen
        seen |= level
    return tuple(CommitId(one) for one in boundary), known


def _parents(repository: pygit2.Repository, commit: str) -> list[str]:
    return [str(parent) for parent in repository[commit].peel(pygit2.Commit).parent_ids]


async def _start(argv: list[str], env: dict[str, str], sink: Sink, descriptors: tuple[int, ...]) -> Child:
    child = Child(sink)
    await asyncio.get_running_loop().subprocess_exec(
        lambda: child, *argv, env=env, cwd="/", start_new_session=True, pass_fds=descriptors
    )
    child.pipes_ready()
    return child


async def _streams(argv: list[str], env: dict[str, str]) -> asyncio.subprocess.Process:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=nothing, env=env, cwd="/", start_new_session=True,
        limit=limits.PUMP_READ_BYTES,
    )  # fmt: skip


async def _ended(child: Child) -> int:
    """End the child unless it has. A cancelled caller waits too: nothing of it may outlive its session."""
    child.end()
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            status = await child.ended()
        except asyncio.CancelledError as error:
            cancelled = error
        else:
            break
    if cancelled is not None:
        raise cancelled
    return status
