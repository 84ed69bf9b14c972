"""Configs that are altered and partitions that are added: form is checked here, the controller
decides, and the client hears of it when this broker sees it."""

import asyncio

import msgspec
import pytest
from tests.plimsoll_broker.described import Harness, an_image, versions

from plimsoll_broker.control.controller_client import NoController
from plimsoll_core.cluster.topic_configs import VALUE_LENGTH_MAX
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    ConfigChange,
    TopicChanged,
    TopicConfigChanges,
    TopicGrowth,
    TopicsChanged,
)
from plimsoll_wire.api_versions import ApiKey

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OVERRIDDEN = "The object Topic shop/orders declares it; edit spec.config of that object."


def changed(request, code=0, message=""):
    topics = tuple(
        TopicChanged(topic=name, code=code, message=message)
        for name in dict.fromkeys(each.topic for each in request.topics)
    )
    return TopicsChanged(topics=topics, end_offset=0)


@pytest.fixture
def harness():
    made = Harness()
    made.answer = changed
    return made


def a_resource(kind, name, *configs):
    """`configs`: (name, operation, value)."""
    named = [{"name": n, "config_operation": op, "value": v} for n, op, v in configs]
    return {"resource_type": kind, "resource_name": name, "configs": named}


async def alter(harness, *resources, version=1, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields):
    values = {"resources": list(resources), "validate_only": False, **fields}
    reply = await harness.ask(key, version, values)
    return [(each.resource_name, each.error_code, each.error_message) for each in reply.responses]


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
async def test_topic_changes_are_forwarded_with_current_values(version, harness):
    found = await alter(
        harness,
        a_resource(
            TOPIC,
            "orders",
            ("retention.ms", SET, "5"),
            ("flush.ms", DELETE, None),
            ("cleanup.policy", APPEND, "delete"),
        ),
        version=version,
    )
    assert found == [("orders", 0, None)]
    ((request, _),) = harness.commands
    assert request == AlterTopicConfigs(
        topics=(
            TopicConfigChanges(
                topic="orders",
                changes=(
                    ConfigChange(name="retention.ms", value="5"),
                    ConfigChange(name="flush.ms", operation="Delete"),
                    ConfigChange(
                        name="cleanup.policy",
                        operation="Append",
                        value="delete",
                        otherwise="delete",
                    ),
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    ("name", "value"), [("cleanup.policy", "a," * VALUE_LENGTH_MAX), ("x" * 100_000, "1")]
)
async def test_very_long_config_never_reaches_controller(harness, name, value):
    ((_, code, text),) = await alter(harness, a_resource(TOPIC, "orders", (name, APPEND, value)))
    assert code == Code.INVALID_CONFIG
    assert len(text) < 1_000
    assert not harness.commands


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
async def test_older_request_replaces_the_whole_set(version, harness):
    resource = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "configs": [{"name": "retention.ms", "value": "5"}],
    }
    found = await alter(
        harness, resource, version=version, key=ApiKey.ALTER_CONFIGS, validate_only=True
    )
    assert found == [("orders", 0, None)]
    ((request, _),) = harness.commands
    assert request.topics[0].replace
    assert request.validate_only


async def test_change_is_answered_once_visible_here(harness):
    harness.answer = lambda request: msgspec.structs.replace(changed(request), end_offset=9)
    asking = asyncio.ensure_future(
        alter(harness, a_resource(TOPIC, "orders", ("flush.ms", SET, "5")))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    newer = msgspec.structs.replace(an_image(), next_offset=9)
    harness.watch.update(harness.watch.image, newer)
    assert await asking == [("orders", 0, None)]


async def test_controller_s_refusal_is_told_with_its_sentence(harness):
    harness.answer = lambda request: changed(request, 44, OVERRIDDEN)
    found = await alter(harness, a_resource(TOPIC, "orders", ("flush.ms", SET, "5")))
    assert found == [("orders", 44, OVERRIDDEN)]


@pytest.mark.parametrize(
    ("resource", "code", "words"),
    [
        (a_resource(BROKER, "1", ("log.retention.ms", SET, "5")), 44, "LogCluster main"),
        (a_resource(BROKER, "", ("log.retention.ms", SET, "5")), 44, "spec.config"),
        (a_resource(BROKER, "one", ("log.retention.ms", SET, "5")), 42, "whole number"),
        (a_resource(LOGGER, "1", ("root", SET, "DEBUG")), 42, "type 8"),
        (a_resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), 40, "no config"),
        (a_resource(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")), 40, "no config"),
        (
            a_resource(GROUP, "", ("consumer.session.timeout.ms", DELETE, None)),
            42,
            "names no group",
        ),
        (a_resource(99, "x", ("a", SET, "b")), 42, "type 99"),
        (a_resource(TOPIC, "orders", ("retention.ms", 7, "5")), 42, "operation 7 on a config"),
    ],
)
async def test_what_no_controller_can_do_is_refused_here(harness, resource, code, words):
    ((name, found, message),) = await alter(harness, resource)
    assert (name, found) == (resource["resource_name"], code)
    assert words in message
    assert harness.commands == []


async def test_throttle_config_can_be_removed_when_absent(harness):
    """As kafka-reassign-partitions --verify does."""
    rate = ("leader.replication.throttled.rate", DELETE, None)
    assert await alter(harness, a_resource(BROKER, "0", rate)) == [("0", 0, None)]


async def test_group_config_can_be_removed_when_absent(harness):
    timeout = ("consumer.session.timeout.ms", DELETE, None)
    for configs in ((timeout,), ()):
        assert await alter(harness, a_resource(GROUP, "g", *configs)) == [("g", 0, None)]


async def test_resource_named_twice_is_refused_alone(harness):
    one = a_resource(TOPIC, "orders", ("flush.ms", SET, "5"))
    other = a_resource(TOPIC, "payments", ("flush.ms", SET, "5"))
    found = await alter(harness, one, other, one)
    assert [(name, code) for name, code, _ in found] == [("orders", 42), ("payments", 0)]


async def test_old_controller_is_sent_nothing_it_cannot_read(harness):
    older = msgspec.structs.replace(an_image(), metadata_version=1)
    harness.watch.update(harness.watch.image, older)
    ((_, code, message),) = await alter(
        harness, a_resource(TOPIC, "orders", ("flush.ms", SET, "5"))
    )
    assert code == 35
    assert "Upgrade the operator" in message
    assert harness.commands == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NoController("no answer"), 7),
        (Refused(reason="NotController", code=41, message="not me"), 41),
    ],
)
async def test_without_controller_every_topic_has_its_error(harness, answer, code):
    harness.answer = answer
    wish = [a_resource(TOPIC, name, ("flush.ms", SET, "5")) for name in ("orders", "payments")]
    assert [found[1] for found in await alter(harness, *wish)] == [code, code]


# --- CreatePartitions -----------------------------------------------------------------------------


async def grow(harness, *topics, version=3, validate_only=False):
    values = {"topics": list(topics), "timeout": 5_000, "validate_only": validate_only}
    reply = await harness.ask(ApiKey.CREATE_PARTITIONS, version, values)
    return [(each.name, each.error_code, each.error_message) for each in reply.results]


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
async def test_growth_goes_to_the_controller(version, harness):
    rows = [{"broker_ids": [0, 1]}, {"broker_ids": [1, 0]}]
    found = await grow(
        harness,
        {"name": "orders", "count": 5, "assignments": rows},
        {"name": "payments", "count": 3, "assignments": None},
        version=version,
        validate_only=True,
    )
    assert found == [("orders", 0, None), ("payments", 0, None)]
    ((request, _),) = harness.commands
    assert request == AddPartitions(
        topics=(
            TopicGrowth(topic="orders", partitions=5, assignment=((0, 1), (1, 0))),
            TopicGrowth(topic="payments", partitions=3),
        ),
        validate_only=True,
    )


async def test_topic_growing_twice_is_answered_once(harness):
    harness.answer = lambda request: changed(request, 42, "twice")
    twice = {"name": "orders", "count": 5, "assignments": None}
    assert await grow(harness, twice, twice) == [("orders", 42, "twice")]


async def test_nothing_to_grow_asks_nobody(harness):
    assert await grow(harness) == []
    assert harness.commands == []
