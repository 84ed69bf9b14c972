"""Topics made and removed for clients: form is checked here, the controller decides."""

import asyncio

import msgspec
import pytest
from tests.plimsoll_broker.described import (
    MISSING,
    ORDERS,
    PAYMENTS,
    Harness,
    a_partition,
    an_image,
    versions,
)

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.handlers import forward
from plimsoll_core.messages.requests import (
    CreateTopics,
    DeleteTopics,
    Refused,
    TopicAnswer,
    TopicsAnswer,
)
from plimsoll_wire.api_versions import ApiKey

# --- CreateTopics ---------------------------------------------------------------------------------


def a_new_topic(name, **fields):
    values = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
    }
    return {**values, **fields}


def create(harness, version, *topics, timeout=5_000, validate_only=False):
    values = {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}
    return harness.ask(ApiKey.CREATE_TOPICS, version, values)


def made(request):
    return TopicsAnswer(
        topics=tuple(
            TopicAnswer(name=topic.name, topic_id=PAYMENTS, partitions=2, replication_factor=3)
            for topic in request.topics
        )
    )


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
async def test_topic_creation_is_answered_once_visible_with_leaders(version):
    harness = Harness(an_image(topics=("orders",)))
    harness.answer = made
    asking = asyncio.ensure_future(
        create(
            harness,
            version,
            a_new_topic("payments", configs=[{"name": "min.insync.replicas", "value": "2"}]),
        )
    )
    for leaderless in (True, False):
        await asyncio.sleep(0)
        assert not asking.done()
        image = an_image()
        if not leaderless:
            led = a_partition(PAYMENTS, 1, 0)
            image = msgspec.structs.replace(image, partitions=image.partitions.set(led.key, led))
        harness.watch.update(harness.watch.image, image)
    (topic,) = (await asking).topics
    assert (topic.name, topic.error_code) == ("payments", 0)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 3)
        assert {config.name: config.value for config in topic.configs}["retention.ms"] == "1000"
    if version >= 7:
        assert topic.topic_id == PAYMENTS
    ((request, _),) = harness.commands
    assert isinstance(request, CreateTopics)
    assert request.topics[0].configs == {"min.insync.replicas": "2"}


async def test_validated_topic_reports_its_future_min_isr():
    harness = Harness()
    checked = TopicAnswer(name="new", partitions=2, replication_factor=3, min_isr=2)
    harness.answer = TopicsAnswer(topics=(checked,))
    (topic,) = (await create(harness, 7, a_new_topic("new"), validate_only=True)).topics
    (told,) = [each for each in topic.configs if each.name == "min.insync.replicas"]
    assert (told.value, told.config_source) == ("2", 3)


async def test_topic_late_to_appear_is_still_created():
    harness = Harness(an_image(topics=("orders",)))
    harness.answer = made
    (topic,) = (await create(harness, 7, a_new_topic("payments"), timeout=1)).topics
    assert (topic.error_code, topic.num_partitions) == (0, 2)


async def test_defaults_and_assignments_are_passed_on():
    harness = Harness()
    harness.answer = made
    by_default = a_new_topic("a", num_partitions=-1, replication_factor=-1)
    assigned = a_new_topic(
        "b",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            {"partition_index": 1, "broker_ids": [2, 0]},
            {"partition_index": 0, "broker_ids": [0, 1]},
        ],
    )
    await create(harness, 4, by_default, assigned, validate_only=True)
    ((request, _),) = harness.commands
    first, second = request.topics
    assert (first.partitions, first.replication_factor, first.assignment) == (None, None, None)
    assert second.assignment == ((0, 1), (2, 0))
    assert request.validate_only


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"configs": [{"name": "retention.ms", "value": None}]}, 40),
        ({"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 1, "broker_ids": [1]}],
            },
            39,
        ),
    ],
)
async def test_topic_of_bad_form_is_refused_here(fields, code):
    harness = Harness()
    (topic,) = (await create(harness, 7, a_new_topic("x", **fields))).topics
    assert topic.error_code == code
    assert topic.error_message
    assert harness.commands == []


