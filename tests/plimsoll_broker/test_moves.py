"""Replicas that are given to brokers and taken away, with real logs and real sockets."""

import pytest
from tests.plimsoll_broker.test_replication import Make, Three, until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.reporting import replica_reports
from plimsoll_broker.reporting.replica_reports import CopyReports
from plimsoll_core.errors import Code


def reports(broker: Broker) -> CopyReports:
    lifetime = (broker.id, broker.epoch)
    return CopyReports(broker.manager, broker.link, lifetime)  # type: ignore[arg-type]


def told(broker: Broker) -> dict[int, int] | None:
    """Sizes by partition that moves."""
    report = reports(broker).report()
    return None if report is None else {copy.index: copy.size for copy in report.copies} or None


async def test_new_replica_starts_empty_and_dropped_is_deleted(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    controller.create("t", (0, 1, 3))
    await until(lambda: controller.partition("t").replicas == (0, 1, 3))
    assert controller.partition("t").isr == (0, 1, 3)
    assert new.bytes_of("t") == three[0].bytes_of("t")
    await until(lambda: three[2].manager.by_name("t", 0) is None)
    assert not (three[2].directory / "t-0").exists()
    assert (await client.produce("t", a_batch(2)))[0] == Code.NONE


async def test_leader_may_move_itself_away(
    controller: Controller, three: Three, broker: Make
) -> None:
    """S32: NEW_LEADER_ELECTED, but committed; 3 deletes its copy upon metadata."""
    new = await broker(3).start()
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    controller.create("t", (3, 1, 2))
    await until(lambda: controller.partition("t").replicas == (3, 1, 2))
    leader = controller.partition("t").leader
    assert leader in (1, 2, 3)
    await until(lambda: three[0].manager.by_name("t", 0) is None)
    await until(lambda: {3, 1, 2} == set(controller.partition("t").isr))
    there = {1: three[1], 2: three[2], 3: new}[leader]
    assert (await (await there.client()).produce("t", a_batch(2)))[0] == Code.NONE


async def test_replica_that_comes_back_begins_anew(controller: Controller, three: Three) -> None:
    """A removed and re-added replica starts empty."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    log = three[2].hosted("t").log
    controller.create("t", (0, 1))
    await until(lambda: three[2].manager.by_name("t", 0) is None)
    await client.produce("t", a_batch(2))
    controller.create("t", (0, 1, 2))
    await until(lambda: controller.partition("t").isr == (0, 1, 2))
    assert three[2].hosted("t").log is not log
    assert three[2].bytes_of("t") == three[0].bytes_of("t")


class TestReports:
    async def test_leader_and_new_replica_report_their_bytes(
        self, controller: Controller, three: Three, broker: Make
    ) -> None:
        new = await broker(3).start()
        new.deaf = True
        controller.create("t", (0, 1, 2))
        client = await three[0].client()
        await client.produce("t", a_batch(3, filler=1_000))
        assert told(three[0]) is None, "nothing moves"
        controller.create("t", (0, 1, 3))
        await until(lambda: three[0].hosted("t").replica.partition.adding == (3,))
        size = three[0].hosted("t").log.size
        assert size > 1_000
        assert told(three[0]) == {0: size}
        assert told(three[1]) is None, "it neither leads nor is added"
        assert told(new) is None, "it does not know yet"
        held = controller.soft.copies
        controller.request(reports(three[0]).report())  # type: ignore[arg-type]
        assert held == {controller.partition("t").key: {0: size}}
        new.hear()
        await until(lambda: told(three[0]) is None)
        assert not controller.partition("t").moving
        assert held == {}

    async def test_progress_of_many_copies_is_reported_in_turns(
        self, controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new = await broker(3).start()
        new.deaf = True
        controller.create("t", *[(0, 1, 2)] * 5)
        await until(lambda: three[0].manager.by_name("t", 4) is not None)
        controller.create("t", *[(0, 1, 3)] * 5)
        await until(lambda: three[0].hosted("t").replica.partition.adding == (3,))
        monkeypatch.setattr(replica_reports, "COPIES_MAX", 2)
        once = reports(three[0])
        turns = [once.report() for _ in range(5)]
        indexes = [copy.index for turn in turns if turn is not None for copy in turn.copies]
        assert sorted(indexes) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert indexes[:5] == indexes[5:]

    async def test_leaders_tell_how_large_their_partitions_are_slowly(
        self, controller: Controller, three: Three
    ) -> None:
        once = reports(three[0])
        assert once.report() is None, "it leads nothing yet"
        controller.create("t", (0, 1, 2))
        client = await three[0].client()
        await client.produce("t", a_batch(3, filler=1_000))
        first = once.report()
        assert first is not None
        size = three[0].hosted("t").log.size
        assert [(one.index, one.size) for one in first.sizes] == [(0, size)]
        assert first.copies == ()
        others = [once.report() for _ in range(replica_reports.SIZES_PERIODS - 1)]
        assert others == [None] * len(others)
        assert once.report() == first
        assert reports(three[1]).report() is None, "it leads nothing"
        controller.request(first)
        assert controller.soft.sizes == {controller.partition("t").key: size}
        assert controller.soft.copies == {}
