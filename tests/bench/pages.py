"""Rows 8, 8b: a commit's page under wrk, against cgit, each with and without a cache that can help; a push meanwhile.

Row 8b asks how the kernel shares two cores among a busy server, wrk and git: measure it without `chrt`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import repositories, targets
from tests.bench.bench import Bench
from tests.bench.cgit import page, start_cgit
from tests.bench.clients import Clone, git_env, run, ssh_words
from tests.bench.figures import Measured, Outcome, interleave
from tests.bench.machine import BrokenError, need
from tests.bench.product import Forge, start_forge
from tests.bench.push import WORKFLOW

TARGETS = (targets.PAGE, targets.PAGE_CACHED, targets.PUSH_LOADED)
ROUNDS = 5
ROUND_S = 3
CONNECTIONS = 4
PUSHES = 25  # in a row, of which the p99 is one figure
LOAD_S = 120  # at most, while they are pushed
LOAD_PAGES = 3_000  # more than are asked for meanwhile
CACHED = 50  # pages asked for again and again

# One thread walks down a list of paths.
WALK = """\
local paths, at = {}, 0
function init(args)
  for line in io.lines(args[1]) do paths[#paths + 1] = line end
  at = tonumber(args[2])
end
function request()
  at = at + 1
  return wrk.format("GET", paths[(at - 1) % #paths + 1])
end
"""


@dataclass
class Walker:
    """wrk on one server and one list of paths, going on where the last round ended."""

    wrk: str
    script: Path
    paths: Path
    port: int
    at: int = field(default=0)

    def words(self, seconds: int) -> list[object]:
        url, then = f"http://127.0.0.1:{self.port}/", (self.paths, self.at)
        return [self.wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", self.script, url, "--", *then]

    def per_second(self) -> float:
        said = run(self.words(ROUND_S))
        if failed := re.search(r"(Non-2xx.*|Socket errors.*)", said):
            raise BrokenError(f"wrk on port {self.port}: {failed[1]}")
        self.at += int(_number(r"(\d+) requests in", said))
        return _number(r"Requests/sec:\s+([\d.]+)", said)


def measure(bench: Bench) -> Iterator[Outcome]:
    repository = repositories.pages(bench.cache)
    commits = repositories.commits(repository)
    forge = start_forge(bench.work / "forge", bench.children)
    forge.create("app", public=True)
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    run(["git", "push", "-q", forge.url("app"), "main"], env, repository)
    for target, chosen, cached_pages in (
        (targets.PAGE, commits[CACHED:], 0),
        (targets.PAGE_CACHED, commits[:CACHED], 10 * CACHED),
    ):
        peer = start_cgit(bench.work / f"cgit-{cached_pages}", bench.children, repository, cached_pages=cached_pages)
        sides = {
            "vole": _walker(
                bench, forge.web_port, f"vole-{cached_pages}", chosen, lambda commit: _page_of(forge, commit)
            ),
            "cgit": _walker(bench, peer.port, f"cgit-{cached_pages}-walk", chosen, peer.commit_path),
        }
        found = interleave({name: side.per_second for name, side in sides.items()}, bench.rounds(ROUNDS))
        yield Measured(target, found["vole"], found["cgit"])
        if not cached_pages:
            yield _pushed_meanwhile(bench, forge, sides["vole"])


def _pushed_meanwhile(bench: Bench, forge: Forge, load: Walker) -> Outcome:
    forge.create("small")
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    clone = Clone.create(bench.work / "small", env, WORKFLOW, forge.url("small"))

    def idle() -> float:
        return statistics.quantiles([clone.push_ms() for _ in range(PUSHES)], n=100, method="inclusive")[98]

    def loaded() -> float:
        wrk = bench.children.start("wrk", load.words(LOAD_S))
        try:
            return idle()
        finally:
            bench.children.end(wrk)
            load.at += LOAD_PAGES

    found = interleave({"loaded": loaded, "idle": idle}, bench.rounds(ROUNDS))
    return Measured(targets.PUSH_LOADED, found["loaded"], found["idle"])


def _page_of(forge: Forge, commit: str) -> str:
    return forge.commit_path("app", commit)


def _walker(bench: Bench, port: int, name: str, commits: list[str], path: Callable[[str], str]) -> Walker:
    """Looks at one page first: it must show the commit, its message and its diff."""
    status, text = page(port, path(commits[-1]))
    if status != 200 or not all(part in text for part in (commits[-1], "A paragraph that says why", "changed at")):
        raise BrokenError(f"{path(commits[-1])} on port {port}: {status}, not the commit's page")
    script, paths = bench.work / "walk.lua", bench.work / f"{name}.paths"
    script.write_text(WALK)
    paths.write_text("".join(f"{path(commit)}\n" for commit in commits))
    return Walker(need("wrk", "wrk"), script, paths, port)


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise BrokenError(f"wrk did not say {pattern}: {text[-300:]}")
    return float(found[1])
