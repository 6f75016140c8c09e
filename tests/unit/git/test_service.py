"""Packs for runners and for readers over HTTP, made by the real git."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.aio import run
from tests.endtoend.git_server import group_of
from tests.unit.git.test_storage import a_commit
from vole.base import limits
from vole.base.errors import Exhausted, Unavailable
from vole.base.ids import AccountName, CommitId, RefName, RepoName
from vole.git import service
from vole.git.service import GitPrograms
from vole.git.storage import Storage

MAIN = RefName("refs/heads/main")
ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"}


@pytest.fixture
def history(tmp_path):
    """A repository of four commits, the last one a merge; oldest first."""
    store = Storage(tmp_path)
    path = store.create(RepoName("app"))
    first = a_commit(path, MAIN, files=[("a", b"1"), ("same", b"x" * 1000)])
    second = a_commit(path, MAIN, first, files=[("a", b"2"), ("same", b"x" * 1000)])
    side = a_commit(path, "refs/heads/side", first, files=[("b", b"3"), ("same", b"x" * 1000)])
    merge = a_commit(path, MAIN, second, side, files=[("a", b"2"), ("b", b"3"), ("same", b"x" * 1000)])
    store.close()
    return path, [first, second, side, merge]


def commits_in(folder):
    """Every commit object that a repository holds, reachable or not."""
    words = ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"]
    shown = subprocess.run(words, cwd=folder, check=True, env=ENV, capture_output=True, text=True).stdout
    return {line.split()[1] for line in shown.splitlines() if line.startswith("commit ")}


async def taken(path, folder, commit, depth, haves=()):
    """Take a source pack into the repository `folder`; the commits that can be reached there then."""
    pack = await service.source_pack(path, commit, depth, tuple(haves))
    data = await pack.process.stdout.read()
    assert await pack.process.wait() == 0
    if not folder.exists():
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True, env=ENV)
    words = ["git", "index-pack", "--stdin", "--fix-thin"]
    subprocess.run(words, cwd=folder, input=data, check=True, env=ENV, capture_output=True)
    if pack.shallow:
        (folder / "shallow").write_text("".join(f"{one}\n" for one in pack.shallow))
    shown = subprocess.run(["git", "rev-list", commit], cwd=folder, check=True, env=ENV, capture_output=True, text=True)
    subprocess.run(["git", "fsck", "--full", "--no-dangling"], cwd=folder, check=True, env=ENV, capture_output=True)
    return pack, shown.stdout.split(), len(data)


@pytest.mark.proves("SR-28")
def test_a_source_pack_holds_exactly_the_commit_it_is_for(history, tmp_path):
    path, (_first, second, _side, _merge) = history

    async def story():
        pack, commits, _ = await taken(path, tmp_path / "one", second, 1)

        assert pack.shallow == (second,)
        assert commits == [second]
        assert commits_in(tmp_path / "one") == {second}

    run(story())


def test_a_depth_cuts_where_it_should_and_none_cuts_nowhere(history, tmp_path):
    path, (first, second, side, merge) = history

    async def story():
        two, commits, _ = await taken(path, tmp_path / "two", merge, 2)
        assert set(two.shallow) == {second, side}
        assert set(commits) == commits_in(tmp_path / "two") == {merge, second, side}
        deep, commits, _ = await taken(path, tmp_path / "deep", merge, 9)
        assert (deep.shallow, len(commits)) == ((), 4)
        whole, commits, _ = await taken(path, tmp_path / "all", merge, 0)
        assert (whole.shallow, len(commits)) == ((), 4)
        root, _, _ = await taken(path, tmp_path / "root", first, 1)
        assert root.shallow == ()

    run(story())


def test_what_the_taker_has_is_not_sent_again_and_unknown_haves_do_no_harm(history, tmp_path):
    path, (_first, second, _side, merge) = history
    unknown = CommitId("f" * 40)

    async def story():
        _, _, alone = await taken(path, tmp_path / "alone", merge, 1)
        await taken(path, tmp_path / "cache", second, 1)
        _, commits, beside = await taken(path, tmp_path / "cache", merge, 1, [second, unknown])

        assert beside < alone
        assert commits[0] == merge

    run(story())


@pytest.mark.proves("SR-10")
def test_smart_http_advertises_and_serves_without_internal_refs(history):
    path, (_, _, _, merge) = history
    storage_keep = path / "refs/vole/keep"
    storage_keep.mkdir(parents=True)
    (storage_keep / merge).write_text(f"{merge}\n")

    async def story():
        async with service.http_upload_pack(path, None, "advertise") as process:
            process.stdin.close()
            shown = await process.stdout.read()
        async with service.http_upload_pack(path, "version=2", "rpc") as process:
            process.stdin.write(b"0014command=ls-refs\n00010000")
            process.stdin.close()
            listed = await process.stdout.read()

        assert f"{merge} refs/heads/main".encode() in shown
        assert b"refs/vole" not in shown + listed
        assert b"refs/heads/side" in listed

    run(story())


@pytest.mark.proves("SR-08")
def test_a_repository_that_borrows_objects_is_not_served_over_http(history):
    path, _ = history
    (path / "objects/info/alternates").write_text("/elsewhere\n")

    async def story():
        with pytest.raises(Unavailable, match="alternates"):
            async with service.http_upload_pack(path, None, "advertise"):
                pass

    run(story())


def test_a_process_that_is_left_is_ended(history):
    path, _ = history

    async def story():
        async with service.http_upload_pack(path, "version=2", "rpc") as process:
            assert process.returncode is None

        assert process.returncode == -9

    run(story())


class Nowhere:
    def output(self, data):
        pass

    errors = output

    def may_feed(self, ready):
        pass


@pytest.mark.parametrize("bound", ["GIT_CHILDREN_MAX", "GIT_CHILDREN_PER_ACCOUNT_MAX"])
def test_git_programs_are_bounded_together_and_per_account(history, tmp_path, monkeypatch, bound):
    path, _ = history
    monkeypatch.setattr(limits, bound, 1)
    programs = GitPrograms(tmp_path, tmp_path / "lock")
    ada, bob = AccountName("ada"), AccountName("bob")

    async def story():
        async with programs.upload_pack(ada, path, None, Nowhere()):
            with pytest.raises(Exhausted, match=bound):
                async with programs.upload_pack(ada, path, None, Nowhere()):
                    pass
            if bound == "GIT_CHILDREN_PER_ACCOUNT_MAX":
                async with programs.upload_pack(bob, path, None, Nowhere()) as child:
                    assert child.pid
        async with programs.upload_pack(ada, path, None, Nowhere()) as child:
            assert child.pid

    run(story())
    programs.close()


@pytest.mark.proves("SR-07")
def test_a_child_that_ignores_term_is_killed_with_its_group(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "GIT_END_S", 0.2)

    async def story():
        sink = Collected()
        script = "trap '' TERM; sleep 60 & echo ready; wait; sleep 60"
        child = await service._start(["/bin/sh", "-c", script], {"PATH": service.PATH}, sink, ())
        async with asyncio.timeout(5):
            await sink.said.wait()
            child.end()
            child.end()

            status = await child.ended()
            while group_of(child.pid):  # KILL was sent to all of them; the kernel takes its time with each
                await asyncio.sleep(0.01)

        assert status == -9

    run(story())


class Collected(Nowhere):
    def __init__(self):
        self.said = asyncio.Event()

    def output(self, data):
        self.said.set()


@pytest.mark.proves("SR-15")
def test_a_delta_bomb_ends_in_its_own_child(tmp_path):
    async def story():
        programs = GitPrograms(tmp_path, tmp_path / "lock")
        store = Storage(tmp_path / "repos")
        (tmp_path / "repos").mkdir()
        path = store.create(RepoName("app"))
        async with programs.receive_pack(AccountName("ada"), path, None, Nowhere()) as push:
            bounds = await asyncio.to_thread(Path(f"/proc/{push.child.pid}/limits").read_text)
        assert f"{limits.GIT_DATA_BYTES_MAX}" in next(line for line in bounds.splitlines() if "data size" in line)
        programs.close()
        store.close()

    run(story())
