"""A server's folder as a backup, made while it is served, and a folder made of a backup again."""

from vole.flows.backup.making import Made, back_up
from vole.flows.backup.restoring import Restored, restore

__all__ = ["Made", "Restored", "back_up", "restore"]
