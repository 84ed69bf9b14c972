"""Elections for clients: the controller decides, this broker answers when it sees them."""

import asyncio
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.described import ORDERS, Harness, an_image, versions

from plimsoll_broker.control.controller_client import NoController
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionsAnswer,
    ElectLeaders,
    PartitionName,
)
from plimsoll_core.messages.requests import (
    Refused,
)
from plimsoll_wire.api_versions import ApiKey

EVERY_VERSION = pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))


def elect(harness, version, partitions, kind=0, timeout=5_000):
    wanted = None
    if partitions is not None:
        wanted = [{"topic": topic, "partitions": list(ids)} for topic, ids in partitions.items()]
    values = {"election_type": kind, "topic_partitions": wanted, "timeout": timeout}
    return harness.ask(ApiKey.ELECT_LEADERS, version, values)


def elected_later(image):
    """The image in which another election of orders-0 can be seen."""
    key = PartitionKey(UUID(str(ORDERS)), 0)
    found = image.partitions[key]
    later = msgspec.structs.replace(found, leader_epoch=found.leader_epoch + 1)
    return msgspec.structs.replace(image, partitions=image.partitions.set(key, later))


def results(reply):
    return {
        (each.topic, one.partition_id): (one.error_code, one.error_message)
        for each in reply.replica_election_results
        for one in each.partition_result
    }


@EVERY_VERSION
async def test_election_is_answered_when_it_can_be_seen(version):
    harness = Harness()
    epoch = elected_later(an_image()).partitions[PartitionKey(ORDERS, 0)].leader_epoch
    harness.answer = ElectionsAnswer(
        partitions=(
            ElectionAnswer(topic="orders", index=0, leader=1, leader_epoch=epoch),
            ElectionAnswer(topic="orders", index=1, code=84, message="Not needed."),
        )
    )
    asking = asyncio.ensure_future(elect(harness, version, {"orders": (0, 1)}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    harness.watch.update(harness.watch.image, elected_later(an_image()))
    reply = await asking
    assert results(reply) == {("orders", 0): (0, None), ("orders", 1): (84, "Not needed.")}
    assert getattr(reply, "error_code", 0) == 0
    names = tuple(PartitionName(topic="orders", index=index) for index in (0, 1))
    assert harness.commands[0][0] == ElectLeaders(kind="Preferred", partitions=names)


@EVERY_VERSION
async def test_null_asks_for_all(version):
    harness = Harness()
    harness.answer = ElectionsAnswer(partitions=())
    reply = await elect(harness, version, None)
    assert results(reply) == {}
    assert harness.commands[0][0] == ElectLeaders(kind="Preferred", partitions=None)


@pytest.mark.parametrize("version", [1, 2])
async def test_unclean_is_type_1(version):
    harness = Harness()
    sentence = "Topic orders is declared by the object Topic shop/orders."
    harness.answer = ElectionsAnswer(
        partitions=(ElectionAnswer(topic="orders", index=0, code=44, message=sentence),)
    )
    reply = await elect(harness, version, {"orders": (0,)}, kind=1)
    assert results(reply) == {("orders", 0): (44, sentence)}
    assert harness.commands[0][0].kind == "Unclean"


async def test_another_type_is_refused_here():
    harness = Harness()
    reply = await elect(harness, 2, {"orders": (0,)}, kind=2)
    assert reply.error_code == 42
    assert results(reply)["orders", 0][0] == 42
    assert harness.commands == []


async def test_elect_leaders_without_partitions_does_nothing():
    harness = Harness()
    reply = await elect(harness, 2, {})
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
async def test_elect_leaders_without_controller_fails_each_partition(version, answer, code):
    harness = Harness()
    harness.answer = answer
    reply = await elect(harness, version, {"orders": (0, 1)})
    assert {each[0] for each in results(reply).values()} == {code}
    assert len(results(reply)) == 2
    assert getattr(reply, "error_code", code) == code
