"""The formats of the small files beside the logs. They are Kafka's, with a CRC added where a
flipped bit would not show.

Called by the store and the logs. Each function encodes or decodes one file. An invalid file decodes
to None, and the caller decides what follows.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from crc32c import crc32c

from plimsoll_core.replica.producer_states import ProducerEntry

Partition = tuple[str, int]

META_PROPERTIES = "meta.properties"
META_COPY = "meta.properties.copy"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
BEGINNINGS = "log-beginning-checkpoint"
UNSYNCED_BEGINNINGS = "log-beginning-checkpoint.unsynced"
CLEANED_ENDS = "cleaner-offset-checkpoint"
SUPERSEDING_ENDS = "cleaner-superseding-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

# The prefix of a line with the CRC.
_SEAL = b"crc32c "
_COMMENT = b"# crc32c="
_FIELD = b"crc32c: "

_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_NOBODY = ProducerEntry(-1, 0, 0, 0, 0, -1)


def partition_of(name: str) -> Partition | None:
    """Parse `<topic>-<index>`; return None if the name has another form."""
    topic, dash, index = name.rpartition("-")
    if not dash or not topic or not index.isdecimal():
        return None
    return topic, int(index)


def uuid_text(value: UUID) -> str:
    """Return the UUID in Kafka's text form: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_value(text: str) -> UUID | None:
    """Parse a UUID in the form that `uuid_text` returns. Return None if it is invalid."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return UUID(bytes=raw)
    except (ValueError, binascii.Error):
        return None


# --- offsets of every partition -----------------------------------------------------------------


def encode_offsets(offsets: Mapping[Partition, int]) -> bytes:
    """Encode offsets by partition. The last line is a CRC, since a flipped digit would give another
    valid offset."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return _sealed(_with_head(lines), _SEAL)


def decode_offsets(data: bytes) -> dict[Partition, int] | None:
    """Return the offsets by partition, or None if the file is invalid."""
    unsealed = _unsealed(data, _SEAL)
    rows = None if unsealed is None else _rows(unsealed, 3)
    try:
        return None if rows is None else {(row[0], int(row[1])): int(row[2]) for row in rows}
    except ValueError:
        return None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _with_head([f"{epoch} {start}" for epoch, start in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]] | None:
    """Return the leader epochs with their start offsets, or None if the file is invalid. Both must
    increase from line to line."""
    rows = _rows(data, 2)
    try:
        entries = None if rows is None else [(int(row[0]), int(row[1])) for row in rows]
    except ValueError:
        return None
    if entries is None:
        return None
    if any(epoch < 0 or start < 0 for epoch, start in entries):
        return None
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            return None
    return entries


def _with_head(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _sealed(data: bytes, seal: bytes) -> bytes:
    return data + seal + b"%08x\n" % crc32c(data)


def _unsealed(data: bytes, seal: bytes) -> bytes | None:
    """Return the data before its CRC line. Return None if the CRC is wrong or missing."""
    at = data.rfind(b"\n", 0, -1) + 1
    return data[:at] if _sealed(data[:at], seal) == data else None


def _rows(data: bytes, columns: int) -> list[list[str]] | None:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        return None
    if len(lines) < 2 or lines[0].strip() != "0" or lines[1] != str(len(lines) - 2):
        return None
    rows = [line.split() for line in lines[2:]]
    return rows if all(len(row) == columns for row in rows) else None


# --- the owner of a volume ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The identity of a volume (`meta.properties`)."""

    cluster_id: UUID
    node_id: int
    directory_id: UUID


def encode_meta(meta: Meta) -> bytes:
    lines = [
        "version=1",
        f"cluster.id={uuid_text(meta.cluster_id)}",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_text(meta.directory_id)}",
        "",
    ]
    return _sealed("\n".join(lines).encode(), _COMMENT)


def decode_meta(data: bytes) -> Meta | None:
    """Return the volume's identity, or None if the file is invalid."""
    unsealed = _unsealed(data, _COMMENT)
    if unsealed is None:
        return None
    data = unsealed
    values: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        name, found, value = line.partition("=")
        if found and not line.startswith("#"):
            values[name.strip()] = value.strip()
    cluster_id = uuid_value(values.get("cluster.id", "-"))
    directory_id = uuid_value(values.get("directory.id", "-"))
    node_id = values.get("node.id", "")
    if values.get("version") != "1" or cluster_id is None or directory_id is None:
        return None
    if not node_id.isdecimal():
        return None
    return Meta(cluster_id=cluster_id, node_id=int(node_id), directory_id=directory_id)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in the marker of a clean stop, or None if it is invalid."""
    try:
        value = json.loads(data)
    except ValueError:
        return None
    epoch = value.get("brokerEpoch") if isinstance(value, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 0 else None


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return _sealed(f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode(), _FIELD)


def decode_partition_metadata(data: bytes) -> UUID | None:
    """Return the topic id, or None if the file is invalid."""
    unsealed = _unsealed(data, _FIELD)
    if unsealed is None or unsealed.count(b"\n") > 2:
        return None
    data = unsealed
    lines = data.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        return None
    return uuid_value(lines[1].removeprefix("topic_id: ").strip())


# --- producer snapshots -------------------------------------------------------------------------


def encode_snapshot(entries: Iterable[ProducerEntry], owner: str) -> bytes:
    """Encode producer states. `owner`: the log and offset that the snapshot belongs to. The first
    entry stands for no producer: it holds the CRC of `owner`."""
    rows = [_SNAPSHOT_ENTRY.pack(*_NOBODY._replace(coordinator_epoch=_crc_of(owner)))]
    rows += [_SNAPSHOT_ENTRY.pack(*entry) for entry in entries]
    body = _SNAPSHOT_COUNT.pack(len(rows)) + b"".join(rows)
    return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, owner: str) -> list[ProducerEntry] | None:
    """Return the producer states, or None if the file is invalid or belongs to another log or
    offset than `owner`."""
    if len(data) < _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size:
        return None
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    body = data[_SNAPSHOT_HEAD.size :]
    if version != _SNAPSHOT_VERSION or crc32c(body) != crc:
        return None
    (count,) = _SNAPSHOT_COUNT.unpack_from(body)
    if len(body) != _SNAPSHOT_COUNT.size + count * _SNAPSHOT_ENTRY.size:
        return None
    owners, entries = [], []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(body[_SNAPSHOT_COUNT.size :]):
        entry = ProducerEntry(*fields)
        if entry.producer_id >= 0:
            entries.append(entry)
        else:
            owners.append(entry.coordinator_epoch)
    return entries if owners == [_crc_of(owner)] else None


def _crc_of(owner: str) -> int:
    """Return the CRC of the owner's name, in 31 bits."""
    crc: int = crc32c(owner.encode())
    return crc >> 1
