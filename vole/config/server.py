"""What the machine decides: `DIR/vole.yaml` as frozen values, and the layout of the folder. Reads no environment.

What people decide (accounts, keys, grants, repository settings, labels) is in the store, never here.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vole.base import limits
from vole.base.errors import Invalid, NotFound
from vole.config import reading
from vole.config.reading import Listen, Section

FILE = "vole.yaml"
AUTO = "auto"
_DAY_S = 86400.0
_DEPLOYMENT = re.compile(r"[0-9a-f]{32}")
_URL = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(:[0-9]{1,5})?")
_SSH_URL = re.compile(r"ssh://git@([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(:[0-9]{1,5})?")

TEMPLATE = """\
# Settings of this vole server: every key, with its default. A line that is removed gets its default again.
# `vole config check` says what is wrong. HUP reloads max_jobs_per_repo and retention; the rest needs a restart.

# The address of the pages, as people's browsers reach it. Every link is built from it, none from a request.
# auto: the address that web.listen gives.
url: {url}

ssh:
  # Where git, commands and runners connect: host:port.
  listen: {ssh_listen}
  # The address people clone from, as ssh://git@forge.example:2222. auto: the host of `url`, the port of ssh.listen.
  url: auto

web:
  # Where the pages listen: host:port. Leave it on loopback behind a proxy.
  listen: {web_listen}
  # Serve https by ourselves: none, or two PEM files below it, `cert: FILE` and `key: FILE`.
  tls: none
  # Proxies whose X-Forwarded-For and X-Forwarded-Proto count: addresses or networks, as [127.0.0.1, 10.0.0.0/8].
  trusted_proxies: []

queue:
  # A runner that is silent for this long has lost its job: 6s to 10m. Every other span of a lease follows from it.
  lease_ttl: 60s
  # A job that waits longer than this ends as `expired`. 0s: never.
  queue_timeout: 24h
  # How many jobs of one repository may run at once: none, or a number. Reloaded.
  max_jobs_per_repo: none

metrics:
  # Where a scraper finds /metrics (Prometheus): none, or host:port. Keep it on loopback, as 127.0.0.1:9464.
  listen: none

# How long things are kept; 0s: for ever. Reloaded.
retention:
  # Commits of finished runs are held this long, whatever happens to their branches.
  rerun: 30d
  # Logs of attempts that ended longer ago go; the run's page and its record say that there was one.
  logs: 90d
  # All logs of one repository together: none, or a size as 10GiB. The oldest go first.
  logs_size: none
  # Finished runs are forgotten with their jobs, logs and artifacts; their records in git stay.
  runs: 0s
"""


@dataclass(frozen=True)
class SshConfig:
    listen: Listen
    url: str | None  # None: made from the page's host and the bound port


@dataclass(frozen=True)
class Tls:
    cert: Path
    key: Path


@dataclass(frozen=True)
class WebConfig:
    listen: Listen
    tls: Tls | None
    trusted_proxies: tuple[str, ...]


@dataclass(frozen=True)
class QueueConfig:
    lease_ttl_s: float
    queue_timeout_s: float  # 0: never
    max_jobs_per_repo: int | None


@dataclass(frozen=True)
class MetricsConfig:
    """None: off, and costing nothing."""

    listen: Listen | None


@dataclass(frozen=True)
class RetentionConfig:
    """0 means: kept for ever."""

    rerun_s: float
    logs_s: float
    logs_size: int | None  # bytes of one repository's logs together; None: no bound
    runs_s: float


@dataclass(frozen=True)
class Paths:
    """Where everything lies in the folder of a server."""

    root: Path

    @property
    def settings(self) -> Path:
        return self.root / FILE

    @property
    def database(self) -> Path:
        return self.root / "vole.db"

    @property
    def repos(self) -> Path:
        return self.root / "repos"

    @property
    def admin_repository(self) -> Path:
        return self.root / "vole-admin.git"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def host_key(self) -> Path:
        return self.root / "keys" / "ssh_host_ed25519"

    @property
    def record_key(self) -> Path:
        return self.root / "keys" / "record_ed25519"

    @property
    def record_signers(self) -> Path:
        return self.record_key.with_name("record_signers")

    @property
    def deployment_id(self) -> Path:
        return self.root / "deployment-id"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def hooks(self) -> Path:
        return self.run / "hooks"

    @property
    def command_socket(self) -> Path:
        return self.run / "command.sock"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that `vole init` makes, mode 0700."""
        return (self.root, self.repos, self.logs, self.artifacts, self.host_key.parent, self.run)


@dataclass(frozen=True)
class Config:
    url: str | None  # None: made from the bound address of web.listen
    ssh: SshConfig
    web: WebConfig
    queue: QueueConfig
    metrics: MetricsConfig
    retention: RetentionConfig
    paths: Paths


def load(folder: Path) -> Config:
    """The settings of the server in `folder`. Raises NotFound where there is none, Invalid with every problem."""
    paths = Paths(folder.absolute())
    if not paths.settings.is_file():
        raise NotFound(
            f"{folder} holds no {FILE}: no vole server was made there",
            next_step="run `vole init DIR` first, or name the folder with --dir or VOLE_DIR",
        )
    return build(reading.read(paths.settings), paths)


