"""The server itself: its status, and the short answers for machines that watch over it."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from vole.base import limits
from vole.base.errors import Unavailable
from vole.base.ids import RepoName
from vole.evidence.reads.records import records_set_aside
from vole.jobs import reads as jobs
from vole.people.model import Person
from vole.store.database import View
from vole.web.pages.home import readable
from vole.web.pages.shown import Chip
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class SweepLine:
    """`error` is for admins: it may hold names."""

    name: str
    chip: Chip
    failures: int
    error: str


@dataclass(frozen=True)
class StatusPage:
    template: ClassVar[str] = "site/status.html"
    title: ClassVar[str] = "Status"
    version: str
    sweeps: tuple[SweepLine, ...]
    set_aside: tuple[tuple[str, str], ...]  # address, reason
    runners: int
    streams: int


async def status(visit: Visit) -> Response:
    return visit.page(await facts_of(visit))


async def facts_of(visit: Visit) -> StatusPage:
    """The server as it is now, as far as the person may see it."""
    parts = visit.house.parts
    admin = visit.person is not None and visit.person.admin and visit.person.bounds is None
    sweeps = tuple(
        SweepLine(
            sweep.name,
            Chip("failure", "failing") if sweep.failures else Chip("success", "running"),
            sweep.failures,
            (sweep.last_error or "") if admin else "",
        )
        for sweep in parts.sweeps()
    )
    aside = await visit.read(_set_aside, visit.person)
    return StatusPage(parts.version, sweeps, tuple(aside), len(parts.roster), visit.house.streams.open)


async def healthz(_: Visit) -> Response:
    """The loop turns."""
    return PlainTextResponse("ok\n")


async def readyz(visit: Visit) -> Response:
    """Work can be taken: the store takes changes and there is room on the disk. Raises Unavailable."""
    parts = visit.house.parts
    await parts.db.probe()
    free = await asyncio.to_thread(lambda: shutil.disk_usage(parts.storage.path(RepoName("any")).parent).free)
    if free < limits.DISK_FREE_BYTES_MIN:
        raise Unavailable(
            f"{free} bytes are free on the disk; at least {limits.DISK_FREE_BYTES_MIN} (DISK_FREE_BYTES_MIN)"
        )
    if visit.house.closing.is_set():
        raise Unavailable("the server is stopping")
    return PlainTextResponse("ready\n")


async def record_signers(visit: Visit) -> Response:
    """The allowed-signers file that `git verify-commit` takes for commits of records."""
    return PlainTextResponse(visit.house.parts.record_keys.allowed_signers)


async def robots(_: Visit) -> Response:
    """Crawlers may read code once; runs, diffs and raw bytes are not for them."""
    return PlainTextResponse(
        "User-agent: *\nDisallow: /*/raw/\nDisallow: /*/runs\nDisallow: /*/commits/\nDisallow: /login\n"
    )


async def favicon(visit: Visit) -> Response:
    return RedirectResponse(visit.house.renderer.asset("vole.svg"), status_code=301)


async def _set_aside(view: View, person: Person | None) -> list[tuple[str, str]]:
    mine = [repo.id for repo in await readable(view, person)]
    unwritten = [(address, f"no record: {why}") for repo, address, why in await records_set_aside(view) if repo in mine]
    return [*await jobs.set_aside(view, mine), *unwritten]
