"""The command line's column of the table of errors."""

from __future__ import annotations

import pytest

from vole import cli
from vole.base import errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.Invalid("what was sent is wrong", problems=("vole.yaml:1:1 x",)), 2),
        (errors.Denied("you may not"), 1),
        (errors.NotFound("no such thing"), 1),
        (errors.Conflict("someone was first"), 1),
        (errors.Fenced("let go"), 1),
        (errors.Exhausted("a bound was reached"), 75),
        (errors.Unavailable("not just now", next_step="install git"), 75),
        (RuntimeError("a bug"), 70),
    ],
)
def test_each_kind_of_error_has_its_exit_status(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_words: object) -> None:
        raise error

    monkeypatch.setattr(cli, "cli", fails)

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == status
    said = capsys.readouterr()
    assert said.out == ""
    assert str(error) in said.err
    for line in getattr(error, "lines", ()):
        assert line in said.err
