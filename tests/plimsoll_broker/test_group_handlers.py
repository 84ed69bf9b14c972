"""The APIs of offsets and groups in every version, asked of a coordinator as a client would."""

from typing import Any

import pytest
from immutables import Map
from tests.plimsoll_broker.described import a_broker, a_partition, an_image, versions
from tests.plimsoll_broker.group_harness import GROUP, Harness, commit_of
from tests.plimsoll_core.groups.coordinator_model import store, topic_id

from plimsoll_broker.handlers.groups import group_api
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_request


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_commit_answers_each_partition(version: int) -> None:
    harness = Harness()
    assert await harness.commit(version, (0, 10), (2, 12), (3, 1)) == [0, 0, 3]
    assert (await harness.fetch(9, [0, 2]))[1] == {0: 10, 2: 12}
    stats = harness.coordinators.stats
    assert (stats.commits, stats.commit_failures) == (2, {"UNKNOWN_TOPIC_OR_PARTITION": 1})


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_commit_refusal_is_reported_per_partition(version: int) -> None:
    harness = Harness()
    codes = await harness.commit(version, (0, 1), (1, 1), generation_id_or_member_epoch=3)
    assert codes == [69 if version >= 9 else 22] * 2


async def test_retention_of_old_versions_is_the_commits_own() -> None:
    harness = Harness()
    await harness.commit(4, (0, 1), retention_time=5_000)
    group = harness.coordinators.model.turn.state.groups["g"]
    committed = group.offsets["orders"][0]
    assert committed.expire_ms == committed.commit_ms + 5_000


class ChargedBytes:
    """Stands for a client's quotas."""

    def __init__(self) -> None:
        self.produced_bytes = 0

    def produced(self, size: int) -> None:
        self.produced_bytes += size


async def test_commit_counts_in_the_quota_of_producers() -> None:
    harness, charges = Harness(), ChargedBytes()
    body = encode_request(ApiKey.OFFSET_COMMIT, 8, commit_of((0, 1)))
    context = RequestContext(ApiKey.OFFSET_COMMIT, 8, 7, memoryview(bytearray(body)))
    context.charges = charges
    harness.handlers[ApiKey.OFFSET_COMMIT](context)
    assert charges.produced_bytes == len(body)
    asked = {"groups": [{**GROUP, "topics": None}], "require_stable": True}
    body = encode_request(ApiKey.OFFSET_FETCH, 9, asked)
    context = RequestContext(ApiKey.OFFSET_FETCH, 9, 7, memoryview(bytearray(body)))
    context.charges = charges
    before = charges.produced_bytes
    harness.handlers[ApiKey.OFFSET_FETCH](context)
    assert charges.produced_bytes == before


@pytest.mark.parametrize("principal", ["User:alice", ANONYMOUS])
async def test_group_counts_to_user_or_address(principal: str) -> None:
    harness = Harness()
    harness.connection.address = "10.0.0.7"
    harness.connection.logged_in_as(principal)
    expected = "10.0.0.7" if principal == ANONYMOUS else principal
    await harness.commit(8, (0, 1))
    assert harness.coordinators.model.turn.state.groups["g"].owner == expected
    other = Harness()
    other.connection.address = "10.0.0.7"
    other.connection.logged_in_as(principal)
    await other.join(3)
    assert other.coordinators.model.turn.state.groups["g"].owner == expected


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_offset_fetch_returns_minus_one_when_absent(version: int) -> None:
    harness = Harness()
    assert await harness.fetch(version, [0]) == (0, {0: -1})
    await harness.commit(9, (0, 10), (1, 11))
    assert await harness.fetch(version, [0, 1, 2]) == (0, {0: 10, 1: 11, 2: -1})
    if version >= 2:
        assert await harness.fetch(version, None) == (0, {0: 10, 1: 11})


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_offset_fetch_answers_topic_without_partitions(version: int) -> None:
    topics = [{"name": "orders", "partition_indexes": []}]
    one = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    values = {"groups": [one], **one, "require_stable": True}
    reply = await Harness().ask(ApiKey.OFFSET_FETCH, version, values)
    told = reply.groups[0] if version >= 8 else reply
    assert [(topic.name, topic.partitions) for topic in told.topics] == [("orders", ())]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_offset_fetch_refusal_is_per_group_or_partition(version: int) -> None:
    harness = Harness()
    harness.coordinators.refusal = RefusedAsWhole(Code.NOT_COORDINATOR)
    code, offsets = await harness.fetch(version, [0, 1])
    assert code == Code.NOT_COORDINATOR
    assert set(offsets) == ({0, 1} if version < 2 else set())


