"""What we lean on: floors without a known advisory, a lock that keeps to them, a reason for each, and no calls out."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture import layers

PROJECT = tomllib.loads((layers.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
LOCK = dict(
    re.findall(r"^([a-z0-9_.-]+)==(\S+)", (layers.ROOT / "requirements/dev.lock").read_text("utf-8"), re.MULTILINE)
)

# The first version that no published advisory names. A new advisory is a new line here, seen red first.
SAFE = {
    "asyncssh": "2.24.0",  # CVE-2023-46445/46446, CVE-2023-48795, CVE-2026-54591, zero packet size
    "cryptography": "45.0",
    "jinja2": "3.1.6",  # CVE-2025-27516
    "protobuf": "6.31.1",  # CVE-2025-4565
    "pygments": "2.15.1",  # CVE-2022-40896
    "python-multipart": "0.0.18",  # CVE-2024-53981
    "pyyaml": "5.4",  # CVE-2020-14343
    "starlette": "1.3.1",  # GHSA-f96h-pmfr-66vw, GHSA-86qp-5c8j-p5mr, CVE-2026-54282, CVE-2026-54283
    "uvicorn": "0.11.7",  # CVE-2020-7694
}

# What opens a connection to somewhere else. The server makes none: nobody's list of targets is needed.
CALLS_OUT = {"httpx", "requests", "urllib.request", "http.client", "ftplib", "smtplib", "aiohttp"}


def _floor(requirement: Requirement) -> Version:
    floors = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
    assert floors, f"{requirement.name} has no floor"
    return max(floors)


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda requirement: requirement.name)
@pytest.mark.proves("SR-78")
def test_a_dependency_has_a_floor_above_its_advisories_and_the_lock_keeps_to_it(requirement):
    floor = _floor(requirement)

    assert floor >= Version(SAFE.get(requirement.name, "0"))
    assert Version(LOCK[requirement.name]) >= floor


def test_every_pin_of_the_lock_has_a_hash_and_no_address():
    text = (layers.ROOT / "requirements/dev.lock").read_text("utf-8")

    assert text.count("--hash=sha256:") >= len(LOCK)
    assert "://" not in text


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda requirement: requirement.name)
def test_a_dependency_has_a_reason(requirement):
    reasons = (layers.ROOT / "docs/decisions/0002-what-we-lean-on.md").read_text("utf-8")

    assert re.search(rf"\| [^|]*\b{re.escape(requirement.name)}\b", reasons), (
        f"{requirement.name} has no reason in 0002"
    )


@pytest.mark.proves("SR-57")
def test_the_server_calls_nobody():
    faults = []
    for module in layers.modules():
        if not layers.row_of(module.name):
            continue
        for line, name in module.imports():
            if any(layers.within(name, library) for library in CALLS_OUT):
                faults.append(f"{module.path}:{line}: {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in ("open_connection", "create_connection"):
                faults.append(f"{module.path}:{node.lineno}: {node.attr}")
    assert not faults, "\n".join(faults)
