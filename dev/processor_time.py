"""Where the processor time of this machine went while something ran: by /proc and cgroups.

What a test's process and its children used is known to it; pods, the node's programs and what runs
on the machine besides are no children of it.  Without them nobody can tell a machine that had too
much to do from one that waited.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

NODE_ROOT = Path(os.environ.get("PLIMSOLL_NODE_ROOT", "/var/tmp/plimsoll-node"))
NODE_RUN = NODE_ROOT / "run"
POD_LOGS = NODE_ROOT / "log" / "pods"
"""The kubelet's: a folder NAMESPACE_POD_UID for each pod that is there, in it one per container."""
LOOK_S = 2.0
MOST = 10
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
    # By program and process.
    node: dict[tuple[str, str], float] = field(default_factory=dict)


def read() -> Reading:
    """Read the present times; without a node or pods, none of theirs."""
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
            return _used(path, word, parts)
    return 0.0


def _used(path: Path, word: str, parts: float) -> float:
    for line in path.read_text().splitlines():
        if line.startswith(word):
            return int(line.removeprefix(word)) / parts
    return 0.0


class PodsSeen:
    """The processor time of each pod, by the names of its containers.

    Read every `LOOK_S` while pods are there, since their cgroups go with them: time used after the
    last reading is lost.
    """

    def __init__(self) -> None:
        # Seconds by a pod's uid, at the first look and at the last.
        self._first: dict[str, float] = dict(_each_pod())
        self._last: dict[str, float] = dict(self._first)
        # The names of its containers, by a pod's uid.
        self._names: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> PodsSeen:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        found = dict(_each_pod())
        self._last |= found
        if POD_LOGS.is_dir() and not found.keys() <= self._names.keys():
            for folder in POD_LOGS.iterdir():
                uid = folder.name.rpartition("_")[2]
                # The folder does not exist before the first container is created.
                if uid in found and (names := _containers(folder)):
                    self._names[uid] = names

    def by_containers(self) -> dict[str, float]:
        """Seconds since the first look."""
        used: dict[str, float] = defaultdict(float)
        for uid, seconds in self._last.items():
            used[self._names.get(uid, "unnamed")] += seconds - self._first.get(uid, 0.0)
        return used


def _each_pod() -> Iterator[tuple[str, float]]:
    """Yield uid and seconds of each pod."""
    for top, word, parts in PODS:
        for folder in (*top.parent.glob("pod*"), *top.parent.glob("*/pod*")):
            try:
                yield folder.name.removeprefix("pod"), _used(folder / top.name, word, parts)
            except OSError:
                continue  # it went meanwhile


def _containers(folder: Path) -> str:
    """Return the names of a pod's containers."""
    try:
        return "+".join(sorted(one.name for one in folder.iterdir()))
    except OSError:
        return ""


def _node() -> dict[tuple[str, str], float]:
    """Return the time of the node's programs and of the children they waited for, such as the
    network's plugins."""
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


def told(
    before: Reading, after: Reading, tiers_s: float, of_pods: Mapping[str, float] | None = None
) -> str:
    """One line.  `tiers_s`: what the tiers and their children say they used, a part of the busy
    time; `of_pods`: what pods used, by their containers.  What a program used that ended in between
    counts among the rest."""
    node = {
        name: used - before.node.get((name, pid), 0.0) for (name, pid), used in after.node.items()
    }
    busy, pods = after.busy - before.busy, max(after.pods - before.pods, 0.0)
    rest = max(busy - tiers_s - pods - sum(node.values()), 0.0)
    return (
        f"processors, in seconds: busy {busy:.0f} (tiers {tiers_s:.0f}, pods {pods:.0f}"
        f"{_parts(of_pods or {})}{';' if of_pods else ','}"
        f" the node {sum(node.values()):.0f}{_parts(node)}; others {rest:.0f}),"
        f" idle {after.idle - before.idle:.0f}, stolen {after.stolen - before.stolen:.0f}"
    )


def _parts(used: Mapping[str, float]) -> str:
    """The `MOST` that used most, where they used a second."""
    most = sorted(((seconds, name) for name, seconds in used.items() if seconds >= 1), reverse=True)
    parts = ", ".join(f"{name} {seconds:.0f}" for seconds, name in most[:MOST])
    return parts and f": {parts}"
