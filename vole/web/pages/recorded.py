"""The signed record of a run on its page, and how whoever has a clone verifies it."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base.errors import NotFound, Unavailable
from vole.base.ids import CommitId
from vole.evidence import records
from vole.git.records import RUNS, standing
from vole.jobs.rows.shown import RunRow
from vole.web.pages.repo import folder
from vole.web.pages.visit import Visit


@dataclass(frozen=True)
class RecordShown:
    """Where the record stands. `commit` holds it; a later one that holds it too is as good."""

    commit: CommitId
    path: str
    ref: str = RUNS

    @property
    def short(self) -> str:
        return self.commit[:10]

    @property
    def commands(self) -> tuple[str, str]:
        """For a shell in a clone with the list of signers as `record-signers`."""
        signers = 'gpg.ssh.allowedSignersFile="$PWD/record-signers"'
        return f"git fetch origin {self.ref}:{self.ref}", f"git -c {signers} verify-commit {self.short}"


def record_of(visit: Visit, run: RunRow) -> RecordShown | None:
    """None until it is written, a second after the run is finished."""
    if run.state != "finished":
        return None
    place = records.run_path(run.number)
    try:
        commit = standing(visit.house.held.open(folder(visit)), RUNS, place)
    except (NotFound, Unavailable):  # a folder that is gone shows on every page of code; the database still has the run
        return None
    return None if commit is None else RecordShown(commit, place)
