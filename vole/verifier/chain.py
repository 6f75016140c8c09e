"""The chain from its first commit to its tip: who signed each commit, that it only adds, and that what it adds fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vole.base.errors import Invalid
from vole.verifier import forms, signing
from vole.verifier.evidence import Evidence
from vole.verifier.objects import FILE, FOLDER, Commit, Entries, Objects
from vole.verifier.signing import Key

REF, LIST = "refs/vole/runs", "record-signers"
_FRESH = "fetch the records from the server again; if they say the same, ask who else had its key or its disk"

Record = dict[str, Any]


@dataclass
class Verdict:
    """What was found true of all records of `repository` up to the commit `tip`."""

    repository: str
    tip: str
    commits: int = 0
    attempts: int = 0
    runs: int = 0
    keys: dict[Key, int] = field(default_factory=dict)  # commits that each signed


def verify(objects: Objects, repository: str, keys: Sequence[Key], evidence: Evidence, seen: str | None) -> Verdict:
    """Every commit and document of the chain, which must lead back to the commit `seen` (its id, or how it begins).

    Raises NotFound where there are no records, Invalid for the first thing that is not as it has to be.
    """
    tip = objects.tip(REF)
    walk = _Walk(objects, {key.raw: key for key in keys}, evidence, Verdict(repository, tip))
    chain = list(_back(objects, tip))
    if seen is not None and not any(ident.startswith(seen) for ident in chain):
        raise Invalid(f"{REF} does not lead back to {seen}: records were taken away", next_step=_FRESH)
    for ident in reversed(chain):
        try:
            walk.step(objects.commit(ident))
        except Invalid as error:
            raise _at(ident, error) from None
    return walk.verdict


def _back(objects: Objects, tip: str) -> Iterator[str]:
    parent: str | None = tip
    while (ident := parent) is not None:
        yield ident
        try:
            parent = objects.commit(ident).parent
        except Invalid as error:
            raise _at(ident, error) from None


def _at(ident: str, error: Invalid) -> Invalid:
    return Invalid(f"commit {ident[:10]}: {error.sentence}", next_step=error.next_step or _FRESH)


@dataclass
class _Walk:
    objects: Objects
    keys: dict[bytes, Key]
    evidence: Evidence
    verdict: Verdict
    former: Commit | None = None
    listed: tuple[Key, ...] = ()  # the signers as the tree has them
    open: dict[int, dict[tuple[str, int], Record]] = field(default_factory=dict)  # attempts of runs without a document
    closed: set[int] = field(default_factory=set)

    def step(self, commit: Commit) -> None:
        """One commit on top of the former. Raises Invalid."""
        if self.former is not None and commit.at_s < self.former.at_s:
            raise Invalid("its time is before its parent's")
        key = self._signer(commit)
        tree = self.objects.entries(commit.tree)
        former: Entries = {} if self.former is None else self.objects.entries(self.former.tree)
        self._grows(former, tree, key)
        before = former["runs"][1] if former else None
        added = list(self._added(before, tree["runs"][1], "runs"))
        if not added:
            raise Invalid("it adds no record")
        # A run stands behind its attempts, whatever their names.
        for place, blob in sorted(added, key=lambda one: one[0].endswith("/run.json")):
            try:
                self._document(place, self.objects.read("blob", blob))
            except Invalid as error:
                raise Invalid(f"{place}: {error.sentence}", next_step=error.next_step) from None
        self.former = commit
        self.verdict.commits += 1
        self.verdict.keys[key] = self.verdict.keys.get(key, 0) + 1

    def _signer(self, commit: Commit) -> Key:
        raw = signing.signer(commit.signature, commit.payload)
        if raw is None:
            raise Invalid("its signature is not good")
        key = self.keys.get(raw)
        if key is None or key.principal != commit.principal:
            raise Invalid("it is signed by nobody on the list of signers", next_step="is this the list of this server?")
        if not key.signs_at(commit.at_s):
            raise Invalid(f"it is dated outside the time of its key {key.fingerprint}")
        return key

    def _grows(self, former: Entries, tree: Entries, key: Key) -> None:
        """The root has nothing but records and the list of signers, and the list ends with who signed."""
        if {name: mode for name, (mode, _) in tree.items()} != {LIST: FILE, "runs": FOLDER}:
            raise Invalid(f"its tree holds something else than {LIST} and runs")
        if former.get(LIST) == tree[LIST]:
            listed = self.listed
        else:
            listed = signing.signers(self.objects.read("blob", tree[LIST][1]), LIST)
            if not signing.grew(self.listed, listed):
                raise Invalid(f"{LIST} changes in another way than by a rotation")
        if listed[-1].raw != key.raw:
            raise Invalid(f"it is not signed by the last key of its {LIST}")
        self.listed = listed

    def _added(self, former: str | None, now: str, place: str) -> Iterator[tuple[str, str]]:
        """Path and blob of each new file. Raises Invalid where one was changed or removed."""
        if former == now:
            return
        old, new = ({} if ident is None else self.objects.entries(ident) for ident in (former, now))
        if gone := old.keys() - new.keys():
            raise Invalid(f"it removes {place}/{min(gone)}")
        if not new:
            raise Invalid(f"{place} is empty")
        for name, (mode, ident) in new.items() - old.items():
            before = old.get(name)
            if before is not None and (before[0], mode) != (FOLDER, FOLDER):
                raise Invalid(f"it changes {place}/{name}")
            if mode == FOLDER:
                yield from self._added(None if before is None else before[1], ident, f"{place}/{name}")
            elif before is None:
                yield f"{place}/{name}", ident

    def _document(self, place: str, data: bytes) -> None:
        document = forms.read(data)
        record = document["record"]
        if record["repository"] != self.verdict.repository:
            raise Invalid(
                f"it is a record of {record['repository']}, not of {self.verdict.repository}",
                next_step=f"if the repository is {record['repository']}, say --name {record['repository']}",
            )
        attempt = document["purpose"] == "vole attempt record"
        name = f"{record['job']}/{record['attempt']}.json" if attempt else "run.json"
        number = f"{record['run']:06d}"
        if place != f"runs/{number[:-3]}/{number[-3:]}/{name}":
            raise Invalid("it does not belong at this place")
        self._attempt(record) if attempt else self._run(record)

    def _attempt(self, record: Record) -> None:
        if record["run"] in self.closed:
            raise Invalid("it came after the record of its run")
        self.open.setdefault(record["run"], {})[record["job"], record["attempt"]] = record
        self.evidence.holds(record)
        self.verdict.attempts += 1

    def _run(self, record: Record) -> None:
        """The run says of its attempts what they say of themselves."""
        attempts = self.open.pop(record["run"], {})
        jobs = {job["key"]: job for job in record["jobs"]}
        if len(jobs) != len(record["jobs"]):
            raise Invalid("it has a job twice")
        for (key, epoch), attempt in attempts.items():
            job = jobs.get(key)
            if job is None or epoch not in job["epochs"] or not _agree(record, job, attempt):
                raise Invalid(f"it contradicts the record of {key}@{epoch}")
        self.closed.add(record["run"])
        self.verdict.runs += 1


def _agree(run: Record, job: Record, attempt: Record) -> bool:
    same = all(run[name] == attempt[name] for name in ("commit", "workflow_path", "workflow_blob"))
    ended = "outcome" not in attempt or (attempt["attempt"] == job["epoch"] and attempt["outcome"] == job["outcome"])
    return same and ended and job["digest"] == attempt["job_digest"] and job["labels"] == attempt["labels"]
