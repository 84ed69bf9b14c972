"""Settings of the garbage collector for a process that must not pause.

Called once by each entry point, after its imports.  What we make hardly ever holds cycles, and
references free it; with the defaults, a process that takes up some hundred thousand objects looks
at all it has again and again, for tens to hundreds of milliseconds each time.
"""

from __future__ import annotations

import gc


def tune(young_objects: int = 50_000, looks: int = 20, second_looks: int = 20) -> None:
    """Exclude all present objects from garbage collection, and set the thresholds for new ones:
    collect the youngest once `young_objects` more were created than freed, the next generation
    after `looks` such collections, and all after `second_looks` of these."""
    gc.freeze()
    gc.set_threshold(young_objects, looks, second_looks)
