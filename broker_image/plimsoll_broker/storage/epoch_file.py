"""EpochFile: a log's `leader-epoch-checkpoint`, as far as it has been written and synced.

Called by `Log`. Leader epochs above the recovery point are read from the batches again, so the file
is written with every flush and synced only if it has changed.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log_values import EpochFileVersion
from plimsoll_core.replica.leader_epochs import EpochCache


class EpochFile:
    """Written as a whole, and only if the leader epochs have changed."""

    __slots__ = ("_disk", "_epochs", "_path", "_saved", "_synced")

    def __init__(self, disk: Disk, directory: Path, epochs: EpochCache) -> None:
        self._disk = disk
        self._path = directory / checkpoint_formats.EPOCHS
        self._epochs = epochs
        self._saved = -1
        self._synced = -1

    def begin(self) -> EpochFileVersion | None:
        """Write the present leader epochs. Return the file, which must be synced with its
        directory, and its version; None if the disk has that version."""
        version = self._epochs.version
        if self._synced == version:
            return None
        if self._saved != version:
            data = checkpoint_formats.encode_epochs(self._epochs.entries)
            self._disk.replace(self._path, data, sync=False)
            self._saved = version
        return EpochFileVersion(self._path, version)

    def synced(self, terms: EpochFileVersion | None) -> None:
        """The file that `begin` returned is on the disk."""
        if terms is not None:
            self._synced = max(self._synced, terms.version)
