"""Patterns for branches, tags, paths and artifacts: `*` in a segment, `**` across, `?` one character, `[abc]` a set.

Matching walks the text once, whatever the pattern: no pattern can make it slow. Case counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vole.base import limits
from vole.base.errors import Invalid


def match(patterns: Sequence[str], text: str) -> bool:
    """Whether `text` is left when the patterns have been applied in order; a `!pattern` takes away.

    Raises Invalid for a pattern that `check` refuses.
    """
    matched = False
    for pattern in patterns:
        if pattern.startswith("!"):
            matched = matched and not _compiled(pattern[1:]).matches(text)
        else:
            matched = matched or _compiled(pattern).matches(text)
    return matched


def filter_paths(patterns: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Those of `paths` that `patterns` leave, in their order."""
    return [path for path in paths if match(patterns, path)]


def check(pattern: str) -> None:
    """Raises Invalid with the reason why `pattern` is none. A leading `!` is part of it."""
    _compiled(pattern.removeprefix("!"))


def check_all(patterns: Sequence[str]) -> None:
    """`check` on each, and the rule of the list: it does not begin by taking away."""
    for pattern in patterns:
        check(pattern)
    if patterns and patterns[0].startswith("!"):
        raise Invalid(f"{patterns[0]!r} comes first and takes away from nothing; begin with what to match: '**'")


@dataclass(frozen=True)
class _Glob:
    """A pattern as a row of places; a set of places is the bits of an integer.

    `take[c]` are the places that read the character c and move on, `stay` those that read any and stay, `stay_in`
    those that read any but a slash, `leave` those a slash moves back from (inside of `**/`), `skip` those that may be
    passed for nothing, `skip_two` the same for `**/`, which has two places.
    """

    take: dict[str, int]
    take_any: int
    sets: tuple[tuple[int, frozenset[str]], ...]
    stay: int
    stay_in: int
    leave: int
    skip: int
    skip_two: int
    end: int
    prefix: str

    def matches(self, text: str) -> bool:
        if not text.startswith(self.prefix):
            return False
        now = self._free(1)
        for char in text:
            now = self._free(self._read(now, char))
            if not now:
                return False
        return bool(now & self.end)

    def _read(self, now: int, char: str) -> int:
        taken = now & self.take.get(char, 0)
        if char == "/":
            return (taken << 1) | (now & self.stay) | ((now & self.leave) >> 1) | (now & self.skip_two)
        taken |= now & self.take_any
        for place, chars in self.sets:
            if char in chars:
                taken |= now & place
        # Within `**/` any character but a slash goes to, or stays at, its second place.
        return (taken << 1) | (now & (self.stay | self.stay_in | self.leave)) | ((now & self.skip_two) << 1)

    def _free(self, now: int) -> int:
        now |= (now & self.skip_two) << 2
        return now | (now & self.skip) << 1


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> _Glob:
    if not pattern:
        raise Invalid("an empty pattern matches nothing; write '**' for everything")
    if len(pattern) > limits.GLOB_CHARS_MAX:
        raise Invalid(f"a pattern of {len(pattern)} characters; at most {limits.GLOB_CHARS_MAX} (GLOB_CHARS_MAX)")
    return _Builder().build(pattern)


class _Builder:
    def __init__(self) -> None:
        self.place = 1
        self.take: dict[str, int] = {}
        self.sets: list[tuple[int, frozenset[str]]] = []
        self.masks = dict.fromkeys(("any", "stay", "stay_in", "leave", "skip", "skip_two"), 0)

    def build(self, pattern: str) -> _Glob:
        at = 0
        while at < len(pattern):
            at = self._add(pattern, at)
        masks = self.masks
        plain = next((at for at, char in enumerate(pattern) if char in "*?["), len(pattern))
        return _Glob(
            self.take, masks["any"], tuple(self.sets), masks["stay"], masks["stay_in"], masks["leave"],
            masks["skip"], masks["skip_two"], self.place, pattern[:plain],
        )  # fmt: skip

    def _add(self, pattern: str, at: int) -> int:
        char = pattern[at]
        if char == "*":
            return self._stars(pattern, at)
        if char == "[":
            return self._set(pattern, at)
        if char == "\\":
            raise Invalid(f"{pattern!r}: a backslash means nothing in a pattern; write [*] for a plain '*'")
        if char == "?":
            self.masks["any"] |= self.place
        else:
            self.take[char] = self.take.get(char, 0) | self.place
        self.place <<= 1
        return at + 1

    def _stars(self, pattern: str, at: int) -> int:
        end = at
        while end < len(pattern) and pattern[end] == "*":
            end += 1
        whole_segment = (at == 0 or pattern[at - 1] == "/") and pattern[end : end + 1] == "/"
        if end - at > 2:
            raise Invalid(f"{pattern!r}: three stars in a row; '*' stays in a segment, '**' goes across")
        if end - at == 2 and whole_segment:
            return self._folders(pattern, end + 1)
        self.masks["stay" if end - at == 2 else "stay_in"] |= self.place
        self.masks["skip"] |= self.place
        self.place <<= 1
        return end

    def _folders(self, pattern: str, at: int) -> int:
        """`**/`: any number of whole segments, none too. Repeated ones mean no more than one."""
        while pattern.startswith("**/", at):
            at += 3
        self.masks["skip_two"] |= self.place
        self.masks["leave"] |= self.place << 1
        self.place <<= 2
        return at

    def _set(self, pattern: str, at: int) -> int:
        end = pattern.find("]", at + 2)
        if end < 0:
            raise Invalid(f"{pattern!r}: '[' without its ']'")
        inside = pattern[at + 1 : end]
        if inside[0] in "!^" and len(inside) > 1:
            raise Invalid(f"{pattern!r}: a set cannot be turned round; take away with a '!pattern' of its own")
        if "/" in inside or "[" in inside[1:]:
            raise Invalid(f"{pattern!r}: no '/' or '[' inside a set")
        if pattern[end + 1 : end + 2] == "+":
            raise Invalid(f"{pattern!r}: '+' repeats nothing here; '*' matches any number of characters")
        self.sets.append((self.place, frozenset(_members(pattern, inside))))
        self.place <<= 1
        return end + 1


def _members(pattern: str, inside: str) -> Iterable[str]:
    at = 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            first, last = ord(inside[at]), ord(inside[at + 2])
            if not first <= last < 128:
                raise Invalid(f"{pattern!r}: {inside[at : at + 3]!r} is no range of ASCII characters")
            yield from map(chr, range(first, last + 1))
            at += 3
        else:
            yield inside[at]
            at += 1
