"""What pushers and runners were told, against database, event log, refs, logs and artifacts.

Raises with all that differs. Asked of a forge at rest: every push is answered, every run has ended.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests import invariants
from tests.endtoend.actors import Forge, program
from vole.base import limits

_TOLD = re.compile(r"vole-runner: (\S+)/(\d+)/(\S+): (started \(attempt (\d+)\)|(success|failure)\b)")

# What may come of a job that nothing happened to, by its id in the file.
ENDS = {"breaks": "failure", "after": "skipped"}


@dataclass
class Books:
    """One forge, what its pushers were told (branch → commit, by repository), and every line its runners said."""

    forge: Forge
    accepted: dict[tuple[str, str], str] = field(default_factory=dict)
    runners: list[list[str]] = field(default_factory=list)

    def compare(self) -> Counter[str]:
        """How many there were of each; AssertionError with every difference."""
        connection = sqlite3.connect(self.forge.dir / "vole.db")
        connection.row_factory = sqlite3.Row
        try:
            invariants.check(connection)
            wrong = [*self._pushes(connection), *self._jobs(connection), *self._told(connection)]
            wrong += [*self._logs(connection), *self._artifacts(connection)]
            counts = _counted(connection)
        finally:
            connection.close()
        assert not wrong, "\n".join(wrong)
        return counts

    def _pushes(self, connection: sqlite3.Connection) -> list[str]:
        """Each branch has exactly one run, each run its branch, and what was accepted is there."""
        runs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for row in connection.execute("SELECT r.name, s.ref, s.commit_id FROM runs s JOIN repos r ON r.id = s.repo_id"):
            runs[row["name"], row["ref"]].append(row["commit_id"])
        refs: dict[tuple[str, str], str] = {}
        wrong = []
        for (name,) in connection.execute("SELECT name FROM repos"):
            shown = program("git", "for-each-ref", "--format=%(refname) %(objectname)", folder=self._bare(name))
            found = dict(line.split(" ") for line in shown.out.splitlines())
            refs |= {(name, ref): at for ref, at in found.items() if ref.startswith("refs/heads/")}
            kept = {ref.rpartition("/")[2] for ref in found if ref.startswith("refs/vole/keep/")}
            wrong += [f"{at} of a run in {name} is not held" for at in _commits(runs, name) - kept]
            fsck = program("git", "fsck", "--connectivity-only", folder=self._bare(name))
            wrong += [] if fsck.ok else [f"git fsck of {name}: {fsck.err}"]
        for place in refs.keys() | runs.keys():
            if runs.get(place) != [refs.get(place)]:
                wrong.append(f"{place} stands at {refs.get(place)}, its runs are of {runs.get(place)}")
        for place, commit in self.accepted.items():
            if refs.get(place) != commit:
                wrong.append(f"{place} was accepted at {commit} and stands at {refs.get(place)}")
        for row in connection.execute("SELECT id FROM pushes WHERE state = 'intended'"):
            wrong.append(f"the push {row['id']} is not settled")
        return wrong

    def _jobs(self, connection: sqlite3.Connection) -> list[str]:
        """Every job has ended as its file says, or was lost in as many attempts as are permitted."""
        wrong = []
        rows = connection.execute("SELECT * FROM jobs").fetchall()
        unlucky = {row["run_id"] for row in rows if row["conclusion"] == "lost"}
        for row in rows:
            wanted = ENDS.get(row["job"], "success")
            lost = row["conclusion"] == "lost" and row["losses"] >= limits.ATTEMPTS_MAX
            behind = row["run_id"] in unlucky and row["conclusion"] == "skipped"
            if row["set_aside"] is not None or not (row["conclusion"] == wanted or lost or behind):
                wrong.append(f"job {row['id']} ({row['key']}) is {row['state']} {row['conclusion']} {row['reason']}")
        return wrong

    def _told(self, connection: sqlite3.Connection) -> list[str]:
        """A result that a runner was told is accepted is the one in the store; none counts twice."""
        results: dict[tuple[str, str, str, int], str] = {}
        for row in connection.execute(
            "SELECT r.name, s.number, j.key, a.epoch, a.conclusion FROM attempts a JOIN jobs j ON j.id = a.job_id "
            "JOIN runs s ON s.id = j.run_id JOIN repos r ON r.id = s.repo_id WHERE a.result_digest IS NOT NULL"
        ):
            results[row["name"], str(row["number"]), row["key"], row["epoch"]] = row["conclusion"]
        wrong = [f"{job} has more than one result" for job, n in Counter(key[:3] for key in results).items() if n > 1]
        for lines in self.runners:
            epochs: dict[tuple[str, str, str], int] = {}
            for found in filter(None, map(_TOLD.match, lines)):
                job = (found[1], found[2], found[3])
                if found[5]:
                    epochs[job] = int(found[5])
                elif results.get((*job, epochs[job])) != found[6]:
                    stands = results.get((*job, epochs[job]))
                    wrong.append(f"the runner of {job}@{epochs[job]} was told {found[6]}, in the store is {stands}")
        return wrong

    def _logs(self, connection: sqlite3.Connection) -> list[str]:
        """A log is whole, or marked and a gapless beginning; and it is the job's own."""
        wrong = []
        for row in connection.execute(
            "SELECT r.name, s.number, s.ref, j.key, a.* FROM attempts a JOIN jobs j ON j.id = a.job_id "
            "JOIN runs s ON s.id = j.run_id JOIN repos r ON r.id = s.repo_id"
        ):
            path = self.forge.dir / "logs" / row["name"] / str(row["number"]) / row["key"] / str(row["epoch"])
            data = path.read_bytes() if path.exists() else b""
            at = f"{row['name']}/{row['number']}/{row['key']}@{row['epoch']}"
            if row["log_state"] == "open":
                wrong.append(f"the log of {at} is open")
            if row["log_state"] == "complete" and row["log_sha256"] != hashlib.sha256(data).hexdigest():
                wrong.append(f"the log of {at} is called complete; {len(data)} of {row['log_declared']} bytes are here")
            if row["log_state"] == "incomplete" and row["result_digest"] is not None and not row["end_detail"]:
                wrong.append(f"the log of {at} is incomplete for no reason")
            wrong += _unlike(at, row["ref"].rpartition("/")[2], data)
        return wrong

    def _artifacts(self, connection: sqlite3.Connection) -> list[str]:
        wrong = []
        for row in connection.execute("SELECT repo_id, sha256, size FROM artifacts"):
            path = self.forge.dir / "artifacts" / str(row["repo_id"]) / row["sha256"][:2] / row["sha256"]
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
                wrong.append(f"artifact {row['sha256']} is not there, or it is another file")
        return wrong

    def _bare(self, name: str) -> Path:
        return self.forge.dir / "repos" / f"{name}.git"


