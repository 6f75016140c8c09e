"""The event log of a run, as it was written. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import Moment, Span
from vole.base.ids import Epoch, JobId, JobKey, RunId
from vole.store.database import View


@dataclass(frozen=True)
class EventRow:
    """One thing that happened. `job` and `key` are None where it happened to the run as a whole."""

    id: int
    at: Moment
    kind: str
    job: JobId | None
    key: JobKey | None
    epoch: Epoch | None
    detail: Mapping[str, object]


async def events_of(view: View, run: RunId, after: int, most: int) -> list[EventRow]:
    """At most `most` events of a run, in the order in which they happened, with ids beyond `after`."""
    found = await view.all(
        """
        SELECT e.id, e.at, e.kind, e.job_id, e.epoch, e.detail, j.key
        FROM events e
        LEFT JOIN jobs j ON j.id = e.job_id
        WHERE e.run_id = :run AND e.id > :after
        ORDER BY e.id
        LIMIT :most""",
        run=run,
        after=after,
        most=most,
    )
    return [
        EventRow(
            id=row["id"],
            at=Moment(row["at"]),
            kind=row["kind"],
            job=None if row["job_id"] is None else JobId(row["job_id"]),
            key=None if row["key"] is None else JobKey(row["key"]),
            epoch=None if row["epoch"] is None else Epoch(row["epoch"]),
            detail=json.loads(row["detail"]),
        )
        for row in found
    ]


# ---- Metrics


@dataclass(frozen=True)
class Wait:
    """How long a job had been leasable when it was leased. `event`: of the lease."""

    event: int
    span: Span


async def newest(view: View) -> int:
    """The id of the last event; 0 when there is none."""
    row = await view.one("SELECT max(id) AS id FROM events")
    return 0 if row is None or row["id"] is None else int(row["id"])


async def waits(view: View, after: int) -> list[Wait]:
    """The leases behind the event `after`, at most WAITS_READ_MAX, each with how long its job had waited."""
    found = await view.all(
        """
        SELECT e.id, e.at - (
          SELECT max(q.at) FROM events q
          WHERE q.run_id = e.run_id AND q.id < e.id AND q.job_id = e.job_id
            AND json_extract(q.detail, '$.to') = 'queued'
        ) AS span
        FROM events e
        WHERE e.id > :after AND e.kind = 'leased'
        ORDER BY e.id
        LIMIT :most""",
        after=after,
        most=limits.WAITS_READ_MAX,
    )
    return [Wait(row["id"], Span(row["span"] or 0)) for row in found]
