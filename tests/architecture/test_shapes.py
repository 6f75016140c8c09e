"""How long things may be, who writes which table, where changes begin, which bounds are used."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict

import pytest

from tests.architecture import layers

MODULES = [module for module in layers.modules() if not module.generated]
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600
ROOM_MODULES_MAX = 8

_WRITES = re.compile(
    r"\b(?:INSERT(?:\s+OR\s+\w+)?\s+INTO|REPLACE\s+INTO|UPDATE|DELETE\s+FROM)\s+([a-z_]+)", re.IGNORECASE
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_says_what_it_owns(module):
    assert ast.get_docstring(module.tree), f"{module.path} begins without a sentence for what it owns"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_is_over_600_lines_and_no_function_over_60(module):
    assert len(module.path.read_text("utf-8").splitlines()) <= MODULE_LINES_MAX
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{module.path}:{node.lineno}: {node.name} has {lines} lines"


def test_a_room_has_at_most_eight_modules_besides_its_rows():
    for room in dict(layers.ROWS)[2]:
        folder = layers.ROOT / room.replace(".", "/")
        names = {
            entry.stem
            for entry in folder.glob("*")
            if (entry.suffix == ".py" or entry.is_dir()) and not entry.stem.startswith("__")
        }
        assert len(names - {"rows"}) <= ROOM_MODULES_MAX, f"{room}: {sorted(names)}"


def test_every_table_is_written_by_one_ledger_alone():
    schema = "".join(path.read_text("utf-8") for path in (layers.ROOT / "vole/store/migrations").glob("*.sql"))
    tables = set(re.findall(r"CREATE TABLE (\w+)", schema))
    writers: defaultdict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for table in _WRITES.findall(node.value):
                    if table in tables:
                        writers[table].add(module.name)

    faults = []
    for table, names in writers.items():
        places = {".".join(name.split(".")[:3]) for name in names}
        if len(places) > 1 or not all(place.endswith((".ledger", ".rows", "vole.store.migrate")) for place in places):
            faults.append(f"{table}: {sorted(names)}")
    assert not faults, "\n".join(faults)


def test_only_flows_begin_a_change():
    faults = []
    for module in MODULES:
        if layers.within(module.name, "vole.flows") or layers.within(module.name, "vole.store"):
            continue
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "write"
                and isinstance(node.func.value, ast.Attribute | ast.Name)
                and (getattr(node.func.value, "attr", None) or getattr(node.func.value, "id", ""))
                in ("db", "_db", "database")
            ):
                faults.append(f"{module.path}:{node.lineno}")
    assert not faults, "\n".join(faults)


def test_no_task_is_started_outside_supervision_and_the_doors():
    allowed = ("vole.base.supervise", "vole.ssh", "vole.web", "vole_runner")
    faults = []
    for module in MODULES:
        if any(layers.within(module.name, part) for part in allowed):
            continue
        for node in ast.walk(module.tree):
            # A task of a TaskGroup is held by its group; `asyncio.create_task` is held by nobody.
            if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                owner = node.value
                if isinstance(owner, ast.Name) and owner.id in ("asyncio", "loop"):
                    faults.append(f"{module.path}:{node.lineno}")
    assert not faults, "\n".join(faults)


def test_no_file_is_opened_in_a_thread_that_nobody_may_wait_for():
    """Cancelled while the thread opens it, a task never gets the file, and nobody closes it."""
    opens = re.compile(r"(?:to_thread|run_in_executor)\((?:None, )?(?:[\w.]+\.)?_?(?:open|opened|fdopen)\b")
    faults = [module.path for module in MODULES if opens.search(module.path.read_text("utf-8"))]
    assert not faults, faults


def test_every_bound_is_used():
    limits = (layers.ROOT / "vole/base/limits.py").read_text("utf-8")
    names = re.findall(r"^([A-Z][A-Z0-9_]+)(?:: \w+)? =", limits, re.MULTILINE)
    rest = "\n".join(m.path.read_text("utf-8") for m in MODULES if m.name != "vole.base.limits")
    inside = Counter(re.findall(r"\w+", limits))
    used = set(re.findall(r"\blimits\.(\w+)", rest))

    unused = [name for name in names if inside[name] < 2 and name not in used]

    assert not unused, f"bounds that nothing uses: {unused}"


def test_every_bound_has_a_reason_or_stands_under_a_heading():
    lines = (layers.ROOT / "vole/base/limits.py").read_text("utf-8").splitlines()
    faults = []
    for at, line in enumerate(lines):
        if re.match(r"[A-Z][A-Z0-9_]+(: \w+)? = ", line) and "#" not in line:
            above = [other for other in lines[:at] if other.startswith("# ") or not other]
            if not above or not above[-1].startswith("# "):
                faults.append(line)
    assert not faults, faults


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_broad_excepts_stand_in_doors_and_supervision_alone(module):
    doors = ("vole.ssh", "vole.web", "vole.nodewire", "vole_runner", "vole.cli", "vole.app")
    edges = ("vole.store", "vole.base.supervise", "vole.base.offload", "vole.base.offload_child")
    if any(layers.within(module.name, part) for part in (*doors, *edges)):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            named = getattr(node.type, "id", "") if node.type is not None else "everything"
            reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
            assert reraises or named not in ("everything", "Exception", "BaseException"), f"{module.path}:{node.lineno}"


def test_the_project_speaks_of_itself_alone():
    words = re.compile(
        r"(?<![\w.~-])/work/|/shared/spec|\.library|farm-|/tmp/brief|\bissue \d|\bCLAUDE\b|registry\.npmjs|pypi\.org",
        re.IGNORECASE,
    )
    faults = []
    for path in layers.ROOT.rglob("*"):
        inside = path.relative_to(layers.ROOT).parts
        if not path.is_file() or inside[0] in (".git", ".venv", "dist", ".bench") or path.suffix in (".pyc", ".lock"):
            continue
        if ".cache" in path.as_posix() or "_cache" in path.as_posix() or ".hypothesis" in inside:
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for at, line in enumerate(text.splitlines(), 1):
            if words.search(line) and path.name != "test_shapes.py":
                faults.append(f"{path.relative_to(layers.ROOT)}:{at}: {line.strip()[:100]}")
    assert not faults, "\n".join(faults)
