"""What a stop leaves behind on the volume besides the logs."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.control.metadata_store import MetadataCopy, StoredMetadata
from plimsoll_broker.node import broker

CLUSTER = UUID("7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001")
WAIT_S = 30


class WatchedCopy(MetadataCopy):
    """Says when it is loaded, and knows whether it was closed."""

    made: WatchedCopy
    loaded: asyncio.Event

    def load(self, cluster_id: UUID) -> StoredMetadata:
        WatchedCopy.made = self
        replica = super().load(cluster_id)
        WatchedCopy.loaded.set()
        return replica

    @property
    def closed(self) -> bool:
        return self._tail is None


@asynccontextmanager
async def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WatchedCopy]:
    """A broker whose controller is away; the caller sees its copy just before it stops."""
    WatchedCopy.loaded = asyncio.Event()
    monkeypatch.setattr(broker, "MetadataCopy", WatchedCopy)
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        here = Address(host="127.0.0.1", port=unserved.getsockname()[1])
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
        task = asyncio.create_task(node.run())
        async with asyncio.timeout(WAIT_S):
            await WatchedCopy.loaded.wait()
            yield WatchedCopy.made
            node.stop()
            await task


async def test_stop_closes_the_metadatas_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stopped(tmp_path, monkeypatch) as copy:
        assert not copy.closed
    assert copy.closed


async def test_disk_refusing_metadata_copy_does_not_block_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with stopped(tmp_path, monkeypatch) as copy:
        monkeypatch.setattr(os, "fdatasync", fsync)
    assert copy.closed
    assert "cannot write its copy of the metadata to disk" in caplog.text
