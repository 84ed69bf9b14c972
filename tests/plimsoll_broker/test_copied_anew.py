"""Followers of compacted logs that must copy them anew, and what is lost if one is elected."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from tests.plimsoll_broker.storage.cleaning import keyed_batch
from tests.plimsoll_broker.test_replication import kill, others_lag, until
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_broker.replication import fetcher
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.log_cleaner import LogCleaner
from plimsoll_broker.replication.log_writer import LogWriter
from plimsoll_broker.reporting.replica_reports import RecoveryReports
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_broker.storage.volume_owner import VolumeRefused
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, BrokerLifetime
from plimsoll_core.messages.elections import ElectLeaders, PartitionName
from plimsoll_core.messages.requests import (
    BrokerProvenDead,
    DeclareTopic,
    ReplicaLog,
    ReportReplicaLogs,
)
from plimsoll_core.replica import follower
from plimsoll_core.replica.follower import Reset
from plimsoll_core.replica.replica_values import EndOffset
from plimsoll_wire.batches import BatchHeader
from plimsoll_wire.replication import FetchLimits

pytestmark = pytest.mark.usefixtures("small_segments")

Make = Callable[[int], Broker]
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "300",
    "min.cleanable.dirty.ratio": "0.1",
    "unclean.recovery.strategy": "Proactive",
}


@pytest.fixture
def controller() -> Controller:
    made = Controller()
    finalized = MetadataVersionFinalized(cause="test", metadata_version=2)
    made.image = apply(made.image, finalized)
    return made


def create(controller: Controller) -> None:
    """On brokers 0 and 1, with a min ISR of 1."""
    controller.request(
        DeclareTopic(
            object=TopicObject(namespace="test", name="t", uid="t"),
            topic_name="t",
            partitions=1,
            replication_factor=2,
            min_isr=1,
            strategy="Explicit",
            assignment=((BrokerId(0), BrokerId(1)),),
            configs=COMPACT,
        )
    )


def told(hosted: Hosted, broker: Broker) -> ReportReplicaLogs:
    position = hosted.replica.position()
    log = ReplicaLog(
        topic_id=hosted.key.topic_id,
        index=0,
        leader_epoch=position.leader_epoch,
        last_written_epoch=position.last_fetched_epoch,
        log_end_offset=position.fetch_offset,
    )
    return ReportReplicaLogs(broker_id=broker.id, broker_epoch=broker.epoch, logs=(log,))


async def test_leader_elected_during_copy_keeps_its_log_later(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads with half a copy, and what it acknowledges then is in the ISR's logs: the next
    leader's term does not begin that copy again."""
    one, two = await broker(0).start(), await broker(1).start()
    create(controller)
    client = await one.client()
    assert (await client.produce("t", keyed_batch(0, [(b"first", b"v" * 40)])))[0] == Code.NONE
    await until(lambda: two.hosted("t").log.log_end_offset == 1)
    copying = two.hosted("t")
    two.path.fetchers.unfollow(copying)
    for number in range(30):
        batch = keyed_batch(0, [(b"k%d" % (number % 3), b"v" * 40)])
        await client.produce("t", batch, acks=1)
    await others_lag(one, "t", 31)
    await until(lambda: controller.partition("t").isr == (0,))
    await until(lambda: one.hosted("t").replica.high_watermark == 31)
    await LogCleaner(one.manager, lambda: 10_000, one.store.cleaning).run()
    small = FetchLimits(wait_ms_max=500, bytes_max=1, partition_bytes_max=1)
    monkeypatch.setattr(fetcher, "LIMITS", small)
    append = LogWriter.append_fetched

    def up_to_28(
        self: LogWriter, hosted: Hosted, data: memoryview, headers: Sequence[BatchHeader]
    ) -> bool:
        if hosted is copying and hosted.log.log_end_offset >= 28:
            return False
        return append(self, hosted, data, headers)

    monkeypatch.setattr(LogWriter, "append_fetched", up_to_28)
    two.path.fetchers.follow(copying, BrokerId(0))
    copy = copying.replica.compacted_copy
    await until(lambda: copy.superseded_below > copying.log.log_end_offset >= 28)
    await kill(one)
    await until(lambda: copying.replica.partition.leader is None)
    controller.now_ms += 10_000
    controller.request(told(copying, two))
    await until(lambda: copying.replica.leader is not None)
    monkeypatch.setattr(LogWriter, "append_fetched", append)
    client = await two.client()
    assert (await client.produce("t", keyed_batch(0, [(b"new", b"v")])))[0] == Code.NONE
    again = Broker(controller, 0, one.directory)
    await again.start()
    try:
        await until(lambda: set(controller.partition("t").isr) == {0, 1})
        end = copying.log.log_end_offset
        preferred = PartitionName(topic="t", index=0)
        controller.request(ElectLeaders(kind="Preferred", partitions=(preferred,)))
        client = await again.client()
        await until(lambda: again.hosted("t").replica.leader is not None)
        assert (await client.produce("t", keyed_batch(0, [(b"last", b"v")])))[0] == Code.NONE
        await until(lambda: copying.log.log_end_offset == end + 1)
        assert two.manager.traffic.truncations == 0
        assert set(controller.partition("t").isr) == {0, 1}
    finally:
        await again.stop()


