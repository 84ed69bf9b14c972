"""A producer's times are within what its topic allows, or nothing is written."""

import time

import pytest
from tests.plimsoll_broker.test_replication import Make
from tests.plimsoll_broker.trio import Client, Controller, a_batch

from plimsoll_broker.handlers.batch_checks import check_times
from plimsoll_broker.storage.log_config import TimeLimits
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import HEADER_SIZE, parse_header, seal

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


@pytest.fixture
async def client(broker: Make, controller: Controller) -> Client:
    one = await broker(0).start()
    controller.create("t", (0,), **{"retention.ms": "-1"})
    controller.create(
        "strict",
        (0,),
        **{"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "0"},
    )
    controller.create("stamped", (0,), **{"message.timestamp.type": "LogAppendTime"})
    return await one.client()


def batch(first: int, newest: int | None = None) -> bytes:
    sent = a_batch(1, timestamp=first)
    header = parse_header(sent)._replace(max_timestamp=first if newest is None else newest)
    return seal(header, sent[HEADER_SIZE:])


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 1000 * 365 * 24 * HOUR_MS, None])
async def test_time_far_ahead_is_refused_with_a_sentence(
    client: Client, ahead_ms: int | None
) -> None:
    """Two hours, a thousand years, microseconds for milliseconds: retention would keep it."""
    now_ms = time.time_ns() // 1_000_000
    wrong = 2**63 - 1 if ahead_ms is None else now_ms + ahead_ms
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [
            {"name": "t", "partition_data": [{"index": 0, "records": batch(now_ms, wrong)}]}
        ],
    }
    reply = await client.ask(ApiKey.PRODUCE, 9, values)
    one = reply.responses[0].partition_responses[0]
    assert int(one.error_code) == Code.INVALID_TIMESTAMP
    assert str(wrong) in one.error_message
    assert "message.timestamp.after.max.ms" in one.error_message
    assert (await client.latest("t")) == (Code.NONE, 0)


async def test_times_from_past_to_one_hour_ahead_pass(client: Client) -> None:
    now_ms = time.time_ns() // 1_000_000
    for taken in (now_ms + HOUR_MS // 2, now_ms, 1_000, 0, -1):
        assert (await client.produce("t", batch(taken)))[0] == Code.NONE


async def test_topic_says_how_far_behind_and_ahead(client: Client) -> None:
    now_ms = time.time_ns() // 1_000_000
    for wrong in (now_ms + 60_000, now_ms - 60_000, 1_000):
        assert (await client.produce("strict", batch(wrong)))[0] == Code.INVALID_TIMESTAMP
    assert (await client.produce("strict", batch(-1)))[0] == Code.NONE, "it says that it has none"


async def test_producers_timestamp_is_ignored_with_log_append_time(client: Client) -> None:
    assert (await client.produce("stamped", batch(2**62)))[0] == Code.NONE


@pytest.mark.parametrize(
    ("first", "newest", "refused"),
    [
        (NOW_MS, NOW_MS + 10, False),
        (NOW_MS, NOW_MS + 11, True),
        (NOW_MS - 20, NOW_MS, False),
        (NOW_MS - 21, NOW_MS, True),
        (-1, -1, False),
        (-1, NOW_MS, False),
        (-1, NOW_MS + 11, True),
    ],
)
def test_limits_are_part_of_what_is_allowed(first: int, newest: int, refused: bool) -> None:
    header = parse_header(batch(first, newest))
    assert (check_times(header, TimeLimits(20, 10), NOW_MS) is not None) == refused
