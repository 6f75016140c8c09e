from __future__ import annotations

import pytest

from vole.base.quantities import count


@pytest.mark.parametrize(
    ("number", "thing", "said"),
    [(1, "day", "1 day"), (2, "day", "2 days"), (3, "repository", "3 repositories"), (1200, "file", "1,200 files")],
)
def test_a_count_has_its_plural(number, thing, said):
    assert count(number, thing) == said
