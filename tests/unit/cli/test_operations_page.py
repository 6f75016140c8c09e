"""docs/operations.md says what the program does: its example, its settings, its commands."""

from __future__ import annotations

import re
from pathlib import Path

from vole.cli import OWN
from vole.config import reading, server
from vole.config.server import Paths
from vole.ssh import commands

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")


def table_below(heading: str) -> dict[str, str]:
    """The first two columns of the tables below a heading, the first without its code marks."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(.+?)` \| (.*?) \|", section, re.MULTILINE)
    return {name.replace("\\|", "|"): text for name, text in rows}


def test_the_example_is_the_file_that_init_writes() -> None:
    example, *_of_runners = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

    assert example == server.template()
    server.build(reading.parse(example, "vole.yaml"), Paths(Path("/srv")))


def test_every_setting_is_documented_and_no_other() -> None:
    root = reading.parse("", "vole.yaml")
    server.build(root, Paths(Path("/srv")))

    assert set(table_below("Settings")) == set(root.asked)


def test_what_the_page_says_of_a_restart_is_so() -> None:
    section = PAGE.split("\n## Settings\n", 1)[1]
    said = dict(re.findall(r"^\| `([a-z_.]+)` \| .* \| (HUP|restart) \|$", section, re.MULTILINE))

    assert {name for name, how in said.items() if how == "HUP"} == {
        "queue.max_jobs_per_repo",
        "retention.logs",
        "retention.logs_size",
        "retention.rerun",
        "retention.runs",
    }


def test_every_command_is_documented_with_its_summary_and_no_other() -> None:
    documented = table_below("Commands")

    ours = {usage.split()[1] for usage in documented if usage.startswith("vole ")}
    said = {usage: text for usage, text in documented.items() if not usage.startswith("vole ")}
    assert said == {command.usage: command.summary for command in commands.TABLE}
    assert ours == set(OWN)
