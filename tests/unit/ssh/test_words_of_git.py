from __future__ import annotations

import pytest

from vole.base import limits
from vole.base.errors import Exhausted, Invalid
from vole.ssh.words import GitRequest, canonical, git_request


@pytest.mark.proves("SR-02", "SR-03")
@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("git-upload-pack '/app.git'", GitRequest("upload-pack", "app")),
        ("git upload-pack app", GitRequest("upload-pack", "app")),
        ("git-receive-pack 'app'", GitRequest("receive-pack", "app")),
        ('git-receive-pack "app.git"', GitRequest("receive-pack", "app")),
        ("git-upload-pack '$(id)'", GitRequest("upload-pack", "$(id)")),
        ("git-upload-pack '../x'", GitRequest("upload-pack", "../x")),
        ("git-upload-archive x", None),
        ("git-upload-packs x", None),
        ("git  upload-pack x", None),
        ("id", None),
        ("", None),
    ],
)
def test_what_a_line_asks_for(line, request_):
    assert git_request(line) == request_


@pytest.mark.proves("SR-02")
@pytest.mark.parametrize("rest", ["", " ", " a b", " --strict a", " -a", " 'a", " a;b c", " a\nb"])
def test_a_git_service_takes_exactly_one_path(rest):
    with pytest.raises(Invalid):
        git_request("git-upload-pack" + rest)


def test_a_long_line_is_refused_before_it_is_read():
    with pytest.raises(Exhausted, match="SSH_COMMAND_BYTES_MAX"):
        git_request("x" * (limits.SSH_COMMAND_BYTES_MAX + 1))


@pytest.mark.proves("SR-03")
@pytest.mark.parametrize(
    ("path", "name"),
    [("/app.git", "app"), ("app", "app"), ("//app", "/app"), ("app.git.git", "app.git"), ("/", ""), ("app/", "app/")],
)
def test_one_slash_and_one_suffix_are_optional(path, name):
    assert canonical(path) == name
