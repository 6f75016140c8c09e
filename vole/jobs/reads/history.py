"""The event log of a run, as it was written. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from vole.base.clock import Moment
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
