"""A broker that meets metadata of a newer release: it applies no more, serves on, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.test_controller_client import (
    CLUSTER,
    FakeController,
    a_client,
    a_request,
)
from tests.plimsoll_broker.test_metadata_copy import batches, loaded, written
from tests.plimsoll_core.security.test_acl_index import a_rule

from plimsoll_broker.background import in_thread
from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.control import metadata_stream
from plimsoll_broker.control.controller_client import ControllerClient, NoController
from plimsoll_broker.control.metadata_store import MetadataCopy
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.node import broker
from plimsoll_broker.node.broker import CannotStart
from plimsoll_broker.node.metrics_server import MetricsServer
from plimsoll_core.cluster.records import AclsAdded
from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy, MetadataUpdate
from plimsoll_core.messages.requests import AlterPartition, ProducerIdBlock

WAIT_S = 30
NEWER = b'[{"type":"FromTheFuture","cause":"x"}]'


def newer(batch: MetadataBatchCopy) -> MetadataBatchCopy:
    return msgspec.structs.replace(batch, records_json=NEWER)


@asynccontextmanager
async def following(
    tmp_path: Path,
) -> AsyncIterator[tuple[MetadataStream, ControllerClient, FakeController]]:
    controller = FakeController(1, ProducerIdBlock(first=0, length=10))
    async with a_client(controller) as client:
        copy = MetadataCopy(tmp_path)
        stream = MetadataStream(client, copy)
        yield stream, client, controller
        copy.close()


async def test_metadata_of_newer_release_is_not_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before: UnknownMetadata ended the process, and every broker of the cluster with it."""
    async with following(tmp_path) as (stream, _, _):
        seen: list[int] = []
        stream.subscribe(lambda old, new: seen.append(new.next_offset))
        chain = list(batches(4))
        update = MetadataUpdate(batches=(chain[0], chain[1], newer(chain[2]), chain[3]))
        await stream._apply(update)
        known = chain[1].base_offset + chain[1].record_count
        assert stream.image.next_offset == known
        assert seen == [known]
        assert "FromTheFuture" in stream.unknown
        assert "this broker cannot read newer metadata, which a newer release wrote" in caplog.text
    assert loaded(tmp_path).image.next_offset == known, "the copy holds what was applied"


async def test_unknown_finalised_version_is_not_applied(tmp_path: Path) -> None:
    async with following(tmp_path) as (stream, _, _):
        chain = list(batches(2))
        body = b'[{"type":"MetadataVersionFinalized","cause":"x","metadata_version":99}]'
        finalised = msgspec.structs.replace(chain[1], records_json=body)
        await stream._apply(MetadataUpdate(batches=(chain[0], finalised)))
        assert stream.image.metadata_version == 1
        assert "#99" in stream.unknown


async def test_long_record_is_applied_in_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record may hold a thousand rules, or ten thousand partitions."""
    threads = 0

    async def counted(work: Any) -> Any:
        nonlocal threads
        threads += 1
        return await in_thread(work)

    async with following(tmp_path) as (stream, _, _):
        monkeypatch.setattr(metadata_stream, "in_thread", counted)
        (one,) = batches(1)
        await stream._apply(MetadataUpdate(batches=(one,)))
        assert not threads
        rules = tuple(a_rule(host=f"10.0.0.{n}") for n in range(200))
        body = msgspec.json.encode([AclsAdded(cause="t", acls=rules)])
        end = stream.image.next_offset
        long = msgspec.structs.replace(one, base_offset=end, records_json=body, record_count=1)
        await stream._apply(MetadataUpdate(batches=(long,)))
        assert threads == 1
        assert len(stream.image.security.acls) == len(rules)


async def test_stream_waits_without_end_and_asks_no_more(tmp_path: Path) -> None:
    async with following(tmp_path) as (stream, _, controller):
        await stream._apply(MetadataUpdate(batches=(newer(next(iter(batches(1)))),)))
        running = asyncio.create_task(stream.run())
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert not done
        assert controller.streams == 0
        running.cancel()


async def test_broker_on_unknown_metadata_only_gets_producer_ids(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as (stream, client, controller):
        await stream._apply(MetadataUpdate(batches=(newer(next(iter(batches(1)))),)))
        proposal = AlterPartition(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(1), proposals=())
        with pytest.raises(NoController, match="FromTheFuture"):
            await client.command(proposal, 1)
        assert controller.heard == []
        async with asyncio.timeout(WAIT_S):
            assert await client.command(a_request()) == ProducerIdBlock(first=0, length=10)


async def _answer(node: Any, path: str) -> bytes:
    request = f"GET {path} HTTP/1.1\r\n\r\n".encode()
    return await MetricsServer(node)._answer(request, frozenset({path.encode()}))


async def test_readyz_and_a_metric_say_so() -> None:
    node = SimpleNamespace(ready=False, unknown_metadata="at metadata offset 7 …")
    assert b"503" in await _answer(node, "/readyz")
    assert b"at metadata offset 7" in await _answer(node, "/readyz")
    assert told(unknown_metadata="at metadata offset 7")["metadata_unknown"] == 1
    assert told()["metadata_unknown"] == 0


async def test_start_on_newer_metadata_leaves_volume_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clean-stop marker too: the newer release that follows still counts as stopped cleanly."""
    written(tmp_path, 2)
    tail = next((tmp_path / "__cluster_metadata").glob("tail-*"))
    copy = MetadataCopy(tmp_path)
    replica = copy.load(CLUSTER)
    copy.append(
        MetadataBatchCopy(
            base_offset=MetadataOffset(replica.image.next_offset),
            controller_epoch=replica.controller_epoch,
            nonce="n",
            records_json=NEWER,
            record_count=1,
        )
    )
    copy.close()
    before = tail.read_bytes()
    here = Address(host="127.0.0.1", port=1)
    config = BrokerConfig(
        cluster_id=CLUSTER,
        broker_id=0,
        data_dir=str(tmp_path),
        listen=here,
        advertised=here,
        replication=here,
        controllers=(str(here),),
    )
    node = broker.BrokerNode(config)
    marker: list[str] = []
    monkeypatch.setattr(node._store, "take_clean_marker", lambda: marker.append("taken"))
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(CannotStart, match=r"FromTheFuture.*run a newer release"):
            await node.run()
    assert marker == []
    assert tail.read_bytes() == before
