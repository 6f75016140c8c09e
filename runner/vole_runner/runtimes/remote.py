"""A harness that somebody else runs, reached by its address. Starts nothing and ends no process.

Whatever answers now is the answer: nothing is kept from an earlier one.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from vole.base import limits
from vole.base.errors import Invalid
from vole.config.runtimes import Kind
from vole_runner.runtimes.dial import Connection
from vole_runner.runtimes.runtime import (
    ComputeState,
    Descriptor,
    ForkOpts,
    Incarnation,
    JobSpec,
    RuntimeCapabilities,
    SnapshotKind,
    SnapshotRef,
)

CLOSED = "closed"
NO_ADDRESS = "no_address"
_TOKEN = re.compile(r"[!-~]+")


class RemoteRuntime:
    """Construction dials nothing. Describe has a connection of its own, the attempt another."""

    kind: Kind = "remote"
    describes_live_harness = True
    shares_folder = False

    def __init__(self, name: str, address: str, token: str | None = None) -> None:
        self.name = name
        self._address = address
        self._token = token
        self._connection: Connection | None = None
        self._closed = False

    def capabilities(self) -> RuntimeCapabilities:
        """None of them: the process is not ours."""
        return RuntimeCapabilities()

    async def describe(self) -> Descriptor:
        """What answers at the address now. Raises Unavailable, Invalid when closed or without an address."""
        if self._closed:
            raise Invalid(f"the runtime {self.name} is closed", code=CLOSED)
        address = self._known_address()
        if self._connection is None:
            self._connection = Connection(address, token=self._token)
        return await self._connection.describe()

    async def create(self, spec: JobSpec) -> Incarnation:
        """No network. Raises Invalid for no uid or no address."""
        return self._attached(spec.uid, "an attempt without a uid gets no harness")

    async def snapshot(self, inc: Incarnation, kind: SnapshotKind) -> SnapshotRef:
        """The name of the run: what is durable is the journal. Raises Invalid for a warm snapshot."""
        if kind is not SnapshotKind.EXTERNAL:
            raise Invalid("remote keeps no warm snapshot: the journal is the durable state")
        return SnapshotRef(local=inc.id)

    async def restore(self, ref: SnapshotRef) -> Incarnation:
        return self._attached(ref.local, "a snapshot without a name restores nothing")

    async def fork(self, ref: SnapshotRef, opts: ForkOpts) -> Incarnation:  # noqa: ARG002
        return self._attached(opts.child_uid, "a fork without a uid gets no harness")

    async def stop(self, inc: Incarnation) -> None:
        """Nothing: the stream's own end has cancelled the attempt, and the process serves others."""

    async def status(self, inc: Incarnation) -> ComputeState:  # noqa: ARG002
        """Always live: whether it is reached is what probes show."""
        return ComputeState.LIVE

    async def aclose(self) -> None:
        """For good; a second time is nothing."""
        self._closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    def _attached(self, uid: str, without: str) -> Incarnation:
        if not uid:
            raise Invalid(without)
        return Incarnation(id=uid, address=self._known_address(), runtime=self.name, kind=self.kind, token=self._token)

    def _known_address(self) -> str:
        if not self._address:
            raise Invalid(f"the runtime {self.name} has no address", code=NO_ADDRESS)
        return self._address


def read_token(path: Path) -> str:
    """The bearer token in `path`. Raises Invalid for a file that others may read, or with no token in it."""
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            raw = file.read(limits.TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"token-file {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise Invalid(f"token-file {path} can be read by others", next_step=f"chmod 600 {path}")
    text = raw.decode("ascii", "replace").strip()
    if len(raw) > limits.TOKEN_BYTES_MAX or not _TOKEN.fullmatch(text):
        most = limits.TOKEN_BYTES_MAX
        raise Invalid(f"token-file {path}: one word of printable ASCII is needed, of at most {most} bytes")
    return text
