"""Builds the server from a Config; the only module that knows every concrete class. Decides nothing.

async with App.open_doors(config) as app:
    await app.run(stop, ready=…)
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import vole
from vole.base import limits, log, supervise
from vole.base.bell import Bells
from vole.base.clock import Clock, StoreClock, SystemClock
from vole.base.entropy import Entropy, SystemEntropy
from vole.base.errors import Conflict, Invalid, Unavailable
from vole.base.offload import Offload
from vole.base.supervise import Service, Sweep
from vole.config import server
from vole.config.reading import Listen
from vole.config.server import Config
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.administration import Administration
from vole.flows.administration import Parts as AdministrationParts
from vole.flows.decided import Decided
from vole.flows.gating import Gating, GatingParts
from vole.flows.leasing import Leasing, LeasingParts
from vole.flows.push import Pushes, PushParts
from vole.flows.push.verdicts import Verdicts
from vole.flows.rebuilding import Parts as RebuildParts
from vole.flows.rebuilding import Rebuilt, rebuild
from vole.flows.recording import Recording
from vole.flows.recovery import Recovery
from vole.flows.removal import Removal
from vole.flows.retention import ArtifactRetention, Retention
from vole.flows.starting import Schedules, Starting, StartingParts
from vole.flows.statuses import Statuses
from vole.flows.upkeep import Upkeep, UpkeepParts
from vole.git import version as git_version
from vole.git.bitmaps import Bitmaps
from vole.git.records import RecordKeys
from vole.git.service import GitPrograms
from vole.git.storage import Storage
from vole.http import Certificate
from vole.jobs.index import QueueIndex
from vole.jobs.model import Policy
from vole.runners.roster import Roster
from vole.ssh.admin_session import AdminDoor
from vole.ssh.answers.counter import Desk
from vole.ssh.git_session import GitDoor
from vole.ssh.hostkey import host_key_fingerprint, load_host_key
from vole.ssh.operator import OperatorDoor
from vole.ssh.runner_session import RunnerDoor
from vole.ssh.server import DoorParts, SshDoor
from vole.store.database import Database
from vole.store.lock import StateLock
from vole.web.site import WebDoor, WebParts

if TYPE_CHECKING:
    from vole.telemetry import Metrics
    from vole.web.metrics import MetricsDoor

_log = log.get("vole.app")

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  shown as an address that can be dialled
_CARRIED = {"hooks": "hooks", "templates": "templates", "systemd": "runner/systemd"}  # where each lies in a checkout


def carried(what: str) -> Path:
    """The folder of `hooks`, `templates` or `systemd`, in a checkout and in an installed wheel alike."""
    package = Path(vole.__file__).parent
    installed = package / "_carried" / what
    return installed if installed.is_dir() else package.parent / _CARRIED[what]


@dataclass(frozen=True)
class Sockets:
    """The bound sockets of the doors, and the addresses that people reach them at."""

    ssh: socket.socket | None
    web: socket.socket | None
    url: str
    ssh_url: str
    metrics: socket.socket | None = None


@dataclass
class App:
    """A whole server. Its parts are public, so that a test can look at each."""

    config: Config
    sockets: Sockets
    clock: Clock
    entropy: Entropy
    bells: Bells
    db: Database
    storage: Storage
    offload: Offload
    index: QueueIndex
    roster: Roster
    logs: LogStore
    artifacts: ArtifactStore
    leasing: Leasing
    upkeep: Upkeep
    pushes: Pushes
    starting: Starting
    schedules: Schedules
    recording: Recording
    decided: Decided
    recovery: Recovery
    gating: Gating
    administration: Administration
    programs: GitPrograms
    metrics: Metrics | None
    sweeps: list[Sweep] = field(default_factory=list)  # while it runs

    @property
    def url(self) -> str:
        return self.sockets.url

    @property
    def ssh_url(self) -> str:
        return self.sockets.ssh_url

    @property
    def removal(self) -> Removal:
        return Removal(self.db, self.logs, self.artifacts, self.clock, lambda: self.config.retention)

    @property
    def desk(self) -> Desk:
        """What commands are answered from."""
        return Desk(
            db=self.db,
            bells=self.bells,
            administration=self.administration,
            leasing=self.leasing,
            starting=self.starting,
            recording=self.recording,
            gating=self.gating,
            removal=self.removal,
            index=self.index,
            roster=self.roster,
            logs=self.logs,
            url=self.url,
            ssh_url=self.ssh_url,
            version=vole.__version__,
        )

    @classmethod
    @asynccontextmanager
    async def closed_doors(cls, config: Config) -> AsyncIterator[App]:
        """The state of a server that does not run, for one command. Raises Conflict while a server holds it."""
        async with AsyncExitStack() as stack:
            _hold(stack, config)
            app = await _build(stack, config, _addresses(config, None, None), SystemClock(), SystemEntropy())
            yield app
            await app.decided.once()

    @classmethod
    @asynccontextmanager
    async def open_doors(
        cls, config: Config, clock: StoreClock | None = None, entropy: Entropy | None = None
    ) -> AsyncIterator[App]:
        """A server whose sockets are bound, so that its addresses are known; `run` answers on them.

        Raises Conflict naming the process that holds the folder, Unavailable for a taken port or a missing git.
        """
        async with AsyncExitStack() as stack:
            _hold(stack, config)
            _demand_machine()
            ssh = stack.enter_context(_bound(config.ssh.listen, "ssh.listen"))
            web = stack.enter_context(_bound(config.web.listen, "web.listen"))
            sockets = _addresses(config, ssh, web)
            if config.metrics.listen is not None:
                metrics = stack.enter_context(_bound(config.metrics.listen, "metrics.listen"))
                sockets = dataclasses.replace(sockets, metrics=metrics)
            app = await _build(stack, config, sockets, clock or SystemClock(), entropy or SystemEntropy())
            await app._recover()
            yield app

    @staticmethod
    async def rebuild(config: Config, say: Callable[[str], object]) -> list[Rebuilt]:
        """A new database from the repositories; in its place once it is whole. Raises Conflict where there is one."""
        paths, fresh = config.paths, config.paths.database.with_name("vole.db.rebuilt")
        async with AsyncExitStack() as stack:
            _hold(stack, config)
            if paths.database.exists():
                raise Conflict(
                    f"there is a database {paths.database}; nothing was changed",
                    next_step=f"keep it under another name first: mv {paths.database.name} {paths.database.name}.old",
                )
            for left in fresh.parent.glob(f"{fresh.name}*"):
                left.unlink()
            storage = Storage(paths.repos)
            stack.callback(storage.close)
            logs = LogStore(paths.logs)
            stack.callback(logs.close)
            db = await Database.open(fresh, SystemClock(), SystemEntropy())
            try:
                back = await rebuild(
                    RebuildParts(db, storage, logs, ArtifactStore(paths.artifacts), paths.admin_repository), say
                )
            finally:
                await db.close()
            for old in paths.database.parent.glob(f"{paths.database.name}-*"):
                old.unlink()  # a log of changes to the database that is gone would be taken for one of this
            fresh.rename(paths.database)
            return back

    async def run(self, stop: asyncio.Event, *, ready: Callable[[], object]) -> None:
        """Serve until `stop` is set or a door fails; `ready` is called once every door listens."""
        assert self.sockets.ssh is not None, "a server runs with open doors"
        assert self.sockets.web is not None, "a server runs with open doors"
        ssh, web = self._ssh_door(self.sockets.ssh), self._web_door(self.sockets.web)
        operator = OperatorDoor(self.config.paths.command_socket, self.desk)
        self.sweeps = self._sweeps(ssh)

        def announce() -> None:
            more = (
                {} if self.sockets.metrics is None else {"metrics": "{}:{}".format(*self.sockets.metrics.getsockname())}
            )
            _log.info("serving", url=self.url, ssh=self.ssh_url, version=vole.__version__, **more)
            ready()

        doors: list[Service] = [ssh, web, operator, *self._metrics_door()]
        await supervise.run([*doors, _Announcement(announce)], self.sweeps, self.bells, stop)
        _log.info("stopped")

    def reconfigure(self, read: Config) -> None:
        """Take from `read` what may change while the server runs; the rest is named in the log."""
        self.config, restart = server.reloaded(self.config, read)
        self.leasing.reconfigure(self.config.queue)
        self.upkeep.reconfigure(self.config.queue)
        _log.info("settings read again", needs_restart=" ".join(restart) or None)

    def say_unreadable(self, error: Invalid) -> None:
        """The settings on the disk have problems; the running ones stay."""
        for line in error.lines:
            _log.error("settings not read", problem=line)

    async def _recover(self) -> None:
        """Bring queue and repositories to where a dead server left them, before any door listens."""
        paths = self.config.paths
        paths.hooks.mkdir(mode=0o700, exist_ok=True)
        for hook in carried("hooks").iterdir():
            shutil.copyfile(hook, paths.hooks / hook.name)
            (paths.hooks / hook.name).chmod(0o755)
        await self.recovery.on_start(self.programs)
        await self.offload.start()

    def _ssh_door(self, bound: socket.socket) -> SshDoor:
        runners = RunnerDoor(self.leasing, self.storage, self.clock)
        parts = DoorParts(
            db=self.db,
            git=GitDoor(self.pushes, self.programs, None if self.metrics is None else self.metrics.answered),
            commands=AdminDoor(self.desk).run,
            runners=runners.session,
            host_key=load_host_key(self.config.paths.host_key),
        )
        return SshDoor(parts, bound)

    def _web_door(self, bound: socket.socket) -> WebDoor:
        tls = self.config.web.tls
        parts = WebParts(
            bound=bound,
            certificate=None if tls is None else Certificate(tls.cert, tls.key),
            url=self.url,
            ssh_url=self.ssh_url,
            host_key=host_key_fingerprint(self.config.paths.host_key),
            trusted_proxies=self.config.web.trusted_proxies,
            templates=carried("templates"),
            version=vole.__version__,
            db=self.db,
            bells=self.bells,
            clock=self.clock,
            entropy=self.entropy,
            storage=self.storage,
            administration=self.administration,
            leasing=self.leasing,
            starting=self.starting,
            statuses=Statuses(self.db, self.storage),
            roster=self.roster,
            logs=self.logs,
            artifacts=self.artifacts,
            record_keys=self.recording.keys,
            sweeps=lambda: self.sweeps,
        )
        return WebDoor(parts)

    def _metrics_door(self) -> list[MetricsDoor]:
        """None unless the settings ask for it."""
        if self.metrics is None or self.sockets.metrics is None:
            return []
        from vole.web.metrics import MetricsDoor, MetricsParts  # noqa: PLC0415  only where it is asked for

        parts = MetricsParts(
            self.sockets.metrics, self.metrics, self.db, self.roster, self.clock, self.config.paths.root
        )
        return [MetricsDoor(parts)]

    async def _look(self) -> object:
        """The dispatcher's look, counted where somebody counts."""
        if self.metrics is not None:
            self.metrics.woke()
        return await self.leasing.look()

    def _sweeps(self, ssh: SshDoor) -> list[Sweep]:
        retention = Retention(self.db, self.storage, lambda: self.config.retention.rerun_s)
        expiry = ArtifactRetention(self.db, self.index, self.artifacts)
        return [
            Sweep("leases", self.upkeep.once, 1.0),
            Sweep("dispatch", self._look, limits.LOOK_S, topics=("jobs", "want"), due_s=self.leasing.rest_s),
            Sweep("grants", self.leasing.recheck, limits.LOOK_S, topics=("people",)),
            Sweep("connections", ssh.people_changed, limits.LOOK_S, topics=("people",)),
            Sweep("pushes", self.recovery.settle_pushes, limits.LOOK_S),
            Sweep("bitmaps", Bitmaps(self.programs).once, limits.BITMAPS_AFTER_S),
            Sweep("schedules", self.schedules.once, limits.LOOK_S, topics=("schedules",)),
            Sweep("records", self.recording.once, limits.RECORDS_LOOK_S),
            Sweep("decided", self.decided.once, limits.RECORDS_LOOK_S),
            Sweep("retention", retention.once, limits.RETENTION_LOOK_S),
            Sweep("removal", self.removal.once, limits.RETENTION_LOOK_S),
            Sweep("artifacts", expiry.once, limits.RETENTION_LOOK_S),
        ]