async def test_topic_named_twice_is_refused_alone():
    harness = Harness()
    harness.answer = made
    reply = await create(
        harness, 7, a_new_topic("x"), a_new_topic("payments"), a_new_topic("x"), timeout=1
    )
    assert {topic.name: topic.error_code for topic in reply.topics} == {"x": 42, "payments": 0}


async def test_controller_s_refusal_is_the_client_s_answer():
    harness = Harness()
    sentence = "Topic orders is declared by the object Topic shop/orders."
    harness.answer = TopicsAnswer(
        topics=(TopicAnswer(name="orders", code=44, reason="PolicyViolation", message=sentence),)
    )
    (topic,) = (await create(harness, 7, a_new_topic("orders"))).topics
    assert (topic.error_code, topic.error_message) == (44, sentence)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NoController("no answer"), 7),
        (Refused(reason="NotController", code=41, message="not me"), 41),
    ],
)
async def test_create_topics_without_controller_fails_each_topic(answer, code):
    harness = Harness()
    harness.answer = answer
    reply = await create(harness, 7, a_new_topic("a"), a_new_topic("b"))
    assert [topic.error_code for topic in reply.topics] == [code, code]


async def test_absurd_timeout_is_bounded():
    harness = Harness()
    harness.answer = made
    await create(harness, 7, a_new_topic("a"), timeout=2**31 - 1, validate_only=True)
    ((_, timeout_ms),) = harness.commands
    assert timeout_ms <= 60_000


# --- DeleteTopics ---------------------------------------------------------------------------------


def delete(harness, version, names=(), ids=(), timeout=5_000):
    targets = [{"name": name, "topic_id": None} for name in names]
    targets += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    values = {"topics": targets, "topic_names": list(names), "timeout": timeout}
    return harness.ask(ApiKey.DELETE_TOPICS, version, values)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
async def test_deletion_is_answered_once_topic_is_gone(version):
    harness = Harness()
    harness.answer = TopicsAnswer(topics=(TopicAnswer(name="payments", topic_id=PAYMENTS),))
    asking = asyncio.ensure_future(delete(harness, version, ["payments"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    harness.watch.update(harness.watch.image, an_image(topics=("orders",)))
    (result,) = (await asking).responses
    assert (result.name, result.error_code) == ("payments", 0)
    assert harness.commands[0][0] == DeleteTopics(names=("payments",))


async def test_deletions_by_id():
    harness = Harness(an_image(topics=()))
    harness.answer = TopicsAnswer(
        topics=(
            TopicAnswer(name="orders", topic_id=ORDERS),
            TopicAnswer(name="", topic_id=MISSING, code=100, message="unknown"),
        )
    )
    reply = await delete(harness, 6, ids=[ORDERS, MISSING])
    results = {each.topic_id: (each.name, each.error_code) for each in reply.responses}
    assert results == {ORDERS: ("orders", 0), MISSING: (None, 100)}


async def test_topic_named_by_name_and_id_stays():
    harness = Harness()
    harness.answer = TopicsAnswer(topics=(TopicAnswer(name="payments", topic_id=PAYMENTS),))
    reply = await delete(harness, 6, ["orders", "payments"], [ORDERS], timeout=1)
    results = [(each.name, each.topic_id, each.error_code) for each in reply.responses]
    assert results == [("orders", None, 42), ("payments", PAYMENTS, 0), (None, ORDERS, 42)]
    assert harness.commands[0][0] == DeleteTopics(names=("payments",))


async def test_topic_named_twice_is_not_deleted():
    harness = Harness()
    (result,) = (await delete(harness, 5, ["orders", "orders"])).responses
    assert result.error_code == 42
    assert harness.commands == []


async def test_deletion_without_a_controller():
    harness = Harness()
    harness.answer = NoController("no answer")
    reply = await delete(harness, 6, names=["orders"], ids=[PAYMENTS])
    assert [each.error_code for each in reply.responses] == [7, 7]


async def test_request_too_long_for_controller_is_refused_here(monkeypatch):
    monkeypatch.setattr(forward, "FORWARDED_BYTES_MAX", 10)
    harness = Harness(an_image(topics=("orders",)))
    harness.answer = lambda request: pytest.fail("it was sent")
    reply = await create(harness, 7, a_new_topic("payments"))
    assert int(reply.topics[0].error_code) == 42
    assert "Send smaller requests" in reply.topics[0].error_message
