"""The broker's copy of the metadata: whatever is torn off, what is left is true."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.storage.simulated import ROOT, Cut, Life

from plimsoll_broker.control.metadata_store import MetadataCopy, StoredMetadata, advance
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_core.cluster.record_versions import MetadataTooNew
from plimsoll_core.cluster.records import (
    ClusterDeclared,
    ControllerChanged,
    InsideModeSet,
    MembersChanged,
    Record,
)
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy, MetadataUpdate
from plimsoll_core.security.inside import InsideMode
from plimsoll_sim.environment.simulated_disk import SimDisk, Volume

CLUSTER = UUID("7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001")


def a_batch(offset: int, *records: Record) -> MetadataBatchCopy:
    return MetadataBatchCopy(
        base_offset=MetadataOffset(offset),
        controller_epoch=ControllerEpoch(1),
        nonce=f"nonce-{offset}",
        records_json=msgspec.json.encode(list(records)),
        record_count=len(records),
    )


def batches(count: int) -> list[MetadataBatchCopy]:
    first = a_batch(
        0, ControllerChanged(cause="t", controller_epoch=ControllerEpoch(1), identity="t")
    )
    second = a_batch(1, ClusterDeclared(cause="t", cluster_id=CLUSTER, name="c"))
    more = [
        a_batch(offset, MembersChanged(cause="t", broker_ids=(BrokerId(offset),)))
        for offset in range(2, count)
    ]
    return [first, second, *more][:count]


def written(directory: Path, count: int, *, snapshot_at: int | None = None) -> StoredMetadata:
    copy = MetadataCopy(directory)
    replica = copy.load(CLUSTER)
    for number, batch in enumerate(batches(count)):
        replica = advance(replica, batch)
        copy.append(batch)
        if number == snapshot_at:
            copy.write_snapshot(replica)
    copy.close()
    return replica


def loaded(directory: Path, cluster_id: UUID = CLUSTER) -> StoredMetadata:
    copy = MetadataCopy(directory)
    try:
        return copy.load(cluster_id)
    finally:
        copy.close()


def test_empty_directory_is_an_empty_cluster(tmp_path: Path) -> None:
    replica = loaded(tmp_path)
    assert (replica.image.next_offset, replica.nonce) == (0, None)


@pytest.mark.parametrize("snapshot_at", [None, 0, 4, 9])
def test_metadata_copy_reload_restores_the_written_state(
    tmp_path: Path, snapshot_at: int | None
) -> None:
    assert loaded_equals(written(tmp_path, 10, snapshot_at=snapshot_at), loaded(tmp_path))


def loaded_equals(a: StoredMetadata, b: StoredMetadata) -> bool:
    return a.image == b.image and a.position == b.position


@pytest.mark.parametrize("snapshot_at", [None, 4])
def test_tail_torn_anywhere_leaves_a_prefix(tmp_path: Path, snapshot_at: int | None) -> None:
    whole = written(tmp_path, 10, snapshot_at=snapshot_at)
    tail = max((tmp_path / "__cluster_metadata").glob("tail-*"))
    data = tail.read_bytes()
    for cut in range(0, len(data), 13):
        tail.write_bytes(data[:cut])
        replica = loaded(tmp_path)
        assert replica.image.next_offset <= whole.image.next_offset
        assert replica.image.next_offset >= (snapshot_at or -1) + 1
        if replica.image.next_offset > 2:
            assert replica.nonce == f"nonce-{replica.image.next_offset - 1}"


def test_flipped_bit_ends_what_is_believed(tmp_path: Path) -> None:
    written(tmp_path, 10)
    tail = max((tmp_path / "__cluster_metadata").glob("tail-*"))
    data = bytearray(tail.read_bytes())
    third = sum(len(line) + 1 for line in bytes(data).split(b"\n")[:3])
    at = data.index(b"broker_ids", third)
    data[at + 13] ^= 1
    tail.write_bytes(data)
    assert loaded(tmp_path).image.next_offset == 3


def test_writing_goes_on_after_a_torn_tail(tmp_path: Path) -> None:
    written(tmp_path, 5)
    tail = max((tmp_path / "__cluster_metadata").glob("tail-*"))
    tail.write_bytes(tail.read_bytes()[:-7])
    copy = MetadataCopy(tmp_path)
    replica = copy.load(CLUSTER)
    assert replica.image.next_offset == 4
    for batch in batches(8)[4:]:
        replica = advance(replica, batch)
        copy.append(batch)
    copy.close()
    assert loaded_equals(replica, loaded(tmp_path))


def test_damaged_snapshot_is_not_believed(tmp_path: Path) -> None:
    written(tmp_path, 10, snapshot_at=9)
    path = max((tmp_path / "__cluster_metadata").glob("snapshot-*"))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert loaded(tmp_path).image.next_offset == 0


def test_snapshot_takes_the_place_of_what_it_covers(tmp_path: Path) -> None:
    written(tmp_path, 10, snapshot_at=9)
    names = sorted(path.name for path in (tmp_path / "__cluster_metadata").iterdir())
    assert names == ["snapshot-00000000000000000010.json", "tail-00000000000000000010.jsonl"]


def test_another_clusters_copy_is_not_believed(tmp_path: Path) -> None:
    written(tmp_path, 10, snapshot_at=9)
    other = UUID("00000000-0000-4000-8000-000000000001")
    assert loaded(tmp_path, other).image.next_offset == 0


def test_record_of_newer_version_is_not_guessed(tmp_path: Path) -> None:
    replica = written(tmp_path, 2)
    batch = MetadataBatchCopy(
        base_offset=MetadataOffset(2),
        controller_epoch=ControllerEpoch(1),
        nonce="n",
        records_json=b'[{"type":"FromTheFuture","cause":"x"}]',
        record_count=1,
    )
    with pytest.raises(MetadataTooNew, match="FromTheFuture"):
        advance(replica, batch)


NOTHING_UNSYNCED = Cut(content=False, entries=False, uncut=True)


def a_process(volume: Volume) -> MetadataCopy:
    return MetadataCopy(ROOT, SimDisk(volume, Life()))  # type: ignore[arg-type]


def fed(copy: MetadataCopy, replica: StoredMetadata, some: list[MetadataBatchCopy]) -> Any:
    for batch in some:
        replica = advance(replica, batch)
        copy.append(batch)
    return replica


def test_synced_part_of_new_copy_survives_power_cut() -> None:
    volume = Volume(random.Random(1), lambda: 0)
    copy = a_process(volume)
    replica = fed(copy, copy.load(CLUSTER), batches(4))
    copy.sync()
    volume.lose_power(NOTHING_UNSYNCED)
    assert loaded_equals(replica, a_process(volume).load(CLUSTER))


def test_copy_read_after_restart_survives_power_cut() -> None:
    volume = Volume(random.Random(1), lambda: 0)
    copy = a_process(volume)
    fed(copy, copy.load(CLUSTER), batches(4))  # and the process is killed
    replica = a_process(volume).load(CLUSTER)
    assert replica.image.next_offset == 4
    volume.lose_power(NOTHING_UNSYNCED)
    assert loaded_equals(replica, a_process(volume).load(CLUSTER))


def test_records_synced_after_snapshot_survive_power_cut() -> None:
    volume = Volume(random.Random(1), lambda: 0)
    copy = a_process(volume)
    replica = fed(copy, copy.load(CLUSTER), batches(4))
    copy.write_snapshot(replica)
    replica = fed(copy, replica, batches(6)[4:])
    copy.sync()
    volume.lose_power(NOTHING_UNSYNCED)
    assert loaded_equals(replica, a_process(volume).load(CLUSTER))


async def test_inside_mode_is_durable_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the node takes what was not brought to the disk, and with it the knowledge that
    nobody insists on TLS any more; by then there may be no certificate."""
    copy = MetadataCopy(tmp_path)
    client: Any = SimpleNamespace(peers=SimpleNamespace(cluster_id=CLUSTER))
    stream = MetadataStream(client, copy)
    steps: list[str] = []
    sync = copy.sync

    def syncing() -> None:
        sync()
        assert loaded(tmp_path).image.inside.mode is InsideMode.PERMISSIVE
        steps.append("on disk Permissive")

    monkeypatch.setattr(copy, "sync", syncing)
    stream.subscribe(lambda old, new: steps.append(f"told {new.inside.mode.value}"))
    mode = InsideModeSet(cause="declared", mode=InsideMode.PERMISSIVE)
    for batch in [
        *batches(4),
        a_batch(4, mode),
        a_batch(5, MembersChanged(cause="t", broker_ids=())),
    ]:
        end = MetadataOffset(batch.base_offset + 1)
        await stream._apply(MetadataUpdate(batches=(batch,), end_offset=end))
    copy.close()
    assert steps[4:] == ["on disk Permissive", "told Permissive", "told Permissive"]
    assert loaded(tmp_path).image == stream.image
