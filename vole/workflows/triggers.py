"""What starts what: filters, the words that skip CI, push options, inputs. Pure; the caller knows what changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from vole.base import globs, limits
from vole.base.errors import Invalid
from vole.base.escape import visible
from vole.base.labels import nearest
from vole.wire.plan import EventFacts, Scalar
from vole.workflows.model import ChangedPaths, Decision, Input, PushFilter, Workflow

_SKIP_WORDS = ("[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]")
_SKIP_TRAILER = re.compile(r"skip-checks:[ \t]*true[ \t]*")
_TRAILER = re.compile(r"[A-Za-z0-9-]+:.*|[ \t]+\S.*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OPTIONS = ("ci.skip", "ci.variable", "ci.verbose", "ci.wait")


def decide(workflow: Workflow, event: EventFacts, changed: Callable[[], ChangedPaths]) -> Decision:
    """What `workflow` does about `event`. `changed` is asked only when a path filter has to know; it may be slow.

    `none`: the workflow does not listen to this kind of ref. `skip`: it does, and a filter rejects this one.
    """
    if event.name != "push":
        return Decision("run")
    push = workflow.push
    if push is None or not _listens(push, event.ref_type):
        return Decision("none")
    if not _ref_passes(push, event):
        return Decision(
            "skip", f"{workflow.path}: on.push.{_plural(event.ref_type)} leaves out {visible(event.ref_name, 80)}"
        )
    if event.ref_type == "tag" or (push.paths is None and push.paths_ignore is None):
        return Decision("run")
    return _by_paths(workflow.path, push, changed())


def skip_ci(message: str) -> bool:
    """Whether the head commit's `message` asks for no run. It counts on branch pushes only, never on tags."""
    if any(word in message for word in _SKIP_WORDS):
        return True
    paragraphs = re.split(r"\n[ \t]*\n", message.strip("\n"))
    last = paragraphs[-1].splitlines() if len(paragraphs) > 1 else []
    return all(map(_TRAILER.fullmatch, last)) and any(map(_SKIP_TRAILER.fullmatch, last))


@dataclass(frozen=True)
class PushOptions:
    """What `git push -o …` asked for."""

    skip: bool = False
    verbose: bool = False
    wait: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # one for each option that has no meaning here


def given_inputs(declared: Iterable[Input], given: Mapping[str, str]) -> dict[str, Scalar]:
    """What a person said, by the types of the workflow. Raises Invalid with every problem, each naming its input."""
    known = {one.name: one for one in declared}
    problems = [_no_input(name, known) for name in given if name not in known]
    values: dict[str, Scalar] = {}
    for one in known.values():
        text = given.get(one.name, one.default)
        if problem := _input_problem(one, text):
            problems.append(visible(f"input {one.name}: {problem}", limits.PROBLEM_CHARS_MAX))
        values[one.name] = one.value(text)
    if problems:
        raise Invalid("nothing was started: the inputs above have problems", problems=tuple(problems))
    return values


def _no_input(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    there = f"there are: {', '.join(known)}" if known else "this workflow has no inputs"
    return visible(f"input {name[:60]}: there is none; " + (f"did you mean '{close}'?" if close else there))


def _input_problem(one: Input, text: str) -> str | None:
    if one.required and not text:
        return "it is required, and nothing was said"
    if len(text) > limits.INPUT_CHARS_MAX:
        return f"{len(text)} characters; at most {limits.INPUT_CHARS_MAX} (INPUT_CHARS_MAX)"
    if "\0" in text:
        return "a value holds no NUL"
    if one.type == "boolean" and text not in ("true", "false"):
        return f"{text[:60]!r} is neither true nor false"
    if one.type == "choice" and text and text not in one.options:
        close = nearest(text, one.options)
        return f"{text[:60]!r} is none of {', '.join(one.options)}" + (f"; did you mean '{close}'?" if close else "")
    return None


def push_options(texts: Iterable[str]) -> PushOptions:
    """The options of a push. Nothing is refused: what has no meaning becomes a notice, and is not acted on."""
    flags: set[str] = set()
    variables: dict[str, str] = {}
    notices: list[str] = []
    for text in texts:
        name, given, value = text.partition("=")
        if name == "ci.variable":
            notices += _take_variable(value, variables)
        elif name in _OPTIONS and not given:
            flags.add(name)
        else:
            close = nearest(name, _OPTIONS)
            remedy = f"did you mean {close}?" if close else f"there are {', '.join(_OPTIONS)}"
            notices.append(visible(f"push option {text[:80]!r} has no meaning here; {remedy}"))
    return PushOptions("ci.skip" in flags, "ci.verbose" in flags, "ci.wait" in flags, variables, tuple(notices))


def env_name_problem(name: str) -> str | None:
    """Why `name` cannot be set by a workflow or a push option, None when it can."""
    if not _VARIABLE.fullmatch(name):
        rule = "1 to 128 of A-Z a-z 0-9 _, not beginning with a digit"
        return f"{name[:60]!r} is no variable's name: {rule}"
    if name.startswith(("VOLE_", "RUNNER_")) or name in ("CI", "VOLE"):
        return f"{name[:60]!r}: CI, VOLE, VOLE_… and RUNNER_… are set by vole; choose another name"
    return None


def _take_variable(text: str, variables: dict[str, str]) -> list[str]:
    name, given, value = text.partition("=")
    problem = env_name_problem(name) if given else "write ci.variable=NAME=VALUE"
    if problem is None and "\0" in value:
        problem = "a value holds no NUL"
    if problem:
        return [visible(f"push option ci.variable is not set: {problem}")]
    variables[name] = value
    return []


def _plural(ref_type: str) -> str:
    return "branches" if ref_type == "branch" else "tags"


def _listens(push: PushFilter, ref_type: str) -> bool:
    """Only branch filters: tags are not meant; only tag filters: branches are not."""
    branches = push.branches is not None or push.branches_ignore is not None
    tags = push.tags is not None or push.tags_ignore is not None
    return branches == tags or (branches if ref_type == "branch" else tags)


def _ref_passes(push: PushFilter, event: EventFacts) -> bool:
    only, ignore = (
        (push.branches, push.branches_ignore) if event.ref_type == "branch" else (push.tags, push.tags_ignore)
    )
    if only is not None:
        return globs.match(only, event.ref_name)
    return ignore is None or not globs.match(ignore, event.ref_name)


def _by_paths(path: str, push: PushFilter, changed: ChangedPaths) -> Decision:
    if changed.paths is None or _too_many(changed.paths):
        most = limits.CHANGED_PATHS_MAX
        unknown = f"{path}: more than {most} changed paths or very long ones; its path filter counts as matched"
        return Decision("run", changed.notice or unknown)
    if push.paths is not None:
        passes = any(globs.match(push.paths, changed_path) for changed_path in changed.paths)
    else:
        passes = not all(globs.match(push.paths_ignore or (), changed_path) for changed_path in changed.paths)
    if passes:
        return Decision("run", changed.notice)
    compared = f" ({changed.notice})" if changed.notice else ""
    return Decision("skip", f"{path}: no changed path passes its path filter{compared}")


def _too_many(paths: tuple[str, ...]) -> bool:
    return len(paths) > limits.CHANGED_PATHS_MAX or sum(map(len, paths)) > limits.CHANGED_PATH_CHARS_MAX
