"""Counts, sizes and spans as people read them."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def span(microseconds: int) -> str:
    """A duration in its two largest units."""
    whole = max(0, microseconds) // 1_000_000
    if whole < 10:
        return f"{max(0, microseconds) / 1_000_000:.1f} s"
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // _HOUR} h {whole % _HOUR // 60} min" if whole < _DAY else f"{whole // _DAY} d"


def size(byte_count: int) -> str:
    """Bytes in the unit that fits."""
    amount = float(byte_count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def count(number: int, thing: str) -> str:
    """`1 file`, `2 files`, `3 days`, `4 repositories`."""
    plural = thing[:-1] + "ies" if thing.endswith("ry") else thing + "s"
    return f"{number:,} {thing if number == 1 else plural}"
