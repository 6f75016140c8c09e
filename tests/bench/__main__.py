"""`python -m tests.bench [--only push 6b] [--scale 0.5]`: measures, prints a table, asserts nothing.

Ratios mean little while others keep the machine busy; `chrt -r 1` before the command keeps them out of the way, and
stops them meanwhile. Exits with 1 if a row could not be measured, whatever the ratios of the others are.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from types import ModuleType

from tests.bench.bench import Bench
from tests.bench.figures import Outcome, Unmeasured, table
from tests.bench.machine import Children, MissingError, cache_folder, work_folder

GROUPS = ("push", "bulk", "queue", "million", "build", "builds", "connections", "pages", "logs")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="vole and its peers, interleaved.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="groups or rows; all without it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the usual number of rounds")
    options = parser.parse_args()
    only = set(options.only)
    groups = {name: importlib.import_module(f"tests.bench.{name}") for name in GROUPS}
    chosen = [name for name in GROUPS if not only or name in only or only & _rows(groups[name])]
    if unknown := only - set(GROUPS) - {row for group in groups.values() for row in _rows(group)}:
        parser.error(f"no group or row {', '.join(sorted(unknown))}; groups: {', '.join(GROUPS)}")
    outcomes: list[Outcome] = []
    for name in chosen:
        begin = time.monotonic()
        outcomes.extend(_measured(groups[name], options.scale))
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    print(
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; median (min..max)\n"
    )
    print(table(outcomes))
    return 1 if any(isinstance(outcome, Unmeasured) for outcome in outcomes) else 0


def _rows(group: ModuleType) -> set[str]:
    return {target.row for target in group.TARGETS}


def _measured(group: ModuleType, scale: float) -> Iterator[Outcome]:
    """The group's outcomes. What it did not come to is said with the reason; its processes have ended then."""
    left = list(group.TARGETS)
    with work_folder() as work:
        children = Children(work)
        try:
            for outcome in group.measure(Bench(work, cache_folder(), children, scale)):
                left.remove(outcome.target)
                yield outcome
        except MissingError as missing:
            yield from (Unmeasured(target, str(missing)) for target in left)
        except Exception as fault:
            traceback.print_exc()
            _show_logs(children)
            yield from (Unmeasured(target, str(fault)[:200]) for target in left)
        finally:
            children.end_all()


def _show_logs(children: Children) -> None:
    """The last lines of each child, since their folder goes."""
    for log in sorted(children.log_folder.glob("*.log")):
        last = [line[:500] for line in log.read_text(errors="replace").splitlines()[-5:]]
        print(f"--- {log.name}", *last, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
