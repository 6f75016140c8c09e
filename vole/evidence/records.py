"""What a record says and where it stands: two documents, an attempt's and a run's. Pure; docs/records.md is its form.

A document is canonical JSON in an envelope that sorts its purpose first.
"""

from __future__ import annotations

from collections.abc import Sequence

from vole.base.errors import Invalid
from vole.base.ids import Epoch, JobKey, RepoName, RunNumber
from vole.wire import documents
from vole.wire.records import AttemptRecord, RunRecord

ATTEMPT, RUN = "vole attempt record", "vole run record"

# Of an event's detail, what is everybody's who may read the run. Sessions, keys and what a runner serves are not.
TOLD = (
    "to",
    "conclusion",
    "reason",
    "cause",
    "why",
    "runner",
    "losses",
    "marked",
    "number",
    "ref",
    "commit",
    "workflow",
)

Record = AttemptRecord | RunRecord


def document(record: Record) -> bytes:
    """The canonical bytes."""
    return documents.write(ATTEMPT if isinstance(record, AttemptRecord) else RUN, record)


def read(data: bytes) -> Record:
    """The record in a document. Raises Invalid for bytes that `document` does not write."""
    of_run = data.startswith(f'{{"purpose":"{RUN}"'.encode())
    record: Record = documents.read(RUN, RunRecord, data) if of_run else documents.read(ATTEMPT, AttemptRecord, data)
    if document(record) != data:
        raise Invalid("the document is not written as a record is")
    return record


def read_at(repository: RepoName, place: str, data: bytes) -> Record:
    """The record that stands at `place`. Raises Invalid, naming it, for one that says that it belongs elsewhere."""
    try:
        record = read(data)
    except Invalid as error:
        raise Invalid(f"{repository}: {place}: {error.sentence}") from None
    if (record.repository, path(record)) != (repository, place):
        raise Invalid(f"{repository}: {place} is the record {line(record)}, which belongs elsewhere")
    return record


def path(record: Record) -> str:
    """Where the document stands in the tree of records."""
    if isinstance(record, RunRecord):
        return run_path(record.run)
    return attempt_path(record.run, record.job, record.attempt)


def attempt_path(run: RunNumber, job: JobKey, epoch: Epoch) -> str:
    """Where the record of an attempt stands, or will."""
    return f"{_folder(run)}/{job}/{epoch}.json"


def run_path(run: RunNumber) -> str:
    """Where the record of a run stands, or will."""
    return f"{_folder(run)}/run.json"


def _folder(run: RunNumber) -> str:
    padded = f"{run:06d}"
    return f"runs/{padded[:-3]}/{padded[-3:]}"


def line(record: Record) -> str:
    """The record in a line of its commit's message."""
    address = f"{record.repository}/{record.run}"
    if isinstance(record, AttemptRecord):
        address += f"/{record.job}@{record.attempt}"
    return f"{address} {record.conclusion}"


def message(records: Sequence[Record]) -> str:
    """What the commit of `records` says."""
    lines = [line(record) for record in records]
    if len(lines) == 1:
        return f"{lines[0]}\n"
    return f"{len(lines)} records of {records[0].repository}\n\n" + "".join(f"{one}\n" for one in lines)
