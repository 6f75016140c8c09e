"""Logs and artifacts beside their records: the bytes at hand have the length and digest that were signed."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vole.base.errors import Invalid

_STORED = re.compile(r"[0-9a-f]{64}")


@dataclass
class Evidence:
    """Files below `folder` as a server's folder has them: `logs/<repository>/…`, and `artifacts/…` named by digest.

    None: there are no files at hand. What is not there was kept no longer; it is counted, and no fault.
    """

    folder: Path | None
    held: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # files as recorded, by kind
    absent: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        below = [] if self.folder is None else (self.folder / "artifacts").rglob("*")
        self._artifacts = {path.name: path for path in below if _STORED.fullmatch(path.name)}

    def holds(self, record: dict[str, Any]) -> None:
        """Raises Invalid where a file at hand is another one than the record of its attempt says."""
        if self.folder is None:
            return
        log = self.folder / "logs" / record["repository"] / str(record["run"]) / record["job"] / str(record["attempt"])
        if record["log"]["bytes"] or log.exists():  # an empty log has no file
            self._file("logs", log, record["log"]["bytes"], record["log"]["sha256"])
        for file in record["artifacts"]:
            self._file("artifacts", self._artifacts.get(file["sha256"]), file["size"], file["sha256"])

    def _file(self, kind: str, path: Path | None, size: int, sha256: str) -> None:
        if path is None or not path.is_file():
            self.absent[kind] += 1
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if (file.tell(), digest) != (size, sha256):
                raise Invalid(f"{path} is not the file that was recorded: {file.tell()} bytes, SHA-256 {digest}")
        self.held[kind] += 1
