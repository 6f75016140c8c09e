"""Where programs are started, and how the git ones are spelt."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from vole.git import service

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "vole").rglob("*.py"), *(ROOT / "runner").rglob("*.py")])
STARTERS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
STARTERS |= {"create_subprocess_exec", "subprocess_exec"}
SHELLS = {"system", "popen", "create_subprocess_shell", "subprocess_shell", "getoutput", "getstatusoutput"}
# Each is the one builder of its program. `version` asks git its version; `demo` and `run` are clients of their own.
BUILDERS = {
    "vole/git/service.py", "vole/git/version.py", "vole/base/offload.py",
    "vole/cli/demo.py", "vole/cli/running.py", "vole/cli/temporary.py",
    "runner/vole_runner/source.py", "runner/vole_runner/harness/processes.py",
    *(f"runner/vole_runner/runtimes/{name}.py" for name in ("child", "sandbox", "container")),
}  # fmt: skip


def calls(path: Path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def name_of(call: ast.Call) -> tuple[str, str]:
    """What is called, and on what."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr, ast.unparse(call.func.value)
    return (call.func.id, "") if isinstance(call.func, ast.Name) else ("", "")


def starts_a_program(call: ast.Call) -> bool:
    name, on = name_of(call)
    if on == "os":
        return name.startswith(("exec", "spawn", "posix_spawn")) or name in SHELLS
    if name in ("create_subprocess_exec", "subprocess_exec", "create_subprocess_shell", "subprocess_shell"):
        return True
    return on == "subprocess" and name in STARTERS


@pytest.mark.proves("SR-09")
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_is_started_by_its_one_builder_and_never_through_a_shell(path):
    if str(path.relative_to(ROOT)).startswith("runner/vole_runner/harness/"):
        pytest.skip("the harness runs the steps of jobs, which are shell scripts by definition")
    started = [call for call in calls(path) if starts_a_program(call)]

    assert not started or str(path.relative_to(ROOT)) in BUILDERS
    for call in started:
        assert name_of(call)[0] not in SHELLS
        assert not any(keyword.arg == "shell" for keyword in call.keywords)


@pytest.mark.proves("SR-09")
def test_every_operand_of_a_git_call_stands_behind_the_end_of_options():
    built = [call for call in calls(Path(service.__file__)) if name_of(call) == ("command", "")]

    assert len(built) >= 6
    for call in built:
        verb, *words = call.args[1:]
        assert isinstance(verb, ast.Constant)
        ended = False
        for word in words:
            ended = ended or (isinstance(word, ast.Constant) and word.value == "--end-of-options")
            # Flags that are chosen are tuples of constants, starred in.
            assert ended or isinstance(word, (ast.Constant, ast.Starred)), ast.unparse(call)


@pytest.mark.proves("SR-09")
def test_a_git_call_is_a_list_that_begins_with_the_program_and_our_settings():
    argv = service.command(("a.b=c d",), "cat-file", "--end-of-options", "x; id")

    assert argv == [service.program(), "-c", "a.b=c d", "cat-file", "--end-of-options", "x; id"]


@pytest.mark.proves("SR-04")
@pytest.mark.parametrize(
    ("value", "kept"), [("version=2", True), ("version=0", True), ("version=9", False), (None, False)]
)
def test_the_environment_of_a_git_child_is_a_list(value, kept):
    names = set(service.environment(value))

    assert ("GIT_PROTOCOL" in names) is kept
    assert names - {"GIT_PROTOCOL"} == {
        "PATH", "HOME", "LC_ALL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL",
        "GIT_NO_REPLACE_OBJECTS", "GIT_TERMINAL_PROMPT",
    }  # fmt: skip