async def test_request_of_many_partitions_is_split() -> None:
    harness = Harness()
    rows = [(index, 1) for index in range(2 * group_api.PARTITIONS_AT_ONCE + 1)]
    codes = await harness.commit(8, *rows)
    assert len(codes) == len(rows)
    assert codes.count(0) == 3
    assert len(harness.coordinators.asked) == 3
    code, offsets = await harness.fetch(8, [index for index, _ in rows])
    assert (code, len(offsets), offsets[0]) == (0, len(rows), 1)
    assert len(harness.coordinators.asked) == 6


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_missing_groups_are_described_dead_or_error(version: int) -> None:
    harness = Harness()
    store(harness.coordinators.model, "m1")
    reply = await harness.ask(
        ApiKey.DESCRIBE_GROUPS,
        version,
        {"groups": ["g", "none"], "include_authorized_operations": False},
    )
    found, missing = reply.groups
    assert (found.group_state, found.protocol_data, len(found.members)) == ("Stable", "range", 1)
    assert (missing.group_state, int(missing.error_code)) == ("Dead", 69 if version >= 6 else 0)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_groups_are_listed_in_every_version(version: int) -> None:
    harness = Harness()
    await harness.commit(9, (0, 1))
    reply = await harness.ask(
        ApiKey.LIST_GROUPS, version, {"states_filter": [], "types_filter": []}
    )
    assert (int(reply.error_code), [one.group_id for one in reply.groups]) == (0, ["g"])
    harness.coordinators.refusal = RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS)
    reply = await harness.ask(
        ApiKey.LIST_GROUPS, version, {"states_filter": [], "types_filter": []}
    )
    assert (int(reply.error_code), len(reply.groups)) == (14, 0)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_groups_are_deleted_each_with_its_code(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll_core.groups.admin.OFFSETS_AT_ONCE", 1)
    harness = Harness()
    await harness.commit(9, (0, 1), (1, 1), (2, 1))
    reply = await harness.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": ["g", "none", "g"]})
    told = [(one.group_id, int(one.error_code)) for one in reply.results]
    assert told == [("g", 0), ("none", 69)]
    assert harness.coordinators.model.turn.state.groups == {}
    assert len(harness.coordinators.asked) == 5, "three offsets, one at a time"


async def test_offsets_are_deleted_each_with_its_code() -> None:
    harness = Harness()
    values = {**GROUP, "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}
    reply = await harness.ask(ApiKey.OFFSET_DELETE, 0, values)
    assert (int(reply.error_code), reply.topics) == (69, ())
    await harness.commit(9, (0, 1))
    reply = await harness.ask(ApiKey.OFFSET_DELETE, 0, values)
    assert [int(one.error_code) for one in reply.topics[0].partitions] == [0]


# --- FindCoordinator ------------------------------------------------------------------------------


def with_offsets_topic(leader: int | None) -> ClusterImage:
    made = topic_id("offsets")
    image = an_image(a_broker(0), a_broker(1), a_broker(2, fenced=True))
    row = a_partition(made, 0, leader)
    topic = Topic(id=made, name="__consumer_offsets", partitions=1, replication_factor=3, min_isr=2)
    fields = {name: getattr(image, name) for name in image.__struct_fields__}
    return ClusterImage(
        **{
            **fields,
            "metadata_version": 2,
            "topics": image.topics.set(made, topic),
            "topic_ids": image.topic_ids.set("__consumer_offsets", made),
            "partitions": Map({row.key: row}),
        }
    )


async def find(harness: Harness, version: int, kind: int = 0, key: str = "g") -> Any:
    values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
    reply = await harness.ask(ApiKey.FIND_COORDINATOR, version, values)
    return reply.coordinators[0] if version >= 4 else reply


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_coordinator_is_the_leader_of_the_groups_partition(version: int) -> None:
    found = await find(Harness(with_offsets_topic(1)), version)
    assert (int(found.error_code), found.node_id, found.host) == (0, 1, "host-1")


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
@pytest.mark.parametrize("leader", [None, 2])
async def test_coordinator_is_not_available_without_a_live_leader(
    version: int, leader: int | None
) -> None:
    found = await find(Harness(with_offsets_topic(leader)), version)
    assert (int(found.error_code), found.node_id) == (15, -1)


async def test_first_group_creates_topic_unless_too_old() -> None:
    fields = {name: getattr(an_image(), name) for name in ClusterImage.__struct_fields__}
    harness = Harness(ClusterImage(**{**fields, "metadata_version": 1}))
    assert int((await find(harness, 4)).error_code) == 15
    assert harness.coordinators.topics._wanted == {}, "an older controller may not understand it"
    harness = Harness(ClusterImage(**{**fields, "metadata_version": 2}))
    assert int((await find(harness, 4)).error_code) == 15
    assert list(harness.coordinators.topics._wanted) == ["__consumer_offsets"]


@pytest.mark.parametrize("kind", [1, 2, -1])
async def test_other_coordinator_types_are_refused_with_sentence(kind: int) -> None:
    found = await find(Harness(with_offsets_topic(1)), 4, kind)
    assert (int(found.error_code), found.node_id) == (42, -1)
    assert found.error_message


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR)[1:])
async def test_transaction_coordinator_refusal_is_final(
    version: int,
) -> None:
    """librdkafka, which asks in versions below 4, ends its search for code 53 alone."""
    found = await find(Harness(with_offsets_topic(1)), version, 1)
    assert (int(found.error_code), found.node_id) == (42 if version >= 4 else 53, -1)
    assert found.error_message == "This cluster does not support transactions."


async def test_group_id_that_is_too_long_is_refused() -> None:
    found = await find(Harness(with_offsets_topic(1)), 4, key="ö" * 128)
    assert int(found.error_code) == Code.INVALID_GROUP_ID
