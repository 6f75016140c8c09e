"""A command from the moment its words are known to its exit status. Knows no transport and no rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from vole.base import log
from vole.base.errors import Denied, Invalid
from vole.people.model import Person
from vole.ssh import commands, refusals
from vole.ssh.answers import gates, people, queue, records, removal, replay, repos
from vole.ssh.answers.counter import Counter, Desk
from vole.ssh.commands import Streams

_log = log.get("vole.ssh.commands")

Answer = Callable[[Counter], Awaitable[None]]


async def help_(at: Counter) -> None:
    await at.say(*commands.listing(at.call.get("WORD")))


ANSWERS: Mapping[str, Answer] = {
    "user add": people.user_add,
    "user list": people.user_list,
    "user remove": people.user_remove,
    "key add": people.key_add,
    "key list": people.key_list,
    "key remove": people.key_remove,
    "grant": people.grant,
    "login": people.login,
    "sessions": people.sessions,
    "sessions revoke": people.sessions_revoke,
    "token create": people.token_create,
    "token list": people.token_list,
    "token revoke": people.token_revoke,
    "repo create": repos.repo_create,
    "repo list": repos.repo_list,
    "repo settings": repos.repo_settings,
    "repo remove": repos.repo_remove,
    "gate set": gates.gate_set,
    "gate remove": gates.gate_remove,
    "gate list": gates.gate_list,
    "gate audit": gates.gate_audit,
    "label declare": repos.label_declare,
    "label list": repos.label_list,
    "run list": queue.run_list,
    "run start": queue.run_start,
    "rerun": queue.rerun,
    "queue": queue.queue,
    "queue replay": replay.replay,
    "why": queue.why,
    "cancel": queue.cancel,
    "log": queue.log,
    "log delete": removal.log_delete,
    "artifact delete": removal.artifact_delete,
    "run prune": removal.run_prune,
    "record keys": records.record_keys,
    "record rotate": records.record_rotate,
    "runner list": queue.runner_list,
    "runner revoke": people.runner_revoke,
    "ping": people.ping,
    "help": help_,
}


async def run_command(
    desk: Desk, person: Person, words: Sequence[str], streams: Streams, answers: Mapping[str, Answer] = ANSWERS
) -> int:
    """Answer `words` and return the exit status. Cancel it when the client leaves.

    A refusal goes to the caller's standard error. Raises ConnectionError only, where `streams` do.
    """
    try:
        call = commands.parse(words)
        if person.key_kind == "runner":
            raise Denied("a runner key can do nothing but run jobs", next_step="use a git key of yours for commands")
        if call.command.admin and not person.admin:
            raise Denied(f"`{' '.join(call.command.words)}` is for admins")
        await answers[" ".join(call.command.words)](Counter(desk, person, call, streams))
    except ConnectionError:
        raise  # the caller is gone: there is nobody to refuse
    except Exception as error:
        return await _refuse(person, streams, error)
    return 0


class AdminDoor:
    """Commands as SSH carries them: one line, without a shell."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self, person: Person, line: str, streams: Streams) -> int:
        """Answer the exec command `line` and return the exit status. Cancel it when the client leaves."""
        try:
            words = commands.split(line)
        except Invalid as error:
            return await _refuse(person, streams, error)
        return await run_command(self._desk, person, words, streams)


async def _refuse(person: Person, streams: Streams, error: Exception) -> int:
    refusal = refusals.of(error)
    if refusal.reference:
        _log.error("command failed", reference=refusal.reference, account=person.name, trace=error)
    await streams.err("".join(f"{line}\n" for line in refusal.lines).encode())
    return refusal.status
