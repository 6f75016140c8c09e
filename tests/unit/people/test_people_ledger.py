from __future__ import annotations

import pytest

from vole.base import limits
from vole.base.clock import ManualClock, after, seconds
from vole.base.entropy import SeededEntropy, digest
from vole.base.errors import Conflict, Denied, Invalid, NotFound
from vole.base.ids import AccountName, RepoId
from vole.people import keys, ledger
from vole.store.database import Tx, open_writer

ONE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6ZkSs6Pr0fgWtRzXn7YV0nVLyFJZrLvUj5kqf3bT2s ada@laptop"
APP, LIB = RepoId(1), RepoId(2)


@pytest.fixture
def tx():
    return Tx(open_writer(":memory:"), ManualClock().now(), SeededEntropy())


def later(tx, span_s):
    return Tx(tx.connection, after(tx.now, seconds(span_s)), tx.entropy)


@pytest.fixture
def ada(tx):
    return ledger.add_account(tx, AccountName("ada"), admin=False)


def test_an_account_name_is_taken_once(tx, ada):
    with pytest.raises(Conflict, match="'ada'"):
        ledger.add_account(tx, AccountName("ada"), admin=True)


@pytest.mark.proves("SR-01")
def test_a_key_belongs_to_exactly_one_account_and_one_kind(tx, ada):
    bob = ledger.add_account(tx, AccountName("bob"), admin=False)
    ledger.add_key(tx, ada, keys.parse(ONE), "git")

    for account, kind in ((ada, "git"), (ada, "runner"), (bob, "git"), (bob, "runner")):
        with pytest.raises(Conflict, match="is the git key of 'ada' already"):
            ledger.add_key(tx, account, keys.parse(ONE), kind)


def test_removing_an_account_takes_its_keys_grants_sessions_and_tokens(tx, ada):
    ledger.add_key(tx, ada, keys.parse(ONE), "git")
    ledger.grant(tx, ada, APP, "write")
    ledger.open_session(tx, ada, digest("s"))
    ledger.add_token(tx, ada, "ci", digest("t"), None)
    ledger.make_login_link(tx, ada, digest("l"))

    gone = ledger.remove_account(tx, AccountName("ada"))

    assert [key.fingerprint for key in gone] == [keys.parse(ONE).fingerprint]
    for table in ("accounts", "keys", "grants", "sessions", "tokens", "login_links"):
        assert tx.all(f"SELECT * FROM {table}") == []


def test_a_key_is_removed_for_its_owner_alone(tx, ada):
    ledger.add_key(tx, ada, keys.parse(ONE), "git")
    bob = ledger.add_account(tx, AccountName("bob"), admin=False)

    with pytest.raises(NotFound):
        ledger.remove_key(tx, keys.parse(ONE).fingerprint, bob)

    assert ledger.remove_key(tx, keys.parse(ONE).fingerprint, ada).account_name == "ada"


def test_granting_twice_is_granting_once_and_a_level_is_taken_back_alone(tx, ada):
    for level in ("write", "write", "run"):
        ledger.grant(tx, ada, APP, level)
    ledger.revoke_grant(tx, ada, APP, "write")

    assert ledger.run_grant(tx, ada) == {APP}
    assert len(tx.all("SELECT * FROM grants")) == 1
    with pytest.raises(NotFound):
        ledger.revoke_grant(tx, ada, APP, "write")


def test_forgetting_a_repository_drops_its_grants_alone(tx, ada):
    ledger.grant(tx, ada, APP, "run")
    ledger.grant(tx, ada, LIB, "run")

    ledger.drop_repo_grants(tx, APP)

    assert ledger.run_grant(tx, ada) == {LIB}


def test_a_runner_key_stands_until_it_is_removed_and_a_git_key_is_none(tx, ada):
    key = keys.parse(ONE)
    ledger.add_key(tx, ada, key, "runner")
    assert ledger.runner_key_stands(tx, key.fingerprint)
    ledger.remove_key(tx, key.fingerprint)
    ledger.add_key(tx, ada, key, "git")

    assert not ledger.runner_key_stands(tx, key.fingerprint)


def test_a_login_link_works_once_and_within_its_time(tx, ada):
    ledger.make_login_link(tx, ada, digest("once"))
    assert ledger.use_login_link(tx, "once") == ada
    ledger.make_login_link(tx, ada, digest("late"))

    for moment, token in ((tx, "once"), (tx, "never made"), (later(tx, limits.LOGIN_LINK_S), "late")):
        with pytest.raises(Denied, match="not valid, or not any more"):
            ledger.use_login_link(moment, token)


def test_a_session_is_closed_by_its_owner_or_by_its_token(tx, ada):
    first = ledger.open_session(tx, ada, digest("a"))
    ledger.open_session(tx, ada, digest("b"))
    bob = ledger.add_account(tx, AccountName("bob"), admin=False)

    with pytest.raises(NotFound):
        ledger.close_session(tx, bob, first)
    ledger.close_session(tx, ada, first)
    ledger.close_session_of(tx, "b")
    ledger.close_session_of(tx, "b")

    assert tx.all("SELECT * FROM sessions") == []


def test_dead_sessions_go_when_a_new_one_opens(tx, ada):
    ledger.open_session(tx, ada, digest("a"))

    ledger.open_session(later(tx, limits.SESSION_DAYS * 86_400), ada, digest("b"))

    assert [row["token_digest"] for row in tx.all("SELECT token_digest FROM sessions")] == [digest("b")]


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\x1b[31m"])
def test_a_token_name_is_short_and_printable(tx, ada, name):
    with pytest.raises(Invalid):
        ledger.add_token(tx, ada, name, digest("t"), None)


def test_a_token_is_kept_as_its_digest_under_a_name_used_once(tx, ada):
    ledger.add_token(tx, ada, "ci", digest("secret"), "status:app")

    with pytest.raises(Conflict):
        ledger.add_token(tx, ada, "ci", digest("other"), None)
    assert "secret" not in str([tuple(row) for row in tx.all("SELECT * FROM tokens")])
    ledger.revoke_token(tx, ada, "ci")
    with pytest.raises(NotFound):
        ledger.revoke_token(tx, ada, "ci")
