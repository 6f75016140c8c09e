"""The simulation itself: it repeats itself exactly, tells what broke, reaches everything, and finds planted faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.sim import mutants
from tests.sim.__main__ import Corpus, corpus
from tests.sim.actions import ACTIONS
from tests.sim.history import play

QUICK = (
    "any epoch will do",
    "any holder will do",
    "a restart gives no fresh span",
    "a stall expires leases",
    "time begins anew at a start",
    "labels are no matter",
    "a job does not wait for its group",
    "an end rings no bell",
    "slots are one more",
    "the newest comes first",
    "a push rings no bell",
    "commits are let go",
)


def test_the_same_seed_is_the_same_history_in_any_process():
    first, second = play(3), play(3)
    elsewhere = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", "3"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": f"{ROOT}:{ROOT / 'runner'}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert first.broken == []
    assert first.digest == second.digest
    assert first.events > 20
    assert first.digest in elsewhere.stdout
    assert play(4).digest != first.digest


def test_what_was_played_before_does_not_change_a_history():
    seeds = (303, 258, 262, 300, 256, 257)  # servers die in them with many tasks on their way
    before = {seed: play(seed).digest for seed in seeds}

    assert {seed: play(seed).digest for seed in sorted(seeds)} == before


def test_what_broke_is_told_with_its_seed_and_what_led_there_and_breaks_again():
    (mutant,) = (one for one in mutants.MUTANTS if one.name == "slots are one more")
    with mutants.planted(mutant):
        after, by = mutants.hunted_once(mutant)
        broken = play(after - 1)
        again = play(after - 1)

    assert by.startswith("I-11")
    assert broken.told() == again.told()
    assert f"SEED={after - 1} broke" in broken.told()
    assert len(broken.actions) > 1
    assert play(after - 1).broken == []


def test_the_text_of_every_mutant_stands_in_the_code_and_there_are_thirty():
    for mutant in mutants.MUTANTS:
        with mutants.planted(mutant):
            pass
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)
    assert len(mutants.PROVEN) >= 30
    assert mutants.ELSEWHERE.keys() <= {mutant.name for mutant in mutants.MUTANTS}


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_found(name):
    _, after, by = mutants.hunt(name)

    assert after, f"{name} was not caught within {mutants.HISTORIES_MAX} histories"
    assert by


def test_a_short_corpus_holds():
    found = Corpus()
    for seed in range(1, 21):
        found.add(play(seed))

    assert not found.failures, found.failures[0].told()
    assert found.events > 300


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.MUTANTS])
def test_every_planted_fault_is_found(name):
    test_a_planted_fault_is_found(name)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.proves(
    "I-01", "I-02", "I-03", "I-04", "I-05", "I-06", "I-07", "I-08", "I-09", "I-10", "I-11", "I-12", "I-13", "I-14",
    "I-15", "I-16", "I-17", "I-18", "I-19", "I-20", "I-21", "I-22", "I-23", "I-24", "I-27", "I-28", "I-29",
)  # fmt: skip
def test_a_long_corpus_holds_and_reaches_every_transition():
    found = corpus(2_000)

    assert not found.failures, found.failures[0].told()
    assert found.unreached() == []


def test_every_action_says_what_it_did_and_has_a_weight():
    assert all(action.weight > 0 for action in ACTIONS.values())
