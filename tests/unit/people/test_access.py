from __future__ import annotations

from dataclasses import dataclass

import pytest

from vole.base.ids import AccountId, AccountName, RepoId
from vole.people.access import may
from vole.people.model import OPERATOR, Person


@dataclass(frozen=True)
class Repo:
    id: RepoId
    public: bool


def person(*levels, kind="git", admin=False):
    return Person(AccountId(7), AccountName("ada"), admin, "SHA256:x", kind, {RepoId(1): frozenset(levels)})


NOBODY, ADMIN, RUNNER, ROBOT_ADMIN = (
    None,
    person(admin=True),
    person("run", kind="runner"),
    person("read", "write", "run", kind="runner", admin=True),
)


@pytest.mark.proves("SR-01")
@pytest.mark.parametrize(
    ("who", "public", "allowed"),
    [
        (NOBODY, False, ""),
        (NOBODY, True, "read"),
        (person(), False, ""),
        (person(), True, "read"),
        (person("read"), False, "read"),
        (person("write"), False, "read write"),
        (person("run"), False, ""),  # a git key cannot lease, whatever its account may
        (ADMIN, False, "read write"),
        (OPERATOR, False, "read write"),
        (RUNNER, False, "run"),
        (RUNNER, True, "run"),  # a runner key reads nothing, not even what is public
        (ROBOT_ADMIN, True, "run"),
        (person("read", "write", kind="runner"), True, ""),
    ],
)
def test_who_may_what(who, public, allowed):
    found = {level for level in ("read", "write", "run") if may(who, level, Repo(RepoId(1), public))}

    assert found == set(allowed.split())


def test_a_grant_counts_for_its_repository_alone():
    assert not may(person("write"), "read", Repo(RepoId(2), public=False))
