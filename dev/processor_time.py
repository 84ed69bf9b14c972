"""Where the processor time of this machine went while something ran: by /proc and cgroups.

What a test's process and its children used is known to it; pods, the node's programs and what runs
on the machine besides are no children of it.  Without them nobody can tell a machine that had too
much to do from one that waited.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

NODE_RUN = Path(os.environ.get("PLIMSOLL_NODE_ROOT", "/var/tmp/plimsoll-node")) / "run"
PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PODS = (
    (Path("/sys/fs/cgroup/cpuacct/kubepods/cpuacct.usage"), "", 1e9),
    (Path("/sys/fs/cgroup/kubepods/cpu.stat"), "usage_usec", 1e6),
)
"""By version of cgroups: a file, the word before the number, parts of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Seconds of a processor since each began."""

    busy: float
    idle: float
    # Waited for by this machine's processors while another machine had them.
    stolen: float
    pods: float
    # By program, and the process it was.
    node: dict[tuple[str, str], float] = field(default_factory=dict)


def read() -> Reading:
    """Of now; nothing of a node or of pods where there are none."""
    words = (PROC / "stat").read_text().split("\n", 1)[0].split()
    user, nice, system, idle, waiting, irq, softirq, stolen = (int(n) / TICKS for n in words[1:9])
    return Reading(
        busy=user + nice + system + irq + softirq,
        idle=idle + waiting,
        stolen=stolen,
        pods=_pods(),
        node=_node(),
    )


def _pods() -> float:
    for path, word, parts in PODS:
        if path.exists():
            for line in path.read_text().splitlines():
                if line.startswith(word):
                    return int(line.removeprefix(word)) / parts
    return 0.0


def _node() -> dict[tuple[str, str], float]:
    """With the children they waited for, which the network's plugins are."""
    found = {}
    for path in NODE_RUN.glob("*.pid"):
        try:
            pid, born = path.read_text().split()
            after_name = (PROC / pid / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if after_name[19] == born:
            found[path.stem, pid] = sum(map(int, after_name[11:15])) / TICKS
    return found


def told(before: Reading, after: Reading, tiers_s: float) -> str:
    """One line.  `tiers_s`: what the tiers and their children say they used, a part of the busy
    time.  What a program used that ended in between counts among the rest."""
    node = {
        name: used - before.node.get((name, pid), 0.0) for (name, pid), used in after.node.items()
    }
    busy, pods = after.busy - before.busy, max(after.pods - before.pods, 0.0)
    rest = max(busy - tiers_s - pods - sum(node.values()), 0.0)
    most = sorted(((used, name) for name, used in node.items() if used >= 1), reverse=True)
    parts = ", ".join(f"{name} {used:.0f}" for used, name in most)
    return (
        f"processors, in seconds: busy {busy:.0f} (tiers {tiers_s:.0f}, pods {pods:.0f},"
        f" the node {sum(node.values()):.0f}{f': {parts}' if parts else ''}; others {rest:.0f}),"
        f" idle {after.idle - before.idle:.0f}, stolen {after.stolen - before.stolen:.0f}"
    )
