"""The one label rule, shared by push check, API, lease and runner.

Nothing is folded or trimmed: a label fits, or it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

from vole.base.errors import Invalid

_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_FORM = "1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit"


class Label(str):
    """A word a job asks for and a runner says of itself: `[a-z0-9][a-z0-9._-]{0,62}`, matched whole."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Invalid with the rule that `text` breaks and the label that may have been meant."""
        if _LABEL.fullmatch(text):
            return cls(text)
        raise Invalid(f"{text[:80]!r} is not a label; {_remedy(text)}", code="bad_label")


def parse_all(texts: Iterable[str]) -> tuple[Label, ...]:
    """Labels in the order given. Raises Invalid for a bad one and for a repeated one; none at all is fine."""
    labels = tuple(Label.parse(text) for text in texts)
    for at, label in enumerate(labels):
        if label in labels[:at]:
            raise Invalid(f"label '{label}' stands there twice; write it once", code="bad_label")
    return labels


def near(label: str, known: Iterable[str]) -> str | None:
    """The known label that `label` is probably a slip for, None when it is known itself or near to none.

    Near is an edit distance of at most 2, at most 1 for a label of fewer than five characters. Of several the
    nearest, then the first by name.
    """
    most = 1 if len(label) < 5 else 2
    best: tuple[int, str] | None = None
    for other in known:
        if other == label:
            return None
        if abs(len(other) - len(label)) <= most and (steps := distance(label, other, most)) <= most:
            best = min(best or (steps, other), (steps, other))
    return best[1] if best else None


def alike(label: str, known: Iterable[str]) -> str | None:
    """The known label to show beside one that nobody carries; None when it is known itself or like none.

    Wider than `near`, since it refuses nothing: `fast` is like `fastest`, `fsat` like `fast`. Like is to begin with
    the other, or an edit distance of at most half the longer one. Of several the nearest, then the first by name.
    """
    best: tuple[int, str] | None = None
    for other in known:
        if other == label:
            return None
        longer = max(len(other), len(label))
        steps = distance(label, other, longer)
        if other.startswith(label) or label.startswith(other) or steps <= longer // 2:
            best = min(best or (steps, other), (steps, other))
    return best[1] if best else None


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Of `words` the one that `word` is most likely a slip for: `stpes` for `steps`, `runs_on` for `runs-on`."""
    most = 1 if len(word) < 4 else 2
    scored = sorted((distance(word, other, most), other) for other in words)
    return scored[0][1] if scored and 0 < scored[0][0] <= most else None


def distance(left: str, right: str, most: int) -> int:
    """Insertions, deletions and replacements between two words; `most + 1` when there are more than `most`."""
    if abs(len(left) - len(right)) > most:
        return most + 1
    above = list(range(len(right) + 1))
    for row, char in enumerate(left, 1):
        line = [row]
        for column, other in enumerate(right, 1):
            line.append(min(above[column] + 1, line[-1] + 1, above[column - 1] + (char != other)))
        if min(line) > most:
            return most + 1
        above = line
    return min(above[-1], most + 1)


def _remedy(text: str) -> str:
    if not text.strip():
        return "a label is not blank: leave runs-on out for any runner"
    if _LABEL.fullmatch(text.strip()):
        return f"no blanks around it: {text.strip()}"
    if text.isascii() and _LABEL.fullmatch(text.strip().lower()):
        return f"labels are lower case: {text.strip().lower()}"
    return f"use {_FORM}"
