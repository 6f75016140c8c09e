"""The `runtimes` of runner.yaml: what is accepted, what is refused by name and place before anything is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vole.base.errors import Invalid
from vole.config import reading, runner, runtimes
from vole.config.runtimes import Bounds, RuntimeConfig
from vole_runner.runtimes.dial import target
from vole_runner.settings import resolve

BASE = "server: ssh://git@forge:2222\nkey: key\n"
LAB = "runtimes:\n  - name: lab\n    kind: remote\n    address: "


def read(text: str, folder: Path = Path("/conf")) -> tuple[RuntimeConfig, ...]:
    return runner.build(reading.parse(text, "runner.yaml"), folder, target).runtimes


def refused(text: str) -> str:
    with pytest.raises(Invalid) as refusal:
        read(text)
    return "\n".join(refusal.value.lines)


def test_an_entry_of_each_kind_says_what_it_says() -> None:
    sandbox, box, lab = read(
        """
runtimes:
  - name: small
    kind: sandbox
    labels: [small]
    network: host
    limits: {memory: 1GiB, pids: 512, cpu: 1.5}
  - name: image-1
    kind: container
    image: localhost/ci:1
    engine: podman
    engine-arguments: [--cgroup-manager=cgroupfs]
    run-arguments: [--ulimit, "nofile=1024:1024"]
  - name: gpu-lab
    kind: remote
    address: unix:///run/vole/gpu.sock
    descriptor-id: vole-shell
    labels: [gpu]
    max-jobs: 2
    token-file: gpu.token
