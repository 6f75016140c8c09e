"""The story of a push, and what it plans. The order of steps; holds no SQL, no rule, no timer."""

from vole.flows.push.planning import OpenGit
from vole.flows.push.story import Pushes, PushParts, confirm_push, intend_push

__all__ = ["OpenGit", "PushParts", "Pushes", "confirm_push", "intend_push"]
