"""While the disk has little room, who holds most of it is refused first, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.replication import disk_shares, periodic_chores
from plimsoll_broker.replication.disk_shares import DiskShares, reserve_of
from plimsoll_broker.replication.full_disks import FullDisks
from plimsoll_broker.storage.disk import Disk
from plimsoll_core.errors import Code

ALL = 2**30
RESERVE = reserve_of(ALL)
Make = Callable[[int], Broker]


@pytest.fixture(autouse=True)
def _brokers_that_do_not_look_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look when it is time, however slow the machine is."""
    monkeypatch.setattr(periodic_chores, "ROOM_MS", 3_600_000)


@pytest.fixture
async def one(controller: Controller, broker: Make) -> tuple[Broker, Client]:
    """Leads `large` and `small`; what it holds of them says their names."""
    started = await broker(0).start()
    for name in ("large", "small", "new"):
        controller.create(name, (0,))
    client = await started.client()
    for name, batches in (("large", 50), ("small", 10)):
        for _ in range(batches):
            assert (await client.produce(name, a_batch(10)))[0] == Code.NONE
    return started, client


async def left(broker: Broker, free: float, monkeypatch: pytest.MonkeyPatch) -> DiskShares:
    """So much of the reserve is free, and it has been looked at."""
    monkeypatch.setattr(Disk, "room", lambda *_: (int(free * RESERVE), ALL))
    await FullDisks(broker.manager).look()
    return broker.manager.disk_shares


def refused(broker: Broker, topic: str, writer: str, size: int = 100) -> bool:
    return broker.manager.disk_shares.refuses(broker.hosted(topic), writer, size)


def wrote(broker: Broker, **writers: str) -> None:
    for topic, writer in writers.items():
        broker.hosted(topic).writer = writer


async def test_largest_is_refused_first_and_others_write(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = one
    wrote(broker, large="User:mallory", small="User:victim")
    await left(broker, 1.1, monkeypatch)
    assert not refused(broker, "large", "User:mallory"), "the reserve is whole"
    await left(broker, 0.9, monkeypatch)
    assert refused(broker, "large", "User:mallory")
    assert refused(broker, "new", "User:mallory"), "whatever it writes to"
    assert not refused(broker, "small", "User:victim")
    assert not refused(broker, "new", "User:newcomer")


async def test_less_room_refuses_those_who_hold_less(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = one
    wrote(broker, large="User:mallory", small="User:victim")
    await left(broker, 0.55, monkeypatch)
    assert refused(broker, "small", "User:victim"), "a fifth of the largest, a tenth of the way"
    assert not refused(broker, "new", "User:newcomer")
    await left(broker, 0.49, monkeypatch)
    assert refused(broker, "new", "User:newcomer"), "the rest is for the cluster itself"


async def test_what_is_appended_between_looks_counts(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = one
    wrote(broker, large="User:mallory", small="User:victim")
    shares = await left(broker, 1.5, monkeypatch)
    assert not refused(broker, "new", "User:victim")
    broker.manager.traffic.bytes_in += RESERVE
    assert shares.look_again, "it is looked at sooner than it would be"
    assert refused(broker, "large", "User:mallory")
    broker.manager.traffic.replicated_in += RESERVE
    assert refused(broker, "new", "User:newcomer")


async def test_refused_client_hears_why_and_resumes_later(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal takes no replica out of service, and the broker stays ready."""
    broker, client = one
    await left(broker, 0.4, monkeypatch)
    end = broker.hosted("large").log.log_end_offset
    assert (await client.produce("large", a_batch(1)))[0] == Code.KAFKA_STORAGE_ERROR
    assert "Delete records or topics" in caplog.text
    assert not broker.hosted("large").replica.failed
    assert broker.hosted("large").log.log_end_offset == end
    await left(broker, 2, monkeypatch)
    assert await client.produce("large", a_batch(1)) == (Code.NONE, end)


async def test_followers_and_internal_topics_use_the_reserve(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1))
    client = await leader.client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await until(lambda: set(controller.partition("t").isr) == {0, 1})
    await left(follower, 0.1, monkeypatch)
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 1), "acks=all"
    assert follower.hosted("t").log.log_end_offset == 2


async def test_owner_counts_before_anybody_writes(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart nobody has written yet."""
    broker, _ = one
    wrote(broker, large="", small="")
    await left(broker, 0.9, monkeypatch)
    assert refused(broker, "large", "User:mallory"), "who writes to it now holds it"
    assert not refused(broker, "small", "User:victim")


async def test_group_records_count_for_the_groups_owners(
    one: tuple[Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who filled the disk with commits held nothing of it, and all others were refused."""
    broker, _ = one
    wrote(broker, small="User:victim")
    monkeypatch.setattr(disk_shares, "is_internal", lambda name: name == "large")
    shares = broker.manager.disk_shares
    shares.recorded("User:mallory", 10**9)
    shares.recorded("User:victim", 10**3)
    await left(broker, 0.9, monkeypatch)
    assert refused(broker, "new", "User:mallory")
    assert not refused(broker, "small", "User:victim")
