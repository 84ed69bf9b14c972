"""What cannot be read as it was written is left to the others, where there are any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plimsoll_broker.test_periodic_chores import SMALL
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_core.errors import Code

pytestmark = pytest.mark.usefixtures("small_segments")

Make = Callable[[int], Broker]
Three = tuple[Broker, Broker, Broker]


def corrupt(*_: object, **__: object) -> bytes:
    raise StorageError(StorageFault.CORRUPT, Path("segment"), "the CRC does not match")


async def test_leader_reading_damage_hands_over_to_isr(
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


async def test_sole_leader_keeps_serving_after_corrupt_read(
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


async def test_follower_without_first_file_restarts_before_counting(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2), **SMALL)
    client = await three[0].client()
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900))
    await kill(three[2])
    files = three[2].directory / "t-0"
    for path in files.glob(f"{0:020d}.*"):
        path.unlink()
    back = await broker(2).start()
    await until(lambda: len(controller.partition("t").isr) == 3)
    assert same_logs("t", three[0], back)
    assert (back.hosted("t").log.log_start_offset, back.manager.traffic.truncations) == (0, 1)


@pytest.mark.parametrize("full", [False, True])
async def test_leader_without_beginning_notes_start_or_stops(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,))
    client = await one.client()
    await client.produce("t", a_batch(3))
    hosted = one.hosted("t")
    hosted.log.advance_log_start(2)
    hosted.log.beginning_lost = True
    with monkeypatch.context() as patched:
        if full:
            patched.setattr(Disk, "replace", no_room)
        one.manager.driver.role_taken(hosted)
    assert hosted.replica.failed == full
    assert hosted.log.beginning_lost == full
    assert one.store.beginnings.saved(hosted.place) == (None if full else 2)


def no_room(disk: Disk, path: Path, data: bytes, *, sync: bool) -> None:
    raise StorageError(StorageFault.FULL, path, "no space")
