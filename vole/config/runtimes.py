"""The `runtimes` of `runner.yaml` as frozen values: where steps may run. Knows no machine and starts nothing.

Every entry has a name and a kind; the other keys belong to the kind, and another kind's are unknown there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.labels import Label
from vole.config.reading import Section

Kind = Literal["local", "sandbox", "remote", "container"]
Network = Literal["none", "host"]
HarnessOf = Literal["ours", "image"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ENGINES = ("podman", "docker")

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_ARGUMENT = re.compile(r"[ -~]{1,1024}")


@dataclass(frozen=True)
class Bounds:
    """What all processes of one attempt may take together. None: not bounded."""

    memory: int | None = None  # bytes
    pids: int | None = None
    cpu: float | None = None  # cores

    def __bool__(self) -> bool:
        return (self.memory, self.pids, self.cpu) != (None, None, None)


@dataclass(frozen=True)
class RuntimeConfig:
    """One way to come by a harness."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()  # the runner carries them while it runs its jobs here
    network: Network = "none"
    bounds: Bounds = Bounds()
    image: str = ""
    harness: HarnessOf = "ours"
    engine: str | None = None
    engine_arguments: tuple[str, ...] = ()  # before the engine's command
    run_arguments: tuple[str, ...] = ()  # of its `run`
    address: str = ""
    descriptor_id: str | None = None
    max_jobs: int | None = None
    token_file: Path | None = None


def entries(root: Section, folder: Path, address: Callable[[str], str]) -> tuple[RuntimeConfig, ...]:
    """The list `runtimes`. Problems wait for `root.finish`. `address` raises Invalid by the dial rule."""
    found: dict[str, RuntimeConfig] = {}
    for entry in root.sections("runtimes"):
        config = _entry(entry, folder, address)
        if config is None:
            continue
        if config.name in found:
            entry.problem("name", f"{config.name!r} is there already; every runtime has a name of its own")
        found.setdefault(config.name, config)
    return tuple(found.values())


def chosen(name: str, listed: tuple[RuntimeConfig, ...]) -> RuntimeConfig:
    """The runtime of that name: an entry, or a kind that needs no settings. Raises Invalid; never another one."""
    for config in listed:
        if config.name == name:
            return config
    if name in ("local", "sandbox"):
        return RuntimeConfig(name, cast("Kind", name))
    if name in KINDS:
        needs = "an image" if name == "container" else "an address"
        raise Invalid(f"the runtime {name!r} needs {needs}: add an entry of that kind to `runtimes` in runner.yaml")
    names = ", ".join(sorted({"local", "sandbox", *(config.name for config in listed)}))
    raise Invalid(f"{name[:80]!r} is no runtime of this runner; it has: {names}")


def _entry(entry: Section, folder: Path, address: Callable[[str], str]) -> RuntimeConfig | None:
    name = entry.value("name", None, runtime_name)
    kind = cast("Kind | None", entry.choice("kind", None, KINDS))
    labels = entry.each("labels", (), lambda text: str(Label.parse(text)))
    if name is None or kind is None:
        missing = "name" if name is None else "kind"
        if not entry.says(missing):
            entry.problem(missing, f"a runtime needs a {missing}")
        entry.skip()
        return None
    if name in KINDS and name != kind:
        entry.problem("name", f"{name!r} is the name of a kind, and this entry is of the kind {kind!r}")
    if kind == "remote":
        return _remote(entry, RuntimeConfig(name, kind, labels), folder, address)
    if kind == "local":
        return RuntimeConfig(name, kind, labels)
    network = cast("Network", entry.choice("network", "none", get_args(Network)))
    bounds = _bounds(entry.section("limits"))
    if kind == "sandbox":
        return RuntimeConfig(name, kind, labels, network, bounds)
    image = entry.value("image", "", _image)
    if not entry.says("image"):
        entry.problem("image", "a container needs an image, as localhost/ci:1; it is never pulled")
    return RuntimeConfig(
        name,
        kind,
        labels,
        network,
        bounds,
        image=image,
        harness=cast("HarnessOf", entry.choice("harness", "ours", get_args(HarnessOf))),
        engine=entry.choice("engine", None, ENGINES),
        engine_arguments=entry.each("engine-arguments", (), _argument),
        run_arguments=entry.each("run-arguments", (), _argument),
    )


def _remote(entry: Section, base: RuntimeConfig, folder: Path, parse_address: Callable[[str], str]) -> RuntimeConfig:
    address = entry.value("address", None, lambda text: _checked(text, parse_address))
    plaintext = entry.boolean("allow-plaintext", False)
    if not entry.says("address"):
        entry.problem("address", "a remote runtime needs the address of its harness")
    elif address is not None and not plaintext and not stays_here(address):
        entry.problem("address", f"{address!r} is cleartext over a network; say allow-plaintext: true if that is meant")
    return RuntimeConfig(
        base.name,
        base.kind,
        base.labels,
        address=address or "",
        descriptor_id=entry.text("descriptor-id", None),
        max_jobs=entry.integer("max-jobs", None, least=1, most=limits.RUNNER_SLOTS_MAX),
        token_file=entry.path("token-file", None, folder),
    )


def runtime_name(text: str) -> str:
    """Raises Invalid for anything but an RFC 1123 label."""
    if not _NAME.fullmatch(text):
        raise Invalid(f"{text[:80]!r} is no name of a runtime: use 1 to 63 of a-z 0-9 -, no - at the ends")
    return text


def stays_here(address: str) -> bool:
    """Whether what is said to `address` stays on this machine: a socket, or loopback as anyone can read it."""
    if address.startswith("unix:"):
        return True
    host = address.removeprefix("dns:///").rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bounds(section: Section) -> Bounds:
    return Bounds(
        memory=section.size("memory", None, least=limits.JOB_MEMORY_MIN),
        pids=section.integer("pids", None, least=limits.JOB_PIDS_MIN, most=1 << 22),
        cpu=section.value("cpu", None, _cores),
    )


def _checked(text: str, parse: Callable[[str], str]) -> str:
    parse(text)
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise Invalid(f"{text[:80]!r} is no image; write it as localhost/ci:1")
    return text


def _argument(text: str) -> str:
    if not _ARGUMENT.fullmatch(text):
        raise Invalid("an argument is 1 to 1024 printable ASCII characters")
    return text


def _cores(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,2})?", text) or not float(text) >= 0.05:
        raise Invalid(f"{text[:20]!r} is no count of cores; write it as 1.5, at least 0.05")
    return float(text)
