"""Pushes and clones with real clients over real SSH."""

from __future__ import annotations

import asyncio
import os

import pygit2
import pytest
from dulwich import porcelain

from tests.aio import run
from tests.endtoend.git_server import CI, CLIENT_S, forge, said
from vole.base import limits
from vole.git import service

BROKEN = CI.replace("steps", "stpes").replace("linux", "Linux")
TAGS_ONLY = "on: {push: {tags: ['v*']}}\n" + CI.partition("\n")[2]
DOCS_ONLY = "on: {push: {paths: ['docs/**']}}\n" + CI.partition("\n")[2]


async def pushed_app(at, files=None):
    """Ada, a repository `app` that she may write, and her work tree, not pushed yet."""
    ada = await at.account("ada")
    await at.repo("app", ada)
    return ada, await at.work("work", files)


async def runs(at):
    return await at.rows("SELECT number, ref, commit_id, reason FROM runs ORDER BY number")


@pytest.mark.proves("I-27")
def test_a_push_moves_the_ref_starts_a_run_and_says_its_address(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 0, pushed.err
            assert pushed.remote == ["app/1  ci  http://forge.test/app/runs/1  waits: no runner is connected"]
            head = await at.head(work)
            assert await at.refs("app") == {"refs/heads/main": head, f"refs/vole/keep/{head}": head}
            assert await runs(at) == [(1, "refs/heads/main", head, "")]
            assert await at.rows("SELECT state FROM pushes") == [("confirmed",)]
            assert await at.rows("SELECT * FROM push_runs") == []

    run(story())


def test_runs_start_when_git_has_said_what_it_moved_and_are_told_when_it_has_ended(tmp_path, monkeypatch):
    gate, lingering = tmp_path / "gate", tmp_path / "lingering"
    os.mkfifo(gate)
    lingering.write_text(f'#!/bin/sh\n{service.program()} "$@"\nread -r status <{gate}\nexit $status\n')
    lingering.chmod(0o755)

    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            monkeypatch.setattr(service, "program", lambda: str(lingering))

            with at.bells.listening("jobs") as started:
                pushing = asyncio.ensure_future(at.push(ada, work, "app"))
                assert await started.wait(CLIENT_S)
            assert [number for number, *_ in await runs(at)] == [1]
            assert not pushing.done()
            gate.write_text("0\n")

            pushed = await pushing
            assert pushed.status == 0, pushed.err
            assert pushed.remote == ["app/1  ci  http://forge.test/app/runs/1  waits: no runner is connected"]

    run(story())


def test_what_was_pushed_is_cloned_by_another_who_may_read(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")

            cloned = await at.git(ada, "clone", "-q", at.url("app"), "copy")

            assert cloned.status == 0, cloned.err
            assert await at.head(at.folder / "copy") == await at.head(work)

    run(story())


@pytest.mark.proves("I-31", "I-27")
def test_a_push_with_a_broken_workflow_changes_nothing_and_names_every_place(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at, {".vole/workflows/ci.yml": BROKEN})
            before = _files(at.bare("app"))

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 1
            assert [line.split(" ")[0] for line in pushed.remote[:2]] == [
                ".vole/workflows/ci.yml:4:14",
                ".vole/workflows/ci.yml:5:5",
            ]
            assert "'stpes'" in pushed.err
            assert "pre-receive hook declined" in pushed.err
            assert _files(at.bare("app")) == before
            assert await at.rows("SELECT * FROM pushes") == []
            assert await runs(at) == []

    run(story())


def _files(bare):
    return sorted(str(path.relative_to(bare)) for path in bare.rglob("*"))


@pytest.mark.proves("I-30")
def test_the_run_that_is_queued_is_the_one_that_was_checked(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            await at.push(ada, work, "app")

            blob = (await said("git", "rev-parse", "HEAD:.vole/workflows/ci.yml", cwd=work)).out.strip()
            assert await at.rows("SELECT workflow_blob, workflow_path FROM runs") == [(blob, ".vole/workflows/ci.yml")]
            assert await at.rows("SELECT key FROM jobs") == [("test",)]

    run(story())


def test_pushing_the_same_again_starts_nothing(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")

            again = await at.push(ada, work, "app")

            assert again.status == 0
            assert len(await runs(at)) == 1

    run(story())


@pytest.mark.proves("I-27")
def test_a_push_that_leaves_the_workflows_as_they_were_asks_no_child_and_starts_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "OFFLOAD_QUEUE_S", 0.5)

    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")
            offload = at.pushes._parts.verdicts._offload
            children = [await offload._free.get() for _ in range(limits.OFFLOAD_CHILDREN)]
            await at.commit(work, {"readme": "other words\n"})

            again = await at.push(ada, work, "app")

            assert again.status == 0, again.err
            assert [row[2] for row in await runs(at)][1:] == [await at.head(work)]
            await at.commit(work, {".vole/workflows/ci.yml": CI + "# changed\n"})
            assert (await at.push(ada, work, "app")).status == 1
            for child in children:
                offload._free.put_nowait(child)
            assert (await at.push(ada, work, "app")).status == 0

    run(story())


@pytest.mark.proves("I-28")
def test_many_loose_refs_are_packed_by_the_push_that_makes_them_and_hold_what_they_held(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LOOSE_REFS_MAX", 3)

    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            loose = []
            for number in range(3):
                await at.commit(work, {"readme": f"{number}\n"})
                assert (await at.push(ada, work, "app")).status == 0
                loose.append(sum(path.is_file() for path in (at.bare("app") / "refs").rglob("*")))

            assert loose == [2, 3, 0]
            held = [name for name in await at.refs("app") if name.startswith("refs/vole/keep/")]
            assert sorted(held) == sorted(f"refs/vole/keep/{row[2]}" for row in await runs(at))

    run(story())


@pytest.mark.proves("I-32")
def test_runs_of_a_branch_follow_the_order_of_its_updates(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            first = await at.head(work)
            await at.push(ada, work, "app")
            older = await said("git", "commit", "-q", "--allow-empty", "-m", "old", cwd=work,
                               env={"GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"})  # fmt: skip
            assert older.status == 0
            await at.push(ada, work, "app")
            second = await at.head(work)
            await said("git", "reset", "-q", "--hard", first, cwd=work)

            forced = await at.push(ada, work, "app", "--force", "main")

            assert forced.status == 0, forced.err
            assert [row[2] for row in await runs(at)] == [first, second, first]
            assert '"forced":true' in str(await at.rows("SELECT event FROM runs WHERE number = 3"))

    run(story())


def test_a_ref_that_is_deleted_starts_nothing(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app", "main", "main:topic")

            deleted = await at.push(ada, work, "app", ":topic")

            assert deleted.status == 0, deleted.err
            assert "refs/heads/topic" not in await at.refs("app")
            assert await at.rows("SELECT count(*) FROM runs WHERE ref = 'refs/heads/topic'") == [(1,)]

    run(story())


def test_the_default_branch_is_not_deleted_and_the_push_says_how(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")

            deleted = await at.push(ada, work, "app", ":main")

            assert deleted.status == 1
            assert "ssh git@HOST repo settings app --default-branch OTHER" in deleted.err
            assert "refs/heads/main" in await at.refs("app")

    run(story())


def test_the_first_push_without_main_makes_its_first_branch_the_default(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.push(ada, work, "app", "main:trunk")

            assert "the default branch is now trunk, the first pushed" in pushed.remote
            assert (at.bare("app") / "HEAD").read_text() == "ref: refs/heads/trunk\n"

    run(story())


def test_a_push_to_a_missing_repository_creates_nothing_and_says_how(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.push(ada, work, "nowhere")

            assert pushed.status == 128
            assert "vole: there is no repository 'nowhere' that you may read; nothing was created" in pushed.err
            assert "repo create NAME" in pushed.err
            assert [path.name for path in (at.folder / "repos").iterdir()] == ["app.git"]

    run(story())


def test_a_private_repository_looks_like_a_missing_one(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            _ada, _ = await pushed_app(at)
            mallory = await at.account("mallory")

            hidden = await at.git(mallory, "ls-remote", at.url("app"))
            missing = await at.git(mallory, "ls-remote", at.url("xyz"))

            assert hidden.status == missing.status == 128
            assert hidden.err.replace("app", "xyz") == missing.err

    run(story())


def test_a_reader_of_a_public_repository_may_not_push(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            bob = await at.account("bob")
            await at.repo("app", public=True)
            work = await at.work("work")

            read = await at.git(bob, "ls-remote", at.url("app"))
            pushed = await at.push(bob, work, "app")

            assert read.status == 0
            assert pushed.status == 128
            assert "may not do that in app: it takes `write`" in pushed.err
            assert await at.refs("app") == {}

    run(story())


@pytest.mark.proves("SR-10")
@pytest.mark.parametrize("ref", ["refs/vole/runs", "refs/vole/keep/x", "refs/vole/else"])
def test_an_internal_ref_is_refused_and_the_rest_of_the_push_goes_on(tmp_path, ref):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.push(ada, work, "app", "main", f"main:{ref}")

            assert pushed.status == 1
            assert f"! [remote rejected] main -> {ref}" in pushed.err
            assert set(await at.refs("app")) == {"refs/heads/main", f"refs/vole/keep/{await at.head(work)}"}
            assert len(await runs(at)) == 1

    run(story())


@pytest.mark.proves("SR-10")
def test_an_atomic_push_with_an_internal_ref_moves_nothing(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.git(ada, "push", "--atomic", at.url("app"), "main", "main:refs/vole/runs", cwd=work)

            assert pushed.status == 1
            assert await at.refs("app") == {}
            assert await runs(at) == []

    run(story())


@pytest.mark.proves("SR-10")
def test_run_records_can_be_fetched_and_keep_refs_are_not_shown(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")
            head = await at.head(work)
            await said("git", "update-ref", "refs/vole/runs", head, cwd=at.bare("app"))

            for version in ("0", "1", "2"):
                shown = await at.git(ada, "-c", f"protocol.version={version}", "ls-remote", at.url("app"))
                names = [line.split("\t")[1] for line in shown.out.splitlines()]
                assert names == ["HEAD", "refs/heads/main", "refs/vole/runs"], version
            fetched = await at.git(ada, "fetch", at.url("app"), "refs/vole/runs:refs/heads/records", cwd=work)
            assert fetched.status == 0, fetched.err

    run(story())


@pytest.mark.proves("SR-11")
def test_push_options_have_a_listed_meaning_or_a_notice(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            options = ("-o", "ci.variable=LEVEL=3", "-o", "ci.verbose", "-o", "ci.skpi", "-o", "merge_request.create")
            pushed = await at.git(ada, "push", *options, at.url("app"), "main", cwd=work)

            assert pushed.status == 0, pushed.err
            assert any("'ci.skpi' has no meaning here; did you mean ci.skip?" in line for line in pushed.remote)
            assert any("'merge_request.create' has no meaning here" in line for line in pushed.remote)
            assert any(line.strip() == "app/1/test  runs on linux" for line in pushed.remote)
            assert '"LEVEL":"3"' in str(await at.rows("SELECT event FROM runs"))

    run(story())


@pytest.mark.parametrize("words", [("-o", "ci.skip"), ()])
def test_a_skipped_push_leaves_a_visible_run_and_never_mutes_a_tag(tmp_path, words):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            if not words:
                await at.commit(work, {"readme": "more"}, "more [skip ci]")
            await said("git", "tag", "v1", cwd=work)

            pushed = await at.git(ada, "push", *words, at.url("app"), "main", "v1", cwd=work)

            assert pushed.status == 0, pushed.err
            assert [(row[1], row[3]) for row in await runs(at)] == [
                ("refs/heads/main", "skip_ci"),
                ("refs/tags/v1", ""),
            ]
            assert await at.rows("SELECT count(*) FROM jobs") == [(1,)]

    run(story())


def test_a_skipped_run_holds_no_commit(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            await at.push(ada, work, "app", "-oci.skip", "main")

            assert list(await at.refs("app")) == ["refs/heads/main"]

    run(story())


def test_a_waiting_push_streams_the_states_of_its_runs_and_ends_with_them(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            shown = tmp_path / "shown"
            push = ("push", "-o", "ci.wait", at.url("app"), "main")
            pushing = asyncio.ensure_future(at.git(ada, *push, cwd=work, shown=shown))
            async with asyncio.timeout(10):
                while not (shown.exists() and "app/1  queued" in shown.read_text()):
                    await asyncio.wait([pushing], timeout=0.02)
            ((run_id,),) = await at.rows("SELECT id FROM runs")

            def finish(tx):
                tx.run("UPDATE jobs SET state = 'finished', conclusion = 'success', finished_at = 1")
                tx.run("UPDATE runs SET state = 'finished', conclusion = 'success', finished_at = 1")

            await at.db.write(finish)
            at.pushes._parts.bells.ring(f"run:{run_id}")
            pushed = await pushing

            assert pushed.status == 0, pushed.err
            assert pushed.remote[-2:] == ["app/1  queued", "app/1  success"]

    run(story())


async def _waiting(at):
    """A push that waits for the end of its run, which nobody takes."""
    ada, work = await pushed_app(at)
    pushing = asyncio.ensure_future(at.git(ada, "push", "-o", "ci.wait", at.url("app"), "main", cwd=work))
    async with asyncio.timeout(10):
        while not await at.rows("SELECT id FROM runs"):
            await asyncio.wait([pushing], timeout=0.02)
    return pushing


def test_a_waiting_push_whose_client_goes_ends_and_its_run_stays(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            pushing = await _waiting(at)

            pushing.cancel()
            await asyncio.wait([pushing])
            await at.idle()

            assert [tuple(row) for row in await at.rows("SELECT state FROM runs")] == [("queued",)]
            assert "refs/heads/main" in await at.refs("app")

    run(story())


def test_a_waiting_push_whose_runs_are_forgotten_ends_as_the_push_did(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            pushing = await _waiting(at)
            (found,) = await at.rows("SELECT id FROM runs")

            await at.db.write(lambda tx: tx.run("DELETE FROM runs"))
            at.pushes._parts.bells.ring(f"run:{found[0]}")
            pushed = await pushing

            assert pushed.status == 0, pushed.err
            assert pushed.remote[-1] == "app/1  forgotten: the repository was removed"

    run(story())


def test_annotated_tags_pin_the_commit_and_path_filters_never_hold_them_back(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            files = {".vole/workflows/tags.yml": TAGS_ONLY, ".vole/workflows/docs.yml": DOCS_ONLY}
            ada, work = await pushed_app(at, files)
            await said("git", "tag", "-a", "v1", "-m", "one", cwd=work)

            pushed = await at.push(ada, work, "app", "v1")

            assert pushed.status == 0, pushed.err
            assert {row[2] for row in await runs(at)} == {await at.head(work)}
            assert len(await runs(at)) == 2

    run(story())


def test_a_path_filter_that_rejects_leaves_a_skipped_run_and_says_what_it_compared(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at, {".vole/workflows/docs.yml": DOCS_ONLY, "docs/a": "1"})
            await at.push(ada, work, "app")
            await at.commit(work, {"src": "2"})
            plain = await at.push(ada, work, "app")
            await at.commit(work, {"src": "3"})

            branch = await at.push(ada, work, "app", "main:topic")

            assert "app/2  docs  http://forge.test/app/runs/2  skipped by its filter" in plain.remote
            assert any("the merge base with main" in line for line in branch.remote), branch.remote
            assert [row[3] for row in await runs(at)] == ["", "filter", "filter"]

    run(story())


def test_a_hint_is_printed_where_only_github_workflows_exist(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at, {".github/workflows/ci.yml": "on: push"})

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 0
            assert any(line.startswith("there is .github/workflows") for line in pushed.remote)

    run(story())


def test_notes_and_other_refs_start_nothing(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)

            pushed = await at.push(ada, work, "app", "main:refs/notes/commits")

            assert pushed.status == 0, pushed.err
            assert await runs(at) == []

    run(story())


def test_a_shallow_clone_and_every_protocol_version_work(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.commit(work, {"a": "1"})
            await at.push(ada, work, "app")

            for version in ("0", "1", "2"):
                words = ("-c", f"protocol.version={version}", "clone", "-q", "--depth", "1", at.url("app"), version)
                cloned = await at.git(ada, *words)
                assert cloned.status == 0, cloned.err
                assert (at.folder / version / ".git/shallow").exists()

    run(story())


def test_pygit2_clones_and_pushes(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")
            public = ada.key.with_suffix(".pub")
            public.write_text((await said("ssh-keygen", "-y", "-f", ada.key, cwd=at.folder)).out)

            class Callbacks(pygit2.RemoteCallbacks):
                def credentials(self, url, username, allowed):
                    return pygit2.Keypair("git", str(public), str(ada.key), "")

                def certificate_check(self, certificate, valid, host):
                    return True

            def clone_and_push():
                copy = pygit2.clone_repository(at.url("app"), str(at.folder / "copy"), callbacks=Callbacks())
                who = pygit2.Signature("Ada", "ada@example.org", 1_800_000_000, 0)
                tip = copy.create_commit("HEAD", who, who, "by pygit2", copy.head.peel().tree.id, [copy.head.target])
                copy.remotes["origin"].push(["refs/heads/main"], callbacks=Callbacks())
                return str(tip)

            tip = await asyncio.to_thread(clone_and_push)

            assert (await at.refs("app"))["refs/heads/main"] == tip
            assert [row[2] for row in await runs(at)][1:] == [tip]

    run(story())


def test_dulwich_clones_and_pushes(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")
            command = " ".join(at.ssh_words(ada))

            def clone_and_push():
                with porcelain.clone(at.url("app"), str(at.folder / "copy"), ssh_command=command) as copy:
                    who = b"Ada <ada@example.org>"
                    tip = porcelain.commit(copy, message=b"by dulwich", author=who, committer=who)
                    porcelain.push(copy, at.url("app"), b"refs/heads/main:refs/heads/main", ssh_command=command)
                    return tip.decode()

            tip = await asyncio.to_thread(clone_and_push)

            assert (await at.refs("app"))["refs/heads/main"] == tip
            assert [row[2] for row in await runs(at)][1:] == [tip]

    run(story())


def test_two_pushes_at_once_to_one_repository_both_land_with_one_run_each(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await pushed_app(at)
            await at.push(ada, work, "app")

            pushed = await asyncio.gather(*(at.push(ada, work, "app", f"main:b{number}") for number in range(4)))

            assert [one.status for one in pushed] == [0, 0, 0, 0], [one.err for one in pushed]
            assert sorted(str(row[1]) for row in await runs(at)) == [
                *(f"refs/heads/b{number}" for number in range(4)),
                "refs/heads/main",
            ]

    run(story())
