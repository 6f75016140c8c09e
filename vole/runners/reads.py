"""What is known about runners and labels. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vole.base.clock import Moment
from vole.base.ids import SessionId
from vole.runners.model import DeclaredLabel, LabelsDocument
from vole.store.database import View


@dataclass(frozen=True)
class KnownLabel:
    label: str
    declared_by: str | None  # None: known because a runner carried it
    carried: bool


@dataclass(frozen=True)
class FleetTold:
    """One row of the log of the fleet."""

    id: int
    at: Moment
    kind: str  # of ledger.Fleet
    session: SessionId
    detail: Mapping[str, Any]


async def fleet_events(view: View, until: Moment, most: int) -> list[FleetTold]:
    """Who came and went until `until`, and what keys may run, in order; at most `most`."""
    found = await view.all(
        "SELECT id, at, kind, session_id, detail FROM fleet_events WHERE at <= :until ORDER BY id LIMIT :most",
        until=until,
        most=most,
    )
    return [
        FleetTold(
            row["id"], Moment(row["at"]), row["kind"], SessionId(row["session_id"] or 0), json.loads(row["detail"])
        )
        for row in found
    ]


async def labels(view: View) -> list[KnownLabel]:
    """Every known label, by name."""
    found = await view.all("SELECT label, declared_by, carried_at FROM labels ORDER BY label")
    return [KnownLabel(row["label"], row["declared_by"], row["carried_at"] is not None) for row in found]


async def labels_document(view: View) -> LabelsDocument:
    """What `vole-admin.git` says of labels."""
    found = await view.all(
        "SELECT label, declared_by, created_at FROM labels WHERE declared_by IS NOT NULL ORDER BY label"
    )
    return LabelsDocument(
        tuple(DeclaredLabel(row["label"], row["declared_by"], Moment(row["created_at"])) for row in found)
    )


async def known_labels(view: View) -> frozenset[str]:
    """The labels that a runner carried or somebody declared; what a near miss is compared with."""
    return frozenset(row["label"] for row in await view.all("SELECT label FROM labels"))


async def last_seen(view: View) -> dict[str, Moment]:
    """When a runner of each account that still has a runner key last disconnected; those that never did are missing."""
    found = await view.all(
        """
        SELECT r.account, max(r.disconnected_at) AS at
        FROM runners r
        WHERE r.disconnected_at IS NOT NULL
          AND r.key_fingerprint IN (SELECT fingerprint FROM keys WHERE kind = 'runner')
        GROUP BY r.account"""
    )
    return {row["account"]: Moment(row["at"]) for row in found}
