"""A pack into an empty repository: git is spared its walk, and still nothing gets in that is not whole."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio import run
from tests.endtoend.git_server import CLIENT, forge, said
from vole.base import limits
from vole.git.child import HookPipes

FILES = 120  # more than git unpacks


def packet(text: bytes) -> bytes:
    return f"{len(text) + 4:04x}".encode() + text


@pytest.fixture
def vouched(monkeypatch):
    """For which commits of each push git was spared the walk."""
    monkeypatch.setattr(limits, "VOUCHED_OBJECTS_MIN", FILES)
    found: list[list[str]] = []
    vouch = HookPipes.vouch

    def noted(pipes, commits):
        before = pipes.vouched
        vouch(pipes, commits)
        if pipes.vouched and not before:
            found.append([commit.decode() for commit in commits])

    monkeypatch.setattr(HookPipes, "vouch", noted)
    return found


async def ready(at):
    ada = await at.account("ada")
    await at.repo("app", ada)
    work = await at.work("work", {f"f{number}": f"{number}\n" for number in range(FILES)})
    await at.commit(work, {"f0": "another"})
    await said("git", "-c", "tag.gpgSign=false", "tag", "-m", "one", "v1", cwd=work)
    return ada, work


async def a_push(work, target: str, *without: str) -> bytes:
    """What a client sends that makes `refs/heads/main` of `target`: all objects of `work`, `without` those named."""
    listed = await said("git", "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", cwd=work)
    left = [(await said("git", "rev-parse", name, cwd=work)).out.strip() for name in without]
    names = [name for name in listed.out.split() if name not in left]
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--stdout", "-q", cwd=work, env=CLIENT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    pack = (await process.communicate("\n".join(names).encode() + b"\n"))[0]
    return packet(f"{'0' * 40} {target} refs/heads/main\0report-status".encode()) + b"0000" + pack


def test_a_first_push_is_not_walked_and_the_ones_after_it_are(tmp_path, vouched):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)

            assert (await at.push(ada, work, "app", "main", "v1")).status == 0

            refs = await at.refs("app")
            assert vouched == [[refs["refs/heads/main"], refs["refs/tags/v1"]]]
            assert (await said("git", "fsck", "--full", "--strict", cwd=at.bare("app"))).status == 0
            await at.commit(work, {f"f{number}": f"new {number}" for number in range(FILES)})
            assert (await at.push(ada, work, "app")).status == 0
            assert len(vouched) == 1

    run(story())


@pytest.mark.proves("SR-13")
@pytest.mark.parametrize(
    ("target", "missing"),
    [("main", "main:f7"), ("main", "main^{tree}"), ("main", "main~1"), ("main", "main~1:f0"), ("v1", "main")],
)
def test_a_first_pack_that_lacks_what_it_names_is_refused(tmp_path, vouched, target, missing):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            tip = (await said("git", "rev-parse", target, cwd=work)).out.strip()

            answer = await at.ssh(ada, "git-receive-pack app", given=await a_push(work, tip, missing))

            assert vouched == [[tip]]
            assert "ng refs/heads/main" in answer.out
            assert await at.refs("app") == {}
            assert not list(at.bare("app").glob("objects/pack/*"))
            assert (
                await at.ssh(ada, "git-receive-pack app", given=await a_push(work, await at.head(work)))
            ).status == 0
            assert await at.refs("app") != {}

    run(story())


def test_a_first_pack_without_the_tip_itself_is_refused(tmp_path, vouched):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)

            answer = await at.ssh(ada, "git-receive-pack app", given=await a_push(work, "f" * 40))

            assert vouched == [["f" * 40]]
            assert "ng refs/heads/main missing necessary objects" in answer.out
            assert await at.refs("app") == {}

    run(story())


def test_of_two_first_pushes_the_later_is_told_to_come_again(tmp_path, vouched):
    """Its pack was taken for whole because nothing else was there."""

    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            data = await a_push(work, await at.head(work))
            later = await asyncio.create_subprocess_exec(
                *at.ssh_words(ada), "git@127.0.0.1", "git-receive-pack app", env=CLIENT, cwd=tmp_path,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert b"capabilities^{}" in await later.stdout.readuntil(b"\n0000")
            other = await at.work("other", {"a": "b"})
            assert (await at.push(ada, other, "app", "main:other")).status == 0

            out, err = await later.communicate(data)

            assert b"another push was the first of this repository" in err
            assert b"push again" in err
            assert b"ng refs/heads/main" in out
            assert list(await at.refs("app")) == ["refs/heads/other"]
            assert (await at.push(ada, work, "app")).status == 0

    run(story())
