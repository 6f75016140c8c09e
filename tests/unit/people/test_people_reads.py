from __future__ import annotations

import pytest

from tests.aio import run
from vole.base import limits
from vole.base.clock import ManualClock, seconds
from vole.base.entropy import SeededEntropy, digest
from vole.base.ids import AccountName, RepoId
from vole.people import keys, ledger, reads
from vole.store.database import Database

ONE = keys.parse("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6ZkSs6Pr0fgWtRzXn7YV0nVLyFJZrLvUj5kqf3bT2s ada")


def with_ada(tmp_path, story):
    async def whole():
        clock = ManualClock()
        db = await Database.open(tmp_path / "vole.db", clock, SeededEntropy())
        try:
            ada = await db.write(ledger.add_account, AccountName("ada"), admin=False)
            await story(db, clock, ada)
        finally:
            await db.close()

    run(whole())


def test_the_owner_of_a_key_comes_with_kind_and_grants(tmp_path):
    async def story(db, clock, ada):
        await db.write(ledger.add_key, ada, ONE, "runner")
        for level in ("read", "run"):
            await db.write(ledger.grant, ada, RepoId(1), level)

        person = await db.read(reads.person_of_key, ONE.fingerprint)

        assert (person.name, person.key_kind, person.key_fingerprint) == ("ada", "runner", ONE.fingerprint)
        assert person.levels == {RepoId(1): {"read", "run"}}
        assert await db.read(reads.person_of_key, "SHA256:none") is None
        assert await db.read(reads.persons_of_keys, [ONE.fingerprint, "x"]) == {ONE.fingerprint: person}

    with_ada(tmp_path, story)


@pytest.mark.proves("SR-46a")
def test_a_session_is_of_its_owner_until_it_is_over(tmp_path):
    async def story(db, clock, ada):
        await db.write(ledger.open_session, ada, digest("secret"))
        assert (await db.read(reads.person_of_session, "secret")).name == "ada"
        assert await db.read(reads.person_of_session, digest("secret")) is None

        clock.advance(seconds(limits.SESSION_DAYS * 86_400))

        assert await db.read(reads.person_of_session, "secret") is None
        assert await db.read(reads.sessions, ada) == []

    with_ada(tmp_path, story)


def test_a_token_says_its_owner_and_scope(tmp_path):
    async def story(db, clock, ada):
        await db.write(ledger.add_token, ada, "ci", digest("secret"), "status:app")

        person, scope = await db.read(reads.person_of_token, "secret")

        assert (person.name, scope) == ("ada", "status:app")
        assert await db.read(reads.person_of_token, "other") is None
        assert [token.name for token in await db.read(reads.tokens, ada)] == ["ci"]

    with_ada(tmp_path, story)


def test_lists_are_narrowed_by_what_is_asked_for(tmp_path):
    async def story(db, clock, ada):
        bob = await db.write(ledger.add_account, AccountName("bob"), admin=True)
        await db.write(ledger.add_key, ada, ONE, "git")
        await db.write(ledger.grant, bob, RepoId(1), "read")
        await db.write(ledger.grant, ada, RepoId(2), "read")

        assert [account.name for account in await db.read(reads.accounts)] == ["ada", "bob"]
        assert await db.read(reads.keys, bob) == []
        assert [key.comment for key in await db.read(reads.keys)] == ["ada"]
        assert [grant.account_name for grant in await db.read(reads.grants, repo=RepoId(1))] == ["bob"]
        assert [grant.repo for grant in await db.read(reads.grants, account=ada)] == [RepoId(2)]

    with_ada(tmp_path, story)
