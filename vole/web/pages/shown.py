"""Facts as pages show them: the state of a run or a job, a ref, an address. Says in words what colour says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vole.base.ids import RepoName
from vole.evidence.model import Status
from vole.jobs.model import FAILURES, Conclusion, State
from vole.jobs.rows.shown import JobRow, RunRow
from vole.web.pages import links

_SIGNS = {
    "success": "✓",
    "marked": "!",
    "failure": "✕",
    "cancelled": "⊘",
    "skipped": "–",
    "running": "◐",
    "queued": "◔",
}


@dataclass(frozen=True)
class Chip:
    """A state: a class for its colour, a sign, and words."""

    look: str
    words: str

    @property
    def sign(self) -> str:
        return _SIGNS[self.look]


def of_job(job: JobRow) -> Chip:
    """A job's chip. One that failed where its file says that this is no failure has a look of its own."""
    return of_state(job.state, job.conclusion, marked=job.marked)


def of_state(state: State, conclusion: Conclusion | None, *, marked: bool) -> Chip:
    if conclusion is None:
        look = "queued" if state in (State.BLOCKED, State.QUEUED) else "running"
        return Chip(look, {State.LEASED: "starting", State.BLOCKED: "waiting"}.get(state, str(state)))
    return _concluded(conclusion, marked=marked)


def of_run(run: RunRow) -> Chip:
    if run.conclusion is None:
        return Chip("queued" if run.state == "queued" else "running", run.state)
    return _concluded(run.conclusion, marked=run.marked)


def ssh_command(ssh_url: str, words: str) -> str:
    """What a person types to send the server a command."""
    host, _, port = ssh_url.removeprefix("ssh://").rpartition(":")
    if not port.isdigit():
        return f"ssh {ssh_url.removeprefix('ssh://')} {words}"
    return f"ssh {host} {words}" if port == "22" else f"ssh -p {port} {host} {words}"


def started_by(event: str, actor: str, older: str | None) -> str:
    """Who or what started a run, in words. `older`: the run that it repeats."""
    if older is not None:
        return f"{actor}, {older} again"
    return {"manual": f"{actor}, by hand", "schedule": "its schedule"}.get(event, f"{actor}, {event}")


def _concluded(conclusion: Conclusion, *, marked: bool) -> Chip:
    if conclusion in FAILURES:
        return Chip("failure", str(conclusion).replace("_", " "))
    if conclusion is Conclusion.SUCCESS and marked:
        return Chip("marked", "success, with failures allowed")
    return Chip(str(conclusion), str(conclusion))


@dataclass(frozen=True)
class StatusLine:
    """What an outside system says of a commit."""

    status: Status
    chip: Chip


_STATUS_LOOKS = {"pending": "queued", "success": "success", "failure": "failure", "error": "failure"}


def status_lines(statuses: Sequence[Status]) -> tuple[StatusLine, ...]:
    return tuple(StatusLine(one, Chip(_STATUS_LOOKS[one.state], one.state)) for one in statuses)


@dataclass(frozen=True)
class RunLine:
    """A run in a list."""

    address: str  # app/12
    href: str
    chip: Chip
    run: RunRow
    commit_href: str
    ref: str

    @property
    def why(self) -> str:
        """Of a run that was skipped: by what."""
        return {"filter": "left out by its filter", "skip_ci": "left out by [skip ci]"}.get(self.run.reason, "")


def run_line(repo: RepoName, run: RunRow) -> RunLine:
    return RunLine(
        f"{repo}/{run.number}",
        links.run(repo, run.number),
        of_run(run),
        run,
        links.commit(repo, run.commit),
        run.event.ref_name or run.ref,
    )
