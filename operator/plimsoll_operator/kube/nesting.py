"""Nesting depth of API objects: this process reads whatever an API server accepts.

The API server accepts Go's JSON limit, 10,000 levels, wherever a schema leaves a field open, from
any user with write access to one object in any namespace. Python's readers, ours and kopf's, stop
at the recursion limit of 1,000: one such object would end every list and watch of its kind.
"""

from __future__ import annotations

import sys

NESTED_MAX = 10_000
AROUND = 50
"""Levels around an object, in a list or an event."""
_LIMIT = NESTED_MAX + AROUND + 1_950
"""Recursion limit, callers' frames included. The readers stay within a thread's stack of 8 MiB:
deeper input is refused before it is read."""


def allow_nesting() -> None:
    """Raise the recursion limit of this process, before its first call to an API server."""
    sys.setrecursionlimit(_LIMIT)
