"""Large pushes and clones pass through the server without staying in it."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest

from tests.aio import run
from tests.endtoend import git_server
from tests.endtoend.git_server import forge, said
from vole.base.limits import MIB

GROWTH_BYTES_MAX = 16 * MIB  # two full pumps and the allocator's habits; far from the size of any push here
FILES = 128  # more than git unpacks: the pack stays one, as in any large push
PLAIN = ("-c", "core.compression=0", "-c", "core.bigFileThreshold=256k", "-c", "gc.auto=0")


class Peak:
    """How far this process's memory grows while the block runs. The server is in it, the clients are not."""

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        self._before = self._resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.growth = self._resident("VmHWM") - self._before

    @staticmethod
    def _resident(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


async def push_and_clone(tmp_path: Path, megabytes: int) -> tuple[int, int]:
    """Growth in bytes during a push and during a clone of `megabytes` that do not compress."""
    async with forge(tmp_path, parser=False) as at:
        ada = await at.account("ada")
        await at.repo("app", ada)
        work = await at.work("work", {"a": "b"})
        warm = await at.push(ada, work, "app")
        assert warm.status == 0, warm.err
        for number in range(FILES):
            (work / f"noise{number}").write_bytes(os.urandom(megabytes * MIB // FILES))
        for words in (("add", "-A"), ("commit", "-q", "-m", "noise")):
            made = await said("git", *PLAIN, *words, cwd=work)
            assert made.status == 0, made.err
        with Peak() as pushing:
            pushed = await at.git(ada, *PLAIN, "push", at.url("app"), "main", cwd=work)
        assert pushed.status == 0, pushed.err
        with Peak() as cloning:
            cloned = await at.git(ada, *PLAIN, "clone", "-q", "--bare", at.url("app"), "copy")
        assert cloned.status == 0, cloned.err
        assert (await said("git", "rev-parse", "main", cwd=at.folder / "copy")).out.strip() == await at.head(work)
        return pushing.growth, cloning.growth


@pytest.mark.proves("SR-06")
def test_server_memory_is_flat_during_a_push_and_a_clone(tmp_path):
    growths = run(push_and_clone(tmp_path, 48), timeout_s=19)

    assert max(growths) < GROWTH_BYTES_MAX


@pytest.mark.parametrize("cipher", ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com"])
@pytest.mark.parametrize("who_asks", ["client", "server"])
def test_keys_are_exchanged_anew_in_the_middle_of_a_clone(tmp_path, monkeypatch, who_asks, cipher):
    async def story():
        if who_asks == "server":
            monkeypatch.setattr(asyncssh.connection, "_DEFAULT_REKEY_BYTES", MIB)
        async with forge(tmp_path, parser=False) as at:
            ada = await at.account("ada")
            await at.repo("app", ada)
            work = await at.work("work", {"a": "b"})
            (work / "noise").write_bytes(os.urandom(4 * MIB))
            await at.commit(work, {"c": "d"})
            assert (await at.push(ada, work, "app")).status == 0
            options = ("-o", f"Ciphers={cipher}", "-v", *(("-o", "RekeyLimit=1M") if who_asks == "client" else ()))
            ssh = " ".join(at.ssh_words(ada, *options))

            cloned = await said("git", "clone", at.url("app"), "copy", cwd=at.folder, env={"GIT_SSH_COMMAND": ssh})

            assert cloned.status == 0, cloned.err
            assert f"cipher: {cipher}" in cloned.err
            assert cloned.err.count("SSH2_MSG_NEWKEYS received") >= 3
            assert (at.folder / "copy" / "noise").read_bytes() == (work / "noise").read_bytes()

    run(story())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_server_memory_is_flat_during_a_push_and_a_clone_of_200_mb(tmp_path, monkeypatch):
    monkeypatch.setattr(git_server, "CLIENT_S", 80.0)

    growths = run(push_and_clone(tmp_path, 200), timeout_s=170)

    assert max(growths) < GROWTH_BYTES_MAX
