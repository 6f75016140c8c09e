"""`vole verify`: which clone, whose signatures, and what to say of the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vole.base.errors import Invalid, NotFound
from vole.config.server import Paths

if TYPE_CHECKING:
    from vole import verifier

_ORIGIN = re.compile(r"[^/:]+(?=/?$)")


@click.command("verify")
@click.argument("repo")
@click.option(
    "--signers",
    "given",
    type=click.Path(path_type=Path),
    help="Whose signatures count: the server's list, as /keys/record-signers has it.",
)
@click.option("--name", help="Whose records they must be; else as its origin or its folder is called.")
@click.option(
    "--files",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with `logs` and `artifacts` to hold against the records.",
)
@click.option("--seen", help="A commit of records seen before: they must still lead back to it.")
@click.pass_obj
def verify_command(
    folder: Path, repo: str, given: Path | None, name: str | None, files: Path | None, seen: str | None
) -> None:
    """Read every record of REPO, a clone with refs/vole/runs fetched, and say whether the server wrote each of them.

    On the server machine REPO may be a repository's name: signers, logs and artifacts are those of its folder.
    """
    from vole import verifier  # noqa: PLC0415  pygit2 and cryptography

    if seen is not None and not re.fullmatch("[0-9a-f]{7,40}", seen):
        raise Invalid(f"--seen: {seen[:80]!r} is no commit id: 7 to 40 lower-case hex digits")
    paths, path = Paths(folder.absolute()), Path(repo)
    if not path.exists() and (own := paths.repos / f"{repo}.git").is_dir():
        path, name, files = own, name or repo, files or paths.root
        given = given or paths.record_key.with_name("record_signers")
    objects = verifier.Objects(path)
    keys = _signers(given)
    evidence = verifier.Evidence(files)
    verdict = verifier.verify(objects, name or _name(path, objects.origin), keys, evidence, seen)
    for line in _lines(verdict, evidence):
        click.echo(line)


def _signers(path: Path | None) -> tuple[verifier.Key, ...]:
    from vole import verifier  # noqa: PLC0415

    if path is None:
        raise Invalid("whose signatures count?", next_step="--signers FILE: the list at /keys/record-signers")
    try:
        return verifier.signers(path.read_bytes(), str(path))
    except OSError as error:
        raise NotFound(
            f"{path}: {error.strerror}", next_step="--signers FILE: the list at /keys/record-signers"
        ) from None


def _name(path: Path, origin: str | None) -> str:
    found = None if origin is None else _ORIGIN.search(origin)
    return (path.resolve().name if found is None else found[0]).removesuffix(".git")


def _lines(verdict: verifier.Verdict, evidence: verifier.Evidence) -> Iterator[str]:
    told = f"attempts {verdict.attempts}, runs {verdict.runs}, commits {verdict.commits}"
    yield f"{verdict.repository} is as it was signed: {told}"
    for key, commits in verdict.keys.items():
        yield f"signed by {key.principal} with {key.fingerprint}: commits {commits}"
    for kind in sorted({*evidence.held, *evidence.absent}):
        yield f"{kind} as recorded {evidence.held[kind]}, not here {evidence.absent[kind]}"
    yield f"up to {verdict.tip}; next time --seen {verdict.tip[:10]}"
