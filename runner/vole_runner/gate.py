"""Whether a job may run on a harness: one pure rule, asked before the compute exists and again of the very stream.

No I/O; the same for a first try, a resume and a fork.
"""

from __future__ import annotations

from dataclasses import dataclass

from vole.wire import harness
from vole_runner.runtimes.runtime import Descriptor, Resumability, RuntimeCapabilities


@dataclass(frozen=True)
class Demand:
    """What a job and this runner's settings ask of a harness."""

    resume_steps: bool = False
    owned: bool = False  # `trust: owned`
    pinned_id: str | None = None
    needs_gpu: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    step_kinds: tuple[str, ...] = ("run",)


def can_place(demand: Demand, harness_: Descriptor, runtime: RuntimeCapabilities) -> str | None:
    """None when the job may run there, else the reason why not."""
    return _identity(demand, harness_) or _tier(demand, harness_, runtime) or _needs(demand, harness_, runtime)


def _identity(demand: Demand, offered: Descriptor) -> str | None:
    if offered.protocol != harness.PROTOCOL:
        return f"the harness speaks protocol {offered.protocol}, this keeper {harness.PROTOCOL}"
    if demand.pinned_id is not None and offered.id != demand.pinned_id:
        return f"the harness is {offered.id!r}; {demand.pinned_id!r} is pinned"
    return None


def _tier(demand: Demand, offered: Descriptor, runtime: RuntimeCapabilities) -> str | None:
    tier = offered.resumability
    if tier is Resumability.UNSPECIFIED:
        return "the harness does not say what it can survive"
    if tier is Resumability.REQUIRES_MEMORY_SNAPSHOT and not runtime.memory_snapshot:
        return "the harness needs memory snapshots, which this runtime has not"
    if demand.resume_steps and tier is not Resumability.STATELESS_REPLAY:
        return "the job resumes by steps, which this harness cannot"
    return None


def _needs(demand: Demand, offered: Descriptor, runtime: RuntimeCapabilities) -> str | None:
    if demand.owned and not runtime.owns_sandbox:
        return "the job asks for a sandbox of our own, which this runtime has not"
    if offered.requires_gpu and not runtime.gpu_state:
        return "the harness needs a GPU, which this runtime has not"
    lacking = [kind for kind in demand.step_kinds if kind not in offered.step_kinds]
    if lacking:
        return f"the harness cannot run steps of the kind {lacking[0]!r}"
    missing = [f"{key}={value}" for key, value in demand.labels if (key, value) not in offered.labels]
    return f"the harness lacks {missing[0]}" if missing else None
