"""`vole serve` whose git runs no hook: the same door, pumps and runs, but the verdict after the refs moved."""

from __future__ import annotations

from pathlib import Path

import vole.app
from vole.base.ids import CommitId, RefName
from vole.cli import main
from vole.flows.push import OpenGit, Pushes
from vole.git.service import GitPrograms
from vole.git.storage import pushed_refs
from vole.people.model import Level, Person
from vole.wire.hook import Question, RefUpdate

NO_HOOKS = Path("/dev/null")


def _without_hooks(_hooks: Path, lock: Path) -> GitPrograms:
    return GitPrograms(NO_HOOKS, lock)


class _Afterwards(Pushes):
    """Finds out what a push brought by comparing refs, and judges it then, as other forges do."""

    async def open(self, person: Person, name: str, level: Level) -> OpenGit:
        opened = await super().open(person, name, level)
        self._before: dict[RefName, CommitId] = {} if level == "read" else pushed_refs(opened.path)
        return opened

    async def confirm(self, push: OpenGit) -> list[str]:
        now = pushed_refs(push.path)
        updates = [RefUpdate(ref, self._before.get(ref), new) for ref, new in now.items()]
        changed = tuple(update for update in updates if update.old != update.new)
        said = await self.check(push, Question("", (), changed)) if changed else []
        return said + await super().confirm(push)


if __name__ == "__main__":
    vole.app.GitPrograms = _without_hooks  # type: ignore
    vole.app.Pushes = _Afterwards  # type: ignore
    main()
