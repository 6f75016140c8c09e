"""What a runner is told by its file: `runner.yaml` as frozen values. Flags go before it; reads no environment.

Every key but `runtimes` has a flag of the same name; the file spares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.labels import Label
from vole.config import reading, runtimes
from vole.config.reading import Section
from vole.config.runtimes import RuntimeConfig

FILE = "runner.yaml"
MIN_FREE_AUTO = "auto"

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FILTER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class RunnerConfig:
    """What the file says. `None` and empty mean: it says nothing."""

    server: str | None = None
    key: Path | None = None
    name: str | None = None
    labels: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    only: bool = False
    slots: int | None = None
    work: Path | None = None
    runtime: str | None = None
    runtimes: tuple[RuntimeConfig, ...] = ()
    min_free: int | None = None
    idle_timeout_s: float | None = None
    known_hosts: Path | None = None
    host_key: str | None = None


def load(path: Path, address: Callable[[str], str]) -> RunnerConfig:
    """The settings in `path`; relative paths count from its folder. Raises Invalid with every problem.

    `address` raises Invalid for what cannot be dialled: the rule is the runner's.
    """
    return build(reading.read(path), path.absolute().parent, address)


def build(root: Section, folder: Path, address: Callable[[str], str]) -> RunnerConfig:
    """The settings under `root`. Raises Invalid with every problem of the file."""
    config = RunnerConfig(
        server=root.text("server", None),
        key=root.path("key", None, folder),
        name=root.value("name", None, runner_name),
        labels=root.each("labels", (), label),
        repos=root.each("repos", (), filter_name),
        only=root.boolean("only", False),
        slots=root.integer("slots", None, least=1, most=limits.RUNNER_SLOTS_MAX),
        work=root.path("work", None, folder),
        runtime=root.value("runtime", None, runtimes.runtime_name),
        runtimes=runtimes.entries(root, folder, address),
        min_free=root.size("min_free", None),
        idle_timeout_s=root.duration_s("idle_timeout", None),
        known_hosts=root.path("known_hosts", None, folder),
        host_key=root.value("host_key", None, host_key),
    )
    root.finish()
    return config


def label(text: str) -> str:
    """Raises Invalid by the server's own rule (SR-20)."""
    return str(Label.parse(text))


def filter_name(text: str) -> str:
    """A word of a repository filter. Raises Invalid for a malformed one; whether it can match is the grant's to say."""
    if not _FILTER_NAME.fullmatch(text):
        form = "1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit"
        raise Invalid(f"{text[:80]!r} is no repository name: use {form}")
    return text


def runner_name(text: str) -> str:
    """Raises Invalid for a name that could not be shown in a list."""
    if not _NAME.fullmatch(text):
        form = "1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
        raise Invalid(f"{text[:80]!r} is no runner name: use {form}")
    return text


def host_key(text: str) -> str:
    """Raises Invalid for anything but a fingerprint as `ssh-keygen -l` prints it."""
    if not _FINGERPRINT.fullmatch(text):
        raise Invalid(f"{text[:80]!r} is no host key fingerprint; it looks like SHA256: and 43 characters")
    return text
