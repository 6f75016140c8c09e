"""What people said about labels, as it is written down for good."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base.clock import Moment
from vole.base.ids import AccountName


@dataclass(frozen=True)
class DeclaredLabel:
    label: str
    by: AccountName
    at: Moment


@dataclass(frozen=True)
class LabelsDocument:
    """The labels that people declared, as `vole-admin.git` has them. Those that runners carry come with them."""

    labels: tuple[DeclaredLabel, ...]
