"""How the garbage collector runs in a process that leads clusters.

Called once by each entry point, after its imports.  Images are large and hold no cycles: with the
defaults, a decision about ten thousand partitions spends a third of its time on looking for some.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 50_000
GENERATIONS = 20


def tune() -> None:
    """What exists after the imports is never looked at again; what is new, less often."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, GENERATIONS, GENERATIONS)
