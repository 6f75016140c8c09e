"""The only writer of runs, jobs, attempts and the event log. Plain functions of a transaction; none commits."""

from vole.jobs.ledger.cancel import cancel_job, cancel_run, drop_repo
from vole.jobs.ledger.enqueue import concurrency_of, enqueue_run
from vole.jobs.ledger.finish import Accepted, Result, StoredLog, artifact_names, finish_all
from vole.jobs.ledger.grant import Round, lease_many
from vole.jobs.ledger.leases import (
    Renewals,
    cancelling,
    disconnect,
    end_session,
    give_up,
    hand_back,
    hold,
    renew_many,
    start,
)
from vole.jobs.ledger.outbox import mark_recorded, repos_owing, set_record_aside
from vole.jobs.ledger.pruning import is_settled, prunable, prune
from vole.jobs.ledger.rebuilding import restore_numbers, restore_run
from vole.jobs.ledger.rerun import rerun_run
from vole.jobs.ledger.restoring import end_unfinished, pass_over
from vole.jobs.ledger.sweeps import Swept, rebuild_index, restart, sweep

__all__ = [
    "Accepted",
    "Renewals",
    "Result",
    "Round",
    "StoredLog",
    "Swept",
    "artifact_names",
    "cancel_job",
    "cancel_run",
    "cancelling",
    "concurrency_of",
    "disconnect",
    "drop_repo",
    "end_session",
    "end_unfinished",
    "enqueue_run",
    "finish_all",
    "give_up",
    "hand_back",
    "hold",
    "is_settled",
    "lease_many",
    "mark_recorded",
    "pass_over",
    "prunable",
    "prune",
    "rebuild_index",
    "renew_many",
    "repos_owing",
    "rerun_run",
    "restart",
    "restore_numbers",
    "restore_run",
    "set_record_aside",
    "start",
    "sweep",
]
