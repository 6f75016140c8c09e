"""Commands over OpenSSH: the same words, the account's rights, streams that end when their reader leaves."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.endtoend.actors import Forge, Running, a_forge

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(60)]

COUNTING = """\
on: push
jobs:
  count:
    runs-on: linux
    steps:
      - run: |
          printf 'one\\033]0;title\\007\\n'
          until [ -e "$GATE" ]; do sleep 0.05; done
          echo two
    env:
      GATE: "{gate}"
"""


def test_an_admin_manages_the_forge_from_afar_and_an_account_itself(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        ada, bob = forge.person("ada", admin=True), forge.person("bob")

        assert ada.says("repo", "create", "app", "--description", "'two words'").ok
        assert ada.says("grant", "bob", "app", "write").ok
        assert json.loads(ada.says("repo", "list", "--json").out)[0]["description"] == "two words"
        assert json.loads(bob.says("ping", "--json").out)["rights"] == {"app": ["write"]}
        assert bob.says("repo", "create", "other").status == 1
        assert "--runner" in bob.says("help").out
        unknown = bob.says("rm", "-rf", "/")
        assert (unknown.status, unknown.out) == (1, "")
        assert len(unknown.err.strip().splitlines()) == 1


@pytest.mark.proves("SR-46a")
def test_login_over_ssh_opens_a_browser_session_once(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        forge.creates("secret", public=False)
        ada = forge.person("ada", rights={"secret": "read"})
        link = ada.says("login").out.strip()
        assert link.startswith(f"{forge.url}/login/")

        with httpx.Client(base_url=forge.url, headers={"Origin": forge.url}) as browser:
            assert browser.get("/secret").status_code == 404
            assert _logs_in(browser, link)
            assert browser.get("/secret").status_code == 200
            with httpx.Client(base_url=forge.url, headers={"Origin": forge.url}) as other:
                assert not _logs_in(other, link)
            (session,) = json.loads(ada.says("sessions", "--json").out)
            assert ada.says("sessions", "revoke", str(session["id"])).ok
            assert browser.get("/secret").status_code == 404


def test_a_followed_log_comes_as_it_is_written_and_ends_with_the_job(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_forge(tmp_path) as forge:
        forge.creates("app")
        ada = forge.person("ada", rights={"app": "write"})
        forge.runner(forge.person("mac", rights={"app": "run"}, kind="runner"), "linux")
        assert ada.pushes("app", {".vole/workflows/ci.yml": COUNTING.format(gate=gate)}).ok

        following = _follows(forge, ada.ssh_command, "log", "app/1/count", "-f")
        following.says(r"^one\\x1b\]0;title\\x07$")
        leaving = _follows(forge, ada.ssh_command, "log", "app/1/count", "-f")
        leaving.says("^one")
        leaving.kill()
        gate.touch()

        following.says("^two$")
        assert following.ends() == 0
        assert ada.says("log", "app/1/count").out == "".join(following.lines)
        assert b"one\x1b]0;title\x07\n" in _raw(forge, ada.ssh_command, "log", "app/1/count", "--raw")
        for running in (following, leaving):
            running.stop()


def test_why_and_cancel_name_the_job(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        forge.creates("app")
        ada, bob = forge.person("ada", rights={"app": "write"}), forge.person("bob", rights={"app": "read"})
        ada.pushes("app", {".vole/workflows/ci.yml": COUNTING.format(gate=tmp_path)})

        assert "app/1/count: waits: no runner is connected" in bob.says("why", "app/1/count").out
        assert [job["job"] for job in json.loads(bob.says("queue", "--json").out)] == ["app/1/count"]
        assert bob.says("cancel", "app/1/count").status == 1
        assert "app/1/count: 1 job cancelled" in ada.says("cancel", "app/1/count", "--reason", "enough").out
        assert forge.job("app/1/count")["conclusion"] == "cancelled"
        assert "enough" in str(forge.job("app/1/count")["reason"])


@pytest.mark.proves("SR-27")
def test_a_removed_key_ends_its_open_connection_within_five_seconds(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        forge.creates("app")
        ada = forge.person("ada", rights={"app": "write"})
        ada.pushes("app", {".vole/workflows/ci.yml": COUNTING.format(gate=tmp_path / "never")})
        following = _follows(forge, ada.ssh_command, "log", "app/1/count", "-f")
        (key,) = json.loads(forge.command("key", "list", "ada", "--json"))

        forge.command("key", "remove", key["fingerprint"])

        assert following.ends(within_s=5) != 0
        following.stop()
        assert ada.says("ping").status == 255


def test_a_runner_that_lost_its_key_is_gone_from_the_list(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        forge.creates("app")
        runner = forge.runner(
            forge.person("mac", rights={"app": "run"}, kind="runner"),
            "linux",
            flags=("--name", "m1", "--exit-on-refusal"),
        )
        (shown,) = json.loads(forge.command("runner", "list", "--json"))
        assert (shown["name"], shown["labels"], shown["repositories"], shown["busy"]) == (
            "m1",
            "linux",
            "app",
            "0 of 1",
        )

        forge.command("runner", "revoke", shown["key"])

        assert runner.ends(within_s=10) in (4, 75)
        assert forge.command("runner", "list", "--json") == "[]\n"


@pytest.mark.proves("SR-77")
def test_no_secret_is_in_any_log_row_file_or_argument_list(tmp_path: Path) -> None:
    with a_forge(tmp_path) as forge:
        assert forge.server is not None
        forge.creates("app")
        ada = forge.person("ada", rights={"app": "write"})
        runner = forge.person("mac", rights={"app": "run"}, kind="runner")
        process = forge.runner(runner, "linux")
        link = ada.says("login").out.strip()
        token = ada.says("token", "create", "ci").out.strip()
        with httpx.Client(base_url=forge.url, headers={"Origin": forge.url}) as browser:
            assert _logs_in(browser, link)
            cookies = [cookie.value for cookie in browser.cookies.jar]
            httpx.get(f"{forge.url}/login/{token}")
            httpx.get(forge.url, headers={"Authorization": f"Bearer {token}"})
        assert ada.pushes("app", {".vole/workflows/ci.yml": COUNTING.format(gate=tmp_path)}, options=("ci.wait",)).ok

        canaries = [secret.encode() for secret in (link.rsplit("/", 1)[1], token, *cookies) if secret]
        canaries += [
            key.read_bytes().splitlines()[2] for key in (ada.key, runner.key, forge.dir / "keys/ssh_host_ed25519")
        ]
        assert len(canaries) == 6
        haystacks = {
            str(path): path.read_bytes()
            for path in forge.dir.rglob("*")
            if path.is_file() and path.parent.name != "keys"
        }
        haystacks |= {
            "server's log": "".join(forge.server.lines).encode(),
            "runner's log": "".join(process.lines).encode(),
        }
        for pid in (forge.server.process.pid, process.process.pid, *_children(forge.server.process.pid)):
            haystacks |= {
                f"/proc/{pid}/{name}": Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
            }
        found = [(where, canary) for where, hay in haystacks.items() for canary in canaries if canary in hay]
        assert found == []
        assert re.search(r"Max core file size +0 ", Path(f"/proc/{forge.server.process.pid}/limits").read_text())


def _logs_in(browser: httpx.Client, link: str) -> bool:
    """Open a login link as a browser does: the page, then its button."""
    page = browser.get(link)
    if page.status_code != 200:
        return False
    return browser.post(link).status_code in (302, 303)


def _follows(forge: Forge, ssh: str, *words: str) -> Running:
    return Running([*ssh.split(), "-p", str(forge.ssh_port), "git@127.0.0.1", *words], forge.folder)


def _raw(forge: Forge, ssh: str, *words: str) -> bytes:
    command = [*ssh.split(), "-p", str(forge.ssh_port), "git@127.0.0.1", *words]
    return subprocess.run(command, capture_output=True, check=True, timeout=15, stdin=subprocess.DEVNULL).stdout


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
