"""What a power cut, or another disk, does to a broker's machine, and to what is known of its logs.

Called for random faults and by scenarios.
"""

from __future__ import annotations

import copy
from pathlib import Path

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.cluster.world import World
from plimsoll_sim.environment.power_cuts import Folder, PowerCut
from plimsoll_sim.hosts.brokers import DATA, BrokerHost


def cut_power(world: World, host: BrokerHost, cut: PowerCut | None = None) -> list[TopicPartition]:
    """The machine stops at once; returns the partitions whose logs lost data.

    Where every batch is flushed before anybody hears of it, no loss is excused by that.
    """
    before = _logs(host)
    host.lose_power(cut)
    after = _logs(host)
    # Old segments whose removal came undone lie in front of what was there.
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
    """It is killed, and its next process finds an empty disk, or one as of the image."""
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
