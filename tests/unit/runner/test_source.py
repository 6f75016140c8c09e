"""Sources come over the runner's own connection, for one commit of one repository, through a cache that heals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.aio import run
from tests.unit.runner.desk import a_link, leased
from tests.unit.runner.forge import Forge, a_forge, a_repository, git
from vole.base import limits
from vole.base.errors import Fenced, Unavailable
from vole.base.ids import CommitId, RepoName
from vole_runner.link import Link
from vole_runner.source import Sources, Wanted

APP = RepoName("app")


async def brought(forge: Forge, link: Link, sources: Sources, commit: CommitId, depth: int = 1, to: str = "w") -> Path:
    lease = await leased(forge, commit=commit, checkout_depth=depth)
    work = forge.root / to
    await sources.bring(Wanted(APP, commit, depth), lease, work, link.channel)
    return work


def packs(forge: Forge) -> list[Path]:
    return sorted((forge.root / "cache").glob("*/app.git/objects/pack/*.pack"))


def test_the_commit_is_checked_out_shallow_and_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            first, second = a_repository(forge, [{"a": b"1"}, {"a": b"2", "deep/b": b"3"}])

            work = await brought(forge, link, Sources(tmp_path / "cache", "f"), second)

            assert ((work / "a").read_bytes(), (work / "deep" / "b").read_bytes()) == (b"2", b"3")
            assert git(work, "rev-parse", "HEAD") == second
            assert git(work, "status", "--porcelain") == ""
            assert git(work, "rev-list", "--count", "HEAD") == "1"
            assert git(work, "fsck", "--full", "--no-dangling") == ""
            assert first not in git(work, "cat-file", "--batch-all-objects", "--batch-check")

    run(story())


@pytest.mark.parametrize(("depth", "count"), [(0, "4"), (1, "1"), (2, "2"), (3, "3")])
def test_the_history_is_as_deep_as_asked_whatever_was_brought_before(tmp_path: Path, depth: int, count: str) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            commits = a_repository(forge, [{"a": str(at).encode() * 99} for at in range(4)])
            sources = Sources(tmp_path / "cache", "f")
            for commit, before in ((commits[1], 1), (commits[2], 2), (commits[0], 0), (commits[3], 1)):
                await brought(forge, link, sources, commit, before, to=f"before-{commit}")

            work = await brought(forge, link, sources, commits[3], depth)

            assert git(work, "rev-list", "--count", "HEAD") == count
            assert git(work, "fsck", "--full", "--no-dangling") == ""
            assert git(work, "status", "--porcelain") == ""

    run(story())


def test_a_commit_that_is_here_already_is_not_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            sources = Sources(tmp_path / "cache", "f")
            await brought(forge, link, sources, commit)

            await brought(forge, link, sources, commit, to="second")

            assert len(forge.queue.asked_sources) == 1
            assert (tmp_path / "second" / "a").read_bytes() == b"1"

    run(story())


def test_a_second_commit_sends_only_what_is_new(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            big = bytes(at * 7919 % 251 for at in range(200_000))
            first, second = a_repository(forge, [{"big": big, "a": b"1"}, {"a": b"2"}])
            sources = Sources(tmp_path / "cache", "f")
            await brought(forge, link, sources, first)
            had = {pack.name for pack in packs(forge)}

            work = await brought(forge, link, sources, second, to="second")

            (new,) = [pack for pack in packs(forge) if pack.name not in had]
            assert new.stat().st_size < 2_000
            assert (work / "big").read_bytes() == big

    run(story())


def test_a_file_that_came_back_to_an_older_state_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            old = b"old state\n" * 50
            _, second, third = a_repository(forge, [{"a": old, "b": b"1"}, {"a": b"new"}, {"a": old, "b": b"2"}])
            sources = Sources(tmp_path / "cache", "f")
            await brought(forge, link, sources, second)  # its parent's blob is not in the cache

            work = await brought(forge, link, sources, third, to="third")

            assert (work / "a").read_bytes() == old

    run(story())


def test_a_broken_cache_is_thrown_away_and_made_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            (commit,) = a_repository(forge, [{"a": b"1" * 9999}])
            sources = Sources(tmp_path / "cache", "f")
            await brought(forge, link, sources, commit)
            for pack in packs(forge):
                pack.chmod(0o600)
                pack.write_bytes(pack.read_bytes()[:40])

            work = await brought(forge, link, sources, commit, to="again")

            assert (work / "a").read_bytes() == b"1" * 9999
            assert len(forge.queue.asked_sources) == 2

    run(story())


def test_a_work_folder_outlives_the_cache(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            work = await brought(forge, link, Sources(tmp_path / "cache", "f"), commit)
            for pack in packs(forge):
                pack.unlink()

            assert git(work, "fsck", "--full", "--no-dangling") == ""

    run(story())


def test_a_cache_of_many_packs_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CACHE_PACKS_MAX", 2)

    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            commits = a_repository(forge, [{"a": bytes([at])} for at in range(4)])
            sources = Sources(tmp_path / "cache", "f")

            for commit in commits:
                await brought(forge, link, sources, commit, to=commit)
                assert len(packs(forge)) <= 2

            assert git(tmp_path / commits[3], "fsck", "--full", "--no-dangling") == ""

    run(story())


def test_two_slots_bring_the_same_repository_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            first, second = a_repository(forge, [{"a": b"1"}, {"a": b"2"}])
            sources = Sources(tmp_path / "cache", "f")

            await asyncio.gather(
                brought(forge, link, sources, first, to="one"), brought(forge, link, sources, second, to="two")
            )

            assert ((tmp_path / "one" / "a").read_bytes(), (tmp_path / "two" / "a").read_bytes()) == (b"1", b"2")

    run(story())


@pytest.mark.proves("SR-28", "SR-26")
def test_without_a_live_lease_no_source_is_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = await leased(forge, commit=commit)
            forge.queue.fence(lease)

            with pytest.raises(Fenced):
                await Sources(tmp_path / "cache", "f").bring(
                    Wanted(APP, commit, 1), lease, tmp_path / "w", link.channel
                )

            assert packs(forge) == []

    run(story())


@pytest.mark.proves("SR-28")
def test_a_lease_serves_its_own_commit_whatever_the_runner_wants(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            first, second = a_repository(forge, [{"a": b"1"}, {"a": b"2"}])
            lease = await leased(forge, commit=first)

            with pytest.raises(Unavailable):
                await Sources(tmp_path / "cache", "f").bring(
                    Wanted(APP, second, 1), lease, tmp_path / "w", link.channel
                )

            held = [git(pack.parents[2], "cat-file", "--batch-all-objects", "--batch-check") for pack in packs(forge)]
            assert all(second not in objects for objects in held)

    run(story())


def test_nothing_of_the_users_git_settings_or_hooks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {home}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))

    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_link(forge) as link:
            (commit,) = a_repository(forge, [{"a": b"1\n2\n"}])

            work = await brought(forge, link, Sources(tmp_path / "cache", "f"), commit)

            assert (work / "a").read_bytes() == b"1\n2\n"
            assert not (home / "ran").exists()

    run(story())
