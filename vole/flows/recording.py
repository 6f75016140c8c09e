"""From the outbox to git: what ended becomes a signed record, exactly once. Holds no rule about what a record says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vole.base import limits, log
from vole.base.bell import Bells
from vole.base.clock import Clock, Moment, after, seconds
from vole.base.errors import Conflict, Invalid, NotFound, Unavailable
from vole.base.ids import RepoId
from vole.evidence import records
from vole.evidence.logs import LogStore
from vole.evidence.model import LogKey
from vole.evidence.reads import records as reads
from vole.evidence.reads.records import Debtor, Owed
from vole.evidence.records import Record
from vole.git.records import RUNS, RecordKeys, Signer, Stamp, append
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.store.database import Database
from vole.wire.records import AttemptRecord

_log = log.get("vole.recording")


@dataclass
class Recording:
    """`once` each second; `rotate` when an admin says so. Whoever uses the key holds `alone`."""

    db: Database
    bells: Bells
    storage: Storage
    logs: LogStore
    keys: RecordKeys
    clock: Clock
    wrote: Callable[[Path], None]  # hears where loose objects were left
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    _resting: dict[RepoId, Moment] = field(default_factory=dict)  # until when a repository is left alone

    async def once(self) -> None:
        """Write down all that is owed, repository by repository; one that cannot be written to stops no other."""
        for debtor in await self.db.read(reads.debtors):
            if self._resting.get(debtor.repo, 0) > self.clock.now():
                continue
            self._resting.pop(debtor.repo, None)
            try:
                await self._pay(debtor)
            except (NotFound, Conflict, Unavailable) as error:
                self._resting[debtor.repo] = after(self.clock.now(), seconds(limits.RECORDS_REST_S))
                _log.error("records wait", repo=debtor.name, why=error.sentence, again_s=limits.RECORDS_REST_S)

    async def rotate(self) -> Signer:
        """A new record key from now on; what the former ones signed stays valid."""
        async with self.alone:
            signer = await asyncio.to_thread(self.keys.rotate, self.clock.now())
        _log.info("the record key was rotated", key=signer.fingerprint)
        return signer

    async def _pay(self, debtor: Debtor) -> None:
        while owed := await self.db.read(reads.owed, debtor.repo, limits.RECORDS_AT_ONCE):
            found = [(one.row, record) for one in owed if (record := await self._record(one)) is not None]
            if found:
                await self._write(debtor, [record for _, record in found])
                # Dying in between finds the documents standing there, and writes nothing twice.
                await self.db.write(jobs.mark_recorded, [row for row, _ in found])
                self.bells.ring("records")

    async def _write(self, debtor: Debtor, found: Sequence[Record]) -> None:
        files = {records.path(record): records.document(record) for record in found}
        stamp = Stamp(records.message(found), self.clock.now())
        path = self.storage.path(debtor.name)
        async with self.alone:
            await self.storage.run(append, path, RUNS, files, self.keys, stamp)
        self.wrote(path)

    async def _record(self, owed: Owed) -> Record | None:
        """None for a row that cannot be read: it is set aside with the reason."""
        try:
            if owed.job is None or owed.epoch is None:
                return await self.db.read(reads.run, owed.run)
            record, key = await self.db.read(reads.attempt, owed.job, owed.epoch)
            return record if record.log.state == "complete" else await self._with_log(record, key)
        except Invalid as error:
            _log.error("no record can be made", row=owed.row, why=error.sentence)
            await self.db.write(jobs.set_record_aside, owed.row, error.sentence)
            return None

    async def _with_log(self, record: AttemptRecord, key: LogKey) -> AttemptRecord:
        """With what is stored of a log that is not whole; nobody appends to it any more."""
        self.logs.close_for_good(key)
        try:
            seal = await asyncio.to_thread(self.logs.seal, key)
        finally:
            self.logs.reopen(key)
        return reads.stored(record, seal.bytes, seal.sha256)
