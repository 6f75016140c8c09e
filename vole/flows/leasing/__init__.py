"""Leasing, as the doors see it: runners come, ask, hold, ship, finish; people ask why, and cancel.

One face; each story has its module, and `desk` what they share.
"""

from __future__ import annotations

from typing import Protocol

from vole.flows.leasing.attempts import Attempts
from vole.flows.leasing.desk import Desk, LeasingParts
from vole.flows.leasing.dispatch import Dispatch
from vole.flows.leasing.explaining import Explaining
from vole.flows.leasing.sessions import Sessions
from vole.flows.leasing.shipping import Shipping, SourceFacts
from vole.jobs.model import Policy

__all__ = ["Leasing", "LeasingParts", "SourceFacts"]


class Reloadable(Protocol):
    """The settings of the queue that change while the server runs."""

    @property
    def max_jobs_per_repo(self) -> int | None: ...

    @property
    def queue_timeout_s(self) -> float: ...


class Leasing:
    """The stories of a lease. `look` and `recheck` are bodies of sweeps; everything else is called by a door."""

    def __init__(self, parts: LeasingParts, policy: Policy) -> None:
        self._desk = desk = Desk(parts, policy)
        sessions, dispatch, attempts = Sessions(desk), Dispatch(desk), Attempts(desk)
        shipping, explaining = Shipping(desk), Explaining(desk)
        self.ended, self.rest_s = desk.tell, desk.rest_s
        self.hello, self.goodbye, self.drain, self.recheck = (
            sessions.hello, sessions.goodbye, sessions.drain, sessions.recheck
        )  # fmt: skip
        self.next_job, self.look = dispatch.next_job, dispatch.look
        self.started, self.renew, self.marks = attempts.started, attempts.renew, attempts.marks
        self.finish, self.handback, self.cancel = attempts.finish, attempts.handback, attempts.cancel
        self.log_position, self.append_log = shipping.log_position, shipping.append_log
        self.artifact_begin, self.artifact_append = shipping.artifact_begin, shipping.artifact_append
        self.artifact_commit, self.source = shipping.artifact_commit, shipping.source
        self.artifact_list, self.artifact_path = shipping.artifact_list, shipping.artifact_path
        self.repository_removed = shipping.repository_removed
        self.prospects, self.why, self.told = explaining.prospects, explaining.why, explaining.told
        self.explained, self.waits = explaining.explained, explaining.waits

    @property
    def policy(self) -> Policy:
        """What the machine decides, as it is now."""
        return self._desk.policy

    def reconfigure(self, queue: Reloadable) -> None:
        """Take new settings; a higher cap makes work leasable."""
        self._desk.reconfigure(queue.max_jobs_per_repo, queue.queue_timeout_s)
