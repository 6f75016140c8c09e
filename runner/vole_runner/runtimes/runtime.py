"""The contract of a runtime, and the values it speaks in. No field of one backend leaks upward; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Protocol

from vole.config.runtimes import Kind


class Resumability(Enum):
    """What a harness can survive. An undeclared tier is refused by the gate."""

    UNSPECIFIED = 0
    STATELESS_REPLAY = 1
    REQUIRES_MEMORY_SNAPSHOT = 2
    RESTART_ONLY = 3


class SnapshotKind(StrEnum):
    LOCAL = "local"  # warm
    EXTERNAL = "external"  # cold


class ComputeState(StrEnum):
    LIVE = "live"
    TERMINATED = "terminated"


@dataclass(frozen=True)
class RuntimeCapabilities:
    """What a backend can promise about the place it runs steps in."""

    memory_snapshot: bool = False
    owns_sandbox: bool = False
    network_isolated: bool = False
    cow_fork: bool = False
    attest: bool = False
    gpu_state: bool = False


@dataclass(frozen=True)
class Descriptor:
    """What a harness says about itself. A claim, compared with pins and needs; not authentication."""

    id: str
    version: str
    instance_id: str
    protocol: int
    resumability: Resumability
    workspace_checkpoint: bool = False
    reattach: bool = False
    requires_gpu: bool = False
    isolates_jobs: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    step_kinds: tuple[str, ...] = ()
    max_jobs: int = 1
    running_jobs: int = 0


@dataclass(frozen=True)
class JobSpec:
    """What is asked of a backend: compute for this attempt."""

    uid: str  # the job's address and epoch: app/12/test@2
    folder: str  # the attempt's folder; a backend with its own mounts binds it


@dataclass(frozen=True)
class Incarnation:
    """A handle to the compute of one attempt. `fence` is stamped by the placer, with `dataclasses.replace`."""

    id: str
    address: str
    runtime: str  # configured name
    kind: Kind
    fence: int = 0
    token: str | None = field(default=None, repr=False)  # goes with every call to `address`


@dataclass(frozen=True)
class SnapshotRef:
    local: str
    memory: bool = False
    external_uri: str = ""
    sealed: bool = False


@dataclass(frozen=True)
class ForkOpts:
    child_uid: str
    copy_on_write: bool = False


class Runtime(Protocol):
    """A way to come by a harness. Raises Unavailable where the harness is not to be had, Invalid for what it cannot."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def describes_live_harness(self) -> bool: ...

    @property
    def shares_folder(self) -> bool:
        """Whether its harness sees the attempt's folder; else work goes there and back as blobs."""
        ...

    def capabilities(self) -> RuntimeCapabilities: ...

    async def describe(self) -> Descriptor: ...

    async def create(self, spec: JobSpec) -> Incarnation: ...

    async def snapshot(self, inc: Incarnation, kind: SnapshotKind) -> SnapshotRef: ...

    async def restore(self, ref: SnapshotRef) -> Incarnation: ...

    async def fork(self, ref: SnapshotRef, opts: ForkOpts) -> Incarnation: ...

    async def stop(self, inc: Incarnation) -> None: ...

    async def status(self, inc: Incarnation) -> ComputeState: ...

    async def aclose(self) -> None: ...
