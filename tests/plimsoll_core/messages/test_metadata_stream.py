"""The metadata stream's messages: what an older sender leaves out has a meaning."""

from uuid import UUID

import msgspec
import pytest

from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataBatchCopy, MetadataUpdate

CLUSTER = UUID(int=0xC1)


def test_each_is_known_by_its_name() -> None:
    """They share a connection with others."""
    fetch = FetchMetadata(cluster_id=CLUSTER, broker_id=1, offset=3, nonce="n")
    batch = MetadataBatchCopy(
        base_offset=3, controller_epoch=2, nonce="m", records_json=b"[{}]", record_count=1
    )
    update = MetadataUpdate(batches=(batch,), end_offset=4)
    for message in (fetch, update):
        data = msgspec.msgpack.encode(message)
        assert msgspec.msgpack.decode(data, type=FetchMetadata | MetadataUpdate) == message


def test_fetch_metadata_and_metadata_update_default_omitted_fields() -> None:
    plain = {"type": "FetchMetadata", "cluster_id": str(CLUSTER), "broker_id": 1, "offset": 0}
    fetch = msgspec.convert(plain, FetchMetadata)
    assert (fetch.nonce, fetch.wait_ms_max) == (None, 500)
    update = msgspec.convert({"type": "MetadataUpdate"}, MetadataUpdate)
    assert (update.snapshot, update.batches, update.end_offset) == (None, (), 0)


def test_fetch_says_who_asks_and_from_where() -> None:
    with pytest.raises(msgspec.ValidationError, match="broker_id"):
        msgspec.convert({"type": "FetchMetadata", "cluster_id": str(CLUSTER)}, FetchMetadata)
