"""What every test has: markers that say what a test proves and what it needs of the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

_SHM = Path("/dev/shm")
_ROOM_BYTES = 4 << 30


def _takes_programs_and_much() -> bool:
    if not _SHM.is_dir():
        return False
    found = os.statvfs(_SHM)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _ROOM_BYTES


# A forge syncs each of its commits. What kill -9 leaves does not depend on the disk; test_disks has disks of its own.
if "TMPDIR" not in os.environ and _takes_programs_and_much():
    tempfile.tempdir = os.environ["TMPDIR"] = str(_SHM)

_PROGRAMS = {
    "git": "git",
    "ssh": "ssh",
    "sshd": "/usr/sbin/sshd",
    "chromium": "chromium",
    "strace": "strace",
    "node": "node",
    "minisign": "minisign",
    "bwrap": "bwrap",
    "uv": "uv",
}


@cache
def _has(feature: str) -> bool:
    if feature == "userns":
        return subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False).returncode == 0
    if feature == "tmpfs":
        return sys.platform == "linux" and os.geteuid() == 0
    if feature == "podman":  # as root, with an image of our own
        return os.geteuid() == 0 and all(map(shutil.which, ("podman", "runc", "conmon", "busybox")))
    if feature == "cgroups":
        return any(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in ("pids", "cgroup.procs"))
    if feature == "peers":  # of tests/peers, where .ci/run installs them
        return _has("node") and (ROOT / "tests" / "peers" / "node_modules").is_dir()
    return shutil.which(_PROGRAMS[feature]) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proofs", action="store_true", help="print which test proves which requirement, and run none")
    parser.addoption("--slow", action="store_true", help="run the long forms too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--proofs"):
        return
    required = set(os.environ.get("VOLE_CI_REQUIRE", "").split())
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="a long form: make slow"))
        for marker in item.iter_markers("needs"):
            for feature in marker.args:
                if not _has(feature) and feature not in required:
                    item.add_marker(pytest.mark.skip(reason=f"this machine has no {feature}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.getoption("--proofs"):
        return
    proofs: defaultdict[str, set[str]] = defaultdict(set)
    for item in session.items:
        for marker in item.iter_markers("proves"):
            for requirement in marker.args:
                proofs[requirement].add(item.nodeid.partition("[")[0])
    known = re.findall(r"^- \*\*([A-Z]+-\d+a?)\*\*", (ROOT / "docs" / "invariants.md").read_text("utf-8"), re.MULTILINE)
    for requirement in known:
        print(
            f"{requirement} proven {' '.join(sorted(proofs[requirement]))}"
            if proofs[requirement]
            else f"{requirement} unproven"
        )
    if unknown := sorted(set(proofs) - set(known)):
        pytest.exit(f"proven, but not in docs/invariants.md: {' '.join(unknown)}", returncode=1)
    print(f"{sum(1 for requirement in known if proofs[requirement])} of {len(known)} proven")
    session.items.clear()
