"""`vole-runner` as a program: its exit codes, its start, its host keys."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from tests.aio import run
from tests.unit.runner.desk import log_of
from tests.unit.runner.forge import Forge, a_forge, a_repository
from vole.base.errors import Denied, Invalid
from vole.wire import runner
from vole.wire.runner import Refusal

ROOT = Path(__file__).parents[2]


@dataclass
class Program:
    process: asyncio.subprocess.Process

    async def ended(self) -> tuple[int, str]:
        out, _ = await self.process.communicate()
        return self.process.returncode, out.decode()


@asynccontextmanager
async def started(forge: Forge | None, here: Path, *flags: str, **environ: str) -> AsyncIterator[Program]:
    enough = ["--server", forge.address, "--key", str(forge.key), "--host-key", forge.host_key] if forge else []
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(here),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'runner'}",
        "PYTHONPYCACHEPREFIX": str(sys.pycache_prefix),
        **environ,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vole_runner", "--work", str(here / "work"), "--name", "mac-1", *enough, *flags),
        env=environment,
        cwd=here,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def exit_of(forge: Forge | None, here: Path, *flags: str, **environ: str) -> tuple[int, str]:
    async with started(forge, here, *flags, **environ) as program:
        return await program.ended()


@pytest.mark.parametrize(
    "flags",
    [
        ("--label", "Linux"),
        ("--label", "linux "),
        ("--repos", "My App"),
        ("--slots", "0"),
        ("--runtime", "container"),
        ("--frobnicate",),
        ("--host-key", "aa:bb"),
    ],
)
def test_bad_usage_exits_2_and_nobody_was_connected_to(tmp_path: Path, flags: tuple[str, ...]) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            code, _ = await exit_of(forge, tmp_path, *flags)

            assert code == 2
            assert forge.connections == []

    run(story())


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Denied("the filter leaves nothing of what rui is granted (app)", code=Refusal.GRANT), 4),
        (Invalid("taken", code=Refusal.SUPERSEDED), 5),
        (Invalid("old wire", code=Refusal.WIRE_UNSUPPORTED), 6),
        (Invalid("too old", code=Refusal.VERSION_REFUSED), 7),
        (Invalid("no words", code=Refusal.INVALID), 2),
    ],
)
def test_a_refusal_of_the_forge_has_its_own_exit_code(tmp_path: Path, refusal: Denied | Invalid, code: int) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            forge.queue.hello_refusal = refusal

            ended, said = await exit_of(forge, tmp_path, "--repos", "lib")

            assert ended == code
            assert refusal.sentence in said

    run(story())


def test_a_key_that_is_not_let_in_exits_4(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            forge.lets_in = False

            code, said = await exit_of(forge, tmp_path)

            assert code == 4
            assert str(forge.key) in said

    run(story())


def test_once_with_nothing_to_do_exits_8(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            assert (await exit_of(forge, tmp_path, "--once"))[0] == 8

    run(story())


@pytest.mark.parametrize("flag", ["--once", "--exit-on-refusal"])
def test_a_forge_that_is_away_exits_75(tmp_path: Path, flag: str) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            await forge.shut()

            assert (await exit_of(forge, tmp_path, flag))[0] == 75

    run(story())


def test_a_job_is_done_and_term_ends_the_program_with_0(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo hello; env", commit=commit)
            async with started(forge, tmp_path, "--label", "linux,fast", SECRET_OF_THE_RUNNER="s") as program:
                await forge.queue.until(lambda: lease in forge.queue.finished)
                program.process.send_signal(signal.SIGTERM)

                code, said = await program.ended()

            assert code == 0
            assert forge.queue.sessions[0].hello.labels == ("linux", "fast")
            assert "hello" in log_of(forge, lease)
            assert "SECRET_OF_THE_RUNNER" not in log_of(forge, lease)
            assert str(forge.key) not in log_of(forge, lease)
            assert "runtime local: a step runs as" in said
            assert "granted: app" in said
            assert not (tmp_path / "work" / "run").exists()

    run(story())


@pytest.mark.proves("I-25", "SR-35")
def test_a_runner_process_that_lost_its_forge_ends_its_steps_within_the_ttl_and_lives_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path, ttl_s=6.0) as forge:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            async with started(forge, tmp_path) as program:
                await forge.queue.until(lambda: "pid " in log_of(forge, lease))
                pid = int(log_of(forge, lease).split("pid ")[1].split()[0])
                loop = asyncio.get_running_loop()
                await forge.shut()
                cut_at = loop.time()
                while Path(f"/proc/{pid}").exists():
                    await asyncio.sleep(0.05)
                    assert loop.time() < cut_at + 6.0

                await forge.listen()
                await forge.queue.until(lambda: len(forge.queue.sessions) == 2)

                assert program.process.returncode is None

    run(story(), timeout_s=18)


def test_a_host_key_that_is_not_known_exits_4_and_says_how_to_pin_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            flags = ("--server", forge.address, "--key", str(forge.key))

            code, said = await exit_of(None, tmp_path, *flags)

            assert code == 4
            assert f"--host-key {forge.host_key}" in said

    run(story())


def test_another_host_key_than_the_pinned_one_exits_4(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            forge.host_key = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()

            code, said = await exit_of(forge, tmp_path, "--trust-on-first-use")

            assert code == 4
            assert "not the one that is pinned" in said

    run(story())


def test_the_host_key_seen_first_is_pinned_and_another_one_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            flags = ("--server", forge.address, "--key", str(forge.key), "--once")
            first, _ = await exit_of(None, tmp_path, *flags, "--trust-on-first-use")
            again, _ = await exit_of(None, tmp_path, *flags)
            await forge.shut()
            forge.host_private = asyncssh.generate_private_key("ssh-ed25519")
            await forge.listen()

            changed, said = await exit_of(None, tmp_path, *flags, "--trust-on-first-use")

            assert (first, again, changed) == (8, 8, 4)
            assert "someone stands in between" in said

    run(story())


def test_server_and_key_may_come_from_the_environment(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            environ = {"VOLE_SERVER": forge.address, "VOLE_KEY": str(forge.key)}

            code, _ = await exit_of(None, tmp_path, "--once", "--host-key", forge.host_key, **environ)

            assert code == 8

    run(story())


@pytest.mark.needs("ssh")
def test_a_key_with_a_passphrase_exits_2_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            forge.key.unlink()
            words = ("-q", "-t", "ed25519", "-N", "words", "-f", str(forge.key))
            subprocess.run(["ssh-keygen", *words], check=True)

            code, said = await exit_of(forge, tmp_path)

            assert code == 2
            assert "passphrase" in said

    run(story())


def test_superseded_ends_the_program_with_5_even_in_mid_life(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, started(forge, tmp_path) as program:
            await forge.queue.until(lambda: forge.queue.words(runner.Want))

            forge.queue.order(runner.Refused(Refusal.SUPERSEDED, "another process has its place"))

            assert (await program.ended())[0] == 5

    run(story())


def test_a_grant_refused_in_mid_life_is_tried_again_but_for_exit_on_refusal(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            refusal = runner.Refused(Refusal.GRANT, "this key was removed")
            async with started(forge, tmp_path) as patient:
                await forge.queue.until(lambda: forge.queue.words(runner.Want))
                forge.queue.order(refusal)
                await forge.queue.until(lambda: len(forge.queue.sessions) == 2)
                assert patient.process.returncode is None
            async with started(forge, tmp_path, "--exit-on-refusal") as impatient:
                await forge.queue.until(lambda: len(forge.queue.sessions) == 3)
                forge.queue.order(refusal)

                assert (await impatient.ended())[0] == 4

    run(story())
