"""Answers about gates: what branches demand, and what opened them."""

from __future__ import annotations

from vole.base.ids import RefName, RepoName
from vole.evidence.gates import Gate, Requirement
from vole.evidence.reads.gates import gates_of
from vole.flows.gating import Audited
from vole.repos.model import Repo
from vole.ssh.answers.counter import Cell, Counter, when


async def gate_set(at: Counter) -> None:
    name, pattern = RepoName.parse(at.call["REPO"]), at.call["PATTERN"]
    requires = [Requirement.parse(text) for text in (at.call["REQUIREMENT"], *at.call.rest)]
    await at.desk.gating.set_gate(name, pattern, requires, at.person.name)
    await at.say(f"{name}: {pattern} demands {', '.join(one.text for one in requires)} from now on")
    repo = await at.repo(name)
    gate = next(one for one in await at.desk.db.read(gates_of, repo.id) if one.pattern == pattern)
    await at.say(*(f"note: {line}" for line in await at.desk.gating.unmet(repo, gate)))


async def gate_remove(at: Counter) -> None:
    name, pattern = RepoName.parse(at.call["REPO"]), at.call["PATTERN"]
    await at.desk.gating.remove_gate(name, pattern)
    await at.say(f"{name}: {pattern} demands nothing any more")


async def gate_list(at: Counter) -> None:
    repo = await at.repo(at.call["REPO"])
    found = await at.desk.db.read(gates_of, repo.id)
    if at.call.json:
        await at.json([_as_json(gate) for gate in found])
        return
    rows = [(one.pattern, " ".join(_texts(one)), one.set_by, when(one.set_at)) for one in found]
    await at.table(("branches", "demand", "by", "since"), rows, empty=f"{repo.name} has no gate")


async def gate_audit(at: Counter) -> None:
    repo = await at.repo(at.call["REPO"])
    branch = RefName.parse(f"refs/heads/{at.call['BRANCH'].removeprefix('refs/heads/')}")
    found, lines = await at.desk.gating.audit(repo, branch)
    if at.call.json:
        await at.json(
            {"gates": [_as_json(gate) for gate in found], "commits": [_told(at, repo, line) for line in lines]}
        )
        return
    rows = [(line.commit[:10], line.judged.requirement, _result(line), _shown(repo, line)) for line in lines]
    await at.table(("commit", "demand", "gate", "record"), rows, empty=f"no gate guards {branch.short}")


def _result(line: Audited) -> str:
    if line.judged.green:
        return "open"
    return "shut" if line.commit == line.tip else "not judged"


def _shown(repo: Repo, line: Audited) -> str:
    judged = line.judged
    if judged.green:
        record = "" if judged.record is None else f" {judged.record}"
        return _address(repo, line) + record
    came = "" if line.commit == line.tip else f"came with {line.tip[:10]}; "
    return came + judged.why


def _address(repo: Repo, line: Audited) -> str:
    return f"{repo.name}/{line.judged.evidence}" if line.judged.record else line.judged.evidence


def _told(at: Counter, repo: Repo, line: Audited) -> dict[str, Cell]:
    judged = line.judged
    number = judged.evidence.partition("/")[0]
    return {
        "commit": line.commit,
        "judged_as": line.tip,
        "requirement": judged.requirement,
        "gate": _result(line),
        "evidence": _address(repo, line) or None,
        "record": judged.record,
        "url": f"{at.desk.url}/{repo.name}/runs/{number}" if judged.record else None,
        "why": judged.why or None,
    }


def _as_json(gate: Gate) -> dict[str, object]:
    return {"pattern": gate.pattern, "requires": _texts(gate), "set_by": gate.set_by, "set_at": when(gate.set_at)}


def _texts(gate: Gate) -> list[str]:
    return [one.text for one in gate.requires]
