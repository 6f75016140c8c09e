"""cgit behind lighttpd as a peer, with and without cgit's own cache."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from pathlib import Path

from tests.bench.machine import Children, free_port, listens, need, wait_until

SERVER = """\
server.modules = ("mod_alias", "mod_setenv", "mod_cgi")
server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{folder}"
server.max-keep-alive-requests = 1000000
alias.url = ("/cgit" => "{cgit}")
cgi.assign = ("cgit.cgi" => "")
setenv.add-environment = ("CGIT_CONFIG" => "{folder}/cgitrc", "GIT_CONFIG_NOSYSTEM" => "1", "HOME" => "{folder}")
"""
# A cached page is kept for an hour: nothing in this run makes it older.
SETTINGS = """\
virtual-root=/cgit/
cache-root={folder}/cache
cache-size={pages}
cache-static-ttl=60
cache-dynamic-ttl=60
enable-index-owner=0
repo.url=app
repo.path={repository}
"""


@dataclass(frozen=True)
class Cgit:
    port: int

    def commit_path(self, commit: str) -> str:
        return f"/cgit/app/commit/?id={commit}"


def start_cgit(folder: Path, children: Children, repository: Path, *, cached_pages: int) -> Cgit:
    """`cached_pages` is the size of cgit's cache; 0 switches it off."""
    cgit, lighttpd = need("cgit.cgi", "cgit"), need("lighttpd", "lighttpd")
    (folder / "cache").mkdir(parents=True)
    port = free_port()
    (folder / "cgitrc").write_text(SETTINGS.format(folder=folder, repository=repository, pages=cached_pages))
    (folder / "lighttpd.conf").write_text(SERVER.format(folder=folder, port=port, cgit=cgit))
    children.start(folder.name, [lighttpd, "-D", "-f", folder / "lighttpd.conf"])
    wait_until(lambda: listens(port), 10, "lighttpd listens")
    return Cgit(port)


def page(port: int, path: str) -> tuple[int, str]:
    """Status and body of one GET on loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()
