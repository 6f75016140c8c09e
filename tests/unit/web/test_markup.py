from __future__ import annotations

import re

import pytest

from vole.base import limits
from vole.web.pages.markup import highlight, markdown


def _html(text: str, **more: str) -> str:
    given = {"files": "/app/file/main", "raw": "/app/raw/main", "folder": "docs", "prefix": "readme-"} | more
    return markdown({"text": text, **given})


@pytest.mark.proves("SR-48", "SR-56")
@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:x)",
        "<javascript:alert(1)>",
        '[x](https://a "onmouseover=alert(1)")',
        '![x" onerror="alert(1)](a.png)',
        "![x](javascript:alert(1))",
        "<style>body{display:none}</style>",
        "[x]: javascript:alert(1)\n\n[x]",
        "```html\n<script>alert(1)</script>\n```",
        '# a" onclick="alert(1)',
    ],
)
def test_markdown_makes_nothing_that_acts(text):
    html = _html(text)

    tags = re.findall(r"<(\w+)((?:\s[^>]*)?)>", html)
    assert not {tag for tag, _ in tags} & {"script", "style", "iframe", "object"}
    for _, attributes in tags:
        bare = re.sub(r'"[^"]*"', '""', attributes)
        assert not re.search(r"\bon\w+=|style=", bare), html
        assert not re.search(r'(?:href|src)="(?!/|#|https?:|mailto:|")', attributes), html


@pytest.mark.proves("SR-48")
@pytest.mark.parametrize("source", ["https://evil.test/x.png", "//evil.test/x.png", "http:x.png", "https:/x.png"])
def test_a_picture_from_elsewhere_is_a_link(source):
    assert "<img" not in _html(f"![words]({source})")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![a](b.png)", 'src="/app/raw/main/docs/b.png"'),
        ("![a](/b.png)", 'src="/app/raw/main/b.png"'),
        ("[a](../b.md#c)", 'href="/app/file/main/b.md#c"'),
        ("[a](../../../../etc/passwd)", 'href="/app/file/main/etc/passwd"'),
        ("[a](#Some)", 'href="#readme-Some"'),
        ("# Some words", 'id="readme-some-words"'),
        ("[a](https://x.test/)", 'href="https://x.test/"'),
        ("a\u202eb", "a\\u202eb"),
    ],
)
def test_addresses_lead_into_the_repository(text, shown):
    assert shown in _html(text)


@pytest.mark.proves("SR-56")
def test_pictures_and_depth_have_a_bound():
    many = _html("![a](b.png)\n\n" * (limits.README_IMAGES_MAX + 10))
    deep = _html(">" * 5000 + " deep\n" + "- " * 5000 + "deep\n" + "*" * 5000 + "deep")

    assert many.count("<img") == limits.README_IMAGES_MAX
    assert deep.count("<blockquote>") < 100


@pytest.mark.proves("SR-50")
def test_highlighted_code_is_escaped_and_has_its_lines():
    lines = highlight({"name": "a.py", "text": 'x = """<script>\n</script>"""\n\u202e = 1\n\n# <b>'})

    assert lines is not None
    assert "<script" not in "".join(lines)
    assert "\u202e" not in "".join(lines)
    assert re.sub("<[^>]*>", "", lines[1]) == '&lt;/script&gt;"""'
    assert all(line.count("<span") == line.count("</span") for line in lines)


def test_a_file_that_no_lexer_knows_is_left_plain():
    assert highlight({"name": "what.is-this", "text": "x"}) is None