async def _build(stack: AsyncExitStack, config: Config, sockets: Sockets, clock: StoreClock, entropy: Entropy) -> App:
    """Every part, each closed by `stack` in the reverse order."""
    bells, index, roster, policy = Bells(), QueueIndex(), Roster(), _policy(config, sockets)
    db, storage, logs, offload, programs = await _opened(stack, config, clock, entropy)
    artifacts = ArtifactStore(config.paths.artifacts)
    leasing = Leasing(LeasingParts(db, bells, index, roster, logs, artifacts, offload, entropy, clock), policy)
    keys = RecordKeys.open(config.paths.record_key, server.deployment(config.paths), clock.now())
    verdicts = Verdicts(offload)
    gating = Gating(GatingParts(db, bells, storage, verdicts, keys, sockets.url))
    pushes = Pushes(
        PushParts(db, bells, storage, verdicts, index, leasing.prospects, leasing.ended, gating.demand, sockets.url)
    )
    starting = StartingParts(db, bells, clock, storage, index, verdicts, leasing.ended)
    upkeep = Upkeep(UpkeepParts(db, index, artifacts, leasing.ended, leasing.waits, clock), policy)
    await upkeep.on_start()
    recording = Recording(db, bells, storage, logs, keys, clock, programs.note)
    return App(
        config=config,
        sockets=sockets,
        clock=clock,
        entropy=entropy,
        bells=bells,
        db=db,
        storage=storage,
        offload=offload,
        index=index,
        roster=roster,
        logs=logs,
        artifacts=artifacts,
        leasing=leasing,
        upkeep=upkeep,
        pushes=pushes,
        starting=Starting(starting),
        schedules=Schedules(starting),
        recording=recording,
        decided=Decided(recording, config.paths.admin_repository),
        recovery=Recovery(db, storage, pushes.settle_left),
        gating=gating,
        administration=Administration(
            AdministrationParts(db, bells, entropy, storage, index, logs, leasing.repository_removed)
        ),
        programs=programs,
        metrics=None if sockets.metrics is None else _metrics(),
    )


