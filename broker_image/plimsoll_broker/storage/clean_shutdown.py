"""The marker of a clean stop (`.kafka_cleanshutdown`): taken before registering, written last.

Called by `log_store`. It holds the broker epoch of the lifetime that stopped, which the controller
compares with the registered one. Source: the protocol's local storage order.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk


def take_marker(disk: Disk, directory: Path) -> int | None:
    """Return the broker epoch of the last clean stop, or None; the marker is removed durably when
    this returns.

    Call it before registering: a broker that dies after it counts as unclean.
    """
    path = directory / checkpoint_formats.CLEAN_SHUTDOWN
    data = disk.read(path)
    if data is None:
        return None
    disk.remove(path)
    disk.sync_directory(directory)
    return checkpoint_formats.decode_clean_shutdown(data)


def write_marker(disk: Disk, directory: Path, broker_epoch: int) -> None:
    """Write the marker, after every log was flushed and closed."""
    path = directory / checkpoint_formats.CLEAN_SHUTDOWN
    disk.replace(path, checkpoint_formats.encode_clean_shutdown(broker_epoch), sync=True)
