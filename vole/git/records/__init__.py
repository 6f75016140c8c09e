"""Signed commits under refs/vole/: the record key, its signatures, and the commits that carry records."""

from vole.git.records.chain import Chain, Proven
from vole.git.records.commits import ADMIN, RUNS, Stamp, append, documents, put, standing
from vole.git.records.keys import RecordKeys, Signer, fingerprint_of, signers_at

__all__ = [
    "ADMIN",
    "RUNS",
    "Chain",
    "Proven",
    "RecordKeys",
    "Signer",
    "Stamp",
    "append",
    "documents",
    "fingerprint_of",
    "put",
    "signers_at",
    "standing",
]
