"""The SQL of evidence, and rows as values. Jobs belong to another room; they are read here, never written."""

from __future__ import annotations

from vole.store.database import Row
from vole.wire.runner import ArtifactFile

# The files of an artifact that a job may fetch: of the final attempts of the jobs it needs, in the same run.
NEEDED_FILES = """
SELECT f.name, f.path, f.size, f.sha256
FROM jobs mine
JOIN job_needs n ON n.job_id = mine.id
JOIN jobs theirs ON theirs.run_id = mine.run_id AND theirs.job = n.needs
JOIN jobs ran ON ran.id = coalesce(theirs.carried_of, theirs.id)
JOIN artifacts f ON f.job_id = ran.id AND f.epoch = ran.epoch AND f.removed_at IS NULL
WHERE mine.id = :job AND f.name = :name
ORDER BY theirs.ordinal, f.path"""


def file(row: Row) -> ArtifactFile:
    return ArtifactFile(row["name"], row["path"], row["size"], row["sha256"])
