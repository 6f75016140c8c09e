"""Who is let in over SSH, what they may say, and what ends them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from functools import partial

import asyncssh
import pytest

from tests.aio import run
from tests.endtoend import git_server
from tests.endtoend.git_server import group_of, said
from vole.base import limits
from vole.people import keys
from vole.people import ledger as people
from vole.repos import ledger as repos

forge = partial(git_server.forge, parser=False)
_started: list[str] = []
_listening = False


def started_programs() -> list[str]:
    """Every program that this process starts from here on, by its first word; a server's git has a whole path."""
    global _listening  # noqa: PLW0603  an audit hook cannot be taken back
    if not _listening:
        sys.addaudithook(lambda event, args: _started.append(str(args[0])) if event == "subprocess.Popen" else None)
        _listening = True
    _started.clear()
    return _started


@asynccontextmanager
async def connected(at, who, username="git", **options):
    """A raw SSH connection, for what OpenSSH would not do."""
    async with asyncssh.connect(
        "127.0.0.1", at.port, username=username, client_keys=[str(who.key)], config=[],
        known_hosts=str(at.folder / "known_hosts"), agent_path=None, **options,
    ) as connection:  # fmt: skip
        yield connection


@pytest.mark.proves("SR-01")
def test_only_a_public_key_opens_and_only_as_git(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")

            good = await at.ssh(ada, "help")
            methods = await at.ssh(ada, "help", options=("-o", "PubkeyAuthentication=no"))

            assert good.status == 3
            assert good.out == "ada: help\n"
            assert methods.status == 255
            assert "Permission denied (publickey)." in methods.err

    run(story())


@pytest.mark.proves("SR-01")
def test_an_unknown_key_and_an_unknown_user_fail_alike(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            stranger = await at.account("stranger")
            await at.db.write(people.remove_account, stranger.name)

            unknown = await said(*at.ssh_words(stranger), "git@127.0.0.1", "help", cwd=at.folder)
            wrong = await said(*at.ssh_words(ada), "root@127.0.0.1", "help", cwd=at.folder)

            assert unknown.status == wrong.status == 255
            assert unknown.err.replace("git@", "root@") == wrong.err

    run(story())


@pytest.mark.proves("SR-01")
def test_a_runner_key_can_do_nothing_but_lease_and_a_git_key_cannot_lease(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            mac = await at.account("mac", kind="runner", admin=True)
            ada = await at.account("ada")
            await at.repo("app", mac, ada)

            cloned = await at.git(mac, "ls-remote", at.url("app"))
            command = await at.ssh(mac, "help")
            link = await at.ssh(mac, "vole-runner", options=("-s",))
            stolen = await at.ssh(ada, "vole-runner", options=("-s",))

            assert cloned.status == 128
            assert "a runner key can do nothing but run jobs" in cloned.err
            assert (command.status, command.out) == (1, "")
            assert at.commands == []
            assert link.out == "runner link\n"
            assert stolen.status == 1
            assert '"code":"grant"' in stolen.out

    run(story())


@pytest.mark.parametrize(
    ("kind", "packet"), [("runner", limits.SSH_PACKET_RUNNER_BYTES), ("git", limits.SSH_PACKET_BYTES)]
)
def test_only_a_runners_channels_take_more_in_a_packet_than_every_client_knows(tmp_path, kind, packet):
    async def story():
        async with forge(tmp_path) as at:
            who = await at.account("mac", kind=kind)
            async with connected(at, who) as connection:
                channel, _ = await connection.create_session(asyncssh.SSHClientSession, "help", encoding=None)

                assert channel._send_pktsize == packet

    run(story())


@pytest.mark.proves("SR-02")
@pytest.mark.parametrize(
    "line",
    [
        "git-upload-archive 'app.git'",
        "git-shell",
        "git upload-pack",
        "git-upload-pack 'app.git' 'app.git'",
        "git-upload-pack --strict app.git",
        "git-receive-pack app.git; id",
        "git-receive-pack 'app.git' && id",
        "git-upload-pack $(id)  x",
        "git-upload-pack 'app.git",
        "scp -t /tmp",
        "sh -c id",
        "rsync --server .",
        "\x1b[31mred",
        "git-upload-packs app",
        "/usr/bin/git-upload-pack app",
    ],
)
def test_other_words_get_one_plain_line_and_start_nothing(tmp_path, line):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            started = started_programs()

            answer = await at.ssh(ada, line)

            assert answer.status in (1, 2)
            assert (answer.out, answer.err.count("\n")) == ("", 1)
            assert "\x1b" not in answer.err
            assert [program for program in started if program.startswith("/")] == []

    run(story())


@pytest.mark.proves("SR-02", "SR-03")
@pytest.mark.parametrize("path", ["/app.git", "app.git", "app", "/app", "'/app.git'", '"app"', "ap'p'"])
@pytest.mark.parametrize("verb", ["git-upload-pack", "git upload-pack"])
def test_every_spelling_of_a_repository_is_the_same_one(tmp_path, verb, path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)

            answer = await at.ssh(ada, f"{verb} {path}", given=b"0000")

            assert answer.status == 0, answer.err
            assert answer.out == "0000"

    run(story())


@pytest.mark.proves("SR-03")
@pytest.mark.parametrize(
    "path",
    [
        "//app",
        "/./app",
        "../repos/app.git",
        "/~ada/app",
        "~/app",
        "app.git/",
        "APP",
        "app.git.git",
        "''",
        ".",
        "/",
        "app/x",
    ],
)
def test_a_path_that_is_no_name_of_a_repository_is_a_missing_one(tmp_path, path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada", admin=True)
            await at.repo("app", ada)
            started = started_programs()

            answer = await at.ssh(ada, f"git-upload-pack {path}", given=b"0000")

            assert answer.status == 1
            assert "there is no repository" in answer.err
            assert [program for program in started if program.startswith("/")] == []

    run(story())


@pytest.mark.proves("SR-05")
def test_no_forwarding_and_no_other_subsystem_in_either_direction(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada", admin=True)
            async with connected(at, ada) as connection:
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.open_connection("127.0.0.1", at.port)
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.open_unix_connection(str(tmp_path / "sock"))
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.create_tun(asyncssh.SSHTunTapSession)
                with pytest.raises(asyncssh.ChannelListenError):
                    await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 1)
                with pytest.raises(asyncssh.ChannelListenError):
                    await connection.forward_remote_path(str(tmp_path / "sock"), "x")
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.start_sftp_client()
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.create_process(subsystem="netconf")
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.create_process(term_type="xterm")
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.create_process("help", x11_forwarding=True, x11_display=":0")

    run(story())


@pytest.mark.proves("SR-05")
def test_there_is_no_shell_and_no_agent(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada", admin=True)
            started = started_programs()

            shell = await at.ssh(ada, options=("-T", "-A"))
            terminal = await at.ssh(ada, options=("-tt",))

            assert shell.status == 1
            assert "PTY allocation request failed" in terminal.err
            assert "vole: there is no shell here" in shell.err
            assert [program for program in started if program.startswith("/")] == []

    run(story())


@pytest.mark.proves("SR-04")
def test_of_a_clients_environment_only_the_protocol_version_reaches_a_child(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            dump = at.folder / "env"
            (at.folder / "hooks/pre-receive").write_text(f"#!/bin/sh\nenv >{dump}\nexit 1\n")
            work = await at.work("work")
            sent = [
                "GIT_PROTOCOL=version=1",
                "--split-string=id=1",
                "GIT_TRACE=/x",
                "GIT_CONFIG_COUNT=1",
                "LD_PRELOAD=x",
            ]
            command = " ".join([*at.ssh_words(ada), "-o", f"'SetEnv={' '.join(sent)}'"])

            await said("git", "push", at.url("app"), "main", cwd=work, env={"GIT_SSH_COMMAND": command})

            names = {line.partition("=")[0] for line in dump.read_text().splitlines()}
            allowed = {"PATH", "HOME", "LC_ALL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"}
            allowed |= {"GIT_NO_REPLACE_OBJECTS", "GIT_TERMINAL_PROMPT", "GIT_PROTOCOL", "VOLE_ASK", "VOLE_TELL"}
            by_git = {"GIT_DIR", "GIT_CONFIG_PARAMETERS", "GIT_QUARANTINE_PATH", "GIT_OBJECT_DIRECTORY", "PWD"}
            by_git |= {
                "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                "GIT_EXEC_PATH",
                "GIT_PUSH_OPTION_COUNT",
                "OLDPWD",
                "SHLVL",
                "_",
            }
            assert "GIT_PROTOCOL" in names
            assert names - by_git <= allowed

    run(story())


@pytest.mark.proves("SR-04")
@pytest.mark.parametrize("value", ["version=3", "version=2:x", "version=22", " version=2", "version=2\n", "x"])
def test_a_protocol_of_another_form_is_dropped(tmp_path, value):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            async with connected(at, ada) as connection:
                env = {"GIT_PROTOCOL": value}
                answer = await connection.run("git-upload-pack app", input="0000", env=env)

            assert answer.exit_status == 0
            assert "version" not in answer.stdout

    run(story())


@pytest.mark.proves("SR-06")
def test_a_connection_that_does_not_log_in_is_ended(tmp_path, monkeypatch):
    assert limits.SSH_LOGIN_S <= 20
    monkeypatch.setattr(limits, "SSH_LOGIN_S", 0.3)

    async def story():
        async with forge(tmp_path) as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)

            async with asyncio.timeout(5):
                await reader.read()

            assert reader.at_eof()
            writer.close()
            await writer.wait_closed()

    run(story())


@pytest.mark.proves("SR-06")
@pytest.mark.parametrize(
    "bound", ["SSH_CONNECTIONS_PER_ADDRESS_MAX", "SSH_CONNECTIONS_UNAUTHENTICATED_MAX", "SSH_CONNECTIONS_MAX"]
)
def test_connections_are_bounded_per_address_before_login_and_together(tmp_path, monkeypatch, bound):
    monkeypatch.setattr(limits, bound, 3)

    async def story():
        async with forge(tmp_path) as at:
            opened = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(4)]

            async with asyncio.timeout(5):
                greetings = [await reader.read(4) for reader, _ in opened]

            assert greetings == [b"SSH-", b"SSH-", b"SSH-", b""]
            for _, writer in opened[:3]:
                writer.close()
            async with asyncio.timeout(5):
                while at.door._guests:
                    await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
            assert await reader.read(4) == b"SSH-"
            for one in (*opened, (reader, writer)):
                one[1].close()

    run(story())


@pytest.mark.proves("SR-06")
def test_keys_tried_are_bounded_and_six_are_not_too_many(tmp_path):
    assert limits.SSH_LOGIN_ATTEMPTS_MAX >= 6

    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            right = asyncssh.read_private_key(ada.key)
            wrong = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(limits.SSH_LOGIN_ATTEMPTS_MAX)]
            options = {"username": "git", "known_hosts": None, "agent_path": None, "config": []}

            async with asyncssh.connect("127.0.0.1", at.port, client_keys=[*wrong[:5], right], **options):
                pass
            with pytest.raises((asyncssh.PermissionDenied, asyncssh.DisconnectError)):
                await asyncssh.connect("127.0.0.1", at.port, client_keys=[*wrong, right], **options)

    run(story())


@pytest.mark.proves("SR-06")
def test_channels_of_a_connection_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SSH_CHANNELS_MAX", 2)

    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            async with connected(at, ada) as connection:
                first, second = [await connection.create_process("forever") for _ in range(2)]
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.create_process("help")
                first.close()
                await first.wait_closed()
                assert (await connection.run("help")).exit_status == 3
                second.close()

    run(story())


@pytest.mark.proves("SR-06")
def test_what_a_client_does_not_read_stays_bounded(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            work = await at.work("work", {"a": "b"})
            (work / "noise").write_bytes(os.urandom(24 * limits.MIB))
            await at.commit(work, {})
            assert (await at.push(ada, work, "app")).status == 0
            head = await at.head(work)
            # A window of 4 GiB promises to take everything; then nothing is read off the socket.
            async with connected(at, ada) as connection:
                session = _Greedy()
                channel, _ = await connection.create_session(
                    lambda: session, "git-upload-pack app", window=(1 << 32) - 1, encoding=None
                )
                channel.write(f"0032want {head}\n00000009done\n".encode())
                connection._transport.pause_reading()
                guest = next(iter(at.door._guests))
                waiting = guest._conn._transport.get_write_buffer_size
                async with asyncio.timeout(10):  # until git has made its pack
                    while (most := waiting()) <= limits.PUMP_BUFFER_BYTES_MAX / 2:
                        await asyncio.sleep(0)
                ends = asyncio.get_running_loop().time() + 2
                while asyncio.get_running_loop().time() < ends:
                    most = max(most, waiting())
                    await asyncio.sleep(0)
                assert at.programs._running.total() == 1  # git did not get rid of all of it
                assert most < 3 * limits.PUMP_BUFFER_BYTES_MAX
                connection.abort()
            await at.idle()

    run(story(), timeout_s=18)


class _Greedy(asyncssh.SSHClientSession):
    pass


@pytest.mark.proves("SR-06", "SR-07")
def test_a_peer_that_went_silent_is_noticed_and_its_git_child_ends(tmp_path, monkeypatch):
    assert limits.SSH_KEEPALIVE_S * (limits.SSH_KEEPALIVE_MISSES + 1) <= 60
    monkeypatch.setattr(limits, "SSH_KEEPALIVE_S", 0.2)

    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            async with connected(at, ada) as connection:
                process = await connection.create_process("git-receive-pack app", encoding=None)
                await process.stdout.read(4)
                assert at.programs._running.total() == 1
                connection._transport.pause_reading()

                await at.idle()

                assert at.programs._running.total() == 0
                connection.abort()

    run(story())


@pytest.mark.proves("SR-07", "I-31")
@pytest.mark.parametrize("part", ["commands", "half the pack"])
def test_a_client_that_leaves_in_mid_push_leaves_nothing(tmp_path, part):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            work = await at.work("work")
            await at.commit(work, {f"f{number}": str(number) * 500 for number in range(300)})
            head = await at.head(work)
            packed = await _pack(work, head)
            before = sorted(str(path) for path in at.bare("app").rglob("*"))
            line = f"{'0' * 40} {head} refs/heads/main\0report-status side-band-64k".encode()
            async with connected(at, ada) as connection:
                process = await connection.create_process("git-receive-pack app", encoding=None)
                await process.stdout.read(4)
                process.stdin.write(f"{len(line) + 4:04x}".encode() + line)
                if part != "commands":
                    process.stdin.write(b"0000" + packed[: len(packed) // 2])
                    async with asyncio.timeout(5):
                        while not list(at.bare("app").glob("objects/tmp_objdir-*")):
                            await asyncio.sleep(0)
                child = next(iter(next(iter(at.door._guests)).connection.watched))._child
                assert child is not None
                pid = child.pid
                connection.abort()

            await at.idle()

            assert sorted(str(path) for path in at.bare("app").rglob("*")) == before
            assert group_of(pid) == []
            assert await at.rows("SELECT * FROM pushes") == []

    run(story())


async def _pack(work, head):
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--revs", "--stdout", "-q", cwd=work,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate(f"{head}\n".encode())
    return out


@pytest.mark.proves("SR-27")
@pytest.mark.parametrize("what", ["key", "account"])
def test_removing_a_key_ends_its_open_connections(tmp_path, what):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            async with connected(at, ada) as connection:
                process = await connection.create_process("git-receive-pack app", encoding=None)
                await process.stdout.read(4)
                if what == "key":
                    await at.db.write(people.remove_key, ada.fingerprint)
                else:
                    await at.db.write(people.remove_account, ada.name)

                await at.door.people_changed()

                async with asyncio.timeout(5):
                    await connection.wait_closed()
                await at.idle()
                assert at.programs._running.total() == 0

    run(story())


@pytest.mark.proves("SR-27")
@pytest.mark.parametrize("what", ["grant", "repository"])
def test_removing_a_grant_or_a_repository_ends_the_git_session_and_says_why(tmp_path, what):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            app = await at.repo("app", ada)
            other = await at.repo("other", ada)
            async with connected(at, ada) as connection:
                process = await connection.create_process("git-receive-pack app", encoding=None)
                stays = await connection.create_process("git-receive-pack other", encoding=None)
                await process.stdout.read(4)
                await stays.stdout.read(4)
                if what == "grant":
                    await at.db.write(people.revoke_grant, ada.account, app.id)
                else:
                    await at.db.write(repos.remove_repo, app.id)

                await at.door.people_changed()

                ended = await process.wait()
                assert ended.exit_status == 1
                assert b"there is no repository 'app'" in ended.stderr
                assert at.programs._running.total() == 1, other
                stays.close()

    run(story())


def test_a_command_gets_its_input_and_its_status_comes_after_its_output(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            data = b"0123456789abcdef" * 65536 * 3

            answer = await at.ssh(ada, "cat", given=data)

            assert answer.status == 0
            assert len(answer.out) == len(data)

    run(story())


def test_a_command_whose_client_leaves_is_cancelled(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            async with connected(at, ada) as connection:
                await connection.create_process("forever")
                connection.abort()

            await at.idle()

            assert [line for _, line in at.commands] == ["forever"]

    run(story())


def test_openssh_and_asyncssh_get_aes_gcm_and_others_get_a_list(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            verbose = await at.ssh(ada, "help", options=("-v",))
            async with connected(at, ada, client_version="dropbear_2022.83", encryption_algs=["aes256-ctr"]) as other:
                cipher = other.get_extra_info("send_cipher")

            assert "cipher: aes128-gcm@openssh.com" in verbose.err
            assert cipher == "aes256-ctr"

    run(story())


def test_a_hundred_environment_requests_are_not_kept(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            async with connected(at, ada) as connection:
                env = {f"V{number}": "x" * 1000 for number in range(100)}
                process = await connection.create_process("forever", env=env)
                channels = next(iter(at.door._guests))._conn._channels
                kept = [channel.get_environment_bytes() for channel in channels.values()]

                assert kept == [{}]
                process.close()

    run(story())


def test_stopping_the_door_ends_every_session(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            async with connected(at, ada) as connection:
                process = await connection.create_process("git-receive-pack app", encoding=None)
                await process.stdout.read(4)

                await at.door.stop()

                async with asyncio.timeout(5):
                    await connection.wait_closed()
                assert at.programs._running.total() == 0
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.1", at.port), timeout=2)

    run(story())


def test_ssh_keygen_and_vole_agree_on_fingerprints(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            for kind, bits in (("ed25519", 256), ("rsa", 2048), ("ecdsa", 384)):
                file = at.folder / kind
                await said("ssh-keygen", "-q", "-t", kind, "-b", str(bits), "-N", "", "-f", file, cwd=at.folder)
                shown = await said("ssh-keygen", "-l", "-f", f"{file}.pub", cwd=at.folder)

                assert keys.parse((at.folder / f"{kind}.pub").read_text()).fingerprint == shown.out.split()[1]

    run(story())
