"""Commands answered on a real store, without a door: who may, what is said, what is never said."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pygit2
import pytest

from tests.aio import run
from tests.queueing import a_job, a_run
from vole.app import App
from vole.base import limits
from vole.base.entropy import digest
from vole.base.ids import PushId, RepoName
from vole.cli.founding import found
from vole.config import server
from vole.jobs import ledger as jobs
from vole.jobs.model import RunSource
from vole.people import keys
from vole.people import reads as people
from vole.people.model import OPERATOR, Person
from vole.repos import reads as repos
from vole.ssh import commands
from vole.ssh.admin_session import ANSWERS, AdminDoor, run_command
from vole.ssh.answers.counter import Counter, aligned


def a_key_line(seed: int) -> str:
    """The public key line of an ed25519 key that nobody has."""
    fields = (b"ssh-ed25519", bytes([seed]) * 32)
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in fields)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} ada@laptop\n"


ADAS_KEY, BOBS_KEY = a_key_line(1), a_key_line(2)


@dataclass
class Heard:
    """The streams of a command whose caller only listens."""

    stdin: bytes = b""
    out_bytes: bytes = b""
    err_bytes: bytes = b""

    async def read(self, most: int) -> bytes:
        data, self.stdin = self.stdin[:most], self.stdin[most:]
        return data

    async def out(self, data: bytes) -> None:
        self.out_bytes += data

    async def err(self, data: bytes) -> None:
        self.err_bytes += data


@dataclass
class Answered:
    status: int
    out: str
    err: str


@dataclass
class House:
    """A store with Ada (admin), Bob, and a repository each may see or not."""

    app: App
    log: list[str] = field(default_factory=list)

    async def says(self, person: Person, line: str, stdin: str | bytes = b"") -> Answered:
        heard = Heard(stdin.encode() if isinstance(stdin, str) else stdin)
        status = await AdminDoor(self.app.desk).run(person, line, heard)
        return Answered(status, heard.out_bytes.decode(), heard.err_bytes.decode())

    async def person(self, name: str) -> Person:
        person = await self.app.db.read(people.person_named, name)
        assert person is not None
        return person


@asynccontextmanager
async def a_house(folder: Path) -> AsyncIterator[House]:
    found(folder / "forge", server.template(url="https://forge.example"))
    async with App.closed_doors(server.load(folder / "forge")) as app:
        house = House(app)
        for line in (
            "user add ada --admin",
            "user add bob",
            "repo create open --public",
            "repo create secret --description 'not for bob'",
        ):
            assert (await house.says(OPERATOR, line)).status == 0
        yield house


def story(tmp_path: Path, told: Callable[[House], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with a_house(tmp_path) as house:
            await told(house)

    run(tell())


ADMIN_LINES = [
    " ".join([*command.grammar.words, *(["bob"] * len(command.grammar.needed))])
    for command in commands.TABLE
    if command.admin
]


@pytest.mark.parametrize("line", ADMIN_LINES)
def test_a_command_for_admins_is_refused_to_everyone_else(tmp_path: Path, line: str) -> None:
    async def told(house: House) -> None:
        answered = await house.says(await house.person("bob"), line)

        assert (answered.status, answered.out) == (1, "")
        assert "is for admins" in answered.err

    story(tmp_path, told)


@pytest.mark.proves("SR-01")
def test_a_runner_key_says_no_command(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        ada = await house.person("ada")
        runner = Person(ada.account, ada.name, admin=True, key_fingerprint="SHA256:x", key_kind="runner")

        for command in commands.TABLE:
            line = " ".join([*command.grammar.words, *(["open/1/a"] * len(command.grammar.needed))])
            answered = await house.says(runner, line)
            assert (answered.status, answered.out) == (1, ""), line
            assert "a runner key can do nothing but run jobs" in answered.err

    story(tmp_path, told)


def test_a_private_repository_answers_like_a_missing_one(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        for line in (
            "why {}/1/a",
            "cancel {}/1",
            "log {}/1/a",
            "log delete {}/1",
            "artifact delete {}/1/a",
            "run list {}",
            "token create t --scope status:{}",
        ):
            private = await house.says(bob, line.format("secret"))
            missing = await house.says(bob, line.format("absent"))

            assert private.status == missing.status == 1
            assert private.err.replace("secret", "absent") == missing.err
        assert "secret" not in (await house.says(bob, "repo list")).out

    story(tmp_path, told)


def test_reading_is_not_cancelling(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")

        assert "there is no run 1" in (await house.says(bob, "why open/1")).err
        assert "takes `write`" in (await house.says(bob, "cancel open/1")).err
        await house.says(OPERATOR, "grant bob open write")
        assert "there is no run 1" in (await house.says(await house.person("bob"), "cancel open/1")).err

    story(tmp_path, told)


def test_a_label_is_declared_by_who_may_push_somewhere_and_by_no_other(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        refused = await house.says(await house.person("bob"), "label declare gpu")
        await house.says(OPERATOR, "grant bob open write")
        taken = await house.says(await house.person("bob"), "label declare gpu")

        assert (refused.status, taken.status) == (1, 0)
        assert "push" in refused.err
        assert "gpu" in (await house.says(OPERATOR, "label list")).out

    story(tmp_path, told)


def test_a_key_is_added_listed_and_removed_by_its_owner_and_by_no_other(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        ada, bob = await house.person("ada"), await house.person("bob")

        added = await house.says(bob, "key add bob", BOBS_KEY)
        assert added.status == 0, added.err
        assert (await house.says(ada, "key add ada --runner", ADAS_KEY)).status == 0
        (own,) = json.loads((await house.says(bob, "key list --json")).out)
        assert (own["user"], own["kind"], own["comment"]) == ("bob", "git", "ada@laptop")
        every = json.loads((await house.says(ada, "key list --json")).out)
        assert [(key["user"], key["kind"]) for key in every] == [("ada", "runner"), ("bob", "git")]

        stranger = await house.says(bob, "key add ada", BOBS_KEY)
        assert (stranger.status, "for the account itself" in stranger.err) == (1, True)
        assert (await house.says(bob, f"key remove {every[0]['fingerprint']}")).status == 1
        assert (await house.says(bob, "key list ada")).status == 1
        assert (await house.says(bob, f"key remove {own['fingerprint']}")).status == 0
        assert (await house.says(bob, "key list --json")).out == "[]\n"

    story(tmp_path, told)


def test_what_is_no_public_key_is_refused(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        for text in ("", "hello", "-----BEGIN OPENSSH PRIVATE KEY-----\n", b"\xff\xfe"):
            answered = await house.says(OPERATOR, "key add bob", text)
            assert answered.status == 2, text
        long = await house.says(OPERATOR, "key add bob", "x" * (limits.COMMAND_STDIN_BYTES_MAX + 1))
        assert (long.status, "COMMAND_STDIN_BYTES_MAX" in long.err) == (75, True)

    story(tmp_path, told)


@pytest.mark.proves("SR-46a")
def test_a_login_link_opens_one_session_once_and_the_session_can_be_revoked(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        link = (await house.says(bob, "login")).out.strip()
        assert link.startswith("https://forge.example/login/")
        secret = link.rsplit("/", 1)[1]

        session = await house.app.administration.log_in(secret)
        with pytest.raises(Exception, match="not valid, or not any more"):
            await house.app.administration.log_in(secret)

        known = await house.app.db.read(people.person_of_session, session)
        assert known is not None
        assert known.name == "bob"
        (row,) = json.loads((await house.says(bob, "sessions --json")).out)
        assert (await house.says(await house.person("ada"), f"sessions revoke {row['id']}")).status == 1
        assert (await house.says(bob, f"sessions revoke {row['id']}")).status == 0
        assert await house.app.db.read(people.person_of_session, session) is None

    story(tmp_path, told)


@pytest.mark.proves("SR-46a")
def test_a_token_is_printed_once_and_kept_as_a_digest(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        secret = (await house.says(bob, "token create ci --scope status:open")).out.strip()

        found = await house.app.db.read(people.person_of_token, secret)
        assert found is not None
        assert (found[0].name, found[1]) == ("bob", "status:open")
        listed = await house.says(bob, "token list --json")
        assert secret not in listed.out
        assert digest(secret) not in listed.out
        assert (await house.says(bob, "token revoke ci")).status == 0
        assert await house.app.db.read(people.person_of_token, secret) is None
        assert (await house.says(bob, "token create ci --scope admin")).status == 2

    story(tmp_path, told)


def test_only_the_operator_speaks_for_another_account(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        for line in ("login", "sessions", "token list", "token create t"):
            assert (await house.says(await house.person("ada"), f"{line} --user bob")).status == 1, line
            assert "name one with --user" in (await house.says(OPERATOR, line)).err
            assert (await house.says(OPERATOR, f"{line} --user bob")).status == 0, line

    story(tmp_path, told)


@pytest.mark.proves("SR-27")
@pytest.mark.parametrize(
    "line",
    [
        "user remove bob",
        "key remove {key}",
        "runner revoke {key}",
        "grant bob open run --remove",
        "repo remove open --yes",
    ],
)
def test_taking_something_away_rings_the_bell_of_open_connections(tmp_path: Path, line: str) -> None:
    async def told(house: House) -> None:
        await house.says(OPERATOR, "key add bob --runner", BOBS_KEY)
        await house.says(OPERATOR, "grant bob open run")
        (key,) = json.loads((await house.says(OPERATOR, "key list bob --json")).out)

        with house.app.bells.listening("people") as listener:
            answered = await house.says(OPERATOR, line.format(key=key["fingerprint"]))

            assert answered.status == 0, answered.err
            assert await listener.wait(1)

    story(tmp_path, told)


@pytest.mark.proves("SR-27")
@pytest.mark.parametrize("taken", ["grant bob secret read --remove", "user remove bob", "repo remove secret --yes"])
def test_a_followed_log_ends_when_its_reader_may_not_read_any_more(tmp_path: Path, taken: str) -> None:
    async def told(house: House) -> None:
        await house.says(OPERATOR, "key add bob", BOBS_KEY)
        await house.says(OPERATOR, "grant bob secret read")
        repo = await house.app.db.read(repos.repo_named, RepoName("secret"))
        assert repo is not None
        source = RunSource(repo.id, PushId(1), 0)
        await house.app.db.write(jobs.enqueue_run, house.app.index, source, a_run(a_job(repo="secret")), {})
        bob = await house.app.db.read(people.person_of_key, keys.parse(BOBS_KEY).fingerprint)
        assert bob is not None

        following = asyncio.create_task(house.says(bob, "log secret/1/test -f"))
        assert not (await asyncio.wait([following], timeout=0.2))[0]
        assert (await house.says(OPERATOR, taken)).status == 0
        answered = await asyncio.wait_for(following, 4)

        assert (answered.status, answered.out) == (1, "")
        assert "no repository 'secret' that you may read" in answered.err

    story(tmp_path, told)


def test_the_queue_says_why_each_job_waits(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        repo = await house.app.db.read(repos.repo_named, RepoName("open"))
        assert repo is not None
        source, plan = RunSource(repo.id, PushId(1), 0), a_run(a_job(repo="open"))
        await house.app.db.write(jobs.enqueue_run, house.app.index, source, plan, {plan.jobs[0].key: ("gpu",)})

        said = await house.says(await house.person("bob"), "queue")

        assert "waits: no runner is connected" in said.out

    story(tmp_path, told)


def test_a_repository_goes_with_its_grants_and_only_when_that_is_said(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        await house.says(OPERATOR, "grant bob open write")

        assert (await house.says(OPERATOR, "repo remove open")).status == 2
        assert (await house.says(OPERATOR, "repo remove open --yes")).status == 0

        assert not house.app.storage.path("open").exists()
        assert (await house.says(OPERATOR, "grant --json")).out == "[]\n"
        assert (await house.says(OPERATOR, "repo create open")).status == 0

    story(tmp_path, told)


def test_settings_of_a_repository_are_shown_and_changed(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        changed = json.loads(
            (await house.says(OPERATOR, "repo settings open --private --description 'two words' --json")).out
        )

        assert (changed["public"], changed["description"], changed["default branch"]) == (False, "two words", "main")
        assert changed["page"] == "https://forge.example/open"
        assert (await house.says(OPERATOR, "repo settings open --public --private")).status == 2
        assert (await house.says(OPERATOR, "repo settings open --default-branch absent")).status == 1
        bare = pygit2.Repository(str(house.app.storage.path(RepoName("open"))))
        who, tree = pygit2.Signature("Ada", "ada@example.org"), bare.TreeBuilder().write()
        bare.create_commit("refs/heads/topic", who, who, "m", tree, [])
        settled = await house.says(OPERATOR, "repo settings open --default-branch topic --json")
        assert json.loads(settled.out)["default branch"] == "topic"
        assert bare.lookup_reference("HEAD").target == "refs/heads/topic"
        assert (await house.says(OPERATOR, "repo settings open --description 'a\nb'")).status == 2

    story(tmp_path, told)


def test_every_list_has_json_and_an_empty_one_says_what_to_do(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        for command in commands.TABLE:
            if "--json" not in command.grammar.flags or command.grammar.needed:
                continue
            who = OPERATOR if command.admin else bob
            answered = await house.says(who, f"{' '.join(command.words)} --json")
            assert answered.status == 0, answered.err
            json.loads(answered.out)
        assert "nothing waits" in (await house.says(bob, "queue")).err

    story(tmp_path, told)


def test_a_fault_of_ours_is_a_reference_to_them_and_a_trace_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(at: Counter) -> None:
        raise RuntimeError(f"secret detail of {at.person.name}")

    async def told(house: House) -> None:
        heard = Heard()
        answers = {**ANSWERS, "ping": broken}

        status = await run_command(house.app.desk, OPERATOR, ["ping"], heard, answers)

        assert status == 70
        assert b"secret detail" not in heard.err_bytes
        (record,) = [record for record in caplog.records if record.name == "vole.ssh.commands"]
        assert record.fields["reference"] in heard.err_bytes.decode()  # type: ignore[attr-defined]
        assert record.exc_info is not None

    with caplog.at_level(logging.ERROR):
        story(tmp_path, told)


def test_a_table_is_aligned_and_nothing_in_it_moves_a_cursor() -> None:
    lines = aligned(("name", "since"), [("a\x1b[2J\nb", None), ("longer name here", True)])

    assert lines == ["name              since", r"a\x1b[2J\x0ab     -", "longer name here  yes"]


def test_gates_are_set_listed_and_taken_away_by_admins_and_shown_to_readers(tmp_path: Path) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        for pattern, demands in (("main", "ci/test ci"), ("main", "ci/build"), ("'release/*'", "status:deploy/try")):
            assert (await house.says(OPERATOR, f"gate set open {pattern} {demands}")).status == 0

        found = json.loads((await house.says(bob, "gate list open --json")).out)

        assert [(gate["pattern"], gate["requires"], gate["set_by"]) for gate in found] == [
            ("main", ["ci/build"], "operator"), ("release/*", ["status:deploy/try"], "operator"),
        ]  # fmt: skip
        assert "ci/build" in (await house.says(bob, "gate list open")).out
        assert (await house.says(OPERATOR, "gate remove open main")).status == 0
        assert (await house.says(OPERATOR, "gate remove open main")).status == 1
        assert len(json.loads((await house.says(bob, "gate list open --json")).out)) == 1

    story(tmp_path, told)


@pytest.mark.parametrize("line", ["gate list {}", "gate audit {} main"])
def test_gates_of_a_private_repository_answer_like_those_of_a_missing_one(tmp_path: Path, line: str) -> None:
    async def told(house: House) -> None:
        bob = await house.person("bob")
        private, missing = await house.says(bob, line.format("secret")), await house.says(bob, line.format("absent"))

        assert private.status == missing.status == 1
        assert private.err.replace("secret", "absent") == missing.err

    story(tmp_path, told)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("gate set open main /test", "is no requirement"),
        ("gate set open main ci/", "is no requirement"),
        ("gate set open '!main' ci", "takes away from nothing"),
        ("gate set open 'a[' ci", "without its"),
        ("gate set open main", "REQUIREMENT is missing"),
        ("gate set absent main ci", "there is no repository"),
        ("gate audit open main", "has no branch 'main'"),
        ("gate audit open 'ma in'", "has no branch"),
        ("gate audit open a..b", "has no branch"),
        ("gate audit open ''", "has no branch"),
    ],
)
def test_what_is_no_gate_is_refused_in_a_sentence(tmp_path: Path, line: str, why: str) -> None:
    async def told(house: House) -> None:
        answered = await house.says(OPERATOR, line)

        assert answered.status in (1, 2)
        assert why in answered.err

    story(tmp_path, told)