async def _opened(
    stack: AsyncExitStack, config: Config, clock: Clock, entropy: Entropy
) -> tuple[Database, Storage, LogStore, Offload, GitPrograms]:
    """What holds threads, files or processes."""
    paths = config.paths
    db = await Database.open(paths.database, clock, entropy)
    stack.push_async_callback(db.close)
    storage, logs = Storage(paths.repos), LogStore(paths.logs)
    stack.callback(storage.close)
    stack.callback(logs.close)
    offload = Offload("vole.workflows.checks", "vole.evidence.junit")
    stack.push_async_callback(offload.close)
    programs = GitPrograms(paths.hooks, paths.run / "git.lock")
    stack.callback(programs.close)
    return db, storage, logs, offload, programs


def _policy(config: Config, sockets: Sockets) -> Policy:
    return Policy(
        ttl_s=config.queue.lease_ttl_s,
        cap=config.queue.max_jobs_per_repo,
        queue_timeout_s=config.queue.queue_timeout_s,
        url=sockets.url,
        version=vole.__version__,
    )


def _metrics() -> Metrics:
    from vole.telemetry import Metrics  # noqa: PLC0415  it loads what only a server with metrics needs

    return Metrics()


class _Announcement:
    """The last service to start: when it does, the server is ready."""

    name = "ready"

    def __init__(self, ready: Callable[[], object]) -> None:
        self._ready = ready

    async def start(self) -> None:
        self._ready()

    async def wait(self) -> None:
        await asyncio.Event().wait()

    async def drain(self) -> None: ...

    async def stop(self) -> None: ...


