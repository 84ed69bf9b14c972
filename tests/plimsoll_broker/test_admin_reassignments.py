"""Reassignments for clients: the controller decides, this broker answers when it sees them."""

import asyncio
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.described import ORDERS, Harness, an_image, versions

from plimsoll_broker.control.controller_client import NoController
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    ReassignmentsAnswer,
    TargetAnswer,
)
from plimsoll_core.messages.requests import Refused
from plimsoll_wire.api_versions import ApiKey

ALTER = ApiKey.ALTER_PARTITION_REASSIGNMENTS
LIST = ApiKey.LIST_PARTITION_REASSIGNMENTS
EVERY_VERSION = pytest.mark.parametrize("version", versions(ALTER))


def alter(harness, version, wanted, timeout=5_000):
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "replicas": replicas} for index, replicas in rows.items()
            ],
        }
        for topic, rows in wanted.items()
    ]
    values = {"topics": topics, "timeout": timeout, "allow_replication_factor_change": False}
    return harness.ask(ALTER, version, values)


def listed(harness, wanted):
    topics = None
    if wanted is not None:
        topics = [{"name": name, "partition_indexes": ids} for name, ids in wanted.items()]
    reply = harness.ask(LIST, 0, {"topics": topics, "timeout": 5_000})
    assert reply.error_code == 0
    return {
        (topic.name, each.partition_index): (
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in reply.topics
        for each in topic.partitions
    }


def results(reply):
    return {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in reply.responses
        for each in topic.partitions
    }


def moving(image):
    """The image in which orders-0 moves from 2 to 3."""
    key = PartitionKey(UUID(str(ORDERS)), 0)
    found = image.partitions[key]
    later = msgspec.structs.replace(
        found,
        replicas=(0, 1, 3, 2),
        adding=(3,),
        removing=(2,),
        partition_epoch=found.partition_epoch + 1,
    )
    return msgspec.structs.replace(image, partitions=image.partitions.set(key, later))


@EVERY_VERSION
async def test_move_is_answered_when_it_can_be_seen(version):
    harness = Harness()
    epoch = moving(an_image()).partitions[PartitionKey(ORDERS, 0)].partition_epoch
    harness.answer = ReassignmentsAnswer(
        partitions=(
            TargetAnswer(topic="orders", index=0, partition_epoch=epoch),
            TargetAnswer(topic="orders", index=1, code=85, message="Not being moved."),
        )
    )
    asking = asyncio.ensure_future(alter(harness, version, {"orders": {0: [0, 1, 3], 1: None}}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    harness.watch.update(harness.watch.image, moving(an_image()))
    reply = await asking
    assert reply.error_code == 0
    assert results(reply) == {("orders", 0): (0, None), ("orders", 1): (85, "Not being moved.")}
    assert harness.commands[0][0] == AlterReassignments(
        targets=(
            PartitionTarget(topic="orders", index=0, replicas=(0, 1, 3)),
            PartitionTarget(topic="orders", index=1, replicas=None),
        ),
        allow_factor_change=version == 0,
    )


@pytest.mark.parametrize("allowed", [False, True])
async def test_alter_reassignments_tells_whether_factors_might_change(allowed):
    """Kafka's field: what the request said."""
    values = {"topics": [], "timeout": 5_000, "allow_replication_factor_change": allowed}
    reply = await Harness().ask(ALTER, 1, values)
    assert reply.allow_replication_factor_change is allowed


@EVERY_VERSION
async def test_alter_reassignments_without_partitions_does_nothing(version):
    harness = Harness()
    reply = await alter(harness, version, {})
    assert (reply.error_code, results(reply)) == (0, {})
    assert harness.commands == []


@EVERY_VERSION
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NoController("no answer"), 7),
        (Refused(reason="TooManyWaiting", code=89, message="later"), 89),
    ],
)
async def test_alter_reassignments_without_controller_fails_each_partition(version, answer, code):
    harness = Harness()
    harness.answer = answer
    reply = await alter(harness, version, {"orders": {0: [1], 1: [1]}})
    assert reply.error_code == code
    assert {each[0] for each in results(reply).values()} == {code}
    assert len(results(reply)) == 2


def test_list_reassignments_lists_only_moving_partitions():
    harness = Harness(moving(an_image()))
    expected = {("orders", 0): ((0, 1, 3, 2), (3,), (2,))}
    assert listed(harness, None) == expected
    assert listed(harness, {"orders": [0, 1, 99], "nothing": [0]}) == expected
    assert listed(harness, {"orders": [1], "payments": [0]}) == {}
