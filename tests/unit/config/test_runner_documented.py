"""The example of runner.yaml in the operator's page is whole and true."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from vole.config import reading, runner
from vole.config.runtimes import Bounds

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def _example() -> str:
    text = PAGE.read_text("utf-8")
    return next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "server: ssh://" in block)


def test_the_example_is_in_order_and_says_what_it_says(tmp_path):
    config = runner.build(reading.parse(_example(), runner.FILE), tmp_path, str)

    assert (config.labels, config.repos, config.slots) == (("linux", "arm64"), ("app", "lib"), 2)
    assert (config.min_free, config.idle_timeout_s) == (1 << 30, 1800.0)


def test_the_example_of_runtimes_is_in_order(tmp_path):
    text = PAGE.read_text("utf-8").split("\n### Runtimes\n", 1)[1]
    example = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]

    small, image, lab = runner.build(reading.parse(example, runner.FILE), tmp_path, str).runtimes

    assert (small.kind, small.bounds, image.kind, image.image) == (
        "sandbox",
        Bounds(1 << 30, 512, 1.5),
        "container",
        "localhost/ci:1",
    )
    assert (lab.address, lab.descriptor_id, lab.max_jobs) == ("unix:///run/vole/gpu.sock", "vole-shell", 2)


def test_every_key_is_in_the_example():
    names = {field.name.removesuffix("_s") for field in dataclasses.fields(runner.RunnerConfig)}

    assert [name for name in sorted(names) if not re.search(rf"\b{name}:", _example())] == []
