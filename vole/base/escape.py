"""Text of others made safe for one line of a terminal or a log: nothing in it moves a cursor or hides a word.

Pages have their own escaping (HTML); this is the one for terminals, hook output, error sentences and log lines.
"""

from __future__ import annotations

import re
import unicodedata

# Control bytes, format characters (direction marks), lone surrogates, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PERHAPS_UNSEEN = re.compile(r"[^\t\n\x20-\x7e]")


def visible(text: str, most: int | None = None) -> str:
    """`text` with every unseen character spelled out (`\\x1b`, `\\u202e`), and at most `most` characters of it."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def visible_lines(text: str) -> str:
    """`text` of several lines: line ends and tabs stay, every other unseen character is spelled out."""
    return _PERHAPS_UNSEEN.sub(lambda found: _shown(found.group()), text)


def _shown(char: str) -> str:
    return _spelled(char) if unicodedata.category(char) in _UNSEEN else char


def _spelled(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, kept by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