"""
    )

    assert sandbox == RuntimeConfig("small", "sandbox", ("small",), "host", Bounds(1 << 30, 512, 1.5))
    assert (box.image, box.engine, box.network) == ("localhost/ci:1", "podman", "none")
    assert (box.engine_arguments, box.run_arguments) == (
        ("--cgroup-manager=cgroupfs",),
        ("--ulimit", "nofile=1024:1024"),
    )
    assert (lab.address, lab.descriptor_id, lab.max_jobs) == ("unix:///run/vole/gpu.sock", "vole-shell", 2)
    assert (lab.labels, lab.token_file) == (("gpu",), Path("/conf/gpu.token"))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9000",
        "[::1]:9000",
        "localhost:9000",
        "dns:///localhost:9000",
        "unix:///abs",
        "unix://rel",
        "unix:rel",
    ],
)
def test_every_form_of_an_address_on_this_machine_is_taken(address: str) -> None:
    assert read(f"{LAB}'{address}'\n")[0].address == address


@pytest.mark.proves("H-44")
@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1",
        "unix://",
        "unix:",
        "127.0.0.1",
        "127.0.0.1:",
        ":80",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:x",
        "dns://%/127.0.0.1:9000",
        "dns://127.0.0.1:/localhost:9000",
        "dns:///localhost",
        "unix-abstract:x",
        "ipv4:127.0.0.1:9000",
        "127.0.0.1:9000/x",
        "",
        f"unix:///{'x' * 107}",
    ],
)
def test_every_malformed_address_is_refused_by_name_and_place(address: str) -> None:
    assert "runner.yaml:4:14 runtimes[1].address: " in refused(f"{LAB}'{address}'\n")


@pytest.mark.proves("SR-75")
@pytest.mark.parametrize(
    "address",
    ["10.0.0.7:9000", "[2001:db8::1]:9000", "lab.example:9000", "dns:///lab:9000", "dns://127.0.0.1/localhost:9000"],
)
def test_cleartext_over_a_network_needs_the_operators_word(address: str) -> None:
    assert "allow-plaintext" in refused(f"{LAB}'{address}'\n")
    assert read(f"{LAB}'{address}'\n    allow-plaintext: true\n")[0].address == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runtimes: local\n", "expected a list"),
        ("runtimes: [local]\n", "expected settings"),
        ("runtimes:\n  - kind: local\n", "needs a name"),
        ("runtimes:\n  - name: a\n", "needs a kind"),
        ("runtimes:\n  - {name: Lab, kind: local}\n", "no name of a runtime"),
        ("runtimes:\n  - {name: -a, kind: local}\n", "no name of a runtime"),
        (f"runtimes:\n  - {{name: {'a' * 64}, kind: local}}\n", "no name of a runtime"),
        ("runtimes:\n  - {name: a, kind: vm}\n", "none of local, sandbox, remote, container"),
        ("runtimes:\n  - {name: a, kind: local}\n  - {name: a, kind: sandbox}\n", "is there already"),
        ("runtimes:\n  - {name: sandbox, kind: local}\n", "the name of a kind"),
        ("runtimes:\n  - {name: a, kind: local, network: host}\n", "no such setting"),
        ("runtimes:\n  - {name: a, kind: local, limits: {pids: 64}}\n", "no such setting"),
        ("runtimes:\n  - {name: a, kind: sandbox, network: some}\n", "none of none, host"),
        ("runtimes:\n  - {name: a, kind: sandbox, labels: [Big]}\n", "labels"),
        ("runtimes:\n  - {name: a, kind: sandbox, limits: {memory: 1MiB}}\n", "limits.memory"),
        ("runtimes:\n  - {name: a, kind: sandbox, limits: {pids: 1}}\n", "limits.pids"),
        ("runtimes:\n  - {name: a, kind: sandbox, limits: {cpu: 0}}\n", "limits.cpu"),
        ("runtimes:\n  - {name: a, kind: sandbox, limits: {disk: 1GiB}}\n", "limits.disk: no such setting"),
        ("runtimes:\n  - {name: a, kind: container}\n", "needs an image"),
        ("runtimes:\n  - {name: a, kind: container, image: --privileged}\n", "is no image"),
        ("runtimes:\n  - {name: a, kind: container, image: a, engine: nerdctl}\n", "none of podman, docker"),
        ("runtimes:\n  - {name: a, kind: remote}\n", "needs the address"),
        ("runtimes:\n  - {name: a, kind: remote, address: 'unix:a', max-jobs: 0}\n", "max-jobs"),
        ("runtimes:\n  - {name: a, kind: remote, address: 'unix:a', allow-plaintext: yes}\n", "allow-plaintext"),
    ],
)
def test_a_malformed_entry_is_refused_by_name(text: str, words: str) -> None:
    assert words in refused(text)


def test_the_runner_takes_the_runtime_of_that_name_with_its_labels_and_its_jobs(tmp_path: Path) -> None:
    entry = "  - {name: lab, kind: remote, address: 'unix:a', labels: [gpu], max-jobs: 2}\n"
    (tmp_path / "r.yaml").write_text(f"{BASE}labels: [linux]\nslots: 4\nruntimes:\n{entry}")

    plain = resolve({"config": "r.yaml"}, {"HOME": str(tmp_path)}, tmp_path)
    lab = resolve({"config": "r.yaml", "runtime": "lab"}, {"HOME": str(tmp_path)}, tmp_path)

    assert (plain.runtime, plain.labels, plain.slots) == (RuntimeConfig("local", "local"), ("linux",), 4)
    assert (lab.runtime.name, lab.labels, lab.slots) == ("lab", ("linux", "gpu"), 2)


@pytest.mark.parametrize(
    ("name", "words"), [("remote", "an address"), ("container", "an image"), ("vm", "it has: lab, lo")]
)
def test_a_runtime_that_is_not_there_is_refused_and_never_replaced(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(f"{BASE}runtimes:\n  - {{name: lab, kind: local}}\n")

    with pytest.raises(Invalid, match=words):
        resolve({"config": "r.yaml", "runtime": name}, {"HOME": os.fspath(tmp_path)}, tmp_path)


def test_a_loopback_name_is_what_anyone_can_read_as_one() -> None:
    assert runtimes.stays_here("127.9.9.9:1")
    assert not runtimes.stays_here("localhost.example:1")
