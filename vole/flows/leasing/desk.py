"""What the stories of a lease share: the parts of the server, the policy, and how a change is made known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vole.base import limits
from vole.base.bell import Bells
from vole.base.clock import Clock, in_seconds
from vole.base.entropy import Entropy
from vole.base.errors import Fenced
from vole.base.ids import Epoch, JobId
from vole.base.offload import Offload
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogKey, LogStore
from vole.jobs.index import QueueIndex
from vole.jobs.match import Ask
from vole.jobs.model import Ended, Held, Holder, Policy, Touched
from vole.runners.roster import Order, Parked, Roster, Session
from vole.store.database import Database
from vole.wire import runner


@dataclass(frozen=True)
class LeasingParts:
    """What leasing works with; made in `app`."""

    db: Database
    bells: Bells
    index: QueueIndex
    roster: Roster
    logs: LogStore
    artifacts: ArtifactStore
    offload: Offload
    entropy: Entropy
    clock: Clock


@dataclass
class Desk:
    """The parts, the policy as it is now, and the word to runners and waiters after a change."""

    parts: LeasingParts
    policy: Policy

    def tell(self, touched: Touched) -> None:
        """Make a durable change known: orders to the runners that hold what ended, bells to whoever waits."""
        for ended in touched.ended:
            session = self.parts.roster.get(ended.session)
            if session is not None:
                session.order(self.order_of(ended))
            self.parts.bells.ring(f"log:{ended.job}")
        if touched:
            self.parts.bells.ring("queue", "runners", *(f"run:{run}" for run in touched.runs))
        if touched.leasable:
            self.parts.bells.ring("jobs")

    def reconfigure(self, cap: int | None, queue_timeout_s: float) -> None:
        """Take new settings; another cap may make work leasable."""
        self.policy = replace(self.policy, cap=cap, queue_timeout_s=queue_timeout_s)
        self.parts.bells.ring("jobs", "queue")

    def rest_s(self) -> float:
        """Seconds until a runner may have a job again that it gave back, which no bell tells. Infinite: none rests."""
        now = self.parts.clock.now()
        over = self.parts.index.rest_over(now)
        return math.inf if over is None else in_seconds(over - now)

    def order_of(self, ended: Ended) -> Order:
        """What the holder of a lease is told: to let go, or to end the job."""
        if ended.reason == "fenced":
            return runner.FencedLease(ended.job, ended.epoch)
        grace_s = limits.lease_times(self.policy.ttl_s).grace_s
        return runner.Cancel(ended.job, ended.epoch, ended.reason, grace_s)  # type: ignore[arg-type]  # one of its words

    def held(self, session: Session, job: JobId, epoch: Epoch) -> Held:
        """The live lease, when it is this session's. Raises Fenced. Asks memory, which follows each commit."""
        session.last_contact = self.parts.clock.now()
        held = self.parts.index.held.get((job, epoch))
        if held is None or held.session != session.id or not session.alive:
            raise Fenced(f"you hold no lease of job {job} at epoch {epoch}. Stop and ask for work.")
        return held

    def asks(self) -> list[Ask]:
        """One ask for each connected runner, as `explain` looks at them."""
        return [ask_of(session, next(iter(session.parked.values()), None)) for session in self.parts.roster]


def log_key(held: Held, epoch: Epoch) -> LogKey:
    """Where the log of a held attempt lies."""
    return LogKey(held.repo_name, held.number, held.key, epoch)


def ask_of(session: Session, parked: Parked | None) -> Ask:
    """A runner's lease request as the grant rule takes it; without a parked one it is asking for nothing just now."""
    hello = session.hello
    return Ask(
        holder=Holder(
            session=session.id,
            account=session.account_name,
            key_fingerprint=session.key_fingerprint,
            name=hello.name,
            version=hello.version,
            os=hello.platform,
            arch=hello.machine,
        ),
        labels=session.labels,
        filter=frozenset(hello.repos),
        serves=session.serves,
        serves_as=session.serves_as,
        slots=hello.slots,
        only=hello.only,
        draining=session.draining,
        disk_low=session.disk_low if parked is None else parked.want.disk_low,
        asking=parked is not None,
        slot=0 if parked is None else parked.want.slot,
        token="" if parked is None else parked.want.token,
        first_look=parked is not None and not parked.looked,
        live=_nobody if parked is None else parked.live,
    )


def asks_of(parked: Iterable[Parked]) -> list[Ask]:
    """The asks of parked wants, in their order."""
    return [ask_of(waiting.session, waiting) for waiting in parked]


def _nobody() -> bool:
    return False
