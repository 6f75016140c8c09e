"""The life of a server as its operator sees it: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endtoend.actors import ROOT, Forge, Running, a_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]


@pytest.mark.proves("SR-76")
def test_a_second_server_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        assert forge.server is not None

        second = forge.vole("serve", str(forge.dir))

        assert second.status == 1
        assert f"already served by vole serve, process {forge.server.process.pid}" in second.err
        assert forge.command("ping")


@pytest.mark.proves("SR-76")
def test_the_lock_of_a_killed_server_holds_nobody_up(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        forge.kill()

        forge.restarts()

        assert "operator" in forge.command("ping")


def test_term_stops_in_order_and_leaves_no_socket(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        assert forge.server is not None

        status = forge.server.stop()

        assert status == 0
        assert '"event": "stopped"' in forge.server.lines[-1]
        assert not (forge.dir / "run" / "command.sock").exists()


def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = (forge.dir / "vole.yaml").read_text()
        port = taken.getsockname()[1]
        (forge.dir / "vole.yaml").write_text(text.replace("listen: 127.0.0.1:0", f"listen: 127.0.0.1:{port}", 1))

        said = forge.vole("serve", str(forge.dir))

    assert said.status == 75
    assert f"cannot listen on 127.0.0.1:{port} (ssh.listen)" in said.err


def test_wrong_settings_are_all_named_before_anything_starts(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    forge.setting("lease_ttl", "60")
    forge.setting("rerun", "a while")

    for words in (("serve", str(forge.dir)), ("config", "check")):
        said = forge.vole(*words)

        assert said.status == 2
        assert "queue.lease_ttl: '60' has no unit" in said.err
        assert "retention.rerun: 'a while' is no amount" in said.err


def test_hup_takes_what_it_may_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        assert forge.server is not None
        forge.setting("max_jobs_per_repo", "3")
        forge.setting("queue_timeout", "1h")
        os.kill(forge.server.process.pid, signal.SIGHUP)
        assert 'queue.queue_timeout"' in forge.server.says("settings read again").string

        forge.setting("max_jobs_per_repo", "many")
        os.kill(forge.server.process.pid, signal.SIGHUP)
        assert "max_jobs_per_repo: 'many'" in forge.server.says("settings not read").string
        assert forge.command("ping")


def test_the_manager_is_told_when_every_door_listens(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(15)
        words = [sys.executable, "-m", "vole", "serve", str(forge.dir)]
        server = Running(words, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        try:
            assert manager.recv(100) == b"READY=1"
            assert forge.command("ping")
        finally:
            server.stop()


def test_commands_work_alike_with_a_server_and_without(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    forge.command("user", "add", "ada")
    without = forge.command("user", "list", "--json")

    forge.starts()
    try:
        with_server = forge.command("user", "list", "--json")
        refused = forge.vole("user", "add", "ada")
    finally:
        forge.ends()

    assert json.loads(with_server) == json.loads(without)
    assert (refused.status, refused.err) == (1, "there is an account 'ada' already\n")


def test_a_deep_folder_has_a_command_socket_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)

    with a_forge(deep) as forge:
        assert (forge.dir / "run" / "command.sock").is_socket()
        assert "operator" in forge.command("ping")


def test_the_node_agent_says_that_it_is_not_built(tmp_path: Path) -> None:
    agent = Running([sys.executable, "-m", "vole.agent"], tmp_path)
    try:
        assert agent.ends() == 2
        assert agent.says("not part of this version")
    finally:
        agent.stop()


def test_a_reader_that_leaves_early_is_no_fault(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    words = [sys.executable, "-m", "vole", "-C", str(forge.dir), "help"]
    reading, writing = os.pipe()
    os.close(reading)

    said = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, timeout=15, check=False, cwd=ROOT)
    os.close(writing)

    assert (said.returncode, said.stderr) == (0, b"")


def test_help_names_every_command(tmp_path: Path) -> None:
    said = Forge(tmp_path).vole("--help")

    assert said.ok
    for words in ("init", "doctor", "key add USER", "log JOB"):
        assert words in said.out


def test_doctor_finds_a_good_folder_good_and_a_spoilt_one_bad(tmp_path: Path) -> None:
    forge = Forge(tmp_path).founded()
    before = sorted(path for path in forge.dir.rglob("*"))

    good = forge.vole("doctor")
    (forge.dir / "keys").chmod(0o755)
    forge.setting("lease_ttl", "60")
    bad = forge.vole("doctor")

    assert good.ok, good.out
    assert bad.status == 1
    assert f"chmod 700 {forge.dir}/keys" in bad.out
    assert "queue.lease_ttl: '60' has no unit" in bad.out
    assert sorted(path for path in forge.dir.rglob("*")) == before
