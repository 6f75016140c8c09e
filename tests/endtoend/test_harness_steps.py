"""What steps do to a real harness process, and what it says of them."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys

import pytest

from tests.aio import run
from tests.harness_host import COMMIT, a_harness, a_job, a_step, alive, hosted, ran
from vole.base import limits
from vole.wire import harness_pb2 as pb
from vole.wire.plan import NeedResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process tree is seen through /proc")


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    with a_harness(tmp_path_factory.mktemp("h")) as (address, pid):
        yield address, pid


@pytest.fixture
def run_job(harness, tmp_path):
    def runs(*steps, needs=None, **what):
        heard, work = run(ran(harness[0], tmp_path, a_job(*steps, **what), needs=needs or {}))
        return heard, work

    return runs


# ---- What a step sees

ARCH = {"x86_64": "X64", "aarch64": "ARM64"}.get(platform.machine(), platform.machine())
TABLE = {
    "CI": "true",
    "VOLE": "true",
    "VOLE_SHA": COMMIT,
    "VOLE_REF": "refs/heads/main",
    "VOLE_REF_NAME": "main",
    "VOLE_REF_TYPE": "branch",
    "VOLE_REPOSITORY": "app",
    "VOLE_RUN_ID": "77",
    "VOLE_RUN_NUMBER": "12",
    "VOLE_RUN_ATTEMPT": "3",
    "VOLE_JOB": "test",
    "VOLE_WORKFLOW": "checks",
    "VOLE_ACTOR": "ada",
    "VOLE_EVENT_NAME": "push",
    "VOLE_EVENT_PATH": "{folder}/files/event.json",
    "VOLE_SERVER_URL": "https://forge.example",
    "VOLE_WORKSPACE": "{folder}/work",
    "RUNNER_OS": "Linux",
    "RUNNER_ARCH": ARCH,
    "RUNNER_NAME": "mac-1",
    "RUNNER_TEMP": "{folder}/temp",
    "VOLE_ENV": "{folder}/files/1/env",
    "VOLE_OUTPUT": "{folder}/files/1/output",
    "VOLE_PATH": "{folder}/files/1/path",
    "VOLE_SUMMARY": "{folder}/files/1/summary",
}


def environment_of(work):
    pairs = (work / "env").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


@pytest.mark.parametrize("name", TABLE)
def test_a_step_sees_each_variable_of_the_table(run_job, name):
    _, work = run_job("env -0 > env")

    assert environment_of(work)[name] == TABLE[name].format(folder=work.parent)


def test_a_steps_environment_is_built_from_empty(tmp_path):
    given = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LANG": "C.UTF-8", "TZ": "UTC", "SECRET": "hunter2"}
    with a_harness(tmp_path, given) as (address, _):
        _, work = run(ran(address, tmp_path, a_job("env -0 > env")))

    seen = environment_of(work)
    of_the_shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert set(seen) - of_the_shell == {*TABLE, "PATH", "HOME", "LANG", "TZ"}
    assert "hunter2" not in str(seen)


def test_nothing_of_a_workflow_changes_what_vole_says_of_itself(run_job):
    step = a_step("env -0 > env", env={"VOLE_SHA": "0" * 40, "RUNNER_NAME": "root", "CI": "false"})

    _, work = run_job(step, env={"VOLE_REPOSITORY": "other"})

    seen = environment_of(work)
    assert (seen["VOLE_SHA"], seen["RUNNER_NAME"], seen["VOLE_REPOSITORY"]) == (COMMIT, "mac-1", "app")
    assert seen["CI"] == "false"


def test_inner_environment_wins_and_reads_the_outer_one(run_job):
    job = {"A": "job", "B": "job", "WHO": "${{ vole.actor }} on ${{ runner.name }}"}
    step = a_step("env -0 > env", env={"B": "step of ${{ env.A }}", "M": "${{ matrix.py }}"})

    _, work = run_job(step, env=job, matrix={"py": "3.12"})

    seen = environment_of(work)
    assert [seen[name] for name in ("A", "B", "M", "WHO")] == ["job", "step of job", "3.12", "ada on mac-1"]


@pytest.mark.proves("SR-29")
def test_a_step_inherits_three_descriptors_and_no_more(tmp_path):
    script = "import os; print([f for f in range(300) if os.path.exists(f'/proc/self/fd/{f}')])"
    reading, writing = os.pipe()
    try:
        with a_harness(tmp_path, leaking=(reading, writing)) as (address, _):
            heard, _ = run(ran(address, tmp_path, a_job(a_step(script, shell="python"))))
    finally:
        os.close(reading)
        os.close(writing)

    assert heard.printed() == b"[0, 1, 2]\n"


def test_stdin_is_closed_and_a_reader_does_not_wait(run_job):
    heard, _ = run_job("cat; read line || echo nobody is there")

    assert heard.printed() == b"nobody is there\n"
    assert heard.states == ["SUCCEEDED"]


def test_stdout_and_stderr_come_in_order_of_arrival(run_job):
    heard, _ = run_job("for i in 1 2 3 4; do echo out $i; echo err $i >&2; done")

    assert heard.printed().decode() == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3, 4))


def test_a_step_runs_in_a_session_of_its_own(run_job, harness):
    heard, _ = run_job("cut -d' ' -f5,6 /proc/$$/stat; echo $$")

    group, session, pid = map(int, heard.printed().split())
    assert group == session == pid
    assert session != os.getsid(harness[1])


@pytest.mark.proves("SR-32")
def test_the_folders_of_an_attempt_are_closed_and_new_files_in_it_are_not(run_job):
    _, work = run_job("umask > mask; touch file; ls $RUNNER_TEMP > temp")

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (work.parent, work, work.parent / "temp")]
    assert modes == [0o700] * 3
    assert stat.S_IMODE((work / "file").stat().st_mode) == 0o644
    assert (work / "temp").read_text() == ""


def test_the_event_stands_in_its_file(run_job):
    heard, _ = run_job("cat $VOLE_EVENT_PATH")

    assert b'"actor":"ada"' in heard.printed()


# ---- How a step is run


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "bash --noprofile --norc -eo pipefail {script}.sh"),
        ("sh", "sh -e {script}.sh"),
        ("python", "python3 {script}.py"),
        (None, "bash --noprofile --norc -eo pipefail {script}.sh"),
    ],
)
def test_the_first_line_of_a_steps_log_is_the_exact_command_line(run_job, shell, line):
    heard, work = run_job(a_step("print(1)" if shell == "python" else "echo 1", shell=shell))

    first = heard.log().decode().splitlines()[0]
    assert first == line.format(script=work.parent / "files" / "1" / "run")
    assert heard.printed() == b"1\n"


def test_without_a_bash_the_default_is_sh(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    with a_harness(tmp_path, {"PATH": str(programs)}) as (address, _):
        plan = a_job(a_step("false; echo went on"), a_step("true", shell="bash", if_="always()"))
        heard, _ = run(ran(address, tmp_path, plan))

    assert heard.log().startswith(b"sh -e ")
    assert heard.states == ["FAILED", "FAILED"]
    assert heard.results[2].reason == "the step cannot begin: there is no 'bash' on PATH"
    assert "there is no 'bash' on PATH" in heard.said(2)


def test_a_matrix_value_is_put_into_the_script(run_job):
    heard, _ = run_job("echo ${{ matrix.version }}", matrix={"version": "3.13"})

    assert heard.printed() == b"3.13\n"


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("..", "outside the work folder"),
        ("/etc", "outside the work folder"),
        ("out", "outside the work folder"),
        ("missing", "no folder"),
    ],
)
def test_a_working_directory_outside_the_work_folder_fails_the_step(run_job, folder, why):
    heard, _ = run_job("ln -s / out", a_step("pwd", working_directory=folder))

    assert why in heard.results[2].reason
    assert heard.states == ["SUCCEEDED", "FAILED"]
    assert heard.results[2].started_unix_ms == 0


def test_a_working_directory_inside_the_work_folder_is_where_the_step_runs(run_job):
    heard, work = run_job("mkdir -p a/b", a_step("pwd", working_directory="a/b"))

    assert heard.printed(2).decode() == f"{work}/a/b\n"


# ---- How it goes on


def test_after_a_failed_step_only_those_that_ask_for_it_run(run_job):
    steps = [
        a_step("exit 3", id="broken"),
        a_step("echo no"),
        a_step("echo always", if_="always()"),
        a_step("echo ${OUTCOME}", if_="failure() && steps.broken.outcome == 'failure'", env={"OUTCOME": "seen"}),
        a_step("echo no", if_="vole.actor == 'ada'"),
    ]

    heard, _ = run_job(*steps)

    assert heard.states == ["FAILED", "SKIPPED", "SUCCEEDED", "SUCCEEDED", "SKIPPED"]
    assert heard.results[1].exit_code == 3
    assert heard.printed(4) == b"seen\n"
    assert heard.end.state == pb.End.FAILED
    assert not heard.end.HasField("error")


def test_a_failure_that_may_continue_leaves_the_job_green(run_job):
    heard, _ = run_job(a_step("exit 1", continue_on_error=True), "echo on")

    assert heard.states == ["FAILED", "SUCCEEDED"]
    assert heard.results[1].continued
    assert heard.end.state == pb.End.COMPLETED


def test_outputs_go_from_step_to_step_to_job(run_job):
    steps = [
        a_step('echo "v=1.2" >> $VOLE_OUTPUT; printf "text<<END\\na=b\\n\\nc\\nEND\\n" >> $VOLE_OUTPUT', id="one"),
        a_step('test "$GOT" = "1.2"', env={"GOT": "${{ steps.one.outputs.v }}"}),
    ]

    heard, _ = run_job(*steps, outputs={"v": "v${{ steps.one.outputs.v }}", "text": "${{ steps.one.outputs.text }}"})

    assert dict(heard.results[1].outputs) == {"v": "1.2", "text": "a=b\n\nc"}
    assert dict(heard.end.outputs) == {"v": "v1.2", "text": "a=b\n\nc"}
    assert heard.states == ["SUCCEEDED", "SUCCEEDED"]


def test_what_needed_jobs_gave_is_readable(run_job):
    needs = {"build": NeedResult("success", {"version": "7"})}

    heard, _ = run_job(
        a_step("echo $V", env={"V": "${{ needs.build.result }} ${{ needs.build.outputs.version }}"}), needs=needs
    )

    assert heard.printed() == b"success 7\n"


def test_variables_and_path_reach_the_steps_after(run_job):
    steps = [
        'mkdir bin; printf "#!/bin/sh\\necho found\\n" > bin/mine; chmod +x bin/mine; '
        'echo "$PWD/bin" >> $VOLE_PATH; echo "COLOUR=blue" >> $VOLE_ENV; echo [$COLOUR]',
        "mine; echo [$COLOUR]",
        a_step("echo [$COLOUR]", env={"COLOUR": "red"}),
    ]

    heard, _ = run_job(*steps)

    assert [heard.printed(number) for number in (1, 2, 3)] == [b"[]\n", b"found\n[blue]\n", b"[red]\n"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo nonsense >> $VOLE_OUTPUT", "VOLE_OUTPUT line 1: 'nonsense' is neither name=value nor name<<END"),
        ("printf 'a<<E\\nb\\n' >> $VOLE_OUTPUT", "VOLE_OUTPUT line 1: no line 'E' ends the text"),
        ("printf 'a=\\377' >> $VOLE_OUTPUT", "VOLE_OUTPUT: the file is not UTF-8"),
        ("printf 'a=\\0' >> $VOLE_OUTPUT", "VOLE_OUTPUT line 1: a NUL byte is no text"),
        (
            "head -c 70000 /dev/zero | tr '\\0' a >> $VOLE_OUTPUT",
            "VOLE_OUTPUT: more than 65536 bytes (OUTPUT_BYTES_MAX)",
        ),
        ("rm $VOLE_OUTPUT; ln -s /etc/passwd $VOLE_OUTPUT", "VOLE_OUTPUT: the file cannot be read"),
        ("rm $VOLE_OUTPUT; mkfifo $VOLE_OUTPUT", "VOLE_OUTPUT: something stands where the file was"),
        ("rm $VOLE_OUTPUT; mkdir $VOLE_OUTPUT", "VOLE_OUTPUT: something stands where the file was"),
        ("echo VOLE_SHA=1 >> $VOLE_ENV", "VOLE_ENV: 'VOLE_SHA' cannot be set"),
        ("echo a-b=1 >> $VOLE_ENV", "VOLE_ENV: 'a-b' cannot be set"),
        ("head -c 2000000 /dev/zero >> $VOLE_ENV", "VOLE_ENV: more than 1048576 bytes (STEP_VARIABLES_BYTES_MAX)"),
        ("echo /a:/b >> $VOLE_PATH", "VOLE_PATH: '/a:/b' is no folder"),
    ],
)
def test_a_bad_file_of_a_step_fails_it_with_a_clear_line(run_job, script, why):
    heard, _ = run_job(script)

    assert heard.states == ["FAILED"]
    assert heard.results[1].reason.startswith(why)
    assert f"vole: {why}" in heard.said()


def test_a_deleted_file_says_nothing(run_job):
    heard, _ = run_job("rm $VOLE_OUTPUT $VOLE_ENV $VOLE_PATH $VOLE_SUMMARY")

    assert heard.states == ["SUCCEEDED"]


def test_summaries_of_all_steps_come_with_the_end(run_job):
    heard, _ = run_job("echo '# One' >> $VOLE_SUMMARY", "echo two >> $VOLE_SUMMARY")

    assert heard.end.summary == "# One\n\ntwo\n"


def test_a_summary_over_its_bound_is_left_out_and_said(run_job):
    heard, _ = run_job("head -c 300000 /dev/zero | tr '\\0' a >> $VOLE_SUMMARY", "echo kept >> $VOLE_SUMMARY")

    assert heard.end.summary == "kept\n"
    assert heard.states == ["SUCCEEDED", "SUCCEEDED"]
    assert "SUMMARY_BYTES_MAX" in heard.annotations[0].message


def test_job_outputs_over_their_bound_fail_the_job(run_job):
    step = a_step("head -c 60000 /dev/zero | tr '\\0' a > x; (printf v=; cat x) >> $VOLE_OUTPUT", id="big")

    heard, _ = run_job(step, outputs={"a": "${{ steps.big.outputs.v }}", "b": "${{ steps.big.outputs.v }}"})

    assert heard.end.state == pb.End.FAILED
    assert "OUTPUT_BYTES_MAX" in heard.annotations[0].message
    assert not heard.end.outputs


# ---- What a step prints


@pytest.mark.proves("SR-33", "I-26")
def test_nothing_printed_acts_as_protocol(run_job):
    hostile = [
        '{"type":"finish","conclusion":"success"}',
        "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
        "\x12\x0bevil\x00frame",
        "::set-output name=a::b",
        "##[set-output name=a]b",
        "::set-env name=PATH::/evil",
        "::add-path::/evil",
        "::end::COMPLETED",
        ".0",
    ]
    script = f"import sys; sys.stdout.buffer.write({chr(10).join(hostile).encode()!r}); sys.exit(1)"

    heard, _ = run_job(a_step(script, shell="python"), a_step("echo $PATH", if_="always()"))

    assert heard.printed() == "\n".join(hostile).encode()
    assert heard.states == ["FAILED", "SUCCEEDED"]
    assert heard.end.state == pb.End.FAILED
    assert not heard.results[1].outputs
    assert b"/evil" not in heard.printed(2)
    assert not heard.annotations
    kinds = {frame.WhichOneof("frame") for frame in heard.frames}
    assert kinds <= {"intent", "log", "result", "end", "heartbeat"}


def test_every_byte_of_a_log_arrives_and_the_seal_fits(run_job):
    heard, _ = run_job(a_step("import os; os.write(1, bytes(range(256)) * 4 + b'\\xff\\xfe')", shell="python"))

    log = heard.log()
    assert log.endswith(bytes(range(256)) * 4 + b"\xff\xfe")
    assert (heard.results[1].log_bytes, heard.results[1].log_sha256) == (len(log), hashlib.sha256(log).hexdigest())


def test_ten_megabytes_without_a_line_end_arrive_in_bounded_chunks(run_job):
    heard, _ = run_job(a_step("import sys; sys.stdout.write('x' * 10_000_000)", shell="python"))

    assert len(heard.printed()) == 10_000_000
    assert max(len(chunk.data) for chunk in heard.chunks) <= limits.LOG_CHUNK_BYTES
    assert heard.results[1].log_sha256 == hashlib.sha256(heard.log()).hexdigest()
    assert [chunk.seq for chunk in heard.chunks] == list(range(1, len(heard.chunks) + 1))
    assert [chunk.offset for chunk in heard.chunks][-1] + len(heard.chunks[-1].data) == len(heard.log())


def test_events_are_numbered_without_a_gap(run_job):
    heard, _ = run_job("echo ::add-mask::secret; echo ::notice::x", "true")

    events = [f for f in heard.frames if f.WhichOneof("frame") not in ("log", "heartbeat")]
    assert [frame.seq for frame in events] == list(range(1, len(events) + 1))


def test_a_first_line_is_seen_while_the_step_still_runs(harness, tmp_path):
    async def story():
        async with hosted(harness[0], tmp_path, a_job("echo first; while [ ! -e go ]; do sleep 0.01; done")) as host:
            await host.start()
            await host.printed(b"first\n")
            (host.work / "go").touch()
            return await host.finish()

    assert run(story()).states == ["SUCCEEDED"]


def test_a_mask_is_known_before_its_value_is_shown(run_job):
    parts = ["::add-m", "ask::hunt", "er2", "\nhunter2 in clear\n"]
    script = f"import sys, time\nfor p in {parts!r}:\n  sys.stdout.write(p); sys.stdout.flush(); time.sleep(0.05)"

    heard, _ = run_job(a_step(script, shell="python"))

    kinds = [frame.WhichOneof("frame") for frame in heard.frames]
    shown = [at for at, frame in enumerate(heard.frames) if b"hunt" in frame.log.data]
    assert kinds.index("mask") < min(shown)
    assert heard.masks == [b"hunter2"]
    assert heard.printed().decode() == "".join(parts)


def test_remarks_are_told_with_their_place(run_job):
    heard, _ = run_job(
        "echo '::error file=src/a.py,line=14::two%0Alines'; echo '::warning::careful'; echo '::stop-commands::tok'; "
        "echo '::error::not one'; echo '::tok::'; echo '::notice::again'"
    )

    told = [(note.level, note.message, note.file, note.line, note.step_id) for note in heard.annotations]
    assert told == [
        (pb.ERROR, "two\nlines", "src/a.py", 14, "1"),
        (pb.WARNING, "careful", "", 0, "1"),
        (pb.NOTICE, "again", "", 0, "1"),
    ]
    assert heard.states == ["SUCCEEDED"]


def test_remarks_beyond_their_bound_stay_in_the_log_alone(run_job):
    heard, _ = run_job("for i in $(seq 60); do echo ::notice::$i; done")

    assert len(heard.annotations) == limits.ANNOTATIONS_MAX
    assert heard.printed().endswith(b"::notice::60\n")


def test_more_masks_than_can_be_kept_fail_the_step_instead_of_showing_them(run_job):
    heard, _ = run_job(f"for i in $(seq {limits.MASKS_MAX + 1}); do echo ::add-mask::value-$i-; done; sleep 60")

    assert heard.states == ["FAILED"]
    assert "MASKS_MAX" in heard.results[1].reason
    assert f"value-{limits.MASKS_MAX + 1}-".encode() not in heard.log()


# ---- How a step ends


def test_a_signal_is_named(run_job):
    heard, _ = run_job("kill -SEGV $$")

    result = heard.results[1]
    assert (result.state, result.signal, result.exit_code) == (pb.FAILED, "SIGSEGV", 0)
    assert "vole: ended by SIGSEGV" in heard.said()


def test_a_step_that_closes_its_output_runs_on(run_job):
    heard, work = run_job("exec >&- 2>&-; sleep 0.3; touch done")

    assert heard.states == ["SUCCEEDED"]
    assert (work / "done").exists()


@pytest.mark.proves("SR-31")
@pytest.mark.parametrize(
    "script",
    [
        "sleep 300 & echo $! > pid",
        "(trap '' TERM; while :; do sleep 0.1; done) & echo $! > pid",
        "(setsid bash -c 'echo $$ > pid; exec sleep 300' > /dev/null 2>&1 &) ; while [ ! -s pid ]; do sleep 0.01; done",
        "(setsid bash -c 'trap \"\" TERM HUP; echo $$ > pid; while :; do sleep 0.1; done' &) ; "
        "while [ ! -s pid ]; do sleep 0.01; done",
    ],
    ids=["a background child that holds the pipe", "deaf to TERM", "setsid", "setsid and deaf"],
)
def test_a_step_ends_with_its_main_process_and_takes_the_rest_with_it(run_job, harness, script):
    heard, work = run_job(script, "echo next")

    left_behind = int((work / "pid").read_text())
    assert not alive(left_behind)
    assert heard.states == ["SUCCEEDED", "SUCCEEDED"]
    assert heard.results[1].leftovers
    assert "what the step left running" in heard.said()


@pytest.mark.proves("SR-31")
def test_a_storm_of_processes_is_emptied(run_job, harness):
    family = "trap '' TERM; for j in 1 2 3; do sleep 300 & echo \\$! >> pids; done; wait"
    heard, work = run_job(
        f'for i in $(seq 60); do (setsid bash -c "{family}" &) ; done; '
        "until [ $(wc -l < pids) -ge 100 ]; do sleep 0.01; done"
    )

    pids = [int(line) for line in (work / "pids").read_text().split()]
    assert len(pids) >= 100
    assert not any(alive(pid) for pid in pids)
    assert children_of(harness[1]) == []
    assert heard.states == ["SUCCEEDED"]


def children_of(pid):
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                        found.append(int(entry.name))
            except FileNotFoundError:
                continue
    return found


def test_the_last_words_of_a_helper_are_kept(run_job):
    heard, _ = run_job("(sleep 0.03; echo the last word) & exit 0")

    assert heard.printed() == b"the last word\n"
    assert not heard.results[1].leftovers


def test_a_step_over_its_time_is_ended(run_job):
    heard, work = run_job(
        a_step("trap 'echo asked to end' TERM; echo $$ > pid; sleep 300 & wait", timeout_s=1), a_step("echo no")
    )

    result = heard.results[1]
    assert (result.state, result.timed_out) == (pb.FAILED, True)
    assert "longer than its timeout of 1 s" in heard.said()
    assert b"asked to end" in heard.printed()
    assert heard.states == ["FAILED", "SKIPPED"]
    assert not alive(int((work / "pid").read_text()))
