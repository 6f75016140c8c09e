"""A job's log as HTML: what a terminal would show, with nothing in it that could act. Escapes before it colours.

The result is a list of pieces in order, each with the container it goes into. A whole page puts them together; a
live page sends them one by one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vole.base import limits
from vole.base.escape import visible_lines
from vole.wire.runner import Mark

ROOT = "log"

# Colours (SGR), other control sequences, strings to the terminal (titles, links), two-byte escapes.
_ESCAPE = re.compile(
    r"\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
_COMMAND = re.compile(r"::(group|endgroup|error|warning|notice|stop-commands)(?: [^:]*)?::(.*)")
_CUBE = (0, 95, 135, 175, 215, 255)
_BASIC = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}


@dataclass(frozen=True)
class Piece:
    """HTML for the container `into`. With an `id` it opens a container: what goes inside stands before `tail`."""

    into: str
    head: str
    tail: str = ""
    id: str = ""


@dataclass
class _Look:
    """The colours and styles that hold at a place in the text."""

    fore: int | None = None
    back: int | None = None
    styles: set[str] = field(default_factory=set)

    @property
    def classes(self) -> str:
        colours = [f"{side}{number}" for side, number in (("f", self.fore), ("b", self.back)) if number is not None]
        return " ".join([*colours, *sorted(self.styles)])

    def apply(self, codes: Sequence[int]) -> None:
        at = 0
        while at < len(codes):
            code = codes[at]
            if code in (38, 48):
                number, used = _extended(codes[at + 1 :])
                self._paint(code == 38, number)
                at += used
            else:
                self._apply_one(code)
            at += 1

    def _apply_one(self, code: int) -> None:
        if code == 0:
            self.fore, self.back, self.styles = None, None, set()
        elif code in _STYLES:
            self.styles.add(_STYLES[code])
        elif code in _ENDS:
            self.styles.difference_update(_ENDS[code])
        elif 30 <= code <= 49:
            self._paint(code < 40, code % 10 if code % 10 < 8 else None)
        elif 90 <= code <= 107:
            self._paint(code < 100, code % 10 + 8 if code % 10 < 8 else None)

    def _paint(self, fore: bool, number: int | None) -> None:
        if fore:
            self.fore = number
        else:
            self.back = number


def _extended(codes: Sequence[int]) -> tuple[int | None, int]:
    """`5;n` or `2;r;g;b` as the nearest of sixteen colours, and how many codes that took."""
    if len(codes) >= 2 and codes[0] == 5:
        return _nearest(_of_256(codes[1])) if codes[1] >= 16 else codes[1], 2
    if len(codes) >= 4 and codes[0] == 2:
        return _nearest((codes[1], codes[2], codes[3])), 4
    return None, len(codes)


def _of_256(number: int) -> tuple[int, int, int]:
    if number >= 232:
        grey = 8 + 10 * (min(number, 255) - 232)
        return grey, grey, grey
    number -= 16
    return _CUBE[number // 36 % 6], _CUBE[number // 6 % 6], _CUBE[number % 6]


def _nearest(colour: tuple[int, int, int]) -> int:
    return min(range(16), key=lambda at: sum((a - b) ** 2 for a, b in zip(_BASIC[at], colour, strict=True)))


class Painter:
    """Paints a log from `start` on. Feed it the bytes in order, and new marks before the bytes behind them.

    `folded`: steps whose lines are hidden until someone asks for them.
    """

    def __init__(self, start: int = 0, marks: Sequence[Mark] = (), folded: frozenset[int] = frozenset()) -> None:
        self._offset = start
        self._folded = folded
        self._rest = b""
        self._look = _Look()
        self._stop: str | None = None  # the word that ends `::stop-commands::`
        self._into = self._step_container = ROOT
        self._step = -1
        self._pending: list[Mark] = []
        self._pieces: list[Piece] = []
        self.more_marks(marks)

    def more_marks(self, marks: Sequence[Mark]) -> bool:
        """Take marks in. False when a step began before what is painted already: those lines stand in the wrong one."""
        begins = [mark for mark in marks if mark.kind == "begin" and mark.step > self._step]
        self._pending = [mark for mark in begins if mark.offset > self._offset]
        passed = [mark for mark in begins if mark.offset <= self._offset]
        late = self._step >= 0 and any(mark.offset < self._offset for mark in passed)
        if passed:
            self._begin(passed[-1])
        return not late

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces of the lines that `data` completes. A line over LOG_LINE_BYTES_MAX is shown in parts."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
            self._offset += 1  # its line end
        while len(self._rest) > limits.LOG_LINE_BYTES_MAX:
            self._part(self._rest[: limits.LOG_LINE_BYTES_MAX])
            self._rest = self._rest[limits.LOG_LINE_BYTES_MAX :]
        painted, self._pieces = self._pieces, []
        return painted

    def end(self) -> list[Piece]:
        """The piece of a last line that has no line end."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        painted, self._pieces = self._pieces, []
        return painted

    def partial(self) -> str:
        """What the unfinished last line looks like now. It is painted again when it ends."""
        look = _Look(self._look.fore, self._look.back, set(self._look.styles))
        return _coloured(_last_state(self._rest), look) if self._rest else ""

    @property
    def painted_to(self) -> int:
        """The offset up to which whole lines are painted."""
        return self._offset

    @property
    def into(self) -> str:
        """The container that the unfinished line belongs to."""
        return self._into

    def _line(self, line: bytes) -> None:
        for at in range(0, len(line) or 1, limits.LOG_LINE_BYTES_MAX):
            self._part(line[at : at + limits.LOG_LINE_BYTES_MAX])

    def _part(self, line: bytes) -> None:
        while self._pending and self._pending[0].offset <= self._offset:
            self._begin(self._pending.pop(0))
        text = _last_state(line)
        command = _COMMAND.match(text) if text.startswith("::") else None
        if self._stop is not None or command is None:
            if text.startswith("::") and text.strip(":") == self._stop:
                self._stop = None
            self._show(_coloured(text, self._look))
        else:
            self._obey(command.group(1), command.group(2))
        self._offset += len(line)

    def _obey(self, word: str, text: str) -> None:
        if word == "group":
            self._into = f"g{self._offset}"
            head = f'<details class="group"><summary>{_escaped(text)}</summary><div id="{self._into}">'
            self._pieces.append(Piece(self._step_container, head, "</div></details>", self._into))
        elif word == "endgroup":
            self._into = self._step_container
        elif word == "stop-commands":
            self._stop = text.strip()
        else:
            self._show(f'<span class="{word}">{word}: {_escaped(text)}</span>')

    def _begin(self, mark: Mark) -> None:
        self._step = mark.step
        self._look, self._stop = _Look(), None
        self._into = self._step_container = f"s{mark.step}"
        title = _escaped(mark.title or f"step {mark.step}")
        opened = "" if mark.step in self._folded else " open"
        head = f'<details class="step"{opened}><summary>{title}</summary><div id="{self._into}">'
        self._pieces.append(Piece(ROOT, head, "</div></details>", self._into))

    def _show(self, painted: str) -> None:
        place = f"o{self._offset}"
        anchor = f'<a href="#{place}" aria-hidden="true" tabindex="-1"></a>'
        self._pieces.append(Piece(self._into, f'<div class="ln" id="{place}">{anchor}{painted}</div>'))


