"""The wheel of this tree, in an environment that has nothing else: it carries all that a forge needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.endtoend.actors import ROOT, program

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(300)]

PROGRAMS = ("vole", "vole-runner", "vole-harness", "vole-node")


def test_a_wheel_in_an_empty_environment_runs_the_demo(tmp_path: Path) -> None:
    wheel = built(tmp_path / "dist")
    environment = installed(wheel, tmp_path / "environment")

    demo = subprocess.run(
        [environment / "bin" / "vole", "demo", "--exit"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "demo/1 ended: success" in demo.stdout
    assert all((environment / "bin" / name).exists() for name in PROGRAMS)
    (carried,) = environment.glob("lib/python*/site-packages/vole/_carried")
    for unit in ("systemd/vole-server.service", "hooks/pre-receive", "templates/layout.html"):
        assert (carried / unit).read_text() == (ROOT / unit.replace("systemd", "runner/systemd")).read_text()


def built(folder: Path) -> Path:
    """The wheel of this tree."""
    said = program(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT)
    assert said.ok, said.err
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, environment: Path) -> Path:
    """A new environment with the wheel and what it asks for."""
    uv = shutil.which("uv")
    python = environment / "bin" / "python"
    if uv is None:
        venv.create(environment, with_pip=True)
        command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    else:
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, environment], check=True)
        command = [uv, "pip", "install", "-q", "--python", python, wheel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return environment
