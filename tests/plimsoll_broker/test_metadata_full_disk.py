"""The metadata's copy on a really full disk: the broker goes on, and the copy is whole later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.volume import Volume, mounted
from tests.plimsoll_broker.test_metadata_copy import CLUSTER, batches, loaded

from plimsoll_broker.control.metadata_store import DIRECTORY, MetadataCopy
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataUpdate

Start = Callable[[], MetadataStream]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with mounted(tmp_path / "volume") as found:
        yield found


@pytest.fixture
def start(volume: Volume) -> Iterator[Start]:
    """A broker's metadata as a start finds it on the volume."""
    copies: list[MetadataCopy] = []

    def make() -> MetadataStream:
        client: Any = SimpleNamespace(peers=SimpleNamespace(cluster_id=CLUSTER))
        copies.append(MetadataCopy(volume.path))
        return MetadataStream(client, copies[-1])

    yield make
    volume.make_room()
    for copy in copies:
        copy.close()


async def feed(stream: MetadataStream, count: int) -> None:
    """The batches up to `count`, one update each."""
    done = stream.image.next_offset
    for batch in batches(count)[done:]:
        end = MetadataOffset(batch.base_offset + batch.record_count)
        await stream._apply(MetadataUpdate(batches=(batch,), end_offset=end))


def held(volume: Volume) -> int:
    """How much metadata a start would find."""
    return loaded(volume.path).image.next_offset


async def test_metadata_is_applied_without_room_for_copy(volume: Volume, start: Start) -> None:
    stream = start()
    await feed(stream, 5)
    volume.fill(left=0)
    # More than what the last block of the file still takes.
    await feed(stream, 200)
    assert stream.image.next_offset == 200
    found = held(volume)
    assert 5 <= found < 200, "a prefix, and nothing that was there is gone"


async def test_copy_is_whole_again_once_there_is_room(volume: Volume, start: Start) -> None:
    stream = start()
    await feed(stream, 5)
    volume.fill(left=0)
    await feed(stream, 200)
    volume.make_room()
    await feed(stream, 201)
    assert held(volume) == 201
    await feed(stream, 220)
    assert held(volume) == 220
    left_over = sorted(path.name for path in (volume.path / DIRECTORY).iterdir())
    assert len(left_over) == 2, left_over


async def test_start_on_full_disk_uses_existing_copy(volume: Volume, start: Start) -> None:
    stream = start()
    await feed(stream, 5)
    volume.fill(left=0)
    await feed(stream, 200)
    again = start()
    assert 5 <= again.image.next_offset < 200
    await feed(again, 200)
    assert again.image.next_offset == 200
    volume.make_room()
    await feed(again, 201)
    assert held(volume) == 201
