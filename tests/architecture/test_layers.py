"""Imports only go down, along no row, and each library is imported in its home alone."""

from __future__ import annotations

import pytest

from tests.architecture import layers

MODULES = layers.modules()
OURS = {module.name for module in MODULES}


def _ours(name: str) -> str | None:
    """The module of ours that an imported name belongs to."""
    while name:
        if name in OURS:
            return name
        name = name.rpartition(".")[0]
    return None


def _fault_of_row(importer: str, imported: str) -> str | None:
    mine, theirs = layers.row_of(importer), layers.row_of(imported)
    assert mine is not None
    if theirs is None:
        return "is a program that runs elsewhere"
    if mine[1] == theirs[1] or theirs[0] < mine[0] or (importer, theirs[1]) == ("vole.__main__", "vole.cli"):
        return None
    return f"is on row {theirs[0]}, and {mine[1]} on row {mine[0]}: imports only go down"


def _fault_of_program(program: str, imported: str) -> str | None:
    allowed = [program, *layers.AWAY[program]]
    # The version is the one name that everything may read.
    if imported == "vole" or any(layers.within(imported, part) for part in allowed):
        return None
    return f"is not among {', '.join(allowed)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_module_has_a_place_on_the_map(module):
    assert module.name in ("vole", "vole_runner") or layers.row_of(module.name) or layers.away_of(module.name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_imports_only_go_down(module):
    faults = []
    for line, name in module.imports():
        imported = _ours(name)
        if imported is None or imported == "vole":
            continue
        program = layers.away_of(module.name)
        fault = _fault_of_program(program, imported) if program else _fault_of_row(module.name, imported)
        if fault:
            faults.append(f"{module.path}:{line}: {imported} {fault}")

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_library_is_imported_in_its_home_alone(module):
    faults = []
    for line, name in module.imports():
        homes = layers.HOMES.get(name.partition(".")[0])
        if homes is not None and not any(layers.within(module.name, home) for home in homes):
            faults.append(f"{module.path}:{line}: {name.partition('.')[0]} lives in {', '.join(homes)}")

    assert not faults, "\n".join(faults)


def _inner_order(name: str) -> int | None:
    """Inside a room: model <- rules <- rows <- ledger, reads, logs, artifacts."""
    leaf = name.split(".")[2] if name.count(".") >= 2 else None
    if leaf is None:
        return None
    return {"model": 0, "rows": 2, "ledger": 3, "reads": 3, "logs": 3, "artifacts": 3}.get(leaf, 1)


@pytest.mark.parametrize(
    "module", [m for m in MODULES if (layers.row_of(m.name) or (0,))[0] == 2], ids=lambda m: m.name
)
def test_inside_a_room_rules_do_not_import_what_touches_the_world(module):
    mine = _inner_order(module.name)
    part = layers.row_of(module.name)[1]
    faults = [
        f"{module.path}:{line}: {name}"
        for line, name in module.imports()
        if mine is not None
        and mine < 2
        and (theirs := _ours(name))
        and layers.within(theirs, part)
        and (_inner_order(theirs) or 0) >= 2
    ]

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "module", [m for m in MODULES if (layers.row_of(m.name) or (0,))[0] == 4], ids=lambda m: m.name
)
def test_a_door_never_imports_a_ledger(module):
    faults = [f"{module.path}:{line}: {name}" for line, name in module.imports() if "ledger" in name.split(".")]

    assert not faults, "\n".join(faults)


def test_the_document_shows_the_map_that_the_test_holds():
    document = (layers.ROOT / "docs" / "architecture.md").read_text("utf-8")

    assert layers.rows_as_text() in document
    assert layers.homes_as_text() in document
