"""I25 of the protocol: the state of a volume whose broker has stopped cleanly."""

from __future__ import annotations

from pathlib import Path

from plimsoll_broker.storage.checkpoint_formats import CLEAN_SHUTDOWN
from plimsoll_sim.environment.power_cuts import FileNode
from plimsoll_sim.environment.simulated_disk import Volume
from plimsoll_sim.oracle.partition_ghost import Violation


def check_marker(name: str, volume: Volume, directory: Path) -> None:
    """A marker says that every log is on the disk, so that no power cut can take any of it."""
    if not isinstance(volume.find(directory / CLEAN_SHUTDOWN), FileNode):
        return
    for path, log in volume.nodes(directory, ".log"):
        served = Path(path).parent.name.rpartition("-")[2].isdecimal()
        if served and log.unsynced:
            raise Violation("Marker", f"{name} is marked as clean, but {path} is not on the disk")