_opened = LogStore.open


def opening(self: LogStore) -> VolumeRefused | None:
    """With what `node.broker` reads before it registers."""
    found = _opened(self)
    self.take_clean_marker()
    self.load(0)
    return found


async def test_elr_member_leaves_before_it_discards_its_log(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogStore, "open", opening)
    one, two = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1), **COMPACT)
    client = await one.client()
    for number in range(3):
        assert (await client.produce("t", keyed_batch(0, [(b"%d" % number, b"v")])))[0] == Code.NONE
    await until(lambda: two.hosted("t").replica.high_watermark == 3)
    # Its log ends below what superseded records of it.
    two.store.superseding_ends.save({("t", 0): 28})
    await two.stop(clean=True)
    controller.request(
        BrokerProvenDead(broker_id=two.id, broker_epoch=two.epoch, evidence="stopped")
    )
    assert controller.partition("t").elr == (1,)
    seen: list[tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]] = []
    reset = LogWriter.reset

    def resetting(self: LogWriter, hosted: Hosted, where: Reset) -> bool:
        seen.append((controller.partition("t").isr, controller.partition("t").elr))
        return reset(self, hosted, where)

    monkeypatch.setattr(LogWriter, "reset", resetting)
    again = Broker(controller, 1, two.directory)
    await again.start(previous=two.epoch)
    await until(lambda: again.hosted("t").replica.leaving)
    assert again.hosted("t").log.log_end_offset == 3
    lifetime = BrokerLifetime(again.id, again.epoch)
    reports = RecoveryReports(again.manager, again.link, lifetime)  # type: ignore[arg-type]
    reporting = asyncio.create_task(reports.run())
    try:
        await until(lambda: controller.partition("t").isr == (0, 1))
        assert seen == [((0,), ())]
        assert not again.hosted("t").replica.leaving
        assert again.bytes_of("t") == one.bytes_of("t")
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
        await again.stop()


async def test_cleaned_follower_is_not_cut_after_clean_restart(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below what its cleaner used, although a leader lowered the high watermark meanwhile."""
    monkeypatch.setattr(LogStore, "open", opening)
    one, two = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1), **COMPACT)
    client = await one.client()
    for number in range(30):
        batch = keyed_batch(0, [(b"k%d" % (number % 3), b"v" * 40)])
        assert (await client.produce("t", batch))[0] == Code.NONE
    hosted = two.hosted("t")
    await until(lambda: hosted.replica.high_watermark == 30)
    await LogCleaner(two.manager, lambda: 10_000, two.store.cleaning).run()
    used = two.store.superseding_ends.get(("t", 0))
    assert used is not None
    two.path.fetchers.unfollow(hosted)
    hosted.replica.replicated(10)
    await two.stop(clean=True)
    monkeypatch.setattr(fetcher.FetcherPool, "follow", lambda *_: None)
    again = await Broker(controller, 1, two.directory).start(previous=two.epoch)
    try:
        assert again.store.clean_epoch == two.epoch
        replica = again.hosted("t").replica
        assert replica.compacted_copy.least_cut == used > 15
        diverging = EndOffset(0, 15)
        assert follower.truncation_offset(replica.log, diverging, used) is None
    finally:
        await again.stop()
