"""How this door spells a refusal: an exit status and lines on stderr; for a hook, lines that git shows as `remote:`."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base import limits
from vole.base.entropy import SystemEntropy
from vole.base.errors import Conflict, Denied, Exhausted, Fenced, Gone, Invalid, NotFound, Unavailable, VoleError
from vole.base.escape import visible

_STATUS: dict[type[VoleError], int] = {
    Invalid: 2,
    Denied: 1,
    NotFound: 1,
    Gone: 1,
    Conflict: 1,
    Fenced: 1,
    Exhausted: 75,
    Unavailable: 75,
}
_OURS = 70  # EX_SOFTWARE
_TRY_AGAIN = "try again in a moment"
_LINES_MAX = limits.PROBLEMS_SHOWN_MAX + 5  # problems, their count, the sentence, the next step


@dataclass(frozen=True)
class Refusal:
    """`reference` is set where it is our fault: the log has the trace under it."""

    status: int
    lines: tuple[str, ...]
    reference: str | None = None


def of(error: BaseException) -> Refusal:
    """The column of git and of commands over SSH."""
    if not isinstance(error, VoleError):
        return _our_fault()
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    if error.code == "unknown_command":
        status = 1  # SR-02: what is served is a list, and the rest is refused like a missing thing
    first, *rest = _lines(error)
    return Refusal(status, _safe((f"fenced: {first}" if isinstance(error, Fenced) else first, *rest)))


def hook(error: BaseException) -> Refusal:
    """The column of the hook: git prints its lines as `remote:`, and refuses the whole push."""
    if not isinstance(error, VoleError):
        ours = _our_fault()
        return Refusal(1, ours.lines, ours.reference)
    return Refusal(1, _safe(_lines(error)))


def _lines(error: VoleError) -> tuple[str, ...]:
    again = isinstance(error, (Exhausted, Unavailable)) and error.next_step is None
    return (*error.lines, _TRY_AGAIN) if again else error.lines


def _safe(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(visible(line, limits.PROBLEM_CHARS_MAX) for line in lines[:_LINES_MAX])


def _our_fault() -> Refusal:
    reference = SystemEntropy().token()[:8]
    return Refusal(_OURS, (f"the server failed; its log says why under {reference}",), reference)
