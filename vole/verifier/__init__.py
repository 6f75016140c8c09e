"""A second reader of records (docs/records.md): from the bytes of a clone and a list of signers to a verdict, offline.

Shares nothing with what writes records: no module that knows their form is imported here.
"""

from vole.verifier.chain import Verdict, verify
from vole.verifier.evidence import Evidence
from vole.verifier.objects import Objects
from vole.verifier.signing import Key, signers

__all__ = ["Evidence", "Key", "Objects", "Verdict", "signers", "verify"]
