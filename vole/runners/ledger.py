"""The only writer of connected processes and of the labels that are known. An idle runner writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vole.base.clock import Moment
from vole.base.ids import AccountName, RepoId, SessionId
from vole.base.labels import Label
from vole.runners.model import LabelsDocument
from vole.store.database import Tx
from vole.wire.runner import Hello


class Fleet(StrEnum):
    """What the log of the fleet tells; the `kind` of its rows."""

    HELLO = "hello"
    GOODBYE = "goodbye"
    NOBODY = "nobody"  # the server began: nobody is connected
    SERVES = "serves"  # its grant was changed
    DRAINING = "draining"
    RIGHTS = "rights"  # what the runner keys of an account may run


@dataclass(frozen=True)
class Claim:
    """A process at the door: the key that proves its account, and what it says about itself."""

    account: AccountName
    key_fingerprint: str
    hello: Hello
    serves: frozenset[RepoId] | None = None  # None: whatever its key may run


def note(tx: Tx, kind: Fleet, session: SessionId | None, **detail: object) -> int:
    """Append to the log of the fleet; the event's id."""
    ident = tx.ident()
    tx.run(
        "INSERT INTO fleet_events (id, at, kind, session_id, detail) VALUES (:id, :at, :kind, :session, :detail)",
        id=ident,
        at=tx.now,
        kind=kind,
        session=session,
        detail=json.dumps(detail, separators=(",", ":")),
    )
    return ident


def note_rights(tx: Tx, account: AccountName, keys: Iterable[str], repos: Iterable[RepoId]) -> None:
    """What the runner keys of an account may run from now on. Said twice is noted once."""
    rights = {"keys": sorted(keys), "repos": sorted(repos)}
    row = tx.one(
        "SELECT detail FROM fleet_events WHERE kind = 'rights' AND session_id IS NULL "
        "AND json_extract(detail, '$.account') = :account ORDER BY id DESC LIMIT 1",
        account=account,
    )
    known = {"keys": [], "repos": []} if row is None else json.loads(row["detail"])
    if {name: known[name] for name in rights} != rights:
        note(tx, Fleet.RIGHTS, None, account=account, **rights)


def note_serves(tx: Tx, session: SessionId, serves: Iterable[RepoId]) -> int:
    """What a connected process serves from now on; the event's id."""
    return note(tx, Fleet.SERVES, session, serves=sorted(serves))


def note_draining(tx: Tx, session: SessionId) -> None:
    """The process takes no more work."""
    note(tx, Fleet.DRAINING, session)


def connect(tx: Tx, claim: Claim) -> SessionId:
    """The process is connected. The same key and incarnation is the same process: it keeps its id and its leases.

    Labels that nobody carried before become known.
    """
    hello = claim.hello
    row = tx.one(
        "SELECT id FROM runners WHERE key_fingerprint = :key AND incarnation = :incarnation",
        key=claim.key_fingerprint,
        incarnation=hello.incarnation,
    )
    session = SessionId(tx.ident() if row is None else row["id"])
    tx.run(
        """
        INSERT INTO runners (id, account, key_fingerprint, name, incarnation, labels, repos, slots, only_labelled,
          mode, version, os, arch, connected_at)
        VALUES (:id, :account, :key, :name, :incarnation, :labels, :repos, :slots, :only,
          :mode, :version, :os, :arch, :now)
        ON CONFLICT (id) DO UPDATE SET name = :name, labels = :labels, repos = :repos, slots = :slots,
          only_labelled = :only, mode = :mode, version = :version, connected_at = :now, disconnected_at = NULL""",
        id=session,
        account=claim.account,
        key=claim.key_fingerprint,
        name=hello.name,
        incarnation=hello.incarnation,
        labels=json.dumps(sorted(hello.labels)),
        repos=json.dumps(list(hello.repos)),
        slots=hello.slots,
        only=int(hello.only),
        mode=hello.mode,
        version=hello.version,
        os=hello.platform,
        arch=hello.machine,
        now=tx.now,
    )
    _carry(tx, hello.labels)
    serves = None if claim.serves is None else sorted(claim.serves)
    facts = {"name": hello.name, "labels": sorted(hello.labels), "slots": hello.slots, "only": hello.only}
    note(tx, Fleet.HELLO, session, key=claim.key_fingerprint, serves=serves, **facts)
    return session


def disconnect(tx: Tx, session: SessionId, connected_at: Moment) -> bool:
    """The connection that began at `connected_at` is gone; False when the process is back on another one."""
    gone = tx.run(
        "UPDATE runners SET disconnected_at = :now "
        "WHERE id = :id AND connected_at = :connected_at AND disconnected_at IS NULL",
        id=session,
        connected_at=connected_at,
        now=tx.now,
    )
    if gone:
        note(tx, Fleet.GOODBYE, session)
    return gone > 0


def disconnect_all(tx: Tx) -> None:
    """The server begins: nobody is connected."""
    if tx.run("UPDATE runners SET disconnected_at = :now WHERE disconnected_at IS NULL", now=tx.now):
        note(tx, Fleet.NOBODY, None)


def declare_label(tx: Tx, label: Label, by: AccountName) -> bool:
    """Make a label known before any runner carries it; False when it was declared already."""
    return (
        tx.run(
            """
            INSERT INTO labels (label, declared_by, created_at)
            VALUES (:label, :by, :now)
            ON CONFLICT (label) DO UPDATE SET declared_by = :by WHERE declared_by IS NULL""",
            label=label,
            by=by,
            now=tx.now,
        )
        > 0
    )


def restore_labels(tx: Tx, known: LabelsDocument) -> None:
    """The labels that people declared."""
    tx.run_many(
        "INSERT INTO labels (label, declared_by, created_at) VALUES (:label, :by, :at)", map(vars, known.labels)
    )


def _carry(tx: Tx, labels: Iterable[str]) -> None:
    tx.run_many(
        """
        INSERT INTO labels (label, carried_at, created_at)
        VALUES (:label, :now, :now)
        ON CONFLICT (label) DO UPDATE SET carried_at = :now WHERE carried_at IS NULL""",
        ({"label": label, "now": tx.now} for label in labels),
    )
