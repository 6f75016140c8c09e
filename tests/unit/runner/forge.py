"""A forge for runner tests: the real runner door on real SSH over loopback, before a small queue in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from vole.base.clock import SystemClock
from vole.base.errors import Fenced, NotFound, VoleError
from vole.base.ids import AccountId, AccountName, CommitId, Epoch, JobId, JobKey, RepoName
from vole.evidence.model import WrongOffset
from vole.git.storage import Storage
from vole.people.model import Person
from vole.runners.roster import Session
from vole.ssh.connection import Connection
from vole.ssh.runner_session import RunnerDoor
from vole.wire import runner
from vole.wire.plan import EventFacts, JobContext, JobPlan, StepPlan, job_digest
from vole.wire.runner import ArtifactFile, Finish, Finished, Job, Lease, LeaseRef, Nothing, Renewed, Want, Welcome

NO_COMMIT = CommitId("0" * 40)


@dataclass(frozen=True)
class SourceFacts:
    repo: RepoName
    commit: CommitId
    depth: int


class QueueInMemory:
    """Follows the interface of `flows.leasing.Leasing`, holds a rule of none of it but the epoch."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.offered: asyncio.Queue[Job] = asyncio.Queue()
        self.live: dict[LeaseRef, Job] = {}
        self.sessions: list[Session] = []
        self.said: list[object] = []  # every message of a runner, in order
        self.heard: asyncio.Event = asyncio.Event()
        self.logs: defaultdict[LeaseRef, bytearray] = defaultdict(bytearray)
        self.artifacts: dict[tuple[JobId, str, str], bytes] = {}
        self.finished: dict[LeaseRef, Finish] = {}
        self.goodbyes: list[str] = []
        self.hello_refusal: VoleError | None = None
        self.renew_refusal: VoleError | None = None
        self.marks_refusal: VoleError | None = None
        self.answers_renewals = True
        self.needed: dict[str, tuple[ArtifactFile, ...]] = {}
        self.needed_root = Path()
        self.asked_sources: list[LeaseRef] = []
        self.durable = asyncio.Event()  # what was handed back or came to an end; then it is made known
        self.durable.set()
        self.told: list[LeaseRef] = []
        self.log_refusal: VoleError | None = None
        self.source_refusal: VoleError | None = None
        self.forget_after: int | None = None  # bytes of a log that a finish finds lost

    async def hello(self, person: Person, hello: runner.Hello) -> Session:
        if self.hello_refusal is not None:
            raise self.hello_refusal
        self._say(hello)
        welcome = Welcome(
            "s-1", self.ttl_s, self.ttl_s / 4, (RepoName("app"),), (RepoName("app"),), "1.0", 0, "http://f"
        )
        session = Session(
            id=len(self.sessions) + 1,
            account=person.account,
            account_name=person.name,
            key_fingerprint=person.key_fingerprint,
            hello=hello,
            welcome=welcome,
            granted=frozenset(),
            serves=frozenset(),
            connected_at=0,
            last_contact=0,
        )
        self.sessions.append(session)
        return session

    async def next_job(self, session: Session, want: Want) -> Job | Nothing:
        self._say(want)
        if session.hello.mode == "once" and self.offered.empty():
            return Nothing(want.slot, want.token, "nothing_queued")
        job = dataclasses.replace(await self.offered.get(), slot=want.slot, token=want.token)
        self.live[LeaseRef(job.lease.job, job.lease.epoch)] = job
        return job

    async def started(self, session: Session, started: runner.Started) -> None:
        self._say(started)
        self._held(started.job, started.epoch)

    async def renew(self, session: Session, renew: runner.Renew) -> tuple[Renewed, tuple[runner.FencedLease, ...]]:
        self._say(renew)
        if self.renew_refusal is not None:
            raise self.renew_refusal
        refs = [LeaseRef(one.job, one.epoch) for one in renew.leases]
        fenced = tuple(runner.FencedLease(ref.job, ref.epoch) for ref in refs if ref not in self.live)
        kept = tuple(ref for ref in refs if ref in self.live) if self.answers_renewals else ()
        return Renewed(kept), fenced

    async def marks(self, session: Session, marks: runner.Marks) -> None:
        self._say(marks)
        self._held(marks.job, marks.epoch)
        if self.marks_refusal is not None:
            raise self.marks_refusal

    async def finish(self, session: Session, finish: Finish) -> Finished:
        self._say(finish)
        ref = LeaseRef(finish.job, finish.epoch)
        if ref not in self.live and ref not in self.finished:
            raise Fenced("no such lease")
        if self.forget_after is not None:
            del self.logs[ref][self.forget_after :]
            self.forget_after = None
        self.finished[ref] = finish
        await self.durable.wait()
        stored = bytes(self.logs[ref])
        whole = len(stored) == finish.log.bytes and hashlib.sha256(stored).hexdigest() == finish.log.sha256
        return Finished(finish.job, finish.epoch, "complete" if whole else "incomplete", len(stored))

    async def handback(self, session: Session, handback: runner.Handback) -> None:
        self._say(handback)
        self._held(handback.job, handback.epoch)
        del self.live[LeaseRef(handback.job, handback.epoch)]
        await self.durable.wait()
        self.told.append(LeaseRef(handback.job, handback.epoch))

    async def drain(self, session: Session) -> None:
        self._say(runner.Drain())

    async def goodbye(self, session: Session, *, cause: str) -> None:
        self.goodbyes.append(cause)
        self._ring()

    async def log_position(self, session: Session, job: JobId, epoch: Epoch) -> int:
        self._held(job, epoch)
        if self.log_refusal is not None:
            raise self.log_refusal
        return len(self.logs[LeaseRef(job, epoch)])

    async def append_log(self, session: Session, job: JobId, epoch: Epoch, offset: int, data: bytes) -> int:
        self._held(job, epoch)
        log = self.logs[LeaseRef(job, epoch)]
        if len(log) != offset:
            raise WrongOffset(len(log))
        log += data
        self._ring()
        return len(log)

    async def artifact_begin(self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile) -> int:
        self._held(job, epoch)
        return len(self.artifacts.setdefault((job, file.name, file.path), b""))

    async def artifact_append(
        self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile, offset: int, data: bytes
    ) -> int:
        self._held(job, epoch)
        self.artifacts[job, file.name, file.path] += data
        return len(self.artifacts[job, file.name, file.path])

    async def artifact_commit(self, session: Session, job: JobId, epoch: Epoch, file: ArtifactFile) -> None:
        held = self.artifacts[job, file.name, file.path]
        assert (len(held), hashlib.sha256(held).hexdigest()) == (file.size, file.sha256)

    async def artifact_list(self, session: Session, job: JobId, epoch: Epoch, name: str) -> tuple[ArtifactFile, ...]:
        self._held(job, epoch)
        if name not in self.needed:
            raise NotFound(f"no needed job has the artifact {name}")
        return self.needed[name]

    async def artifact_path(self, session: Session, job: JobId, epoch: Epoch, name: str, path: str) -> Path:
        return self.needed_root / hashlib.sha256(f"{name}/{path}".encode()).hexdigest()

    async def source(self, session: Session, job: JobId, epoch: Epoch) -> SourceFacts:
        self._held(job, epoch)
        self.asked_sources.append(LeaseRef(job, epoch))
        if self.source_refusal is not None:
            raise self.source_refusal
        plan = JobPlan.read(self.live[LeaseRef(job, epoch)].plan)
        return SourceFacts(plan.repository, plan.commit, plan.checkout_depth)

    def need(self, name: str, files: dict[str, bytes]) -> None:
        """Have an artifact that a job may fetch."""
        for path, data in files.items():
            place = self.needed_root / hashlib.sha256(f"{name}/{path}".encode()).hexdigest()
            place.write_bytes(data)
        self.needed[name] = tuple(
            ArtifactFile(name, path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()
        )

    def order(self, order: object) -> None:
        """Tell the newest session something."""
        self.sessions[-1].orders.put_nowait(order)

    def fence(self, ref: LeaseRef) -> None:
        """The lease is over."""
        self.live.pop(ref, None)

    async def until(self, true: object, timeout_s: float = 10.0) -> None:
        """Wait until `true()` holds; looked at after each word of a runner, and every 50 ms for what is not a word."""
        async with asyncio.timeout(timeout_s):
            while not true():
                self.heard.clear()
                waiting = asyncio.ensure_future(self.heard.wait())
                await asyncio.wait([waiting], timeout=0.05)
                waiting.cancel()

    def words(self, form: type) -> list[object]:
        return [word for word in self.said if isinstance(word, form)]

    def _held(self, job: JobId, epoch: Epoch) -> None:
        ref = LeaseRef(job, epoch)
        if ref not in self.live:
            raise Fenced(f"lease {job} at epoch {epoch} is over")

    def _say(self, word: object) -> None:
        self.said.append(word)
        self._ring()

    def _ring(self) -> None:
        self.heard.set()


class _Server(asyncssh.SSHServer):
    def __init__(self, forge: Forge) -> None:
        self._forge = forge

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = Connection(self._forge.person, "127.0.0.1", conn)
        self._forge.connections.append(self._connection)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "git" and self._forge.lets_in and key == self._forge.client_key

    def session_requested(self) -> asyncssh.SSHServerSession:
        return self._forge.door.session(self._connection)


@dataclass
class Forge:
    """What a test holds of the forge."""

    root: Path
    queue: QueueInMemory
    storage: Storage
    person: Person
    door: RunnerDoor
    client_key: asyncssh.SSHKey
    key: Path
    known_hosts: Path
    host_key: str
    lets_in: bool = True
    port: int = 0
    connections: list[Connection] = field(default_factory=list)
    acceptor: asyncssh.SSHAcceptor | None = None
    host_private: asyncssh.SSHKey | None = None
    jobs: int = 0

    @property
    def address(self) -> str:
        return f"ssh://git@127.0.0.1:{self.port}"

    async def listen(self) -> None:
        self.acceptor = await asyncssh.create_server(
            lambda: _Server(self), "127.0.0.1", self.port, server_host_keys=[self.host_private], encoding=None
        )
        self.port = self.acceptor.get_port()

    async def shut(self) -> None:
        """Listen no more and drop every connection."""
        self.acceptor.close()
        self.drop()
        await self.acceptor.wait_closed()

    def drop(self) -> None:
        """Cut every connection without a word."""
        for connection in self.connections:
            connection.ssh.abort()
        self.connections.clear()

    def offer(self, *steps: str | StepPlan, **plan: object) -> LeaseRef:
        """A job of these scripts, for whoever wants one."""
        self.jobs += 1
        whole = tuple(
            step if isinstance(step, StepPlan) else StepPlan(step, at) for at, step in enumerate(steps or ("true",), 1)
        )
        job = a_job(JobId(self.jobs), whole, self.queue.ttl_s, **plan)
        self.queue.offered.put_nowait(job)
        return LeaseRef(job.lease.job, job.lease.epoch)


def a_job(job: JobId, steps: tuple[StepPlan, ...], ttl_s: float, **changes: object) -> Job:
    commit = changes.pop("commit", NO_COMMIT)
    event = EventFacts("push", "refs/heads/main", "main", "branch", None, commit, "ada")
    plan = JobPlan(
        repository=RepoName("app"),
        commit=commit,
        workflow="ci",
        workflow_path=".vole/workflows/ci.yml",
        workflow_blob=NO_COMMIT,
        job="test",
        key=JobKey("test"),
        name="test",
        event=event,
        steps=steps,
        **changes,
    )
    document = plan.document()
    return Job(
        slot=0,
        token="",
        lease=Lease(job, Epoch(1), ttl_s),
        address=f"app/{job}/test",
        key=JobKey("test"),
        plan=document.decode(),
        digest=job_digest(document),
        context=JobContext("r-1", 1, 1, "http://forge"),
    )


@asynccontextmanager
async def a_forge(root: Path, ttl_s: float = 6.0) -> AsyncIterator[Forge]:
    """A listening forge with the repository `app`, its key files under `root`."""
    keys = root / "keys"
    keys.mkdir()
    client, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    client.write_private_key(str(keys / "runner"))
    client.write_public_key(str(keys / "runner.pub"))
    storage = Storage(root / "repos")
    queue = QueueInMemory(ttl_s)
    queue.needed_root = keys
    person = Person(AccountId(7), AccountName("rui"), False, client.get_fingerprint(), "runner")
    forge = Forge(
        root=root,
        queue=queue,
        storage=storage,
        person=person,
        door=RunnerDoor(queue, storage, SystemClock()),
        client_key=client.convert_to_public(),
        key=keys / "runner",
        known_hosts=keys / "known_hosts",
        host_key=host.get_fingerprint(),
        host_private=host,
    )
    await forge.listen()
    try:
        yield forge
    finally:
        await forge.shut()


def git(folder: Path, *words: str) -> str:
    """What git prints, run in `folder` with no settings of the machine."""
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def a_repository(forge: Forge, commits: list[dict[str, bytes]]) -> list[CommitId]:
    """The repository `app` with these commits on main, each a set of files that it writes; their ids."""
    bare = forge.storage.path(RepoName("app"))
    if not bare.exists():
        bare.parent.mkdir(parents=True, exist_ok=True)
        git(bare.parent, "init", "-q", "--bare", "-b", "main", str(bare))
    work = forge.root / "author"
    if not work.exists():
        git(forge.root, "init", "-q", "-b", "main", str(work))
    made = []
    for files in commits:
        for path, data in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(data)
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", json.dumps(sorted(files)))
        made.append(CommitId.parse(git(work, "rev-parse", "HEAD")))
    git(work, "push", "-q", "-f", str(bare), "main")
    return made
