"""The queue and the runners in the API, sifted as their pages are."""

from __future__ import annotations

from typing import cast

from starlette.responses import Response

from vole.jobs.reads import listing
from vole.jobs.reads.listing import Found, Place, Wanted
from vole.jobs.rows.shown import Depth
from vole.people.model import Person
from vole.runners.roster import Session
from vole.store.database import View
from vole.web.api import shapes
from vole.web.api.door import answer
from vole.web.api.paging import asked
from vole.web.api.shapes import Shape
from vole.web.pages import fleet
from vole.web.pages.home import readable
from vole.web.pages.sifting import Sift
from vole.web.pages.visit import Visit


async def queue(visit: Visit) -> Response:
    """Unfinished jobs: held ones, then queued, then blocked ones, each the oldest first; and counts by label set.

    `depths` is the input of an autoscaler: how many wait for which labels, since when, and why.
    """
    page, sift = asked(visit, "queue", int, int, int), Sift.read(visit.request.query_params)
    found, depths = await visit.read(
        _queue, visit.person, (sift, list(visit.house.parts.roster)), page.limit, cast(Place | None, page.after)
    )
    whys = {line.depth.job: line.why for line in await fleet.explained(visit, depths)}
    return answer(
        {
            "items": [shapes.waiting(visit, row) for row in found.rows],
            "next": page.next(found.behind),
            "depths": [shapes.depth(one, whys.get(one.job)) for one in depths],
        }
    )


async def runners(visit: Visit) -> Response:
    """Connected runners, what each takes, and the queue by label set, as the page has them."""
    sessions = list(visit.house.parts.roster)
    facts = await visit.read(fleet.facts_of, visit.person, Sift(), sessions)
    lines = [(session, fleet.runner(session, sessions, facts)) for session in sessions]
    depths = await fleet.depths(visit, facts)
    return answer(
        {
            "items": [_runner(session, line, facts) for session, line in lines],
            "depths": [shapes.depth(one.depth, one.why) for one in depths],
            "at_work": [
                {"repository": one.name, "jobs": one.count, "cap": one.cap} for one in fleet.at_work(visit, facts)
            ],
        }
    )


def _runner(session: Session, line: fleet.RunnerLine, facts: fleet.Facts) -> Shape:
    """Names of repositories that are not this person's to read do not show, as on the page."""
    return {
        "name": line.name,
        "account": line.account,
        "key_fingerprint": line.key_fingerprint,
        "labels": sorted(session.labels),
        "only_labelled": session.hello.only,
        "repositories": sorted(facts.names[repo] for repo in session.serves if repo in facts.names),
        "filtered": line.filtered,
        "slots": line.slots,
        "busy": len(line.jobs) + line.hidden,
        "jobs": [address for address, _ in line.jobs],
        "draining": session.draining,
        "disk_low": session.disk_low,
        "twins": line.twins,
        "version": line.version,
        "os": session.hello.platform,
        "arch": session.hello.machine,
        "connected_at": shapes.moment(line.connected_at),
        "last_contact": shapes.moment(line.last_contact),
    }


async def _queue(
    view: View, person: Person | None, asked_for: tuple[Sift, list[Session]], most: int, after: Place | None
) -> tuple[Found, list[Depth]]:
    names = {repo.id: repo.name for repo in await readable(view, person)}
    sift, runners = asked_for
    wanted: Wanted = sift.wanted(names, runners)
    return await listing.unfinished(view, wanted, most, after), await listing.depths(view, wanted)
