"""How deep objects may be nested that API servers send: as deep as they take them.

They take what Go's JSON does, 10,000 levels, wherever a schema leaves open what a field holds, from
whoever may write one object in any namespace.  Python's readers, ours and kopf's, end at the limit
of recursion, 1,000: one such object would end every list and every watch of its kind.
"""

from __future__ import annotations

import sys

NESTED_MAX = 10_000
AROUND = 50
"""Levels around an object, in a list or an event."""
_LIMIT = NESTED_MAX + AROUND + 1_950
"""With the callers' frames.  The readers stay within the 8 MiB that a thread's stack has: what is
deeper is refused before it."""


def allow_nesting() -> None:
    """Of this process, before it asks an API server anything."""
    sys.setrecursionlimit(_LIMIT)
