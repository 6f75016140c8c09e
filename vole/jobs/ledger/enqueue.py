"""From a pinned run to queued jobs. Everything is pinned here; nothing that is written here changes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vole.base.ids import Epoch, JobId, RepoId, RunId, RunNumber
from vole.jobs import rows
from vole.jobs.index import QueueIndex, SetId
from vole.jobs.ledger import groups, moves, outbox
from vole.jobs.ledger.settle import settle, settle_others
from vole.jobs.model import Carried, Happening, QueuedRun, RunSource, State, Touched
from vole.store.database import Tx
from vole.wire import codec
from vole.wire.plan import Concurrency, JobPlan, RunPlan, job_digest


def enqueue_run(
    tx: Tx, index: QueueIndex, source: RunSource, plan: RunPlan, labels: Mapping[str, tuple[str, ...]]
) -> QueuedRun:
    """The run of `plan`, its jobs blocked, queued or skipped; a second call for the same source gives the first's.

    `labels` are the jobs' labels by job key, beside the run and not of it: they are lease-time policy. A key that is
    missing asks for no label. A plan that a filter skipped becomes a finished run without jobs.
    """
    known = _known(tx, source)
    if known is not None:
        return known
    run, number = _insert_run(tx, source, plan)
    group = None if plan.skipped else plan.concurrency
    jobs = tuple(
        _insert_job(tx, index, run, source, (ordinal, job, labels.get(job.key, ()), group is not None or _waits(job)))
        for ordinal, job in enumerate(() if plan.skipped else plan.jobs)
    )
    touched, moved = Touched(), set[RunId]()
    if group is not None:
        touched, moved = groups.enter(tx, index, groups.Member(source.repo, run), group)
    carried = source.rerun is not None and source.rerun.carried
    if group is not None or carried or any(map(_waits, plan.jobs)):
        # what waits for nothing is queued already, and so is the run
        touched |= settle(tx, index, run) | settle_others(tx, index, moved)
    return QueuedRun(run, number, jobs, plan.skipped, touched)


def _waits(plan: JobPlan) -> bool:
    """Whether anything of its own may keep a job from the queue."""
    return bool(plan.needs or plan.concurrency) or plan.if_ is not None or plan.max_parallel is not None


def concurrency_of(tx: Tx, run: RunId) -> Concurrency | None:
    """The concurrency group that was pinned for the whole run: another run of its documents goes through it too."""
    row = tx.one("SELECT concurrency FROM runs WHERE id = :run", run=run)
    if row is None or row["concurrency"] is None:
        return None
    return codec.from_json(Concurrency, codec.parse(row["concurrency"]))


def _known(tx: Tx, source: RunSource) -> QueuedRun | None:
    row = tx.one(
        """
        SELECT id, number, reason
        FROM runs
        WHERE push_id = :push AND push_ordinal = :ordinal AND attempt = :attempt""",
        push=source.push,
        ordinal=source.ordinal,
        attempt=1 if source.rerun is None else source.rerun.attempt,
    )
    if row is None:
        return None
    found = tx.all("SELECT id FROM jobs WHERE run_id = :run ORDER BY ordinal", run=row["id"])
    jobs = tuple(JobId(job["id"]) for job in found)
    return QueuedRun(RunId(row["id"]), RunNumber(row["number"]), jobs, row["reason"] or None)


def _next_number(tx: Tx, repo: RepoId) -> RunNumber:
    """Numbers count up per repository and are never used again, whatever happens to their runs."""
    row = tx.one(
        """
        INSERT INTO run_numbers (repo_id, next)
        VALUES (:repo, 2)
        ON CONFLICT (repo_id) DO UPDATE SET next = next + 1
        RETURNING next - 1 AS number""",
        repo=repo,
    )
    assert row is not None, "RETURNING gives a row"
    return RunNumber(row["number"])


def _insert_run(tx: Tx, source: RunSource, plan: RunPlan) -> tuple[RunId, RunNumber]:
    run, number = RunId(tx.ident()), _next_number(tx, source.repo)
    skipped, again = plan.skipped is not None, source.rerun
    tx.run(
        """
        INSERT INTO runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path,
          workflow_blob, event, actor, concurrency, attempt, rerun_of, state, conclusion, reason, created_at,
          finished_at)
        VALUES (:id, :repo, :number, :push, :ordinal, :ref, :commit, :workflow, :path,
          :blob, :event, :actor, :concurrency, :attempt, :rerun_of, :state, :conclusion, :reason, :now, :finished)""",
        id=run,
        repo=source.repo,
        number=number,
        push=source.push,
        ordinal=source.ordinal,
        ref=plan.ref,
        commit=plan.commit,
        workflow=plan.workflow,
        path=plan.workflow_path,
        blob=plan.workflow_blob,
        event=codec.canonical(plan.event).decode(),
        actor=plan.event.actor if again is None else again.actor,
        concurrency=None if plan.concurrency is None else codec.canonical(plan.concurrency).decode(),
        attempt=1 if again is None else again.attempt,
        rerun_of=None if again is None else again.of,
        state="finished" if skipped else "queued",
        conclusion="skipped" if skipped else None,
        reason=plan.skipped or "",
        now=tx.now,
        finished=tx.now if skipped else None,
    )
    facts = {"number": number, "ref": plan.ref, "commit": plan.commit, "workflow": plan.workflow_path}
    facts |= {"event": plan.event.name} if again is None else {"event": plan.event.name, "rerun_of": again.of}
    state = {"to": "finished", "conclusion": "skipped"} if skipped else {"to": "queued"}
    moves.event(tx, source.repo, run, "run_enqueued", {**facts, **state})
    if skipped:
        outbox.owe_runs(tx, [(source.repo, run)])
    return run, number


def _insert_job(
    tx: Tx, index: QueueIndex, run: RunId, source: RunSource, item: tuple[int, JobPlan, tuple[str, ...], bool]
) -> JobId:
    ordinal, plan, labels, waits = item
    carried = None if source.rerun is None else source.rerun.carried.get(plan.key)
    document, repo = plan.document(), source.repo
    digest = job_digest(document)
    state = State.FINISHED if carried else State.BLOCKED if waits else State.QUEUED
    job = _insert_row(tx, (run, repo, ordinal), plan, digest, state, carried)
    tx.run("INSERT INTO job_documents (job_id, document) VALUES (:job, :text)", job=job, text=document.decode())
    tx.run_many(
        "INSERT INTO job_needs (job_id, needs) VALUES (:job, :need)", ({"job": job, "need": n} for n in plan.needs)
    )
    labels_id = label(tx, job, repo, labels)
    facts: dict[str, object] = {"to": state, "key": plan.key, "digest": digest, "labels": sorted(set(labels))}
    if carried:
        facts |= {"conclusion": carried.conclusion, "carried_of": carried.job}
    kind = Happening.CARRIED if carried else Happening.ENQUEUED
    moves.event(tx, repo, run, kind, facts, job=job, epoch=Epoch(0))
    if state is State.QUEUED:
        tx.after_commit(partial(index.add, (tx.now, job), labels_id, frozenset(labels), repo))
    return job


def _insert_row(
    tx: Tx, at: tuple[RunId, RepoId, int], plan: JobPlan, digest: str, state: State, carried: Carried | None
) -> JobId:
    job, (run, repo, ordinal) = JobId(tx.ident()), at
    tx.run(
        """
        INSERT INTO jobs (id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost,
          continue_on_error, state, reason, enqueued_at, queued_at,
          carried_of, conclusion, marked, outputs, finished_at)
        VALUES (:id, :run, :repo, :ordinal, :job, :key, :name, :digest, :timeout, :on_lost,
          :forgiving, :state, :reason, :now, :queued, :carried_of, :conclusion, :marked, :outputs, :finished)""",
        id=job,
        run=run,
        repo=repo,
        ordinal=ordinal,
        job=plan.job,
        key=plan.key,
        name=plan.name,
        digest=digest,
        timeout=plan.timeout_s * 1_000_000,
        on_lost=plan.on_lost,
        forgiving=int(plan.continue_on_error),
        state=state,
        reason=carried.reason if carried else f"waits for {', '.join(plan.needs)}" if plan.needs else "",
        now=tx.now,
        queued=tx.now if state is State.QUEUED else None,
        carried_of=carried.job if carried else None,
        conclusion=carried.conclusion if carried else None,
        marked=int(carried is not None and carried.marked),
        outputs=carried.outputs if carried else "{}",
        finished=tx.now if carried else None,
    )
    return job


def label(tx: Tx, job: JobId, repo: RepoId, labels: tuple[str, ...]) -> SetId:
    """Note what the job asks for; its interned set."""
    text = rows.label_text(labels)
    row = tx.one("SELECT id FROM label_sets WHERE labels = :labels", labels=text)
    ident: int = tx.ident() if row is None else row["id"]
    if row is None:
        tx.run("INSERT INTO label_sets (id, labels) VALUES (:id, :labels)", id=ident, labels=text)
    tx.run(
        "INSERT INTO run_labels (job_id, repo_id, label_set_id) VALUES (:job, :repo, :set)",
        job=job,
        repo=repo,
        set=ident,
    )
    return ident
