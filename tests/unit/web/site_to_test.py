"""A whole site in one process: real store, repositories, queue, files and flows, asked without a socket."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from tests import stored
from tests.queueing import COMMIT, POLICY, a_hello, a_job, a_key, a_run
from tests.unit.git.gitrepo import GitRepo
from vole.base.bell import Bells
from vole.base.clock import ManualClock
from vole.base.entropy import SeededEntropy
from vole.base.errors import Exhausted
from vole.base.ids import AccountName, CommitId, PushId, RepoName
from vole.base.supervise import Sweep
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.administration import Administration
from vole.flows.administration import Parts as AdministrationParts
from vole.flows.leasing import Leasing, LeasingParts
from vole.flows.push.verdicts import Verdicts
from vole.flows.starting import Starting, StartingParts
from vole.flows.statuses import Statuses
from vole.git.objects import Held
from vole.git.records import RecordKeys
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs.index import QueueIndex
from vole.jobs.model import RunSource
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.runners.roster import Roster, Session
from vole.store.database import READERS, Database
from vole.web.pages.kept import Kept
from vole.web.pages.parts import WebParts
from vole.web.pages.visit import GitPlaces, House, Streams, Workshop
from vole.web.render import Renderer
from vole.web.site import application
from vole.wire import runner as wire
from vole.wire.plan import Concurrency

ROOT = Path(__file__).parents[3]
URL = "http://forge.test"
_renderer = cache(Renderer)  # the templates are compiled once a process


class InProcess:
    """An Offload whose work is done here. `full`: it refuses everything, as a child does that ran out of time."""

    def __init__(self) -> None:
        self.full = False

    async def call(self, function: str, argument: object) -> Any:
        if self.full:
            raise Exhausted("the highlighter took more than 2 CPU seconds (OFFLOAD_CPU_S)")
        module, _, name = function.partition(":")
        return json.loads(json.dumps(getattr(importlib.import_module(module), name)(argument)))  # as a pipe carries it


class Following:
    """A live page that is open: what the server sends, event by event."""

    def __init__(self, site: Site, path: str, headers: dict[str, str]) -> None:
        plain, _, query = path.partition("?")
        scope = {
            "type": "http", "method": "GET", "path": plain, "raw_path": plain.encode(), "query_string": query.encode(),
            "headers": [(b"host", b"forge.test"), *((k.encode(), v.encode()) for k, v in headers.items())],
            "client": ("192.0.2.1", 1), "http_version": "1.1", "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        self._left = asyncio.Event()
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._rest: list[tuple[str, Any, str]] = []
        self.done = asyncio.ensure_future(site.client._transport.app(scope, self._receive, self._messages.put))  # type: ignore[attr-defined]

    async def _receive(self) -> Any:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def status(self) -> int:
        return int((await self._messages.get())["status"])

    async def looked(self) -> None:
        """Wait until the page has looked for the first time, and had nothing to say."""
        message = await self._messages.get()
        assert message["body"].startswith(b":"), message

    async def event(self) -> tuple[str, Any, str]:
        """Name, data and id of the next event; ("closed", …) when the server has ended the stream."""
        while not self._rest:
            message = await self._messages.get()
            body = message.get("body", b"").decode()
            for part in filter(None, body.split("\n\n")):
                fields = dict(line.split(": ", 1) for line in part.split("\n") if not line.startswith(":"))
                if "event" in fields:
                    self._rest.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._rest.append(("closed", None, ""))
        return self._rest.pop(0)

    async def until(self, name: str) -> list[tuple[str, Any, str]]:
        """The events up to the first of that name."""
        events = [await self.event()]
        while events[-1][0] != name:
            events.append(await self.event())
        return events

    async def leave(self) -> None:
        self._left.set()
        await self.done


@dataclass
class Site:
    house: House
    client: httpx.AsyncClient
    index: QueueIndex
    offload: InProcess
    folder: Path
    pushes: int = 0
    repos: dict[str, Repo] = field(default_factory=dict)

    @property
    def db(self) -> Database:
        return self.house.parts.db

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self.house.parts.clock, ManualClock)
        return self.house.parts.clock

    async def get(self, path: str, session: str | None = None, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers=self._headers(session, headers))

    async def statements(self, path: str, **headers: str) -> list[str]:
        """What the store is asked for that page, names and numbers left out."""
        said: list[str] = []
        readers = [self.db._idle.get_nowait() for _ in range(READERS)]
        for connection in (*readers, self.db._glancing):
            connection.set_trace_callback(said.append)  # type: ignore[union-attr]
        for connection in readers:
            self.db._idle.put(connection)
        await self.get(path, **headers)
        return [re.sub(r"'\w+'|[0-9]+", "?", line) for line in said]

    async def post(
        self, path: str, session: str | None = None, *, fields: dict[str, str] | None = None, **headers: str
    ) -> httpx.Response:
        return await self.client.post(path, headers=self._headers(session, headers), data=fields)

    def _headers(self, session: str | None, headers: dict[str, str]) -> dict[str, str]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return given if session is None else {"cookie": f"vole={session}", **given}

    async def status_of(self, raw_path: bytes, *hosts: bytes) -> int:
        """The status for a path and hosts as a client may send them, odd ones too, which httpx would put right."""
        path, _, query = raw_path.partition(b"?")
        scope = {
            "type": "http", "method": "GET", "path": unquote(path.decode("latin-1")), "raw_path": path,
            "query_string": query, "headers": [(b"host", host) for host in hosts], "client": ("192.0.2.1", 1),
        }  # fmt: skip
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        await self.client._transport.app(scope, receive, send)  # type: ignore[attr-defined]
        return int(said[0]["status"])

    def follow(self, path: str, session: str | None = None, **headers: str) -> Following:
        """Open a live page."""
        return Following(self, path, self._headers(session, headers))

    async def repo(self, name: str, *, public: bool = True) -> GitRepo:
        """A repository in the store and on the disk."""
        self.repos[name] = await self.db.write(repos.create_repo, RepoName(name), public=public)
        return GitRepo(self.house.parts.storage.path(RepoName(name)))

    async def repo_of(self, name: str) -> GitRepo:
        """A repository that is there already."""
        return GitRepo(self.house.parts.storage.path(RepoName(name)))

    async def person(self, name: str, *, admin: bool = False, **rights: Any) -> str:
        """Someone who is logged in; the session's token."""
        account = await self.db.write(people.add_account, AccountName(name), admin=admin)
        for repo, level in rights.items():
            await self.db.write(people.grant, account, self.repos[repo].id, level)
        return await self.house.parts.administration.log_in(
            await self.house.parts.administration.make_login_link(account)
        )

    async def run(
        self,
        repo: str,
        *plans: Any,
        skipped: Any = None,
        commit: str = COMMIT,
        group: str | None = None,
        event: str = "push",
    ) -> Any:
        """A queued run; one job where none is given."""
        self.pushes += 1
        plan = a_run(*(plans or (a_job(repo=repo),)), skipped=skipped) if not skipped else a_run(skipped=skipped)
        concurrency = Concurrency(group) if group else None
        said: Any = dataclasses.replace(plan.event, name=event)  # type: ignore[arg-type]
        plan = dataclasses.replace(plan, commit=CommitId(commit), concurrency=concurrency, event=said)
        source = RunSource(self.repos[repo].id, PushId(self.pushes), 0)
        return await self.db.write(jobs.enqueue_run, self.index, source, plan, plan.labels)

    async def runner(self, name: str, *labels: str, grant: tuple[str, ...] = (), **more: Any) -> Session:
        """A connected runner process with a key of its own."""
        account = await self.db.write(people.add_account, AccountName(name), admin=False)
        await self.db.write(people.add_key, account, a_key(name), "runner")
        for repo in grant:
            await self.db.write(people.grant, account, self.repos[repo].id, "run")
        person = await self.db.read(people_reads.person_of_key, f"SHA256:{name}")
        assert person is not None
        return await self.house.parts.leasing.hello(person, a_hello(name, labels, **more))

    async def takes(self, session: Session) -> wire.Job:
        """A lease, started."""
        leasing = self.house.parts.leasing
        asking = asyncio.ensure_future(leasing.next_job(session, wire.Want(0, f"t{self.pushes}-{session.id}")))
        await asyncio.sleep(0)
        await leasing.look()
        job = await asking
        assert isinstance(job, wire.Job)
        await leasing.started(session, wire.Started(job.lease.job, job.lease.epoch))
        return job

    async def logs(self, session: Session, job: wire.Job, data: bytes, *marks: wire.Mark) -> None:
        leasing, lease = self.house.parts.leasing, job.lease
        await leasing.marks(session, wire.Marks(lease.job, lease.epoch, marks))
        at = await leasing.log_position(session, lease.job, lease.epoch)
        await leasing.append_log(session, lease.job, lease.epoch, at, data)

    async def finishes(self, session: Session, job: wire.Job, conclusion: Any = "success", **more: Any) -> None:
        """A result whose log is what was sent; `log` may declare another."""
        leasing, lease = self.house.parts.leasing, job.lease
        at = await leasing.log_position(session, lease.job, lease.epoch)
        written = self.log_of(job, at)
        seal = more.pop("log", wire.LogSeal(at, hashlib.sha256(written).hexdigest()))
        await leasing.finish(session, wire.Finish(lease.job, lease.epoch, conclusion, seal, **more))

    def log_of(self, job: wire.Job, most: int) -> bytes:
        repo, run, key = job.address.split("/")
        return (self.folder / "logs" / repo / run / key / str(job.lease.epoch)).read_bytes()[:most] if most else b""


