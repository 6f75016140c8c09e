"""Runs in the API: lists, one run, a job, its events, why it waits; and to cancel it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from vole.base.errors import NotFound
from vole.base.escape import visible
from vole.base.ids import JobKey
from vole.evidence.records import TOLD
from vole.jobs import reads as jobs
from vole.jobs.reads import history, listing
from vole.jobs.reads.groups import GroupRow
from vole.jobs.rows.shown import JobRow, RunRow
from vole.people.model import Person
from vole.repos.model import Repo
from vole.store.database import View
from vole.web.api import shapes
from vole.web.api.door import answer, sent
from vole.web.api.paging import asked
from vole.web.api.shapes import Shape
from vole.web.api.start import writer
from vole.web.pages.home import readable
from vole.web.pages.recorded import RecordShown, record_of
from vole.web.pages.runs import JobLine, RunFacts, facts_of, holder_of, job_lines, log_note
from vole.web.pages.timeline import EventLine, run_number, timeline, words_of
from vole.web.pages.visit import Visit


async def everywhere(visit: Visit) -> Response:
    """The runs of every repository that the person may read, newest first."""
    page = asked(visit, "runs", int)
    before = None if page.after is None else int(page.after[0])
    found, repos = await visit.read(_everywhere, visit.person, before, page.limit + 1)
    shown = found[: page.limit]
    more = (shown[-1].id,) if len(found) > len(shown) else None
    return answer({"items": [shapes.run(visit, repos[row.repo], row) for row in shown], "next": page.next(more)})


async def of_repo(visit: Visit) -> Response:
    """The runs of a repository, newest first."""
    page = asked(visit, "runs of a repository", int)
    before = None if page.after is None else int(page.after[0])
    found = await visit.read(jobs.runs_of, visit.repo.id, before, page.limit + 1)
    shown = found[: page.limit]
    more = (shown[-1].number,) if len(found) > len(shown) else None
    return answer({"items": [shapes.run(visit, visit.repo, row) for row in shown], "next": page.next(more)})


async def run(visit: Visit) -> Response:
    """A run, whole, as its page has it."""
    facts = await facts_of(visit)
    rows = {job.id: job for job in facts.jobs}
    told = timeline(visit, facts.run.created_at, facts.story, {job.id: job.key for job in facts.jobs})
    return answer(
        {
            **shapes.run(visit, visit.repo, facts.run),
            "concurrency_groups": [_group(visit, one) for one in facts.groups],
            "jobs": [_job(visit, facts, line) for line in await job_lines(visit, facts)],
            "artifacts": [shapes.artifact(visit, facts.run, rows[one.job], one) for one in facts.artifacts],
            "annotations": [shapes.note(rows[one.job], one) for one in facts.notes],
            "tests": [shapes.tests(rows[one.job], one) for one in facts.tests],
            "summaries": [
                {"job": rows[one.job].key, "epoch": one.epoch, "markdown": one.markdown} for one in facts.summaries
            ],
            "statuses": [shapes.status(visit, one) for one in facts.statuses],
            "record": _record(record_of(visit, facts.run)),
            "timeline": {"items": [_told(line) for line in told.lines], "more": told.more},
        }
    )


async def job(visit: Visit) -> Response:
    """A job with its attempts. Raises NotFound."""
    facts = await facts_of(visit)
    row = _named(facts.jobs, visit.request.path_params["job"])
    line = next(one for one in await job_lines(visit, facts) if one.job is row)
    return answer({**_job(visit, facts, line), "run": shapes.run(visit, visit.repo, facts.run)})


async def events(visit: Visit) -> Response:
    """The event log of a run, oldest first."""
    page, number = asked(visit, "events", int), run_number(visit)
    after = -1 if page.after is None else int(page.after[0])
    found = await visit.read(_events, visit.repo, number, after, page.limit + 1)
    shown = found[: page.limit]
    items = [
        {
            "id": row.id,
            "at": shapes.moment(row.at),
            "kind": row.kind,
            "job": row.key,
            "epoch": row.epoch or None,
            "words": visible(words_of(row)),
            "detail": {name: row.detail[name] for name in TOLD if row.detail.get(name) is not None},
        }
        for row in shown
    ]
    return answer({"items": items, "next": page.next((shown[-1].id,) if len(found) > len(shown) else None)})


async def why(visit: Visit) -> Response:
    """Why each job of a run, or one of them, waits: every connected runner with its one reason."""
    key = visit.request.path_params.get("job")
    told = await visit.house.parts.leasing.told(visit.repo.id, run_number(visit), key and JobKey(key))
    return answer({"items": [shapes.explained(one, prospect) for one, prospect in told]})


@dataclass(frozen=True)
class CancelBody:
    reason: str = ""


async def cancel(visit: Visit) -> Response:
    """Cancel a run, or one job of it, and say how many jobs that touched."""
    person, body = writer(visit), await sent(visit.request, CancelBody)
    key = visit.request.path_params.get("job")
    touched = await visit.house.parts.leasing.cancel(
        person, visit.repo.name, run_number(visit), key and JobKey(key), body.reason
    )
    return answer({"cancelled": touched})


async def _everywhere(
    view: View, person: Person | None, before: int | None, most: int
) -> tuple[list[RunRow], dict[int, Repo]]:
    repos: dict[int, Repo] = {repo.id: repo for repo in await readable(view, person)}
    return await listing.runs(view, [repo.id for repo in repos.values()], before, most), repos


async def _events(view: View, repo: Repo, number: int, after: int, most: int) -> list[history.EventRow]:
    return await history.events_of(view, await jobs.find_run(view, repo.id, number), after, most)  # type: ignore[arg-type]


def _job(visit: Visit, facts: RunFacts, line: JobLine) -> Shape:
    attempts = facts.attempts_of(line.job)
    shape = shapes.job(visit, facts, line.job, line.why, attempts)
    for one, row in zip(shape["attempts"], attempts, strict=True):
        one["log_note"] = log_note(visit, facts, line.job, row) or None
    return shape


def _group(visit: Visit, row: GroupRow) -> Shape:
    """`held_by` is who has it while this one waits; not held and nobody's: it stands in no line now."""
    holder = holder_of(visit.repo.name, row)
    return {"name": row.name, "job": row.job, "held": row.held, "held_by": None if holder is None else holder[0]}


def _record(found: RecordShown | None) -> Shape | None:
    if found is None:
        return None
    return {"ref": found.ref, "commit": found.commit, "path": found.path, "verify": list(found.commands)}


def _told(line: EventLine) -> Shape:
    at = shapes.moment(line.at)
    return {"at": at, "job": line.key, "epoch": line.epoch, "kind": line.kind, "words": visible(line.words)}


def _named(rows: list[JobRow], key: str) -> JobRow:
    found = next((row for row in rows if row.key == key), None)
    if found is None:
        raise NotFound("there is no such job")
    return found
