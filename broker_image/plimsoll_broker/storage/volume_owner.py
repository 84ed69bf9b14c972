"""The owner of a volume, stored in two files, since one of them may be damaged.

Called by `LogStore` for `node.broker`. Source: Kafka's meta.properties.

Also the marker of a clean stop (`.kafka_cleanshutdown`), which is taken before registering and
written last. It holds the broker epoch of the lifetime that stopped, which the controller compares
with the registered one. Source: the protocol's local storage order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.checkpoint_formats import Meta
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRefused:
    """The refusal to use the volume. `message`: the reason and what the user has to do."""

    reason: str
    message: str


def read(disk: Disk, directory: Path) -> Meta | None:
    """Return the volume's identity, or None if it is not formatted. Raise StorageError if files
    exist and neither is valid."""
    path = directory / checkpoint_formats.META_PROPERTIES
    copy = directory / checkpoint_formats.META_COPY
    found = [data for each in (path, copy) if (data := disk.read(each)) is not None]
    if not found:
        return None
    meta = next((meta for data in found if (meta := checkpoint_formats.decode_meta(data))), None)
    if meta is None:
        raise StorageError(
            StorageFault.CORRUPT,
            path,
            f"neither it nor its copy {copy.name} names the volume's broker. If other brokers "
            'have complete replicas, replace the volume as docs/recovery.md says under "A '
            "broker's volumes, or its node, lost\". Else delete nothing, and write the file anew: "
            "docs/protocol.md has its form",
        )
    return meta


def keep(disk: Disk, directory: Path, meta: Meta) -> None:
    """Write the identity, with a sync, to each of the two files that does not have it."""
    data = checkpoint_formats.encode_meta(meta)
    for name in (checkpoint_formats.META_PROPERTIES, checkpoint_formats.META_COPY):
        if disk.read(directory / name) != data:
            disk.replace(directory / name, data, sync=True)


def refusal(meta: Meta, directory: Path, cluster_id: UUID, node_id: int) -> VolumeRefused | None:
    """Return the refusal if the volume with this identity must not be used by this broker of this
    cluster, otherwise None."""
    advice = "mount the right volume, or an empty one"
    if meta.cluster_id != cluster_id:
        return VolumeRefused(
            reason="ForeignVolume",
            message=(
                f"the volume {directory} belongs to cluster {meta.cluster_id}, but this broker "
                f"to cluster {cluster_id}: {advice}"
            ),
        )
    if meta.node_id != node_id:
        return VolumeRefused(
            reason="ForeignVolume",
            message=(
                f"the volume {directory} belongs to broker {meta.node_id}, but this is broker "
                f"{node_id}: {advice}"
            ),
        )
    return None


def take_marker(disk: Disk, directory: Path) -> int | None:
    """Remove the marker of a clean stop, durably, and return its broker epoch. Return None if there
    is no marker, or it is invalid.

    Call it before registering: if the broker dies after this, its stop counts as unclean."""
    path = directory / checkpoint_formats.CLEAN_SHUTDOWN
    data = disk.read(path)
    if data is None:
        return None
    disk.remove(path)
    disk.sync_directory(directory)
    return checkpoint_formats.decode_clean_shutdown(data)


def write_marker(disk: Disk, directory: Path, broker_epoch: int) -> None:
    """Write the marker of a clean stop, with the epoch of the stopping broker. Call it after every
    log is flushed and closed."""
    path = directory / checkpoint_formats.CLEAN_SHUTDOWN
    disk.replace(path, checkpoint_formats.encode_clean_shutdown(broker_epoch), sync=True)
