"""What this runner is: flags before environment before file, each value checked before anything connects."""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vole.base import limits
from vole.base.errors import Denied, Invalid
from vole.base.ids import RepoName
from vole.base.labels import parse_all
from vole.config import reading, runtimes
from vole.config import runner as config
from vole.config.runner import RunnerConfig
from vole.config.runtimes import RuntimeConfig
from vole_runner.runtimes.dial import target

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Everything that was decided, complete."""

    host: str
    port: int
    key: Path
    known_hosts: tuple[Path, ...]  # the first one is written to on first use
    host_key: str | None
    trust_on_first_use: bool
    name: str
    labels: tuple[str, ...]
    repos: tuple[str, ...]
    slots: int
    only: bool
    once: bool
    idle_timeout_s: float | None
    exit_on_refusal: bool
    min_free: int | None
    work: Path
    runtime: RuntimeConfig

    @property
    def forge(self) -> str:
        return f"ssh://git@{self.host}:{self.port}"


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], here: Path) -> Settings:
    """Raises Invalid (exit 2) for what is malformed, Denied (exit 4) for a filter that can never match."""
    file = _file(flags.get("config"), environ, here)
    host, port = server(_first(flags.get("server"), environ.get("VOLE_SERVER"), file.server) or _no_server())
    name = _flag(flags, "name", config.runner_name) or file.name or _machine_name()
    work = _path(flags.get("work"), here) or file.work or _state_folder(environ) / name
    once = bool(flags.get("once"))
    runtime = runtimes.chosen(_flag(flags, "runtime", runtimes.runtime_name) or file.runtime or "local", file.runtimes)
    slots = 1 if once else _flag(flags, "slots", _slots) or file.slots or 1
    return Settings(
        host=host,
        port=port,
        key=_path(_first(flags.get("key"), environ.get("VOLE_KEY")), here) or file.key or _no_key(),
        known_hosts=_known_hosts(_path(flags.get("known_hosts"), here) or file.known_hosts, work),
        host_key=_flag(flags, "host_key", config.host_key) or file.host_key,
        trust_on_first_use=bool(flags.get("trust_on_first_use")),
        name=name,
        labels=tuple(dict.fromkeys((*_labels(flags.get("labels") or (), file), *runtime.labels))),
        repos=_repos(flags.get("repos") or (), file),
        slots=min(slots, runtime.max_jobs or slots),
        only=bool(flags.get("only")) or file.only,
        once=once,
        idle_timeout_s=_flag(flags, "idle_timeout", lambda text: reading.duration_s(text, least_s=0.001))
        or file.idle_timeout_s,
        exit_on_refusal=bool(flags.get("exit_on_refusal")),
        min_free=file.min_free if flags.get("min_free") is None else _flag(flags, "min_free", reading.size),
        work=work,
        runtime=runtime,
    )


def server(text: str) -> tuple[str, int]:
    """Host and port of `ssh://git@forge:2222`. Raises Invalid for anything else."""
    found = re.fullmatch(r"ssh://(?:git@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?", text)
    port = int(found[2] or 22) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise Invalid(f"{text[:200]!r} is no forge; write it as ssh://git@forge.example:2222")
    return found[1].strip("[]"), port


def platform_name() -> str:
    """`linux` or `macos`, else what Python says."""
    system = platform.system().lower()
    return {"darwin": "macos"}.get(system, system)


def machine() -> str:
    """`x64` or `arm64`, else what Python says."""
    found = platform.machine().lower()
    return {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(found, found)


def _file(flag: str | None, environ: Mapping[str, str], here: Path) -> RunnerConfig:
    if flag is not None:
        return config.load(here / flag, target)
    home = environ.get("HOME")
    folder = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else Path(home or "/") / ".config"
    path = folder / "vole" / config.FILE
    return config.load(path, target) if path.is_file() else RunnerConfig()


def _labels(flags: tuple[str, ...], file: RunnerConfig) -> tuple[str, ...]:
    return tuple(map(str, parse_all(_split("--label", flags)))) if flags else file.labels


def _repos(flags: tuple[str, ...], file: RunnerConfig) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(map(config.filter_name, _split("--repos", flags)))) if flags else file.repos
    for name in names:
        try:
            RepoName.parse(name)
        except Invalid as error:
            raise Denied(f"the filter can never match: {error.sentence}") from None
    return names


def _split(flag: str, texts: tuple[str, ...]) -> list[str]:
    words = [word for text in texts for word in text.split(",")]
    if "" in words:
        raise Invalid(f"{flag} has an empty name in {','.join(texts)[:80]!r}")
    return words


def _flag(flags: Mapping[str, Any], name: str, parse: Callable[[str], T]) -> T | None:
    text = flags.get(name)
    if text is None:
        return None
    try:
        return parse(text)
    except Invalid as error:
        raise Invalid(f"--{name.replace('_', '-')}: {error.sentence}") from None


def _slots(text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= limits.RUNNER_SLOTS_MAX:
        raise Invalid(f"{text!r} is no number from 1 to {limits.RUNNER_SLOTS_MAX}")
    return int(text)


def _known_hosts(given: Path | None, work: Path) -> tuple[Path, ...]:
    """One file that was named is all; else our own pins, and the user's, which are only read."""
    return (given,) if given is not None else (work / "known_hosts", Path.home() / ".ssh" / "known_hosts")


def _machine_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:63].lstrip("._-")
    return name or "runner"


def _state_folder(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "vole-runner"


def _path(text: str | None, here: Path) -> Path | None:
    return None if text is None else here / Path(text).expanduser()


def _first(*texts: str | None) -> str | None:
    return next((text for text in texts if text), None)


def _no_server() -> str:
    raise Invalid("which forge? give --server ssh://git@forge:2222, or VOLE_SERVER, or `server` in runner.yaml")


def _no_key() -> Path:
    raise Invalid("which key? give --key FILE, or VOLE_KEY, or `key` in runner.yaml")