@asynccontextmanager
async def a_site(folder: Path, *, url: str = URL, proxies: tuple[str, ...] = ()) -> AsyncIterator[Site]:
    """A site with nothing in it."""
    clock, entropy, bells, index, roster = ManualClock(), SeededEntropy(), Bells(), QueueIndex(), Roster()
    for name in ("repos", "logs", "artifacts"):
        (folder / name).mkdir()
    db = await Database.open(stored.fresh(folder), clock, entropy)
    storage, logs = Storage(folder / "repos"), LogStore(folder / "logs")
    artifacts, offload = ArtifactStore(folder / "artifacts"), InProcess()
    leasing = Leasing(LeasingParts(db, bells, index, roster, logs, artifacts, offload, entropy, clock), POLICY)  # type: ignore[arg-type]
    administration = Administration(
        AdministrationParts(db, bells, entropy, storage, index, logs, leasing.repository_removed)
    )
    starting = Starting(StartingParts(db, bells, clock, storage, index, Verdicts(offload), leasing.ended))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as bound:
        parts = WebParts(
            bound=bound, certificate=None, url=url, ssh_url="ssh://git@forge.test:2222", host_key="SHA256:abc",
            trusted_proxies=proxies, templates=ROOT / "templates", version="0", db=db, bells=bells, clock=clock,
            entropy=entropy, storage=storage, administration=administration, leasing=leasing, starting=starting,
            statuses=Statuses(db, storage),
            roster=roster, logs=logs, artifacts=artifacts,
            record_keys=RecordKeys.open(folder / "record_ed25519", "0" * 32, clock.now()),
            sweeps=lambda: [Sweep("leases", leasing.look, 1.0)],
        )  # fmt: skip
        house = House(
            parts, _renderer(parts.templates), offload, Workshop(), GitPlaces(), Streams(), Kept(db, clock), Held(),
            asyncio.Event(),
        )  # fmt: skip
        transport = httpx.ASGITransport(application(house), client=("192.0.2.1", 1000))
        try:
            async with httpx.AsyncClient(transport=transport, base_url=url) as client:
                yield Site(house, client, index, offload, folder)
        finally:
            house.workshop.close()
            house.held.close()
            logs.close()
            storage.close()
            await db.close()
