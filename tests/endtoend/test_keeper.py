"""The keeper's main story on real SSH with real harnesses, before a queue in memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.aio import run
from tests.harness_host import a_harness
from tests.unit.runner.desk import a_runner, folder_names, log_of
from tests.unit.runner.forge import a_forge, a_repository
from vole.base.errors import Unavailable
from vole.wire import runner
from vole.wire.plan import ArtifactPlan, NeededArtifact, StepPlan
from vole_runner.runtimes.remote import RemoteRuntime


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_job_is_run_from_its_commit_and_its_log_and_result_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"hello.txt": b"hello from git\n"}])

            lease = forge.offer("cat hello.txt", "git status --short; git rev-parse HEAD", commit=commit)
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert (result.conclusion, [step.conclusion for step in result.steps]) == ("success", ["success"] * 2)
            assert "hello from git\n" in log_of(forge, lease)
            assert commit in log_of(forge, lease)
            assert result.log.bytes == len(forge.queue.logs[lease])
            marks = [mark for word in forge.queue.words(runner.Marks) for mark in word.marks]
            assert [(mark.step, mark.kind) for mark in marks] == [(1, "begin"), (1, "end"), (2, "begin"), (2, "end")]

    run(story())


def test_started_is_said_before_the_source_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])

            lease = forge.offer("true", commit=commit)
            await forge.queue.until(lambda: forge.queue.asked_sources)

            assert forge.queue.words(runner.Started) == [runner.Started(lease.job, lease.epoch)]

    run(story())


def test_a_failed_step_is_a_failed_job_with_its_exit_code(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])

            lease = forge.offer("exit 3", "echo never", commit=commit)
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert (result.conclusion, result.steps[0].exit_code) == ("failure", 3)
            assert result.steps[1].conclusion == "skipped"

    run(story())


@pytest.mark.proves("SR-32")
def test_nothing_of_a_job_is_there_for_the_next_one_or_afterwards(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge) as running:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            dirty = "echo secret > left; mkdir ro; echo x > ro/f; chmod 500 ro; echo t > $RUNNER_TEMP/t"

            first = forge.offer(dirty, commit=commit)
            second = forge.offer("ls -A; ls -A $RUNNER_TEMP", commit=commit)
            await forge.queue.until(lambda: second in forge.queue.finished)

            assert forge.queue.finished[first].conclusion == "success"
            printed = log_of(forge, second).splitlines()[1:]
            assert printed == [".git", "a"]
            await forge.queue.until(lambda: len(folder_names(running.folders.root / "attempts")) == 1)
            (spare,) = (running.folders.root / "attempts").iterdir()
            assert list(spare.iterdir()) == []
            assert folder_names(running.folders.root / "spool") == []

    run(story())


@pytest.mark.proves("SR-31", "SR-35")
def test_a_cancelled_job_ends_with_every_process_of_its_step(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            stubborn = (
                "trap '' TERM; (trap '' TERM; setsid sh -c 'echo $$ >pid2; trap \"\" TERM; while :; do sleep 1; done')&"
                " while [ ! -s pid2 ]; do sleep 0.01; done; echo pids $$ $(cat pid2); while :; do sleep 1; done"
            )

            lease = forge.offer(stubborn, commit=commit)
            await forge.queue.until(lambda: "pids" in log_of(forge, lease).partition("run.sh\n")[2])
            line = next(line for line in log_of(forge, lease).splitlines() if line.startswith("pids"))
            pids = [int(word) for word in line.split()[1:]]
            forge.queue.order(runner.Cancel(lease.job, lease.epoch, "cancelled", 0.2))
            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert forge.queue.finished[lease].conclusion == "cancelled"
            assert [pid for pid in pids if alive(pid)] == []

    run(story())


@pytest.mark.proves("SR-35")
def test_a_fenced_job_ends_and_reports_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path, ttl_s=60.0) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))
            pid = int(log_of(forge, lease).split("pid ")[1].split()[0])

            forge.queue.fence(lease)
            forge.queue.order(runner.FencedLease(lease.job, lease.epoch))
            await forge.queue.until(lambda: len(forge.queue.words(runner.Want)) == 2)

            assert not alive(pid)
            assert forge.queue.words(runner.Finish) == []
            assert forge.queue.words(runner.Handback) == []

    run(story())


@pytest.mark.proves("I-25", "SR-35")
def test_a_cut_off_keeper_ends_its_step_tree_within_the_ttl(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path, ttl_s=6.0) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))
            pid = int(log_of(forge, lease).split("pid ")[1].split()[0])
            loop = asyncio.get_running_loop()

            await forge.shut()
            cut_at = loop.time()
            while alive(pid):
                await asyncio.sleep(0.05)
                assert loop.time() < cut_at + 6.0

            assert loop.time() > cut_at + 1.0  # it did not end just because the link was lost

    run(story())


def test_a_job_outlives_a_lost_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo one; while [ ! -e ../../go ]; do sleep 0.05; done; echo two", commit=commit)
            await forge.queue.until(lambda: "one\n" in log_of(forge, lease))

            forge.drop()
            await forge.queue.until(lambda: len(forge.queue.sessions) == 2)
            (tmp_path / "work" / "attempts" / "go").touch()
            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert log_of(forge, lease).endswith("one\ntwo\n")
            assert forge.queue.finished[lease].conclusion == "success"
            assert len(forge.queue.words(runner.Started)) == 1
            assert forge.queue.sessions[0].hello.incarnation == forge.queue.sessions[1].hello.incarnation

    run(story())


@pytest.mark.proves("SR-35")
def test_a_superseded_runner_ends_its_steps_and_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge) as running:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))
            pid = int(log_of(forge, lease).split("pid ")[1].split()[0])

            forge.queue.order(runner.Refused(runner.Refusal.SUPERSEDED, "another process has its place"))

            assert await running.ended == 5
            assert not alive(pid)
            assert forge.queue.words(runner.Finish) == []

    run(story())


def test_a_want_is_asked_again_with_the_same_token(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            await forge.queue.until(lambda: forge.queue.words(runner.Want))

            forge.drop()
            await forge.queue.until(lambda: len(forge.queue.words(runner.Want)) == 2)

            first, second = forge.queue.words(runner.Want)
            assert first == second

    run(story())


def test_a_result_that_found_no_connection_is_sent_on_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            gate = tmp_path / "work" / "attempts" / "go"
            lease = forge.offer("echo on; while [ ! -e ../../go ]; do sleep 0.05; done", commit=commit)
            await forge.queue.until(lambda: "on\n" in log_of(forge, lease))

            await forge.shut()
            gate.touch()
            await forge.listen()
            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert forge.queue.finished[lease].conclusion == "success"

    run(story())


@pytest.mark.proves("I-34")
def test_a_log_that_the_forge_has_lost_the_end_of_is_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            forge.queue.forget_after = 7

            lease = forge.offer("echo whole", commit=commit)
            await forge.queue.until(lambda: len(forge.queue.words(runner.Finish)) == 2)

            first, second = forge.queue.words(runner.Finish)
            assert first == second
            assert log_of(forge, lease).endswith("whole\n")

    run(story())


def test_a_renewal_carries_step_and_log_length(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path, ttl_s=6.0) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo on", "sleep 60", commit=commit)

            def last() -> tuple[int, ...]:
                words = [renewal for word in forge.queue.words(runner.Renew) for renewal in word.leases]
                return (words[-1].job, words[-1].epoch, words[-1].step, words[-1].log_bytes) if words else ()

            await forge.queue.until(lambda: last() == (lease.job, lease.epoch, 2, len(forge.queue.logs[lease])))

    run(story())


def test_a_masked_value_leaves_in_no_log_output_or_annotation(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            script = (
                "s=$(printf '%s%s' hunter2- secret); echo ::add-mask::$s; echo it is $s; echo -n $s | base64\n"
                'echo "k=$s" >> $VOLE_OUTPUT; echo "::warning::leak $s"; echo "sum $s" >> $VOLE_SUMMARY'
            )
            step = StepPlan(script, 1, id="make")

            lease = forge.offer(step, commit=commit, outputs={"k": "${{ steps.make.outputs.k }}"})
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert "hunter2-secret" not in log_of(forge, lease)
            assert "it is ***" in log_of(forge, lease)
            assert "aHVudGVyMi1zZWNyZXQ" not in log_of(forge, lease)
            assert (result.outputs, result.annotations[0].message) == ({"k": "***"}, "leak ***")
            assert result.summary.strip() == "sum ***"

    run(story())


@pytest.mark.proves("SR-33", "I-26")
def test_output_that_looks_like_protocol_is_only_output(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            frame = '{"type":"finish","job":1,"epoch":1,"conclusion":"success","log":{"bytes":0,"sha256":""}}'
            lease = forge.offer(f"echo '{frame}'; printf '\\0\\377\\n::end::\\n'; exit 1", commit=commit)

            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert len(forge.queue.words(runner.Finish)) == 1
            assert forge.queue.finished[lease].conclusion == "failure"
            assert frame.encode() in forge.queue.logs[lease]

    run(story())


def test_artifacts_arrive_and_a_missing_one_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            big = "mkdir dist; head -c 3000000 /dev/zero > dist/big; echo hi > dist/small; : > dist/empty"
            wanted = (ArtifactPlan("bin", ("dist/*",)), ArtifactPlan("docs", ("site/**",)))

            lease = forge.offer(big, commit=commit, artifacts=wanted)
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert [(file.path, file.size) for file in result.artifacts] == [
                ("dist/big", 3_000_000),
                ("dist/empty", 0),
                ("dist/small", 3),
            ]
            assert forge.queue.artifacts[lease.job, "bin", "dist/small"] == b"hi\n"
            assert len(forge.queue.artifacts[lease.job, "bin", "dist/big"]) == 3_000_000
            assert result.conclusion == "success"
            assert "artifact docs: no file matches site/**" in log_of(forge, lease)

    run(story())


def test_a_harness_that_sees_none_of_our_folders_runs_the_commit_and_its_artifacts_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "lab").mkdir()
        (tmp_path / "token").write_text("a-token-of-some-length")
        words = ("--root", str(tmp_path / "lab/root"), "--token-file", str(tmp_path / "token"))
        lab = RemoteRuntime("lab", f"unix://{tmp_path}/lab/h.sock", "a-token-of-some-length")
        with a_harness(tmp_path / "lab", words=words):
            async with a_forge(tmp_path) as forge, a_runner(forge, lab):
                (commit,) = a_repository(forge, [{"a": b"1"}])
                steps = "pwd; git log --format=%H; mkdir dist; cp a dist/a; head -c 300000 /dev/zero > dist/big"
                wanted = (ArtifactPlan("bin", ("dist/*",)), ArtifactPlan("docs", ("site/**",)))

                lease = forge.offer(steps, commit=commit, artifacts=wanted)
                await forge.queue.until(lambda: lease in forge.queue.finished)

                assert forge.queue.finished[lease].conclusion == "success", log_of(forge, lease)
                assert forge.queue.artifacts[lease.job, "bin", "dist/a"] == b"1"
                assert len(forge.queue.artifacts[lease.job, "bin", "dist/big"]) == 300_000
                said = log_of(forge, lease)
                assert str(tmp_path / "lab/root") in said
                assert commit in said
                assert "artifact docs: no file matches site/**" in said

    run(story())


def test_an_artifact_that_must_not_be_empty_fails_the_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])

            lease = forge.offer("true", commit=commit, artifacts=(ArtifactPlan("bin", ("x",), if_empty="error"),))
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert (result.conclusion, result.reason) == ("failure", "artifact bin is empty")

    run(story())


@pytest.mark.proves("SR-23")
def test_an_artifact_pattern_reaches_no_file_outside_by_a_link_of_the_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])

            lease = forge.offer(
                f"ln -s {forge.key} key; ln -s {forge.key.parent} keys; echo ok > ok",
                commit=commit,
                artifacts=(ArtifactPlan("all", ("*", "keys/*")),),
            )
            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert [file.path for file in forge.queue.finished[lease].artifacts] == ["a", "ok"]

    run(story())


def test_needed_artifacts_are_there_before_the_first_step(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            forge.queue.need("bin", {"dist/app": b"the app\n", "dist/empty": b""})

            lease = forge.offer(
                "cat in/dist/app; wc -c < in/dist/empty", commit=commit, needs_artifacts=(NeededArtifact("bin", "in"),)
            )
            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert forge.queue.finished[lease].conclusion == "success"
            assert log_of(forge, lease).endswith("the app\n0\n")

    run(story())


def test_a_needed_artifact_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])

            lease = forge.offer("true", commit=commit, needs_artifacts=(NeededArtifact("bin"),))
            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert (result.conclusion, "artifact bin" in result.reason) == ("errored", True)

    run(story())


def test_a_plan_that_is_not_the_pinned_one_is_not_run(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            lease = forge.offer("touch /tmp/never")
            job = forge.queue.offered.get_nowait()
            forge.queue.offered.put_nowait(type(job)(**{**job.__dict__, "digest": "0" * 64}))

            await forge.queue.until(lambda: lease in forge.queue.finished)

            assert forge.queue.finished[lease].conclusion == "errored"
            assert forge.queue.asked_sources == []

    run(story())


def test_sources_that_cannot_be_brought_are_handed_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            forge.queue.source_refusal = Unavailable("the disk is busy")

            forge.offer("true")
            await forge.queue.until(lambda: forge.queue.words(runner.Handback))

            assert forge.queue.words(runner.Finish) == []
            assert len(forge.queue.asked_sources) == 3

    run(story())


@pytest.mark.proves("H-46")
def test_what_the_gate_refuses_goes_back_before_it_is_started_and_nothing_more_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            (tmp_path / "lab").mkdir()
            lab = RemoteRuntime("lab", f"unix://{tmp_path}/lab/h.sock")
            async with a_runner(forge, lab):
                forge.offer("true", commit=commit)
                await forge.queue.until(lambda: forge.queue.words(runner.Handback))

                [back] = forge.queue.words(runner.Handback)
                assert "the runtime lab is down" in back.reason
                assert str(tmp_path / "lab/h.sock") in back.reason
                assert (forge.queue.words(runner.Started), forge.queue.asked_sources) == ([], [])
                assert len(forge.queue.words(runner.Want)) == 1
                with a_harness(tmp_path / "lab", words=("--root", str(tmp_path / "lab/root"))):
                    second = forge.offer("true", commit=commit)
                    await forge.queue.until(lambda: second in forge.queue.finished)

                    assert forge.queue.finished[second].conclusion == "success"

    run(story())


def test_a_repository_that_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            lease = forge.offer("true")

            await forge.queue.until(lambda: lease in forge.queue.finished)

            result = forge.queue.finished[lease]
            assert (result.conclusion, "not there any more" in result.reason) == ("errored", True)

    run(story())


def test_term_finishes_what_runs_and_takes_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge) as running:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            gate = tmp_path / "work" / "attempts" / "go"
            lease = forge.offer("echo on; while [ ! -e ../../go ]; do sleep 0.05; done", commit=commit)
            forge.offer("echo second", commit=commit)
            await forge.queue.until(lambda: "on\n" in log_of(forge, lease))

            running.keeper.terminate()
            await forge.queue.until(lambda: forge.queue.words(runner.Drain))
            gate.touch()

            assert await running.ended == 0
            assert forge.queue.finished[lease].conclusion == "success"
            assert len(forge.queue.words(runner.Want)) == 1
            await forge.queue.until(lambda: forge.queue.goodbyes == ["the runner said bye"])

    run(story())


@pytest.mark.parametrize("signals", [("terminate", "terminate"), ("interrupt",)])
def test_a_second_term_or_an_int_ends_the_job_and_hands_it_back(tmp_path: Path, signals: tuple[str, ...]) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge) as running:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))
            pid = int(log_of(forge, lease).split("pid ")[1].split()[0])

            for signal in signals:
                getattr(running.keeper, signal)()

            assert await running.ended == 0
            assert not alive(pid)
            assert [word.job for word in forge.queue.words(runner.Handback)] == [lease.job]
            assert forge.queue.words(runner.Finish) == []

    run(story())


def test_once_runs_one_job_and_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge:
            (commit,) = a_repository(forge, [{"a": b"1"}])
            first, second = (forge.offer("false", commit=commit) for _ in range(2))
            async with a_runner(forge, once=True) as running:
                assert await running.ended == 0

            assert list(forge.queue.finished) == [first]
            assert second not in forge.queue.live

    run(story())


def test_once_with_nothing_to_do_exits_8(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge, once=True) as running:
            assert await running.ended == 8

    run(story())


def test_a_runner_that_idled_long_enough_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge, idle_timeout_s=0.3) as running:
            assert await running.ended == 0
            assert forge.queue.words(runner.Drain)

    run(story())


def test_a_low_disk_is_said_with_the_want(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge, min_free=1 << 60):
            await forge.queue.until(lambda: forge.queue.words(runner.Want))

            (want,) = forge.queue.words(runner.Want)
            assert want.disk_low

    run(story())


def test_two_slots_run_two_jobs_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge, slots=2):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            meet = "touch ../../{0}; while [ ! -e ../../{1} ]; do sleep 0.05; done"

            leases = [forge.offer(meet.format(*pair), commit=commit) for pair in (("x", "y"), ("y", "x"))]
            await forge.queue.until(lambda: len(forge.queue.finished) == 2)

            assert {forge.queue.finished[lease].conclusion for lease in leases} == {"success"}

    run(story())


def test_the_next_job_is_asked_for_with_the_result(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            forge.queue.durable.clear()
            forge.offer("true", commit=commit)
            await forge.queue.until(lambda: len(forge.queue.words(runner.Want)) == 2)
            said = [type(word) for word in forge.queue.said if isinstance(word, (runner.Finish, runner.Want))]

            second = forge.offer("true", commit=commit)
            forge.queue.durable.set()
            await forge.queue.until(lambda: second in forge.queue.finished)

            assert said == [runner.Want, runner.Finish, runner.Want]  # and the first result has no answer yet

    run(story())


def test_a_harness_that_is_killed_loses_the_attempt_and_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$ $PPID; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))
            pid, harness = map(int, log_of(forge, lease).split("pid ")[1].split()[:2])

            os.kill(harness, 9)
            await forge.queue.until(lambda: forge.queue.words(runner.Handback))

            assert not alive(pid)
            assert forge.queue.words(runner.Finish) == []

    run(story())


def test_a_forge_that_cannot_take_renewals_in_does_not_keep_the_lease_alive(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path, ttl_s=6.0) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            lease = forge.offer("echo pid $$; sleep 60", commit=commit)
            await forge.queue.until(lambda: "pid " in log_of(forge, lease))

            forge.queue.renew_refusal = Unavailable("the disk is full")
            await forge.queue.until(lambda: len(forge.queue.words(runner.Want)) == 2)

            assert forge.queue.words(runner.Finish) == []

    run(story())


def test_step_borders_that_the_forge_could_not_take_in_are_said_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_forge(tmp_path) as forge, a_runner(forge):
            (commit,) = a_repository(forge, [{"a": b"1"}])
            forge.queue.marks_refusal = Unavailable("the disk is full")
            forge.offer("echo on; sleep 60", commit=commit)
            await forge.queue.until(lambda: forge.queue.words(runner.Marks))
            forge.queue.marks_refusal = None

            await forge.queue.until(lambda: len(forge.queue.words(runner.Marks)) == 2)

            first, second = forge.queue.words(runner.Marks)
            assert first == second

    run(story())
