"""Figures that must not get worse: `recorded.json`, written by a command and kept in git.

Less is better for all of them. Counts are judged always. A multiple of the floor is judged on an
idle machine of the kind on which it was recorded: another, and other programs, leave other parts of
code and data in the caches, which changes the multiple by as much as the bound.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("recorded.json")
WORSE, MORE_CALLS = 1.15, 1.1
MULTIPLE, CALLS = ", times the floor", ", calls"
"""How the judged figures end; others are recorded to be read."""
OTHERS_CORES_MAX = 0.1
"""A machine on which other programs take more of a processor is not idle."""


def machine() -> str:
    """Return the processor and the Python that measure."""
    text = Path("/proc/cpuinfo").read_text()
    found = dict(
        re.findall(r"^(vendor_id|cpu family|model|cache size)\s*: (.*)$", text, re.MULTILINE)
    )
    return ", ".join([*found.values(), f"Python {platform.python_version()}"])


def write(found: Mapping[str, float], file: Path = FILE) -> None:
    """Record figures; the others stay."""
    kept = json.loads(file.read_text())["figures"] if file.exists() else {}
    said = {"machine": machine(), "figures": kept | {k: round(v, 3) for k, v in found.items()}}
    file.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def worse(found: Mapping[str, float], others_cores: float, file: Path = FILE) -> list[str]:
    """Return a sentence about each recorded figure that is worse, a multiple by 15 %, calls by
    10 %. `others_cores`: what other programs took meanwhile, in processors."""
    said = json.loads(file.read_text())
    recorded = said["figures"]
    bounds = {CALLS: MORE_CALLS}
    if said["machine"] == machine() and others_cores <= OTHERS_CORES_MAX:
        bounds[MULTIPLE] = WORSE
    return [
        f"{name} is {value:.4g}, {value / recorded[name] - 1:.0%} more than recorded "
        f"({recorded[name]:.4g}). Profile it, or record it anew and say why."
        for ending, bound in bounds.items()
        for name, value in found.items()
        if name.endswith(ending) and value > recorded.get(name, math.inf) * bound
    ]
