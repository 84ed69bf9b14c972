"""Power cuts and replaced disks: applies them to a broker's machine, and records in the ghosts of
its logs (the checkers' record of each log) which losses are allowed.

Used by random faults and by scenarios.
"""

from __future__ import annotations

import copy
from pathlib import Path

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.cluster.world import World
from plimsoll_sim.environment.simulated_disk import Folder, PowerCut
from plimsoll_sim.hosts.brokers import DATA, BrokerHost


def cut_power(world: World, host: BrokerHost, cut: PowerCut | None = None) -> list[TopicPartition]:
    """Cut the power of a broker's machine. Return the partitions with logs that lost data. If every
    batch is flushed before it is acknowledged, the cut does not excuse a loss."""
    before = _logs(host)
    host.lose_power(cut)
    after = _logs(host)
    # Old segments with a removal that came undone lie in front of the former content.
    lost = sorted(name for name, data in before.items() if not _ends(after.get(name), data))
    if world.options.flush_messages != 1:
        world.ghost.lossy(host.id, lost)
    return lost


def _ends(after: bytes | None, data: bytes) -> bool:
    return after is not None and after.endswith(data)


def image_of(host: BrokerHost) -> Folder:
    """Return a copy of the broker's disk, for `change_disk`."""
    return copy.deepcopy(_without_undo(host.volume.root))


def change_disk(world: World, host: BrokerHost, image: Folder | None) -> None:
    """Kill the broker and replace its disk by an empty one (`image` None) or by a copy of the
    image."""
    names = list(_logs(host))
    host.kill()
    if image is None:
        host.volume.empty()
    else:
        host.volume.root = copy.deepcopy(image)
    world.ghost.lossy(host.id, names)


def _logs(host: BrokerHost) -> dict[TopicPartition, bytes]:
    """Return the bytes of each partition's log on the disk."""
    logs: dict[TopicPartition, bytes] = {}
    for path, node in host.volume.nodes(Path(DATA), ".log"):
        topic, _, index = Path(path).parent.name.rpartition("-")
        if index.isdecimal():
            name = TopicPartition(topic, int(index))
            logs[name] = logs.get(name, b"") + bytes(node.data)
    return logs


def _without_undo(folder: Folder) -> Folder:
    """Return a copy of a folder in which everything counts as durable."""
    made = Folder()
    for name, entry in folder.entries.items():
        made.entries[name] = _without_undo(entry) if isinstance(entry, Folder) else entry
    return made
