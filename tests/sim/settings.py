"""The settings of the queue that people change while a server runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """As vole.config.server.Queue, of which the flows read these two."""

    max_jobs_per_repo: int | None
    queue_timeout_s: float
