"""What other sites embed and other programs follow: a repository's badge, and its runs as an Atom feed.

Written here, not by a template: XML takes fewer characters than HTML, and a text that holds others would break it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from html import escape
from pathlib import PurePosixPath

from starlette.responses import Response

from vole.base import limits
from vole.base.clock import iso
from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.git import objects
from vole.jobs import reads as jobs
from vole.jobs.rows.shown import RunRow
from vole.web.pages import links
from vole.web.pages.repo import folder
from vole.web.pages.shown import of_run, run_line
from vole.web.pages.visit import Visit

_COLOURS = {
    "failure": "#b3261e", "running": "#1f5fae", "queued": "#6b5900", "cancelled": "#5c5f66", "marked": "#8a4b00",
    "success": "#1a6e34", "skipped": "#5c5f66", "unknown": "#5c5f66",
}  # fmt: skip
_WORST_FIRST = tuple(_COLOURS)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CHAR_PX, _PAD_PX = 7, 6
# Others may show it on their pages; what it says still takes the right to read.
_EMBEDDABLE = {"cross-origin-resource-policy": "cross-origin"}


async def badge(visit: Visit) -> Response:
    """How the newest runs at a branch stand: of one workflow, or of all at the commit that was built last."""
    query, where = visit.request.query_params, folder(visit)
    branch = query.get("branch") or await visit.work(lambda _: objects.default_branch(where)) or ""
    if len(branch) > limits.REF_NAME_BYTES_MAX:
        raise Invalid(f"branch: at most {limits.REF_NAME_BYTES_MAX} characters (REF_NAME_BYTES_MAX)")
    workflow = query.get("workflow", "")[: limits.NAME_CHARS_MAX]
    found = await visit.read(jobs.runs_at, visit.repo.id, f"refs/heads/{branch}", limits.LIST_MAX)
    looks = {of_run(run).look for run in _counting(found, workflow)}
    look = next((one for one in _WORST_FIRST if one in looks), "unknown")
    return _tagged(visit, _svg(workflow or visit.repo.name, look), "image/svg+xml", _EMBEDDABLE)


async def runs(visit: Visit) -> Response:
    """The newest runs of the repository, as Atom (RFC 4287). An entry changes when its run does."""
    found = await visit.read(jobs.runs_of, visit.repo.id, None, limits.FEED_RUNS_MAX)
    name, url = visit.repo.name, visit.house.parts.url
    changed = max((run.finished_at or run.created_at for run in found), default=visit.repo.created_at)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<id>{xml(url + links.runs(name))}</id>",
        f"<title>Runs of {xml(name)}</title>",
        f'<link rel="self" href="{xml(url + links.atom(name))}"/>',
        f'<link rel="alternate" href="{xml(url + links.runs(name))}"/>',
        f"<updated>{iso(changed)}</updated>",
        *(_entry(visit, run) for run in found),
        "</feed>\n",
    ]
    return _tagged(visit, "\n".join(lines), "application/atom+xml", {})


def xml(text: str) -> str:
    """The one escaping function of XML: for text and for values of attributes."""
    return escape(_NO_XML.sub("\ufffd", visible(text)))


def _counting(found: Iterable[RunRow], workflow: str) -> list[RunRow]:
    """The newest run of each workflow that counts, of those that have jobs."""
    newest: dict[str, RunRow] = {}
    for run in found:
        if not run.reason and workflow in ("", run.workflow, PurePosixPath(run.workflow_path).stem):
            newest.setdefault(run.workflow_path, run)
    last = max(newest.values(), key=lambda run: run.number, default=None)
    return [run for run in newest.values() if last is not None and (workflow or run.commit == last.commit)]


def _svg(label: str, look: str) -> str:
    shown, words = xml(label[:40]), {"marked": "success, some failed"}.get(look, look)
    left, right = len(label[:40]) * _CHAR_PX + 2 * _PAD_PX, len(words) * _CHAR_PX + 2 * _PAD_PX
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{shown}: {words}"><title>{shown}: {words}</title>'
        f'<rect width="{left}" height="20" fill="#3d4149"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[look]}"/>'
        f'<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14" textLength="{left - 2 * _PAD_PX}">{shown}</text>'
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - 2 * _PAD_PX}">{words}</text></g></svg>\n'
    )


def _entry(visit: Visit, run: RunRow) -> str:
    line, url = run_line(visit.repo.name, run), visit.house.parts.url
    subject = f": {run.event.message}" if run.event.message else ""
    return (
        f"<entry><id>{xml(url + line.href)}</id>"
        f"<title>{xml(f'{line.address} {run.workflow} {line.chip.words}')}</title>"
        f'<link rel="alternate" href="{xml(url + line.href)}"/>'
        f"<published>{iso(run.created_at)}</published><updated>{iso(run.finished_at or run.created_at)}</updated>"
        f"<author><name>{xml(run.actor)}</name></author>"
        f"<summary>{xml(f'{run.event.name} at {line.ref}, {run.commit[:10]}{subject}')}</summary></entry>"
    )


def _tagged(visit: Visit, text: str, media_type: str, more: dict[str, str]) -> Response:
    """The answer, or 304 where the client has it already."""
    body = text.encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache", "vary": "Cookie, Authorization", **more}
    known = [one.strip().removeprefix("W/") for one in visit.request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)