def together(pieces: Sequence[Piece]) -> str:
    """The pieces as one text, each container with what belongs into it."""
    inside: dict[str, list[Piece]] = {}
    for piece in pieces:
        inside.setdefault(piece.into, []).append(piece)

    def body(container: str) -> str:
        return "".join(
            piece.head + (body(piece.id) + piece.tail if piece.id else "") for piece in inside.get(container, ())
        )

    return body(ROOT)


def _last_state(line: bytes) -> str:
    """What is left on the screen of a line that was written over with carriage returns."""
    states = [state for state in line.split(b"\r") if state]
    return (states[-1] if states else b"").decode("utf-8", "backslashreplace")


def _coloured(text: str, look: _Look) -> str:
    """`text` with its colours as classes. `look` goes on into the next line."""
    painted, at = [], 0
    for escape in _ESCAPE.finditer(text):
        painted.append(_span(text[at : escape.start()], look))
        at = escape.end()
        if escape.group(1) is not None:
            look.apply([int(code[:3] or 0) for code in re.split("[;:]", escape.group(1))[:64]])
    painted.append(_span(text[at:], look))
    return "".join(painted)


def _span(text: str, look: _Look) -> str:
    if not text:
        return ""
    classes = look.classes
    return f'<span class="{classes}">{_escaped(text)}</span>' if classes else _escaped(text)


def _escaped(text: str) -> str:
    return html.escape(visible_lines(text))