def deployment(paths: Paths) -> str:
    """Who this server is to others: 32 hex digits, made once. Raises Invalid where they cannot be read."""
    try:
        text = paths.deployment_id.read_text("utf-8").strip()
    except OSError as error:
        raise Invalid(f"{paths.deployment_id} cannot be read: {error.strerror}") from None
    if not _DEPLOYMENT.fullmatch(text):
        raise Invalid(f"{paths.deployment_id} holds no deployment id: 32 hex digits", next_step="take it from a backup")
    return text


def build(root: Section, paths: Paths) -> Config:
    """The settings under `root`. Raises Invalid with every problem of the file."""
    ssh, web, queue, meters, keep = (root.section(key) for key in ("ssh", "web", "queue", "metrics", "retention"))
    config = Config(
        url=root.value("url", None, _url),
        ssh=SshConfig(
            listen=ssh.listen("listen", Listen("0.0.0.0", 2222)),  # noqa: S104  the door people push through
            url=ssh.value("url", None, _ssh_url),
        ),
        web=WebConfig(
            listen=web.listen("listen", Listen("127.0.0.1", 8080)),
            tls=_tls(web, paths),
            trusted_proxies=web.each("trusted_proxies", (), _network),
        ),
        queue=QueueConfig(
            lease_ttl_s=queue.duration_s(
                "lease_ttl", limits.LEASE_TTL_S, least_s=limits.LEASE_TTL_MIN_S, most_s=limits.LEASE_TTL_MAX_S
            ),
            queue_timeout_s=queue.duration_s("queue_timeout", _DAY_S),
            max_jobs_per_repo=queue.optional("max_jobs_per_repo", _cap),
        ),
        metrics=MetricsConfig(listen=meters.optional("listen", reading.listen)),
        retention=RetentionConfig(
            rerun_s=keep.duration_s("rerun", 30 * _DAY_S),
            logs_s=keep.duration_s("logs", 90 * _DAY_S),
            logs_size=keep.optional("logs_size", partial(reading.size, least=limits.MIB)),
            runs_s=keep.duration_s("runs", 0.0),
        ),
        paths=paths,
    )
    root.finish()
    return config


def reloaded(running: Config, read: Config) -> tuple[Config, tuple[str, ...]]:
    """`running` with what may change without a restart taken from `read`, and the changed settings that may not."""
    merged = dataclasses.replace(
        running,
        queue=dataclasses.replace(running.queue, max_jobs_per_repo=read.queue.max_jobs_per_repo),
        retention=read.retention,
    )
    return merged, tuple(_differences(merged, read))


def template(*, url: str = AUTO, ssh_listen: str = "0.0.0.0:2222", web_listen: str = "127.0.0.1:8080") -> str:
    """The text of a new settings file."""
    return TEMPLATE.format(url=url, ssh_listen=ssh_listen, web_listen=web_listen)


def _differences(merged: Config, read: Config) -> list[str]:
    pairs = {
        "url": (merged.url, read.url),
        "ssh.listen": (merged.ssh.listen, read.ssh.listen),
        "ssh.url": (merged.ssh.url, read.ssh.url),
        "web.listen": (merged.web.listen, read.web.listen),
        "web.tls": (merged.web.tls, read.web.tls),
        "web.trusted_proxies": (merged.web.trusted_proxies, read.web.trusted_proxies),
        "queue.lease_ttl": (merged.queue.lease_ttl_s, read.queue.lease_ttl_s),
        "queue.queue_timeout": (merged.queue.queue_timeout_s, read.queue.queue_timeout_s),
        "metrics.listen": (merged.metrics.listen, read.metrics.listen),
    }
    return [key for key, (now, then) in pairs.items() if now != then]


def _tls(web: Section, paths: Paths) -> Tls | None:
    tls = web.section("tls")
    cert, key = (tls.path(name, None, paths.root) for name in ("cert", "key"))
    if cert is not None and key is not None:
        return Tls(cert, key)
    if tls.present:
        web.problem("tls", "needs both `cert: FILE` and `key: FILE`")
    return None


def _url(text: str) -> str | None:
    if text == AUTO:
        return None
    if not _URL.fullmatch(text.rstrip("/")):
        raise Invalid(f"{text!r} is no address of pages; write it as https://forge.example, without a path")
    return text.rstrip("/")


def _ssh_url(text: str) -> str | None:
    if text == AUTO:
        return None
    if not _SSH_URL.fullmatch(text.rstrip("/")):
        raise Invalid(f"{text!r} is no address to clone from; write it as ssh://git@forge.example:2222")
    return text.rstrip("/")


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise Invalid(f"{text!r} is neither an address nor a network, as 10.0.0.0/8") from None
    return text


def _cap(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise Invalid(f"{text!r} is no number of jobs from 1 to 999999; write none for no cap")
    return int(text)
