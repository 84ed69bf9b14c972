"""Power cuts and replaced disks: their effect on a broker's machine and on the ghosts of its logs.

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
    """Stop the machine at once; return the partitions with logs that lost data. If every batch is
    flushed before it is acknowledged, a loss is not excused by the cut."""
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
    """A copy of its disk, for later."""
    return copy.deepcopy(_without_undo(host.volume.root))


def change_disk(world: World, host: BrokerHost, image: Folder | None) -> None:
    """Kill the broker; its next process finds an empty disk, or the disk of the image."""
    names = list(_logs(host))
    host.kill()
    if image is None:
        host.volume.empty()
    else:
        host.volume.root = copy.deepcopy(image)
    world.ghost.lossy(host.id, names)


def _logs(host: BrokerHost) -> dict[TopicPartition, bytes]:
    """Each partition's log on the disk."""
    logs: dict[TopicPartition, bytes] = {}
    for path, node in host.volume.nodes(Path(DATA), ".log"):
        topic, _, index = Path(path).parent.name.rpartition("-")
        if index.isdecimal():
            name = TopicPartition(topic, int(index))
            logs[name] = logs.get(name, b"") + bytes(node.data)
    return logs


def _without_undo(folder: Folder) -> Folder:
    """An image of a disk: what was not yet durable is in it like the rest."""
    made = Folder()
    for name, entry in folder.entries.items():
        made.entries[name] = _without_undo(entry) if isinstance(entry, Folder) else entry
    return made