def _commits(runs: dict[tuple[str, str], list[str]], repo: str) -> set[str]:
    return {commit for (name, _), commits in runs.items() if name == repo for commit in commits}


def _unlike(at: str, branch: str, data: bytes) -> list[str]:
    """What in a log is another job's, or out of order: `this is BRANCH`, then `line 0`, `line 1`, …"""
    lines = data.decode(errors="replace").split("\n")[:-1]
    said = [line for line in lines if line.startswith("this is ")]
    wrong = [f"the log of {at} says {line!r}" for line in said if line != f"this is {branch}"]
    numbered = [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]
    if numbered != list(range(len(numbered))):
        wrong.append(f"the log of {at} has a gap in its {len(numbered)} numbered lines")
    return wrong


def _counted(connection: sqlite3.Connection) -> Counter[str]:
    counts: Counter[str] = Counter()
    for table in ("pushes", "runs", "jobs", "attempts", "events", "artifacts"):
        (counts[table],) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
    (counts["lost attempts"],) = connection.execute("SELECT SUM(losses) FROM jobs").fetchone()
    (counts["lost jobs"],) = connection.execute("SELECT COUNT(*) FROM jobs WHERE conclusion = 'lost'").fetchone()
    query = "SELECT COUNT(*) FROM attempts WHERE result_digest IS NOT NULL AND log_state = 'incomplete'"
    (counts["marked logs"],) = connection.execute(query).fetchone()
    return counts
