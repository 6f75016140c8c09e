"""What is said before git has started is what git says, byte for byte, and git is waited for where it was not."""

from __future__ import annotations

import subprocess

import pytest

from tests.aio import run
from tests.unit.git.gitrepo import GitRepo
from vole.base import limits
from vole.base.ids import AccountName
from vole.git import advertisement
from vole.git.advertisement import Advertised, Advertisements
from vole.git.service import GitPrograms

ADA = AccountName("ada")


class Heard:
    """A client: what came before git was started, and all that came."""

    def __init__(self):
        self.first = self.whole = b""

    def output(self, data):
        self.whole += data

    def errors(self, data):
        raise AssertionError(data)

    def may_feed(self, ready, /):
        pass


@pytest.fixture
def said(tmp_path):
    """What a client of a repository hears from one server, without sending a push."""
    (tmp_path / "hooks").mkdir()

    async def sessions(*pairs):
        programs, heard = GitPrograms(tmp_path / "hooks", tmp_path / "lock"), []
        start = programs._receiver
        try:
            for path, protocol in pairs:
                client = Heard()

                async def starting(*words, client=client):
                    client.first = client.whole
                    return await start(*words)

                programs._receiver = starting
                async with programs.receive_pack(ADA, path, protocol, client) as push:
                    push.child.feed(b"0000")
                    assert await push.child.ended() == 0
                heard.append(client)
        finally:
            programs.close()
        return heard

    return lambda *pairs: run(sessions(*pairs))


@pytest.fixture
def app(tmp_path):
    """Branches and tags, loose, packed and both, and a ref that is hidden."""
    repo = GitRepo(tmp_path / "app.git")
    repo.commit({"a": "1"})
    repo.commit({"a": "2"}, branch="team/one")
    repo.git("tag", "v1", "main")
    repo.git("-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "two", "v2", "main")
    repo.git("update-ref", "refs/vole/keep/x", "main")
    repo.git("pack-refs", "--all")
    repo.commit({"a": "3"})
    repo.git("update-ref", "refs/vole/keep/y", "main")
    repo.commit({"a": "4"}, branch="later")
    return repo.path


def test_a_second_client_hears_it_before_git_is_started(app, tmp_path, said):
    empty = GitRepo(tmp_path / "empty.git").path

    first, second, third, fourth = said((app, None), (app, None), (empty, None), (empty, "version=2"))

    assert (first.first, first.whole) == (b"", second.first)
    assert second.whole == second.first
    assert second.whole.count(b"\n") == 5
    assert b"refs/vole" not in second.whole
    assert third.first == third.whole
    assert b"capabilities^{}" in third.whole
    assert fourth.first == b""  # never heard under this protocol


@pytest.mark.parametrize("protocol", ["version=1", "version=2"])
def test_a_protocol_gets_what_git_says_in_it(app, said, protocol):
    _, first, second, plain = said((app, None), (app, protocol), (app, protocol), (app, None))

    assert first.whole == second.whole
    assert (second.first == b"") is (protocol == "version=1")
    assert plain.first == plain.whole


def test_where_git_says_otherwise_it_is_waited_for_until_it_says_the_same(app):
    """A history that is cut is more than refs can tell."""
    known = Advertisements()
    words = ["git", "-c", "receive.hideRefs=refs/vole", "receive-pack", str(app)]

    def session():
        git_says = subprocess.run(words, input=b"0000", capture_output=True, check=True).stdout
        client = Heard()
        sink = Advertised(client, known, app, None)
        client.first = client.whole
        data = git_says + b"more"
        for at in range(0, len(data), 7):
            sink.output(data[at : at + 7])
        assert client.first in (b"", client.whole.removesuffix(b"more"))
        return client.first != b"", client.whole == git_says + b"more"

    assert session() == (False, True)
    (app / "shallow").write_text((app / "refs/heads/main").read_text())
    assert session() == (True, False)
    assert session() == (False, True)
    (app / "shallow").unlink()
    assert session() == (False, True)
    assert session() == (True, True)


@pytest.mark.parametrize("odd", ["ref: refs/heads/main\n", "", "not an id\n", "A" * 40])
def test_a_ref_that_is_not_plain_is_left_to_git_and_one_that_is_being_written_is_not(app, odd):
    known = Advertisements()
    known.heard(app, None, None, b"00000 refs/heads/main\0atomic\n0000")
    (app / "refs/heads/next.lock").write_text("")
    known.heard(app, None, None, known._composed(app, None))
    assert known.of(app, None) is not None

    (app / "refs/heads/odd").write_text(odd)
    assert known.of(app, None) is None


def test_many_refs_are_left_to_git(app, said, monkeypatch):
    monkeypatch.setattr(advertisement, "_LOOSE_MAX", 2)
    assert said((app, None), (app, None))[1].first.count(b"\n") == 5
    monkeypatch.setattr(advertisement, "_LOOSE_MAX", 1)
    assert said((app, None), (app, None))[1].first == b""
    monkeypatch.setattr(advertisement, "_LOOSE_MAX", 2)
    monkeypatch.setattr(limits, "ADVERTISED_BYTES_MAX", 100)
    heard = said((app, None), (app, None))
    assert heard[1].first == b""
    assert heard[1].whole == heard[0].whole
