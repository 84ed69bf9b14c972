"""One broker's volume on a simulated disk: lives that end in kills and power cuts."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

from tests.plimsoll_broker.storage.conftest import fill

from plimsoll_broker.replication.segment_removal import removable, removable_unsaved
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_broker.storage.segment import Segment
from plimsoll_sim.environment.simulated_disk import (
    MOUNT,
    FileNode,
    Folder,
    PowerCut,
    SimDisk,
    Volume,
)

CLUSTER_ID = UUID("11111111-2222-3333-4444-555555555555")
DIRECTORY_ID = UUID("99999999-2222-3333-4444-555555555555")
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
ROOT = Path(f"/{MOUNT}")
ORDERS = ("orders", 3)


class Life:
    """What a disk needs to know of a process."""

    def __init__(self) -> None:
        self.alive = True

    def die(self) -> None:
        self.alive = False


class Cut(PowerCut):
    """Leaves all or nothing of what was not synced; `uncut`: undoes cuts that were not synced;
    `back`: nothing has happened to names that begin so, and to the others what the rest says."""

    def __init__(
        self, *, content: bool, entries: bool, uncut: bool = False, back: tuple[str, ...] = ()
    ) -> None:
        self._content, self._entries, self._uncut = content, entries, uncut
        self._back = back

    def changes(self, count: int, name: str) -> int:
        return count if self._entries and not name.startswith(self._back) else 0

    def size(self, durable: int, size: int) -> int:
        return size if self._content else durable

    def written(self, durable: int, size: int) -> int:
        return size

    def uncuts(self) -> bool:
        return self._uncut

    def reorders(self) -> bool:
        return bool(self._back)


class Cuts(PowerCut):
    """As chance has it, but of some kinds there are none."""

    def __init__(self, rng: random.Random, faults: frozenset[str]) -> None:
        super().__init__(rng)
        self._faults = faults

    def changes(self, count: int, name: str) -> int:
        return super().changes(count, name) if "names" in self._faults else count

    def size(self, durable: int, size: int) -> int:
        return super().size(durable, size) if "tear" in self._faults else size

    def uncuts(self) -> bool:
        return super().uncuts() and "uncut" in self._faults

    def reorders(self) -> bool:
        return self._rng.random() < 0.6


class Machine:
    """A volume through several lives of a broker."""

    def __init__(self, config: LogConfig | None = None, rng: random.Random | None = None) -> None:
        self.config = config or LogConfig(segment_bytes=2_000)
        self.volume = Volume(rng or random.Random(0), lambda: 0)
        self.life = Life()
        self.store = LogStore(ROOT, SimDisk(self.volume, self.life))  # type: ignore[arg-type]

    def start(self) -> LogStore:
        """As the lifecycle does it; the life before ends here, by a kill if by nothing else."""
        self.life.die()
        self.life = Life()
        self.store = LogStore(ROOT, SimDisk(self.volume, self.life))  # type: ignore[arg-type]
        assert self.store.open() is None
        if self.store.meta is None:
            self.store.format(CLUSTER_ID, 1, DIRECTORY_ID)
        self.store.take_clean_marker()
        self.store.load(0)
        return self.store

    def log(self) -> Log:
        """The one partition, opened in a new life."""
        log = self.start().open_log(ORDERS[0], TOPIC_ID, ORDERS[1], self.config, 0)
        self.store.save_lowered()
        return log

    def lose_power(self, cut: PowerCut | None = None) -> None:
        self.life.die()
        self.volume.lose_power(cut)

    def retain(self, high_watermark: int) -> int:
        """Retention by size, as the chores do it."""
        log = self.store.logs[ORDERS]
        start = log.apply_retention(0, high_watermark)
        self.remove(synced=True)
        return start

    def remove(self, *, synced: bool) -> None:
        """What lies below the log's start.  `synced`: so are the names of what is there."""
        log = self.store.logs[ORDERS]
        self.store.checkpoint_log_starts()
        if synced:
            log.unsynced.sync_names()
        self.remove_below_saved_start(100)

    def remove_below_saved_start(self, count_max: int) -> list[Segment]:
        log = self.store.logs[ORDERS]
        return log.remove_first(removable(log, self.store.saved_log_start(log), count_max))

    def remove_oldest(self) -> list[Segment]:
        """As the chores do it where no start can be saved."""
        log = self.store.logs[ORDERS]
        self.store.beginnings.begin_forget_all()()
        return log.remove_first(removable_unsaved(log))

    def copy(self) -> Machine:
        """A copy of the volume, with no process that uses it."""
        made = Machine(self.config)
        made.volume.root = _durable(self.volume.root)
        return made

    def names(self) -> list[str]:
        """Of the partition's files."""
        return sorted(self.volume.folder(ROOT / "orders-3").entries)


def a_flushed_log() -> Machine:
    """Its segments 0, 120, 240 and 360 are flushed; retention would begin at 240."""
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000, flush_messages=1))
    log = machine.log()
    fill(log, 40)
    log.flush()
    machine.store.checkpoint_recovery_points()
    return machine


def _durable(folder: Folder) -> Folder:
    made = Folder()
    for name, entry in folder.entries.items():
        if isinstance(entry, Folder):
            made.entries[name] = _durable(entry)
        else:
            made.entries[name] = FileNode(bytes(entry.data), durable=True)
    return made
