"""Pages as bytes: templates, the one escaping function of HTML, and our own style and script by digest.

Templates hold no rule; a value that they ask for and that is not there is an error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import jinja2
from markupsafe import Markup, escape

from vole.base.clock import Moment, iso
from vole.base.escape import visible_lines
from vole.base.quantities import count, size, span

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_HEADS_MAX = 256
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Page(Protocol):
    """A frozen dataclass, and the template that shows it."""

    template: ClassVar[str]

    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class Frame:
    """What stands around every page. `now` is what ages are counted from."""

    person: str | None
    now: Moment
    version: str


@dataclass(frozen=True)
class Asset:
    """A file of ours. Its address holds its digest, so it may be kept for ever."""

    content: bytes
    media_type: str
    path: str


class Renderer:
    """The templates below `folder`, read once."""

    def __init__(self, folder: Path) -> None:
        self.assets = {asset.path: asset for asset in map(_asset, sorted((folder / "static").iterdir()))}
        self._by_name = {path.rpartition("/")[2]: path for path in self.assets}
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_finalized,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {"when": when, "exact": iso, "span": span, "size": size, "count": count}
        macros: Any = self._environment.get_template("macros.html").module
        # A repository's head is the same on page after page.
        heads = lru_cache(_HEADS_MAX)(macros.repo_head)
        self._environment.globals |= {"static": self._by_name, "m": macros, "repo_head": heads}

    def render(self, page: Page, frame: Frame) -> bytes:
        """The page, whole."""
        template = self._environment.get_template(page.template)
        return template.render(page=page, frame=frame, age=_Ages(frame.now)).encode("utf-8", "backslashreplace")

    def asset(self, name: str) -> str:
        """The address of a file of ours."""
        return self._by_name[name]


def shown(text: str) -> Markup:
    """The one escaping function of HTML: for text and for values of attributes."""
    plain = text.isascii() and text.isprintable()  # as most is, and known faster than it is searched
    return escape(str(text) if plain else visible_lines(text))


def when(moment: Moment) -> str:
    """`2026-11-30 12:04:05 UTC`."""
    return _in_words(iso(moment))


def _in_words(exact: str) -> str:
    return exact[:19].replace("T", " ") + " UTC"


class _Ages:
    """How long ago, as `<time>` with the exact moment in it."""

    def __init__(self, now: Moment) -> None:
        self._now = now

    def __call__(self, moment: Moment) -> Markup:
        exact = iso(moment)
        words = f'<time datetime="{exact}" title="{_in_words(exact)}">{ago(self._now, moment)}</time>'
        return Markup(words)  # noqa: S704  digits and words of ours


def ago(now: Moment, moment: Moment) -> str:
    """`3 hours ago`; a moment to come is `just now`, since clocks of others are not ours."""
    seconds = (now - moment) // 1_000_000
    if seconds < 45:
        return "just now"
    for unit, length in (("year", 365 * _DAY), ("month", 30 * _DAY), ("day", _DAY), ("hour", _HOUR)):
        if seconds >= length:
            return count(seconds // length, unit) + " ago"
    return count(max(1, seconds // _MINUTE), "minute") + " ago"


def _finalized(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else shown(value)


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, _TYPES[path.suffix], f"/static/{hashlib.sha256(content).hexdigest()[:16]}/{path.name}")
