"""What a broker tells by itself while no controller decides: nothing of it needs an operator."""

import asyncio

import pytest
from tests.plimsoll_broker.coordinating_brokers import Member
from tests.plimsoll_broker.metric_values import a_node, told
from tests.plimsoll_broker.test_replication import Make, Three, others_lag, until
from tests.plimsoll_broker.trio import Controller, a_batch
from tests.stated_metrics import SHOWN_BY_LIBRARY, unlike

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.coordinator.group_measures import lag_text
from plimsoll_broker.node import partition_measures
from plimsoll_broker.node.broker_metrics import BrokerCollector
from plimsoll_broker.node.metric_rows import LAG_ROWS, ROWS
from plimsoll_broker.security.audit_log import AuditLog
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_core.messages.requests import Answer
from plimsoll_process.loop_watch import LoopHolds

NOBODY_LAGS_MS = 3_600_000
"""However long what a test does first takes on a busy machine."""


async def test_lost_leader_counts_as_leaderless_at_followers(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata still name it."""
    monkeypatch.setattr(partition_measures, "LEADER_SILENT_MS", 1)
    controller.create("t", (0, 1, 2), (1, 0, 2))
    client = await three[0].client()
    assert (await client.produce("t", a_batch(1)))[0] == 0
    assert told(three[2].manager)["leaderless_partitions"] == 0
    await three[0].stop()
    await until(lambda: told(three[2].manager)["leaderless_partitions"] == 1)
    assert controller.partition("t").leader == 0
    await three[0].start()
    await until(lambda: told(three[2].manager)["leaderless_partitions"] == 0)


async def test_under_min_isr_shows_before_controller_commits(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await broker(0).start()
    leader.manager.around.lag_time_max_ms = NOBODY_LAGS_MS
    others = [await broker(1).start(), await broker(2).start()]
    controller.create("t", (0, 1, 2))
    client = await leader.client()
    assert (await client.produce("t", a_batch(1)))[0] == 0
    assert told(leader.manager)["under_min_isr_partitions"] == 0

    async def no_controller(request: object, timeout_ms: int = 0) -> Answer:
        raise NoController("away")

    monkeypatch.setattr(leader.link, "command", no_controller)
    hosted = leader.hosted("t")
    await others[0].stop()
    assert (await client.produce("t", a_batch(1), acks=1))[0] == 0
    now_ms = leader.manager.now_ms() + 1
    leader.manager.now_ms = lambda: now_ms
    await until(lambda: hosted.replica.leader.followers[2].caught_up_ms == now_ms)
    leader.manager.around.lag_time_max_ms = 0
    # It is proposed to leave alone, and nobody answers that.
    leader.manager.check_lag(hosted)
    assert hosted.replica.leader.isr.leaving == (1,)
    await others[1].stop()
    assert (await client.produce("t", a_batch(1), acks=1))[0] == 0
    assert told(leader.manager)["under_min_isr_partitions"] == 0
    now_ms += 1
    assert told(leader.manager)["under_min_isr_partitions"] == 1
    assert hosted.replica.leader.isr.leaving == (1,)
    assert len(controller.partition("t").isr) == 3


async def test_silence_of_the_controller_is_told_in_seconds(
    controller: Controller, three: Three
) -> None:
    assert told(three[0].manager, controller_silent_ms=1_500)["controller_silence_seconds"] == 1.5


async def test_requests_are_timed_by_api_and_follower(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert (await client.produce("t", a_batch(3)))[0] == 0
    await until(lambda: three[1].hosted("t").log.log_end_offset == 3)
    await until(lambda: three[0].replication.stats.follower_fetches.sum_s > 0)
    listeners = {"clients": three[0].server, "replication": three[0].replication}
    values = told(three[0].manager, listeners=listeners)
    assert values["request_seconds_countPRODUCE"] == 1
    assert values["request_seconds_bucketPRODUCE+Inf"] == 1
    assert 0 < values["request_seconds_sumPRODUCE"] < 10
    assert values["request_seconds_countFETCH_FOLLOWER"] >= 1
    assert values["request_seconds_countFETCH"] == 0
    assert values["records_in_total"] == 3
    assert values["requests_waitingclients"] == three[0].server.stats.waiting


async def test_leader_reports_isr_departures_and_zeros(
    controller: Controller, three: Three
) -> None:
    a, b, c = three
    controller.create("t", (0, 1, 2))
    client = await a.client()
    await client.produce("t", a_batch(1))
    assert told(a.manager)["isr_shrinks_total2lagfalse"] == 0
    assert told(a.manager)["follower_lag_seconds2"] == 0
    await c.path.fetchers.close()
    writing = asyncio.create_task(client.produce("t", a_batch(1)))
    await others_lag(a, "t", 2, b)
    assert (await writing)[0] == 0
    values = told(a.manager)
    assert values["isr_shrinks_total2lagfalse"] == 1
    assert values["isr_shrinks_total1lagfalse"] == 0
    assert values["follower_lag_records2"] == 1
    assert values["follower_lag_seconds2"] > 0


async def test_partition_at_min_isr_of_three_is_reduced(
    controller: Controller, three: Three
) -> None:
    a, b, c = three
    controller.create("two", (0, 1))
    controller.create("three", (0, 1, 2))
    client = await a.client()
    for topic in ("two", "three"):
        assert (await client.produce(topic, a_batch(1)))[0] == 0
    assert told(a.manager)["reduced_to_min_isr_partitions"] == 0
    await c.path.fetchers.close()
    writing = asyncio.create_task(client.produce("three", a_batch(1)))
    await others_lag(a, "three", 2, b)
    assert (await writing)[0] == 0
    assert told(a.manager)["reduced_to_min_isr_partitions"] == 1


async def test_errors_are_counted_by_api_and_kafkas_word(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[1].client()
    assert told(three[1].manager)["request_errors_totalPRODUCENOT_LEADER_OR_FOLLOWER"] == 0
    assert (await client.produce("t", a_batch(1)))[0] != 0
    assert told(three[1].manager)["request_errors_totalPRODUCENOT_LEADER_OR_FOLLOWER"] == 1


async def test_volume_bytes_are_shown_and_topics_on_request(
    controller: Controller, broker: Make
) -> None:
    shy, open_ = [await broker(i).start(**c) for i, c in enumerate(({}, TOPICS))]
    controller.create("a", (1, 0))
    controller.create("b", (1, 0))
    client = await open_.client()
    assert (await client.produce("a", a_batch(2)))[0] == 0
    values = told(open_.manager)
    assert 0 < values["disk_free_bytes"] <= values["disk_size_bytes"]
    assert values["log_size_bytes"] == values["topic_log_size_bytesa"] > 0
    assert values["log_records"] == 2
    assert values["topic_records_in_totala"] == 2
    assert values["topic_bytes_in_totala"] == values["bytes_in_total"]
    assert (values["topic_series_left_out"], "topic_bytes_in_totalb" in values) == (1, False)
    values = told(shy.manager)
    assert (values["topic_series_left_out"], "topic_bytes_in_totala" in values) == (2, False)


TOPICS = {"metric.topic.series.max": "1"}


async def test_broker_shows_what_it_states_and_nothing_else(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    member = Member(three[0])
    node = a_node(
        manager=three[0].manager,
        authority=Authority(controller.image, AuditLog(0)),
        quotas=Quotas(),
        long_work=FairWork(),
        coordinators=member.coordinators,
        holds=LoopHolds(),
        listeners={"clients": three[0].server, "replication": three[0].replication},
    )
    families = list(BrokerCollector(node).collect())
    member.coordinators.close()
    for task in member.tasks:
        task.cancel()
    rows = {row.name: row for row in ROWS}
    assert unlike(families, rows) == []
    elsewhere = SHOWN_BY_LIBRARY | {row.name for row in LAG_ROWS}
    assert rows.keys() - elsewhere == {family.name for family in families}
    text = (await lag_text([])).decode()
    assert text.count("# HELP") == len(LAG_ROWS)
    for row in LAG_ROWS:
        assert f"# HELP {row.name} {row.text}\n" in text
