"""Settings of the garbage collector for a process that must not pause.

Called once by each entry point, after its imports.  What we make hardly ever holds cycles, and
references free it; with the defaults, a process that takes up some hundred thousand objects looks
at all it has again and again, for tens to hundreds of milliseconds each time.
"""

from __future__ import annotations

import gc


def tune(young_objects: int = 50_000, looks: int = 20, second_looks: int = 20) -> None:
    """What exists after the imports is never looked at again.  New objects are, once there are
    `young_objects` more of them than were freed; those that stay, after `looks` such looks; and
    all, after `second_looks` of these.
    """
    gc.freeze()
    gc.set_threshold(young_objects, looks, second_looks)