def _demand_machine() -> None:
    """Raises Unavailable where a server cannot run."""
    if sys.platform != "linux":
        raise Unavailable(f"a vole server runs on Linux, not on {sys.platform}")
    git_version.demand()


def _hold(stack: AsyncExitStack, config: Config) -> None:
    config.paths.run.mkdir(mode=0o700, exist_ok=True)
    stack.callback(StateLock(config.paths.lock).release)


def _bound(listen: Listen, setting: str) -> socket.socket:
    """A socket bound to `listen`. Raises Unavailable, naming the setting, where that cannot be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.create_server(address[:2], family=family, backlog=512, dualstack_ipv6=listen.host == "::")
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {listen} ({setting}): {error.strerror}",
            next_step=f"free the port, or change {setting} in {server.FILE}",
        ) from None
    # Accepted sockets inherit it. asyncio sets it only on sockets whose protocol number is TCP's, and ours is 0.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _addresses(config: Config, ssh: socket.socket | None, web: socket.socket | None) -> Sockets:
    scheme = "https" if config.web.tls else "http"
    web_port = web.getsockname()[1] if web else config.web.listen.port
    ssh_port = ssh.getsockname()[1] if ssh else config.ssh.listen.port
    url = config.url or f"{scheme}://{_dialled(config.web.listen)}:{web_port}"
    host = url.partition("://")[2]
    host = host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return Sockets(ssh, web, url, config.ssh.url or f"ssh://git@{host}:{ssh_port}")


def _dialled(listen: Listen) -> str:
    host = _WILDCARDS.get(listen.host, listen.host)
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
