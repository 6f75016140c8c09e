"""Files of others as HTML: highlighted code and safe Markdown. Runs in an offloaded child, never in the server.

A grammar made of regular expressions can be made to think for hours; the child is ended after seconds then, and the
page shows the plain text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import nh3
import pygments
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import find_lexer_class_for_filename
from pygments.util import ClassNotFound

from vole.base import limits
from vole.base.escape import visible_lines

_FORMAT = HtmlFormatter(nowrap=True, classprefix="t-")
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p",
    "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}, "h1": {"id"}, "h2": {"id"}}
_ATTRIBUTES |= {tag: {"id"} for tag in ("h1", "h2", "h3", "h4", "h5", "h6")}
_BLANK = re.compile(r"\s+")
_NO_SLUG = re.compile(r"[^\w\- ]")


def highlight(given: Mapping[str, str]) -> list[str] | None:
    """The lines of `text` as HTML, coloured for a file called `name`; None when no lexer knows the name."""
    try:
        lexer = find_lexer_class_for_filename(given["name"])
    except ClassNotFound:
        lexer = None
    if lexer is None:
        return None
    painted: str = pygments.highlight(visible_lines(given["text"]), lexer(stripnl=False, ensurenl=False), _FORMAT)
    return painted.split("\n")


def markdown(given: Mapping[str, str]) -> str:
    """`text` as HTML that can do nothing: no script, no style, no address off the server but plain links.

    `files` and `raw` are the addresses that relative links and images stand below ("" leaves them out), `folder` the
    folder they are relative to, `prefix` what headings' ids begin with.
    """
    environment: dict[str, Any] = dict(given)
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 20}).enable(
        ["table", "strikethrough"]
    )
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("heading_open", _heading)
    painted = parser.render(visible_lines(given["text"]), environment)
    return nh3.clean(
        painted,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener noreferrer",
    )


def _link(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, environment: MutableMapping[str, Any]
) -> str:
    token = tokens[at]
    address = str(token.attrGet("href") or "")
    token.attrSet("href", _placed(address, environment, "files") or "")
    return renderer.renderToken(tokens, at, options, environment)


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, environment: MutableMapping[str, Any]
) -> str:
    """A picture of the repository itself; any other becomes a link, since a page loads nothing from elsewhere."""
    token = tokens[at]
    text = html.escape(renderer.renderInlineAsText(token.children, options, environment))
    address = str(token.attrGet("src") or "")
    environment["images"] = environment.get("images", 0) + 1
    placed = _placed(address, environment, "raw")
    ours = placed is not None and placed.startswith(f"{environment['raw']}/")
    if placed is None or not ours or environment["images"] > limits.README_IMAGES_MAX:
        return f'<a href="{html.escape(placed or "")}">{text or "image"}</a>'
    return f'<img src="{html.escape(placed)}" alt="{text}">'


def _heading(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, environment: MutableMapping[str, Any]
) -> str:
    text = _NO_SLUG.sub("", tokens[at + 1].content.lower())[:80]
    tokens[at].attrSet("id", environment.get("prefix", "") + _BLANK.sub("-", text.strip()))
    return renderer.renderToken(tokens, at, options, environment)


def _placed(address: str, environment: MutableMapping[str, Any], kind: str) -> str | None:
    """Where `address` leads: a part of this page, a file of this repository, or an address elsewhere."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        return address if parts.scheme in ("http", "https", "mailto") else None
    if not parts.path:
        return f"#{environment.get('prefix', '')}{parts.fragment}" if parts.fragment else None
    base = environment.get(kind, "")
    folder = [] if parts.path.startswith("/") else [name for name in environment.get("folder", "").split("/") if name]
    for name in parts.path.split("/"):
        if name == "..":
            folder = folder[:-1]
        elif name not in ("", "."):
            folder.append(name)
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{base}/{quote('/'.join(folder), safe='/%')}{fragment}" if base else None
