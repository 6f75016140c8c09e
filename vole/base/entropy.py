"""Chance: ids and secrets. Ids sort by time, so that a page can list the newest first without another column."""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import Protocol

from vole.base.clock import Moment

_EPOCH_2020_US = 1_577_836_800_000_000
_RANDOM_BITS = 12


class Entropy(Protocol):
    """Where ids and secrets come from. One is made in `app`, and handed down."""

    def ident(self, now: Moment) -> int:
        """A positive 63-bit id, larger than every one given before."""
        ...

    def token(self) -> str:
        """A secret of 256 bits, URL-safe text."""
        ...

    def between(self, low: float, high: float) -> float:
        """A number from `low` to `high`: for pauses that should not fall together."""
        ...


def least_ident(moment: Moment) -> int:
    """No id that was given at `moment` or later is less."""
    return max(0, (moment - _EPOCH_2020_US) << _RANDOM_BITS)


class _Idents:
    def __init__(self) -> None:
        self._last = 0

    def after(self, now: Moment, noise: int) -> int:
        self._last = max(self._last + 1, least_ident(now) | noise)
        return self._last


class SystemEntropy:
    """Entropy of the operating system."""

    def __init__(self) -> None:
        self._idents = _Idents()

    def ident(self, now: Moment) -> int:
        return self._idents.after(now, secrets.randbits(_RANDOM_BITS))

    def token(self) -> str:
        return secrets.token_urlsafe(32)

    def between(self, low: float, high: float) -> float:
        return secrets.SystemRandom().uniform(low, high)


class SeededEntropy:
    """The same ids and tokens each run, so that a failing test prints the same ones twice."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - for tests and simulations
        self._idents = _Idents()

    def ident(self, now: Moment) -> int:
        return self._idents.after(now, self._random.getrandbits(_RANDOM_BITS))

    def token(self) -> str:
        return self._random.randbytes(32).hex()

    def between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def digest(secret: str) -> str:
    """How a secret is kept at rest: SHA-256 hex. Secrets here have 256 bits, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
