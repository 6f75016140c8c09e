"""`vole demo`: from nothing to a green run, and nothing left."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.endtoend.actors import Forge, Person, Running

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]


def a_demo(folder: Path, *flags: str, env: dict[str, str] | None = None) -> Running:
    """`vole demo` with an empty home and a temporary folder of its own."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    homes = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    return Running([sys.executable, "-m", "vole", "demo", *flags], folder, env={**homes, **(env or {})})


def test_a_demo_that_exits_shows_a_green_run_and_leaves_nothing(tmp_path: Path) -> None:
    demo = a_demo(tmp_path, "--exit")
    try:
        demo.says("remote: demo/1  ci  http://127.0.0.1:[0-9]+/demo/runs/1  starts now on demo-runner")
        demo.says("demo/1/build +success", within_s=30)
        demo.says("demo/1/test +success", within_s=30)
        for timing in ("push", "push to first step", "total"):
            demo.says(rf"^{timing} +[0-9]+\.[0-9]{{3}} s$")

        assert demo.ends() == 0
        assert list((tmp_path / "tmp").iterdir()) == []
        assert list((tmp_path / "home").iterdir()) == []
    finally:
        demo.stop()


def test_a_demo_stays_up_with_its_pages_until_it_is_interrupted(tmp_path: Path) -> None:
    demo = a_demo(tmp_path)
    try:
        page = demo.says("^pages +(http://.*)$", within_s=40).group(1)
        group = os.getpgid(demo.process.pid)
        children = _descendants(demo.process.pid)
        assert httpx.get(page).status_code == 200
        assert "hello, ${1:-world}" in httpx.get(f"{page}/raw/main/greet.sh").text
        assert children

        os.killpg(group, signal.SIGINT)

        assert demo.ends() == 0
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        demo.stop()


def test_a_kept_demo_is_served_at_the_same_addresses_later(tmp_path: Path) -> None:
    demo = a_demo(tmp_path, "--exit", "--keep", str(tmp_path / "kept"))
    try:
        assert demo.ends(within_s=40) == 0
    finally:
        demo.stop()
    first = re.search(r"http://127\.0\.0\.1:\d+", "".join(demo.lines))
    assert first is not None

    forge = Forge(tmp_path)
    (tmp_path / "kept" / "forge").rename(forge.dir)
    try:
        forge.starts()
        assert forge.url == first.group()
        assert forge.page("/demo/runs/1").shows("success", "build", "test")
        assert Person(forge, "ada", tmp_path / "kept" / "ada_key").says("ping").ok
    finally:
        forge.ends()


def test_a_missing_tool_is_one_line_with_the_command_that_installs_it(tmp_path: Path) -> None:
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(git)

    demo = a_demo(tmp_path, "--exit", env={"PATH": str(tmp_path / "bin")})
    try:
        assert demo.ends() == 1
        assert demo.says("vole demo needs") is not None
        assert "".join(demo.lines) == "vole demo needs ssh: apt-get install openssh-client\n"
    finally:
        demo.stop()


def test_an_interrupted_demo_is_not_green(tmp_path: Path) -> None:
    demo = a_demo(tmp_path, "--exit")
    try:
        demo.says("^forge")
        children = _descendants(demo.process.pid)
        os.kill(demo.process.pid, signal.SIGTERM)

        assert demo.ends(within_s=20) == 1
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        demo.stop()


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [below for child in children for below in _descendants(child)]
