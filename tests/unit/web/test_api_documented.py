"""docs/ say which routes the API has, which scopes there are, and what is measured: those, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from vole.people.scopes import FORMS
from vole.telemetry import Metrics, Reading
from vole.web.routes import ROUTES

DOCS = Path(__file__).parents[3] / "docs"


def _first_column(page: str, heading: str) -> list[str]:
    section = (DOCS / page).read_text("utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_every_route_of_the_api_is_documented_and_no_other():
    routes = {f"{route.method} {route.path}".replace(":path}", "}") for route in ROUTES if route.api}

    assert set(_first_column("operations.md", "The API")) == routes


def test_every_scope_is_documented_and_no_other():
    assert _first_column("security.md", "Scopes of tokens") == list(FORMS)


def test_every_metric_is_documented_and_no_other():
    text = Metrics().text(Reading({"queued": 1}, [1.0], {"mac": 2.0}, 3)).decode()
    measured = set(re.findall(r"^# TYPE (vole_\w+) (?:gauge|counter|histogram)$", text, re.MULTILINE))
    documented = [name.partition("{")[0] for name in _first_column("operations.md", "Logs and health")]

    assert set(documented) == {name for name in measured if not name.endswith("_created")}
