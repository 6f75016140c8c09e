from __future__ import annotations

import pytest

from vole.base import limits
from vole.base.errors import Exhausted
from vole.git.pktline import Packets, PushHead, remote_lines

NEW = "0" * 40 + " " + "a" * 40


def packet(text: bytes) -> bytes:
    return f"{len(text) + 4:04x}".encode() + text


def a_push(*, caps=b"report-status side-band-64k", options=(), objects=3, refs=(b"refs/heads/main", b"refs/tags/v1")):
    lines = [packet(f"{NEW} ".encode() + ref + (b"\0" + caps if not at else b"")) for at, ref in enumerate(refs)]
    said = [packet(option) for option in options] + [b"0000"] if b"push-options" in caps else []
    return b"".join([*lines, b"0000", *said, b"PACK" + (2).to_bytes(4, "big") + objects.to_bytes(4, "big"), b"bytes"])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 1000])
@pytest.mark.parametrize("caps", [b"side-band-64k atomic", b"side-band-64k atomic push-options"])
def test_the_head_is_read_however_it_is_cut(size, caps):
    head, data = PushHead(), a_push(caps=caps, options=[b"x", b"PACK"])

    for at in range(0, len(data), size):
        head.feed(data[at : at + size])

    assert head.refs == [b"refs/heads/main", b"refs/tags/v1"]
    assert head.atomic_refs == (b"refs/heads/main", b"refs/tags/v1")
    assert (head.sideband, head.objects) == (True, 3)


def test_a_push_that_is_not_atomic_has_no_atomic_refs():
    head = PushHead()
    head.feed(a_push(caps=b"report-status"))

    assert (head.atomic_refs, head.sideband) == ((), False)


@pytest.mark.parametrize("data", [b"zzzz", b"0001", b"0003x", b"0000", b"0000notapack....", b""])
def test_what_is_no_push_is_left_to_git(data):
    head = PushHead()

    head.feed(data)

    assert head.objects is None


@pytest.mark.proves("SR-15")
def test_bounds_are_named_before_git_has_the_bytes(monkeypatch):
    with pytest.raises(Exhausted, match="PUSH_OBJECTS_MAX"):
        PushHead().feed(a_push(objects=limits.PUSH_OBJECTS_MAX + 1))
    with pytest.raises(Exhausted, match="PUSH_REFS_MAX"):
        PushHead().feed(a_push(refs=[b"refs/heads/x"] * (limits.PUSH_REFS_MAX + 1)))
    monkeypatch.setattr(limits, "PACK_BYTES_MAX", 100)
    with pytest.raises(Exhausted, match="PACK_BYTES_MAX"):
        PushHead().feed(b"0000" + b"x" * 97)


def test_a_long_line_for_the_pusher_is_cut_into_packets_a_small_side_band_takes():
    packets = remote_lines(["x" * 2000])

    sizes, at = [], 0
    while at < len(packets):
        size = int(packets[at : at + 4], 16)
        assert packets[at + 4] == 2
        sizes.append(size)
        at += size
    assert max(sizes) <= 1000
    assert sum(size - 5 for size in sizes) == 2001


def test_a_large_first_pack_proves_its_tips_unless_something_is_cut():
    def tips(objects=limits.VOUCHED_OBJECTS_MIN, before=b"", old=b"0" * 40, new=b"a" * 40):
        head = PushHead()
        line = packet(b"%s %s refs/heads/main\0report-status" % (old, new))
        head.feed(before + line + b"0000PACK" + (2).to_bytes(4, "big") + objects.to_bytes(4, "big"))
        assert head.over
        return head.complete_tips

    assert tips() == (b"a" * 40,)
    assert tips(objects=limits.VOUCHED_OBJECTS_MIN - 1) == ()
    assert tips(new=b"0" * 40) == ()
    assert tips(new=b"a" * 39 + b"\n") == ()
    assert tips(before=packet(b"shallow " + b"b" * 40)) == ()
    assert tips(before=packet(b"push-cert")) == ()
    assert PushHead().complete_tips == ()
    assert not PushHead().over


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 11, 100])
def test_a_flush_is_found_however_a_stream_is_cut_and_nowhere_else(size):
    first, second = packet(b"0000") + packet(b"") + packet(b"x" * 9) + b"0000", packet(b"0000") + b"0000"
    stream, packets, ends = first + second + packet(b"0000"), Packets(), []

    for at in range(0, len(stream), size):
        ends += [at + end for end in packets.flushes(stream[at : at + size])]

    assert ends == [len(first), len(first + second)]


def test_what_is_no_packet_has_no_flush():
    packets = Packets()

    assert packets.flushes(b"nothing0000") == packets.flushes(b"0000") == []
