"""What the web door is built with."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vole.base.bell import Bells
from vole.base.clock import Clock
from vole.base.entropy import Entropy
from vole.base.supervise import Sweep
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.administration import Administration
from vole.flows.leasing import Leasing
from vole.flows.starting import Starting
from vole.flows.statuses import Statuses
from vole.git.records import RecordKeys
from vole.git.storage import Storage
from vole.http import Certificate
from vole.runners.roster import Roster
from vole.store.database import Database


@dataclass(frozen=True)
class WebParts:
    """`url` and `ssh_url` are the addresses that people reach the server at: every link is made of them."""

    bound: socket.socket
    certificate: Certificate | None
    url: str
    ssh_url: str
    host_key: str  # fingerprint
    trusted_proxies: tuple[str, ...]
    templates: Path
    version: str
    db: Database
    bells: Bells
    clock: Clock
    entropy: Entropy
    storage: Storage
    administration: Administration
    leasing: Leasing
    starting: Starting
    statuses: Statuses
    roster: Roster
    logs: LogStore
    artifacts: ArtifactStore
    record_keys: RecordKeys
    sweeps: Callable[[], Sequence[Sweep]]
