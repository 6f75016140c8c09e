"""The forge's no as an error, and every error as an exit code (runner.md 1). Raises nothing by itself."""

from __future__ import annotations

from vole.base.errors import Conflict, Denied, Invalid, VoleError
from vole.wire import runner
from vole.wire.runner import EXIT_CODES, Refusal


class RefusedByForge(VoleError):
    """The forge does not want this runner; `refusal` is its stable word."""

    default_code = "refused"

    def __init__(self, refused: runner.Refused) -> None:
        super().__init__(refused.message, code=refused.code)
        self.refusal = refused.code


def exit_code(error: VoleError) -> int:
    """What a runner that ended with `error` exits with."""
    if isinstance(error, RefusedByForge):
        return EXIT_CODES.get(error.refusal, runner.EXIT_UNREACHABLE)
    if isinstance(error, Denied):
        return EXIT_CODES[Refusal.GRANT]
    return EXIT_CODES[Refusal.INVALID] if isinstance(error, (Invalid, Conflict)) else runner.EXIT_UNREACHABLE
