"""What a step sees: its environment, built from empty, and the contexts of its expressions. Pure."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vole.base import expressions
from vole.base.expressions import Value
from vole.wire import codec
from vole.wire.harness import JobEnvelope
from vole.wire.plan import JobPlan, StepPlan, job_values
from vole_runner.harness.files import Places

LISTED = ("PATH", "HOME", "LANG", "TZ")  # all of the runner's own environment that a step may see
_PATH = "/usr/local/bin:/usr/bin:/bin"


def runner_os() -> str:
    """RUNNER_OS."""
    return "macOS" if sys.platform == "darwin" else "Linux"


def runner_arch() -> str:
    """RUNNER_ARCH. A machine of another kind is named as Python names it."""
    machine = platform.machine()
    return {"x86_64": "X64", "amd64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}.get(machine.lower(), machine)


def listed(environ: Mapping[str, str]) -> dict[str, str]:
    """The listed few of `environ`, with a PATH in any case."""
    return {"PATH": _PATH, **{name: environ[name] for name in LISTED if name in environ}}


@dataclass(frozen=True)
class Facts:
    """What is fixed for the whole attempt."""

    plan: JobPlan
    envelope: JobEnvelope
    places: Places
    base: Mapping[str, str]  # the listed few, and Start.env

    @property
    def own(self) -> dict[str, str]:
        """The variables that are vole's: nothing in a workflow or a step changes them."""
        plan, event, context = self.plan, self.plan.event, self.envelope.context
        return {
            "VOLE": "true",
            "VOLE_SHA": plan.commit,
            "VOLE_REF": event.ref,
            "VOLE_REF_NAME": event.ref_name,
            "VOLE_REF_TYPE": event.ref_type,
            "VOLE_REPOSITORY": plan.repository,
            "VOLE_RUN_ID": context.run_id,
            "VOLE_RUN_NUMBER": str(context.run_number),
            "VOLE_RUN_ATTEMPT": str(context.run_attempt),
            "VOLE_JOB": plan.job,
            "VOLE_WORKFLOW": plan.workflow,
            "VOLE_ACTOR": event.actor,
            "VOLE_EVENT_NAME": event.name,
            "VOLE_EVENT_PATH": str(self.places.event),
            "VOLE_SERVER_URL": context.server_url,
            "VOLE_WORKSPACE": str(self.places.work),
            "RUNNER_OS": runner_os(),
            "RUNNER_ARCH": runner_arch(),
            "RUNNER_NAME": self.envelope.runner,
            "RUNNER_TEMP": str(self.places.temp),
        }


@dataclass
class Surroundings:
    """What steps change for the steps after them."""

    facts: Facts
    added: dict[str, str] = field(default_factory=dict)  # VOLE_ENV
    folders: list[str] = field(default_factory=list)  # VOLE_PATH, first wins
    steps: dict[str, Value] = field(default_factory=dict)

    def contexts(self, env: Mapping[str, str]) -> dict[str, Value]:
        """Every context of an expression that a step or an output may use."""
        return {
            **job_values(self.facts.plan, self.facts.envelope.context),
            "env": dict(env),
            "steps": self.steps,
            "runner": {"os": runner_os(), "arch": runner_arch(), "name": self.facts.envelope.runner},
        }

    def job_env(self) -> dict[str, str]:
        """The `env` context before a step's own. Raises Invalid for an expression that cannot be evaluated."""
        contexts = self.contexts({})
        given = {name: expressions.interpolate(text, contexts) for name, text in self.facts.plan.env.items()}
        return given | self.added

    def step_env(self, step: StepPlan) -> dict[str, str]:
        """The `env` context of `step`. Raises Invalid."""
        before = self.job_env()
        contexts = self.contexts(before)
        return before | {name: expressions.interpolate(text, contexts) for name, text in step.env.items()}

    def environment(self, env: Mapping[str, str], step_files: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a process: what vole says of itself stands over what was asked for."""
        whole = {**self.facts.base, "CI": "true", **env, **self.facts.own, **step_files}
        whole["PATH"] = os.pathsep.join([*self.folders, whole["PATH"]])
        return whole


def input_digest(step: StepPlan, script: str, folder: Path, env: Mapping[str, str]) -> str:
    """SHA-256 of what a step's result depends on as far as we know it; values only as digests of their own."""
    values = {name: hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest() for name, value in env.items()}
    document = {"step": step.number, "shell": step.shell, "run": script, "folder": str(folder), "env": values}
    return hashlib.sha256(codec.canonical(document)).hexdigest()
