"""Read-only git over HTTP, asked by real git and by hand."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import zlib
from contextlib import asynccontextmanager

import pytest

from tests import aio
from tests.unit.web.site_to_test import a_site
from vole.base import limits
from vole.base.errors import Exhausted
from vole.http import HttpServer
from vole.web.pages.visit import GitPlaces
from vole.web.site import application

pytestmark = pytest.mark.needs("git")

UPLOAD = "/git/app.git/git-upload-pack"
REQUEST = "application/x-git-upload-pack-request"


@asynccontextmanager
async def _served(folder):
    """A site on a socket; its address."""
    bound = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    async with a_site(folder, url=url) as site:
        server = HttpServer(application(site.house), bound)
        await server.start()
        try:
            yield site, url
        finally:
            await server.drain()
            await server.stop()


async def _git(*words, **env):
    plain = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
    }
    process = await asyncio.create_subprocess_exec(
        "git", *map(str, words), env=plain | env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_git_clones_and_fetches_a_public_repository(tmp_path, version):
    async def story():
        async with _served(tmp_path) as (site, url):
            repo = await site.repo("app")
            for number in range(30):
                repo.commit({f"f{number}": "x" * number})
            config = ("-c", f"protocol.version={version}")
            cloned = await _git(*config, "clone", "-q", f"{url}/git/app.git", tmp_path / "copy")
            repo.commit({"new": "y"})
            fetched = await _git(*config, "-C", tmp_path / "copy", "pull", "-q")
            return cloned, fetched, (tmp_path / "copy" / "new").read_text()

    cloned, fetched, text = aio.run(story())

    assert (cloned[0], fetched[0], text) == (0, 0, "y"), (cloned, fetched)


@pytest.mark.proves("SR-43")
def test_a_push_over_http_is_refused_at_both_doors(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url):
            repo = await site.repo("app")
            before = repo.commit({"f": "x"})
            await _git("clone", "-q", f"{url}/git/app.git", tmp_path / "copy")
            identity = ("-c", "user.name=M", "-c", "user.email=m@m")
            await _git("-C", tmp_path / "copy", *identity, "commit", "-q", "--allow-empty", "-m", "mine")
            pushed = await _git("-C", tmp_path / "copy", "push", "origin", "HEAD:main")
            asked = await site.get("/git/app.git/info/refs?service=git-receive-pack")
            sent = await site.post("/git/app.git/git-receive-pack")
            return before, repo.git("rev-parse", "main"), pushed, asked, sent

    before, after, pushed, asked, sent = aio.run(story())

    assert before == after
    assert pushed[0] != 0
    assert (asked.status_code, sent.status_code) == (403, 403)
    assert "push over SSH" in asked.text


@pytest.mark.proves("SR-44", "SR-46a")
def test_a_private_repository_is_not_there_over_http_whoever_asks(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, _):
            (await site.repo("app", public=False)).commit({"f": "x"})
            ada = await site.person("ada", app="write")
            paths = [f"/git/{name}.git/info/refs?service=git-upload-pack" for name in ("app", "missing")]
            return [await site.get(path, who) for path in paths for who in (None, ada)]

    answers = aio.run(story())

    assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}


def test_only_the_smart_protocol_is_served(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, _):
            (await site.repo("app")).commit({"f": "x"})
            paths = ("/git/app.git/info/refs", "/git/app.git/HEAD", "/git/app.git/objects/info/packs")
            return [(await site.get(path)).status_code for path in paths]

    assert aio.run(story()) == [400, 404, 404]


@pytest.mark.proves("SR-04")
def test_a_protocol_header_that_is_no_version_changes_nothing(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, _):
            (await site.repo("app")).commit({"f": "x"})
            path = "/git/app.git/info/refs?service=git-upload-pack"
            odd = await site.get(path, git_protocol="version=2:object-format=sha256")
            return odd.content, (await site.get(path)).content

    odd, plain = aio.run(story())

    assert odd == plain


def _want(commit: str) -> bytes:
    return b"0032want %s\n00000009done\n" % commit.encode()


@pytest.mark.proves("SR-54")
@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "identity"])
def test_a_body_may_be_gzip(tmp_path, coding):
    async def story():
        async with _served(tmp_path) as (site, _):
            commit = (await site.repo("app")).commit({"f": "x"})
            body = _want(commit) if coding == "identity" else gzip.compress(_want(commit))
            headers = {"content-type": REQUEST, "content-encoding": coding}
            return await site.client.post(UPLOAD, content=body, headers=headers)

    answer = aio.run(story())

    assert answer.status_code == 200
    assert b"PACK" in answer.content


@pytest.mark.proves("SR-54", "SR-52")
def test_a_body_that_inflates_over_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UPLOAD_PACK_BODY_BYTES_MAX", 100_000)

    async def story():
        async with _served(tmp_path) as (site, _):
            (await site.repo("app")).commit({"f": "x"})
            headers = {"content-type": REQUEST, "content-encoding": "gzip"}
            bomb = await site.client.post(UPLOAD, content=gzip.compress(b"0" * 50_000_000), headers=headers)
            torn = await site.client.post(UPLOAD, content=b"no gzip", headers=headers)
            odd = await site.client.post(
                UPLOAD, content=zlib.compress(b"x"), headers=headers | {"content-encoding": "br"}
            )
            plain = await site.client.post(UPLOAD, content=b"0" * 100_001, headers={"content-type": REQUEST})
            return bomb, torn, odd, plain

    bomb, torn, odd, plain = aio.run(story())

    assert (bomb.status_code, torn.status_code, odd.status_code, plain.status_code) == (429, 400, 400, 413)
    assert "UPLOAD_PACK_BODY_BYTES_MAX" in bomb.text


@pytest.mark.proves("SR-53")
def test_a_client_that_leaves_in_mid_clone_ends_its_git(tmp_path):
    async def story():
        async with _served(tmp_path) as (site, url):
            repo = await site.repo("app")
            commit = repo.commit({f"f{n}": os.urandom(1 << 20) for n in range(8)})
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
            body = _want(commit)
            head = (
                f"POST {UPLOAD} HTTP/1.1\r\nHost: x\r\nContent-Type: {REQUEST}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await reader.readexactly(1000)
            places = site.house.git_places
            busy = dict(places._running)
            writer.transport.abort()
            async with asyncio.timeout(8):
                while places._running:
                    await asyncio.sleep(0.01)
            return busy

    assert sum(aio.run(story()).values()) == 1


@pytest.mark.proves("SR-53")
def test_fetches_have_places_in_all_and_for_each_client():
    places = GitPlaces()
    for _ in range(limits.HTTP_GIT_PER_CLIENT_MAX):
        places.take("one")

    with pytest.raises(Exhausted, match="HTTP_GIT_PER_CLIENT_MAX"):
        places.take("one")
    for number in range(limits.HTTP_GIT_MAX - limits.HTTP_GIT_PER_CLIENT_MAX):
        places.take(f"other{number}")
    with pytest.raises(Exhausted, match="HTTP_GIT_MAX"):
        places.take("last")
    places.give_back("one")
    places.take("last")


def test_a_large_file_streams_raw(tmp_path):
    data = os.urandom(3 * limits.BLOB_SHOWN_BYTES_MAX)

    async def story():
        async with _served(tmp_path) as (site, _):
            (await site.repo("app")).commit({"big": data, "big.txt": b"line\n" * 300_000})
            return await site.get("/app/raw/main/big"), await site.get("/app/raw/main/big.txt"), site.house.git_places

    big, text, places = aio.run(story())

    assert big.content == data
    assert len(text.content) == 1_500_000
    assert big.headers["content-disposition"].startswith("attachment")
    assert not places._running
