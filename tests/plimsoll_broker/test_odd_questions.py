"""Questions whose numbers make little sense are answered as Kafka answers them."""

from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_replication import Make, Three
from tests.plimsoll_broker.trio import Client, Controller, a_batch

from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey


async def fetched(client: Client, wait_ms: int = 60_000, each: int = 2**20, **limits: int) -> Any:
    """From the beginning of t-0 and t-1."""
    values = {"max_wait": wait_ms, "max_bytes": 2**20, **limits}
    request = fetch_values("t", (0, 1), partition_bytes_max=each, **values)
    return await client.ask(ApiKey.FETCH, 12, request)


def sizes(reply: Any) -> list[int]:
    return [len(one.records or b"") for one in reply.responses[0].partitions]


@pytest.fixture
async def client(controller: Controller, broker: Make) -> Client:
    """A broker alone, with a batch in t-0 and one in t-1."""
    one = await broker(0).start()
    controller.create("t", (0,), (0,))
    asking = await one.client()
    for index in (0, 1):
        assert (await asking.produce("t", a_batch(2), index=index))[0] == Code.NONE
    return asking


@pytest.mark.parametrize("most", [0, 1, -1])
async def test_first_batch_exceeds_the_fetch_limit(client: Client, most: int) -> None:
    first, second = sizes(await fetched(client, max_bytes=most))
    assert first > 0
    assert second == 0


@pytest.mark.parametrize("most", [0, -1])
async def test_first_batch_exceeds_the_partition_limit(client: Client, most: int) -> None:
    assert sizes(await fetched(client, each=most))[0] > 0


async def test_fetch_without_possible_data_is_answered_at_once(
    client: Client,
) -> None:
    """It would wait for a minute."""
    found = sizes(await fetched(client, min_bytes=100_000, max_bytes=100))
    assert found[0] > 0


async def test_session_that_nobody_began_is_not_found(client: Client) -> None:
    reply = await fetched(client, session_id=0, session_epoch=3)
    assert (reply.error_code, reply.responses) == (Code.FETCH_SESSION_ID_NOT_FOUND, ())


@pytest.mark.parametrize("session_id", [-1, 5])
@pytest.mark.parametrize("session_epoch", [0, -1])
async def test_full_fetch_is_answered_whatever_session_it_names(
    client: Client, session_id: int, session_epoch: int
) -> None:
    """As in Kafka, where such a fetch ends the session that it names, if there is one."""
    reply = await fetched(client, session_id=session_id, session_epoch=session_epoch)
    assert (reply.error_code, reply.session_id) == (Code.NONE, 0)
    assert sizes(reply)[0] > 0


@pytest.mark.parametrize("timestamp", [-6, -7, -(2**63)])
async def test_special_time_of_newer_version_is_refused(client: Client, timestamp: int) -> None:
    assert await client.latest("t", timestamp) == (Code.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9)])
@pytest.mark.parametrize("version", range(1, 10))
async def test_time_stands_for_something_from_its_version_on(
    client: Client, timestamp: int, since: int, version: int
) -> None:
    """A client that negotiated an older version means something else by it."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [partition]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1_000}
    reply = await client.ask(ApiKey.LIST_OFFSETS, version, values)
    code = reply.topics[0].partitions[0].error_code
    assert code == (Code.NONE if version >= since else Code.UNSUPPORTED_VERSION)


async def test_leader_epoch_below_none_is_stale(client: Client) -> None:
    listed = {"partition_index": 0, "current_leader_epoch": -2, "timestamp": -1}
    topics = [{"name": "t", "partitions": [listed]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1_000}
    reply = await client.ask(ApiKey.LIST_OFFSETS, 9, values)
    assert reply.topics[0].partitions[0].error_code == Code.FENCED_LEADER_EPOCH
    ended = {"partition": 0, "current_leader_epoch": -2, "leader_epoch": 0}
    values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [ended]}]}
    reply = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
    assert reply.topics[0].partitions[0].error_code == Code.FENCED_LEADER_EPOCH


async def test_end_of_no_epoch_is_not_known(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": -1}
    values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [partition]}]}
    reply = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
    one = reply.topics[0].partitions[0]
    assert (one.error_code, one.leader_epoch, one.end_offset) == (Code.NONE, -1, -1)
