"""Answers about the keys that sign records."""

from __future__ import annotations

from vole.base.clock import Moment, seconds
from vole.ssh.answers.counter import Counter, when


async def record_keys(at: Counter) -> None:
    rows = [
        (signer.fingerprint, signer.principal, _when(signer.after_s), _when(signer.before_s))
        for signer in at.desk.recording.keys.signers
    ]
    await at.table(("key", "signs as", "from", "until"), rows, empty="no record key")


async def record_rotate(at: Counter) -> None:
    signer = await at.desk.recording.rotate()
    await at.say(
        f"records are signed with {signer.fingerprint} from now on",
        f"verifiers fetch the list of signers again: {at.desk.url}/keys/record-signers",
    )


def _when(second: int | None) -> str | None:
    return None if second is None else when(Moment(seconds(second)))
