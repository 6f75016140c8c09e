"""Whatever is sent, acknowledged and cut: a host that comes back hears every event and every byte once, in order."""

from __future__ import annotations

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vole.base.clock import ManualClock
from vole.wire import harness_pb2 as pb
from vole_runner.harness.spool import Spool


class SpoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.spool = Spool("a", 1 << 20, ManualClock())
        self.put: list[tuple[str, int]] = []
        self.heard: list[tuple[str, int]] = []
        self.through = {"event": 0, "log": 0}  # heard
        self.acked = {"event": 0, "log": 0}
        self.frames = self.spool.frames()

    def teardown(self) -> None:
        self.loop.close()

    @rule(kind=st.sampled_from(["event", "log", "beat"]))
    def says(self, kind: str) -> None:
        if kind == "event":
            self.spool.event(mask=pb.Mask())
            self.put.append(("event", self.spool.last_seq))
        elif kind == "log":
            self.spool.chunk("1", pb.STDOUT, 0, b"x")
            self.put.append(("log", self.spool.last_log_seq))
        else:
            self.spool.beat(pb.Heartbeat())

    @rule(count=st.integers(1, 5))
    def hears(self, count: int) -> None:
        for _ in range(min(count, len(self.spool._queue))):
            frame = self.loop.run_until_complete(anext(self.frames))
            if frame.HasField("heartbeat"):
                continue
            kind, seq = ("event", frame.seq) if frame.seq else ("log", frame.log.seq)
            assert seq <= self.through[kind] + 1, "a gap"
            if seq == self.through[kind] + 1:
                self.through[kind] = seq
                self.heard.append((kind, seq))

    @rule(kind=st.sampled_from(["event", "log"]), back=st.integers(0, 3))
    def acknowledges(self, kind: str, back: int) -> None:
        self.acked[kind] = max(self.acked[kind], self.through[kind] - back)
        self.spool.ack(log_through=self.acked["log"], events_through=self.acked["event"])

    @rule(lost=st.integers(0, 3), back=st.integers(0, 3))
    def comes_back(self, lost: int, back: int) -> None:
        for _ in range(min(lost, len(self.spool._queue))):  # on the wire when it was cut
            self.loop.run_until_complete(anext(self.frames))
        events, log = (max(self.acked[kind], self.through[kind] - back) for kind in ("event", "log"))
        self.spool.replay(events_from=events + 1, log_from=log + 1)
        self.acked = {"event": events, "log": log}
        self.frames = self.spool.frames()

    @invariant()
    def in_order(self) -> None:
        assert self.heard == self.put[: len(self.heard)]


TestSpool = SpoolMachine.TestCase
