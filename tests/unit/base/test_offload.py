"""Hostile work in children: what they cannot do, and that a refusal by name is the worst that comes of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from tests.aio import run
from tests.unit.workflows.files import a_file, with_
from vole.base import limits
from vole.base.errors import Exhausted, Invalid, Unavailable
from vole.base.offload import Offload
from vole.workflows import checks
from vole.workflows.checks import parse

DEEDS = "tests.unit.base.offload_deeds"


def _with_offload(story: Callable[[Offload], Awaitable[None]], *, may_read: bool = False) -> None:
    async def whole() -> None:
        offload = Offload(DEEDS, "vole.workflows.checks", may_read=may_read)
        await offload.start()
        try:
            await story(offload)
        finally:
            await offload.close()

    run(whole())


async def _pids(offload: Offload) -> set[int]:
    return {await offload.call(f"{DEEDS}:pid", None) for _ in range(limits.OFFLOAD_CHILDREN)}


def test_a_call_gives_what_the_function_gives() -> None:
    async def story(offload: Offload) -> None:
        assert await asyncio.gather(*(offload.call(f"{DEEDS}:double", at) for at in range(20))) == [*range(0, 40, 2)]

    _with_offload(story)


def test_work_is_done_in_two_processes_that_are_not_ours() -> None:
    async def story(offload: Offload) -> None:
        pids = await _pids(offload)
        assert len(pids) == limits.OFFLOAD_CHILDREN == 2
        assert os.getpid() not in pids
        assert await _pids(offload) == pids

    _with_offload(story)


def test_a_child_runs_the_very_code_of_the_server() -> None:
    async def story(offload: Offload) -> None:
        assert await offload.call(f"{DEEDS}:source", "vole.workflows.checks") == checks.__file__

    _with_offload(story)


def test_a_refusal_in_the_child_is_the_same_refusal_here() -> None:
    async def story(offload: Offload) -> None:
        with pytest.raises(Invalid, match="this is wrong") as refusal:
            await offload.call(f"{DEEDS}:refuse", "this is wrong")
        assert refusal.value.code == "bad_thing"

    _with_offload(story)


def test_a_bug_in_the_child_is_no_refusal() -> None:
    async def story(offload: Offload) -> None:
        with pytest.raises(RuntimeError, match="KeyError"):
            await offload.call(f"{DEEDS}:crash", "x")
        assert await offload.call(f"{DEEDS}:double", 2) == 4

    _with_offload(story)


@pytest.mark.proves("SR-17")
@pytest.mark.parametrize(
    ("deed", "argument", "kind", "words"),
    [
        ("spin", None, Exhausted, "OFFLOAD_CPU_S|OFFLOAD_WALL_S"),  # on a busy machine the wall clock is first
        ("swallow", 1 << 29, Exhausted, "OFFLOAD_MEMORY_BYTES"),
        ("die", signal.SIGKILL, Unavailable, "died"),
        ("die", signal.SIGSEGV, Unavailable, "died"),
        ("leave", 0, Unavailable, "died"),
    ],
)
def test_a_child_that_dies_or_is_late_is_a_refusal_by_name_and_the_next_call_works(
    deed: str, argument: object, kind: type[Exception], words: str
) -> None:
    async def story(offload: Offload) -> None:
        before = await _pids(offload)
        with pytest.raises(kind, match=words):
            await offload.call(f"{DEEDS}:{deed}", argument)
        assert await asyncio.gather(*(offload.call(f"{DEEDS}:double", at) for at in range(4))) == [0, 2, 4, 6]
        assert len(await _pids(offload) - before) == 1

    _with_offload(story)


@pytest.mark.proves("SR-17")
def test_each_call_has_at_most_two_seconds_of_processor_time_however_long_the_child_lives() -> None:
    async def story(offload: Offload) -> None:
        before = await _pids(offload)
        for _ in range(5):  # 2.5 s for each child: more than one call may have
            left = await asyncio.gather(*(offload.call(f"{DEEDS}:processor_left", 0.5) for _ in before))
            assert all(0.9 < seconds <= limits.OFFLOAD_CPU_S for seconds in left)
        assert await _pids(offload) == before

    _with_offload(story)


@pytest.mark.proves("SR-17")
@pytest.mark.needs("userns")
def test_a_child_opens_no_file_no_socket_and_no_process() -> None:
    async def story(offload: Offload) -> None:
        assert offload.missing == ()
        found = await offload.call(f"{DEEDS}:rights", None)
        assert found == {
            "read": "OSError 24",
            "write": "FileNotFoundError 2" if found["write"].startswith("File") else "OSError 24",
            "socket": "OSError 24",
            "fork": "BlockingIOError 11",
            "environment": "done",
        }

    _with_offload(story)


@pytest.mark.proves("SR-17")
@pytest.mark.needs("userns")
def test_a_child_that_may_read_still_has_no_network_and_starts_nothing() -> None:
    async def story(offload: Offload) -> None:
        found = await offload.call(f"{DEEDS}:rights", None)
        assert found["read"] == "done"
        assert found["environment"] == "done"
        assert await offload.call(f"{DEEDS}:network", None) == ["lo"]

    _with_offload(story, may_read=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to lay down")
def test_a_child_of_root_is_not_root() -> None:
    async def story(offload: Offload) -> None:
        euid, own_group = await offload.call(f"{DEEDS}:identity", None)
        assert euid != 0
        assert own_group

    _with_offload(story)


def test_what_the_work_prints_is_no_answer() -> None:
    async def story(offload: Offload) -> None:
        assert await offload.call(f"{DEEDS}:shout", "\x00\x00\x00\x02{}") == "\x00\x00\x00\x02{}"
        assert await offload.call(f"{DEEDS}:double", 1) == 2

    _with_offload(story)


def test_an_answer_over_its_bound_is_refused() -> None:
    async def story(offload: Offload) -> None:
        assert len(await offload.call(f"{DEEDS}:large", 1 << 20)) == 1 << 20
        with pytest.raises(Exhausted, match="OFFLOAD_ANSWER_BYTES_MAX"):
            await offload.call(f"{DEEDS}:large", limits.OFFLOAD_ANSWER_BYTES_MAX + 1)
        assert await offload.call(f"{DEEDS}:double", 1) == 2

    _with_offload(story)


def test_a_caller_that_leaves_in_the_middle_leaves_no_busy_child_behind() -> None:
    async def story(offload: Offload) -> None:
        before = await _pids(offload)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await offload.call(f"{DEEDS}:spin", None)
        assert len(await _pids(offload) - before) == 1

    _with_offload(story)


def test_a_child_is_replaced_after_its_calls() -> None:
    async def story(offload: Offload) -> None:
        before = await _pids(offload)
        for _ in range(limits.OFFLOAD_CALLS_MAX * limits.OFFLOAD_CHILDREN):
            await offload.call(f"{DEEDS}:double", 1)
        assert not await _pids(offload) & before

    _with_offload(story)


def test_closing_ends_the_children() -> None:
    async def story() -> None:
        offload = Offload(DEEDS)
        await offload.start()
        pids = await _pids(offload)
        await offload.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    run(story())


def test_a_child_that_cannot_start_is_unavailable() -> None:
    async def story() -> None:
        offload = Offload("no.such.module")
        with pytest.raises(Unavailable, match="died"):
            await offload.start()
        await offload.close()

    run(story())


# ---- The parser in its child


@pytest.mark.proves("SR-16")
def test_the_check_in_a_child_says_what_the_check_here_says() -> None:
    files = (
        a_file(with_("job", "strategy: {matrix: {a: [x, true]}}", "runs-on: linux"), "a.yml"),
        a_file(with_("job", "runs-on: Linux", "stpes: []"), "b.yml"),
        a_file(b"\xff", "c.yml"),
        a_file(b"", "d.yml", 0o120000),
        a_file(b"", "README.md"),
    )

    async def story(offload: Offload) -> None:
        assert await checks.check(offload, files, frozenset()) == parse(files)
        assert await checks.check(offload, files[:1], frozenset({"linux"})) == parse(files[:1])
        assert await checks.check(offload, (), frozenset()) == parse(())
        lnux = (a_file(with_("job", "runs-on: lnux")),)
        assert (await checks.check(offload, lnux, frozenset({"linux"}))).problems[0].code == "W021"

    _with_offload(story)


def test_many_large_files_are_checked_in_several_calls() -> None:
    line = "  j%d: {steps: [{run: " + "x" * 2_000 + "}]}\n"
    large = "jobs:\n" + "".join(line % at for at in range(30))
    files = tuple(a_file(large, f"f{at}.yml") for at in range(16))

    async def story(offload: Offload) -> None:
        result = await checks.check(offload, files, frozenset())
        assert len(result.workflows) == 16
        assert result == parse(files)

    _with_offload(story)


BOMBS = {
    "26 doubling merge keys": "a0: &a0 {x: y}\n"
    + "".join(f"a{at}: &a{at} {{<<: [*a{at - 1}, *a{at - 1}]}}\n" for at in range(1, 27)),
    "nested aliases": "a0: &a0 [x]\n" + "".join(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]\n" for at in range(1, 27)),
    "nesting 500": "[" * 500 + "]" * 500,
    "bad int": "a: !!int ''",
    "bad date": "a: !!timestamp 2026-13-45",
    "5,000 digits": "a: !!int " + "9" * 5_000,
    "bad bool": "a: !!bool x",
    "bad timestamp": "a: !!timestamp x",
    "hidden line": "jobs: # \u2028runs-on: prod",
    "UTF-16": "jobs: {}".encode("utf-16"),
    "a file of flow brackets": "[" * 60_000,
    "a file of mapping indicators": "? " * 30_000,
    "a file of quotes": '"' * 60_000,
    "a file of anchors": "&a " * 20_000,
    "a file of stars": "a: [" + "*a, " * 15_000,
    "many keys on one line": "{" + ", ".join(f"k{at}: v" for at in range(6_000)) + "}",
    "long key": "k" * 60_000 + ": x",
    "expressions": "env: {A: '" + "${{ github.sha }}" * 3_000 + "'}",
    "stars in a pattern": "on: {push: {branches: ['" + "*a" * 250 + "']}}",
}


@pytest.mark.proves("SR-17", "SR-18")
def test_bombs_are_refused_within_the_limits_of_a_child() -> None:
    async def story(offload: Offload) -> None:
        before = await _pids(offload)
        for name, content in BOMBS.items():
            result = await checks.check(offload, (a_file(content),), frozenset({"linux"}))
            assert result.problems, name
        assert await _pids(offload) == before  # not one of them cost a child its life

    _with_offload(story)
