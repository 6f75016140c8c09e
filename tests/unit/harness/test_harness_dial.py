from __future__ import annotations

import pytest

from vole.base.errors import Invalid
from vole.wire import harness_pb2 as pb
from vole_runner.runtimes.dial import descriptor, target
from vole_runner.runtimes.runtime import Resumability


@pytest.mark.parametrize(
    ("address", "dialled"),
    [
        ("unix:///run/vole/h.sock", "unix:/run/vole/h.sock"),
        ("unix://h.sock", "unix:h.sock"),
        ("unix:h.sock", "unix:h.sock"),
        ("unix:/run/h.sock", "unix:/run/h.sock"),
        ("127.0.0.1:9000", "127.0.0.1:9000"),
        ("[::1]:9000", "[::1]:9000"),
        ("gpu-lab.example:443", "gpu-lab.example:443"),
        ("dns:///gpu.example:9000", "dns:///gpu.example:9000"),
        ("dns://1.1.1.1/gpu.example:9000", "dns://1.1.1.1/gpu.example:9000"),
        ("dns://1.1.1.1:53/gpu.example:9000", "dns://1.1.1.1:53/gpu.example:9000"),
    ],
)
def test_every_form_of_an_address_has_one_target(address, dialled):
    assert target(address) == dialled


@pytest.mark.parametrize(
    "address",
    [
        "",
        "unix:",
        "unix://",
        "unix:///" + "x" * 107,
        "http://127.0.0.1:1",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "host:port",
        ":9000",
        "a b:1",
        "dns://%/127.0.0.1:9000",
        "dns://127.0.0.1:/localhost:9000",
        "dns:///localhost",
        "passthrough:///x:1",
    ],
)
def test_every_other_form_is_refused(address):
    with pytest.raises(Invalid):
        target(address)


def test_an_unknown_tier_is_an_undeclared_one():
    said = pb.Descriptor(id="x", capabilities=pb.Capabilities(resumability=99))  # type: ignore[arg-type]

    assert descriptor(said).resumability is Resumability.UNSPECIFIED
