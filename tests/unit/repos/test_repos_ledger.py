from __future__ import annotations

import pytest

from vole.base.clock import ManualClock
from vole.base.entropy import SeededEntropy
from vole.base.errors import Conflict, NotFound, Unavailable
from vole.base.ids import AccountName, CommitId, PushId, RefName, RepoName
from vole.repos import ledger
from vole.repos.model import Intent, RunDocument
from vole.store.database import Tx, open_writer
from vole.wire import codec
from vole.wire.hook import RefUpdate
from vole.wire.plan import EventFacts, RunPlan

A, B = CommitId("a" * 40), CommitId("b" * 40)
MAIN, TOPIC = RefName("refs/heads/main"), RefName("refs/heads/topic")


@pytest.fixture
def tx():
    return Tx(open_writer(":memory:"), ManualClock().now(), SeededEntropy())


@pytest.fixture
def app(tx):
    return ledger.create_repo(tx, RepoName("app"), public=False)


def a_plan(ref=MAIN):
    event = EventFacts("push", ref, ref.short, "branch", None, A, "ada")
    return RunPlan(ref, A, "ci", ".vole/workflows/ci.yml", B, event, ())


def an_intent(app, *refs):
    updates = tuple(RefUpdate(ref, None, A) for ref in refs)
    runs = tuple(RunDocument(ref, codec.canonical(a_plan(ref)).decode()) for ref in refs)
    return Intent(app.id, AccountName("ada"), "SHA256:x", ("ci.wait",), updates, runs)


def state(tx):
    return [row["state"] for row in tx.all("SELECT state FROM pushes ORDER BY id")]


def test_a_repository_name_is_taken_once(tx, app):
    with pytest.raises(Conflict):
        ledger.create_repo(tx, RepoName("app"), public=True)


def test_settings_of_a_repository_change_and_a_missing_one_is_not_found(tx, app):
    ledger.set_public(tx, app.id, public=True)
    ledger.set_description(tx, app.id, "x")

    assert (ledger.named(tx, app.name).public, ledger.named(tx, app.name).description) == (True, "x")
    ledger.remove_repo(tx, app.id)
    for change in (
        lambda: ledger.named(tx, app.name),
        lambda: ledger.remove_repo(tx, app.id),
        lambda: ledger.set_public(tx, app.id, public=True),
        lambda: ledger.set_description(tx, app.id, "x"),
        lambda: ledger.intend(tx, an_intent(app, MAIN)),
    ):
        with pytest.raises(NotFound):
            change()


def test_only_one_intent_of_a_repository_is_open(tx, app):
    ledger.intend(tx, an_intent(app, MAIN))

    with pytest.raises(Unavailable):
        ledger.intend(tx, an_intent(app, TOPIC))


@pytest.mark.proves("I-27")
def test_a_confirmed_intent_says_which_refs_moved(tx, app):
    push = ledger.intend(tx, an_intent(app, TOPIC, MAIN))

    assert ledger.confirm(tx, push, {MAIN})
    assert state(tx) == ["confirmed"]
    moved = tx.all("SELECT ref, moved FROM push_updates ORDER BY ordinal")
    assert [tuple(row) for row in moved] == [(TOPIC, 0), (MAIN, 1)]


@pytest.mark.proves("I-27")
def test_confirming_twice_is_confirming_once(tx, app):
    push = ledger.intend(tx, an_intent(app, MAIN))
    ledger.confirm(tx, push, {MAIN})

    assert not ledger.confirm(tx, push, {MAIN})
    assert not ledger.confirm(tx, PushId(1), {MAIN})


def test_an_intent_of_which_nothing_moved_is_dropped_with_its_documents(tx, app):
    push = ledger.intend(tx, an_intent(app, MAIN))

    assert ledger.confirm(tx, push, frozenset())
    assert state(tx) == ["dropped"]
    assert tx.all("SELECT * FROM push_runs") == []
    assert not ledger.confirm(tx, push, {MAIN})
    assert state(tx) == ["dropped"]


def test_forgetting_a_repository_takes_its_pushes(tx, app):
    push = ledger.intend(tx, an_intent(app, MAIN))

    ledger.remove_repo(tx, app.id)

    assert state(tx) == []
    assert not ledger.confirm(tx, push, {MAIN})
