"""What a pusher who means harm sends, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from tests.aio import run
from tests.endtoend.git_server import CI, CLIENT, forge, said
from vole.base import limits


async def ready(at, files=None):
    ada = await at.account("ada")
    await at.repo("app", ada)
    return ada, await at.work("work", files or {"readme": "hello"})


def snapshot(bare):
    return sorted((str(path.relative_to(bare)), path.stat().st_size) for path in bare.rglob("*"))


def made(work, kind: str, content: bytes) -> str:
    """An object that git would not make by itself; its id."""
    words = ["git", "hash-object", "-t", kind, "--literally", "-w", "--stdin"]
    return (
        subprocess.run(words, cwd=work, input=content, capture_output=True, check=True, env=CLIENT)
        .stdout.decode()
        .strip()
    )


def tree(*entries: tuple[bytes, bytes, str]) -> bytes:
    return b"".join(mode + b" " + name + b"\0" + bytes.fromhex(target) for mode, name, target in entries)


def commit(tree_id: str, *, who: bytes = b"A <a@b>", when: bytes = b"1700000000 +0000", message: bytes = b"m") -> bytes:
    return b"tree %s\nauthor %s %s\ncommitter %s %s\n\n%s" % (tree_id.encode(), who, when, who, when, message)


@pytest.mark.proves("SR-08")
def test_git_children_run_with_our_settings_and_no_others(tmp_path):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            dump = at.folder / "settings"
            listing = f"#!/bin/sh\ngit config --list --show-scope >{dump}\nexit 1\n"
            (at.folder / "hooks/pre-receive").write_text(listing)
            subprocess.run(
                ["git", "config", "receive.fsckObjects", "false"], cwd=at.bare("app"), check=True, env=CLIENT
            )

            await at.push(ada, work, "app")

            lines = [line.split("\t") for line in dump.read_text().splitlines()]
            assert {scope for scope, _ in lines} == {"local", "command"}
            ours = [setting for scope, setting in lines if scope == "command"]
            assert {
                f"core.hookspath={at.folder / 'hooks'}",
                "core.fsync=committed,loose-object,reference",
                "core.usereplacerefs=false",
                "gc.auto=0",
                "receive.autogc=false",
                "protocol.file.allow=never",
                "receive.fsckobjects=true",
                f"receive.maxinputsize={limits.PACK_BYTES_MAX}",
                "receive.hiderefs=refs/vole",
            } <= set(ours)
            relaxed = {line for line in ours if line.startswith("receive.fsck.")}
            names = ("badtimezone", "baddateoverflow", "missingemail", "zeropaddedfilemode")
            assert relaxed == {f"receive.fsck.{name}=warn" for name in names}

    run(story())


BLOB = "refuse"
OLD_HISTORY = {
    "bad timezone": lambda tree_id: commit(tree_id, when=b"1700000000 +051800"),
    "date overflow": lambda tree_id: commit(tree_id, when=b"18446744073709551617 +0000"),
    "missing email": lambda tree_id: commit(tree_id, who=b"A"),
}
HARM = {
    "no author": lambda tree_id: b"tree %s\ncommitter A <a@b> 1 +0000\n\nm" % tree_id.encode(),
    "a NUL in the header": lambda tree_id: commit(tree_id, who=b"A\0 <a@b>"),
    "bad date": lambda tree_id: commit(tree_id, when=b"never +0000"),
}


@pytest.mark.proves("SR-08")
@pytest.mark.parametrize("name", OLD_HISTORY)
def test_what_old_public_histories_have_is_taken(tmp_path, name):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            head = made(work, "commit", OLD_HISTORY[name](await _tree(work)))

            pushed = await at.push(ada, work, "app", f"{head}:refs/heads/old")

            assert pushed.status == 0, pushed.err

    run(story())


@pytest.mark.proves("SR-08", "SR-13")
@pytest.mark.parametrize("name", HARM)
def test_a_broken_commit_is_refused_and_nothing_of_it_stays(tmp_path, name):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            head = made(work, "commit", HARM[name](await _tree(work)))
            before = snapshot(at.bare("app"))

            pushed = await at.push(ada, work, "app", f"{head}:refs/heads/bad")

            assert pushed.status == 1, pushed.err
            assert snapshot(at.bare("app")) == before

    run(story())


@pytest.mark.proves("SR-08", "SR-13")
@pytest.mark.parametrize("name", [b".git", b".GIT", b"git~1", b"..", b".", b"a/b", b".g\xe2\x80\x8cit"])
def test_a_tree_that_would_escape_its_folder_is_refused(tmp_path, name):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            blob = made(work, "blob", b"x")
            head = made(work, "commit", commit(made(work, "tree", tree((b"100644", name, blob)))))
            before = snapshot(at.bare("app"))

            pushed = await at.push(ada, work, "app", f"{head}:refs/heads/bad")

            assert pushed.status == 1, pushed.err
            assert snapshot(at.bare("app")) == before

    run(story())


async def _tree(work):
    return (await said("git", "rev-parse", "HEAD^{tree}", cwd=work)).out.strip()


@pytest.mark.proves("SR-08")
def test_a_repository_that_borrows_objects_is_not_served(tmp_path):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            await at.push(ada, work, "app")
            (at.bare("app") / "objects/info/alternates").write_text(f"{work}/.git/objects\n")

            read = await at.git(ada, "ls-remote", at.url("app"))

            assert read.status == 128
            assert "alternates" in read.err

    run(story())


@pytest.mark.proves("SR-08")
def test_a_replace_ref_changes_nothing_for_others(tmp_path):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            ada, work = await ready(at)
            first = await at.head(work)
            second = await at.commit(work, {"readme": "other"})
            await at.push(ada, work, "app", f"{first}:refs/heads/main", f"{second}:refs/replace/{first}")

            await at.git(ada, "clone", "-q", at.url("app"), "copy")

            assert (at.folder / "copy/readme").read_text() == "hello"

    run(story())


@pytest.mark.proves("SR-13", "I-31")
def test_a_refused_push_of_many_objects_leaves_the_object_store_as_it_was(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            files = {f"f{number}": str(number) * 100 for number in range(300)}
            ada, work = await ready(at, files | {".vole/workflows/ci.yml": "jobs: ["})
            before = snapshot(at.bare("app"))

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 1
            assert snapshot(at.bare("app")) == before

    run(story())


@pytest.mark.proves("SR-12")
def test_what_a_pusher_wrote_comes_back_without_a_raw_control_byte(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            evil = "\x1b]8;;http://evil\x07click\x1b[2K\u202egnp\u009b31m"
            files = {f".vole/workflows/{evil[:1]}x.txt": "x", ".vole/workflows/a.yml": CI + f"# {evil}\n"}
            ada, work = await ready(at, files)

            refused = await at.push(ada, work, "app")
            await at.commit(work, {".vole/workflows/a.yml": CI})
            taken = await at.push(ada, work, "app", "main", f"main:refs/heads/\u202e{chr(0x9B)}x")

            assert refused.status == 1
            assert taken.status == 0, taken.err
            for err in (refused.err, "".join(taken.remote)):
                assert not set(err) & set("\x1b\x07\x9b\u202e"), err
            assert "ignored: .vole/workflows/\\x1bx.txt" in taken.err

    run(story())


@pytest.mark.proves("SR-14")
def test_names_that_are_no_text_are_shown_or_refused_and_never_break_the_server(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {".vole/workflows/ci.yml": CI})
            raw = os.fsencode(work / ".vole/workflows") + b"/\xb1.yml"
            with open(raw, "w") as file:
                file.write("nonsense: [")
            await at.commit(work, {})

            shown = await at.push(ada, work, "app")
            subprocess.run(["git", "update-ref", b"refs/heads/\xb1", "HEAD"], cwd=work, check=True, env=CLIENT)
            refused = await at.git(ada, "push", at.url("app"), "--all", cwd=work)

            assert shown.status == refused.status == 1
            assert ".vole/workflows/\\xb1.yml:" in shown.err
            assert "the server failed" not in shown.err + refused.err
            assert "is not UTF-8" in refused.err

    run(story())


@pytest.mark.proves("SR-21")
@pytest.mark.parametrize("where", [".vole/workflows/ci.yml", ".vole/workflows", ".vole"])
@pytest.mark.parametrize("kind", ["symlink", "submodule"])
def test_a_link_in_the_place_of_workflows_is_refused_by_name(tmp_path, kind, where):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {"elsewhere/workflows/ci.yml": CI, "elsewhere/ci.yml": CI})
            head = await at.head(work)
            target = made(work, "blob", b"elsewhere/ci.yml") if kind == "symlink" else head
            mode = "120000" if kind == "symlink" else "160000"
            await said("git", "update-index", "--add", "--cacheinfo", f"{mode},{target},{where}", cwd=work)
            await said("git", "commit", "-q", "-m", "link", cwd=work)

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 1
            place = ".vole/workflows/ci.yml" if where.endswith("yml") else ".vole/workflows"
            assert pushed.remote[0].startswith(f"{place}:1:1 W030 a {kind} is no workflow"), pushed.err
            assert await at.refs("app") == {}

    run(story())


@pytest.mark.proves("SR-15")
@pytest.mark.parametrize(
    ("bound", "value", "words"),
    [
        ("PACK_BYTES_MAX", 2000, ["main"]),
        ("PUSH_OBJECTS_MAX", 3, ["main"]),
        ("PUSH_REFS_MAX", 2, ["main", "main:b", "main:c"]),
        ("REF_NAME_BYTES_MAX", 30, ["main:refs/heads/" + "x" * 40]),
        ("OBJECT_BYTES_MAX", 1000, ["main"]),
        ("WORKFLOW_FILES_MAX", 1, ["main"]),
        ("PUSH_OPTIONS_MAX", 1, ["-o", "ci.skip", "-o", "ci.verbose", "main"]),
        ("PUSH_OPTION_BYTES_MAX", 10, ["-o", "ci.variable=A=B", "main"]),
        ("PUSH_PLAN_BYTES_MAX", 100, ["main"]),
    ],
)
def test_a_push_over_a_bound_is_refused_and_the_bound_is_named(tmp_path, monkeypatch, bound, value, words):
    async def story():
        async with forge(tmp_path) as at:
            files = {".vole/workflows/ci.yml": CI, ".vole/workflows/b.yml": CI, "noise": os.urandom(2000).hex()}
            ada, work = await ready(at, files)
            before = snapshot(at.bare("app"))
            monkeypatch.setattr(limits, bound, value)

            pushed = (
                await at.git(ada, "push", *words[:-1], at.url("app"), words[-1], cwd=work)
                if words[0] == "-o"
                else (await at.push(ada, work, "app", *words))
            )

            assert pushed.status != 0
            assert bound in pushed.err
            await at.idle()
            assert snapshot(at.bare("app")) == before

    run(story())


@pytest.mark.proves("SR-15")
def test_a_workflow_file_over_the_bound_is_refused_without_being_read(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {".vole/workflows/ci.yml": "#" * (limits.WORKFLOW_BYTES_MAX + 1)})

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 1
            assert "WORKFLOW_BYTES_MAX" in pushed.err

    run(story())


@pytest.mark.proves("SR-15")
def test_an_object_over_the_bound_is_found_in_a_pack_too(tmp_path, monkeypatch):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            files = {f"f{number}": str(number) for number in range(200)}
            ada, work = await ready(at, files | {"bomb": "0" * 300_000})
            monkeypatch.setattr(limits, "OBJECT_BYTES_MAX", 100_000)
            before = snapshot(at.bare("app"))

            pushed = await at.push(ada, work, "app")

            assert pushed.status == 1
            assert "an object of 300000 bytes; at most 100000 (OBJECT_BYTES_MAX)" in pushed.err
            assert snapshot(at.bare("app")) == before

    run(story())


def test_a_line_end_in_a_push_option_cannot_pass_for_a_ref(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {".vole/workflows/ci.yml": CI})
            await at.push(ada, work, "app")
            head = await at.head(work)
            forged = f"ci.skip\n{'0' * 40} {head} refs/heads/main"
            line = f"{'0' * 40} {head} refs/heads/topic\0report-status push-options".encode()
            packets = [_packet(line), b"0000", _packet(forged.encode()), b"0000", await _empty_pack(work)]

            answer = await at.ssh(ada, "git-receive-pack app", given=b"".join(packets))

            assert "a push option has a line end in it" in answer.err
            assert "refs/heads/topic" not in await at.refs("app")
            assert len(await at.rows("SELECT * FROM runs")) == 1

    run(story())


def _packet(text: bytes) -> bytes:
    return f"{len(text) + 4:04x}".encode() + text


async def _empty_pack(work) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--stdout", "-q", cwd=work,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return (await process.communicate(b""))[0]


@pytest.mark.proves("I-27")
def test_an_update_from_a_commit_to_itself_starts_nothing(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {".vole/workflows/ci.yml": CI})
            await at.push(ada, work, "app")
            head = await at.head(work)
            line = f"{head} {head} refs/heads/main\0report-status".encode()

            answer = await at.ssh(ada, "git-receive-pack app", given=_packet(line) + b"0000" + await _empty_pack(work))

            assert answer.out.endswith("ok refs/heads/main\n0000")
            assert len(await at.rows("SELECT * FROM runs")) == 1

    run(story())


def test_a_client_without_a_side_band_gets_its_runs_on_stderr(tmp_path):
    async def story():
        async with forge(tmp_path) as at:
            ada, work = await ready(at, {".vole/workflows/ci.yml": CI})
            await at.push(ada, work, "app")
            head = await at.head(work)
            line = f"{'0' * 40} {head} refs/heads/topic\0report-status".encode()

            answer = await at.ssh(ada, "git-receive-pack app", given=_packet(line) + b"0000" + await _empty_pack(work))

            assert answer.status == 0
            assert answer.out.endswith("000eunpack ok\n0018ok refs/heads/topic\n0000")
            assert answer.err == "app/2  ci  http://forge.test/app/runs/2  waits: no runner is connected\n"

    run(story())


def test_a_push_that_came_through_no_door_is_refused(tmp_path):
    async def story():
        async with forge(tmp_path, parser=False) as at:
            _, work = await ready(at)
            bare = at.bare("app")

            config = ("-c", f"core.hooksPath={at.folder / 'hooks'}")
            receiver = f"git {' '.join(config)} receive-pack"
            pushed = await said("git", "push", f"--receive-pack={receiver}", bare, "main", cwd=work)

            assert pushed.status == 1
            assert "came through no door" in pushed.err
            assert await at.refs("app") == {}

    run(story())
