"""What cannot be read as it was written is left to the others, where there are any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_core.errors import Code

Make = Callable[[int], Broker]
Three = tuple[Broker, Broker, Broker]


def corrupt(*_: object, **__: object) -> bytes:
    raise StorageError(StorageFault.CORRUPT, Path("segment"), "the CRC does not match")


async def test_leader_that_reads_damage_leaves_the_partition_to_those_in_sync(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    hosted = three[0].hosted("t")
    hosted.log.flush()
    hosted.log.recent.forget()  # nobody reads at its end
    monkeypatch.setattr(type(hosted.log), "read", corrupt)
    assert (await client.fetch("t", 0)).code == Code.KAFKA_STORAGE_ERROR
    assert hosted.replica.failed
    assert hosted.log.recovery_point == 0, "the next start reads it, and cuts"


async def test_leader_alone_in_isr_keeps_serving_after_a_corrupt_read(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,))
    client = await one.client()
    await client.produce("t", a_batch(3))
    hosted = one.hosted("t")
    hosted.log.recent.forget()  # nobody reads at its end
    with monkeypatch.context() as patched:
        patched.setattr(type(hosted.log), "read", corrupt)
        assert (await client.fetch("t", 0)).code == Code.KAFKA_STORAGE_ERROR
    assert not hosted.replica.failed
    assert (await client.fetch("t", 0)).code == Code.NONE
