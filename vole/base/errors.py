"""The kinds of error a caller can act on. Each door spells a kind its own way in its `refusals.py`.

Anything that is not a VoleError is our fault: it is logged with its trace, and people see a reference.
"""

from __future__ import annotations


class VoleError(Exception):
    """A refusal: a stable `code` for machines, a sentence for people and, where there is one, the next step."""

    default_code = "error"

    def __init__(self, sentence: str, *, code: str | None = None, next_step: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code or self.default_code
        self.next_step = next_step

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person reads: the sentence, then the next step."""
        return (self.sentence,) if self.next_step is None else (self.sentence, self.next_step)


class Invalid(VoleError):
    """What was sent is wrong. `problems` holds every one of them, a line each."""

    default_code = "invalid"

    def __init__(
        self, sentence: str, *, code: str | None = None, next_step: str | None = None, problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(sentence, code=code, next_step=next_step)
        self.problems = problems

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.problems, *super().lines)


class Denied(VoleError):
    """They may not."""

    default_code = "denied"


class NotFound(VoleError):
    """There is no such thing, or its existence is not theirs to know."""

    default_code = "not_found"


class Gone(NotFound):
    """It was there, and whoever asks may know that and why it is not."""

    default_code = "gone"


class Conflict(VoleError):
    """Someone was first."""

    default_code = "conflict"


class Fenced(VoleError):
    """The lease named is over: let go of it."""

    default_code = "fenced"


class Exhausted(VoleError):
    """A bound of `limits` was reached; its name is in the sentence."""

    default_code = "exhausted"


class Unavailable(VoleError):
    """It cannot be done just now; trying again may help."""

    default_code = "unavailable"
