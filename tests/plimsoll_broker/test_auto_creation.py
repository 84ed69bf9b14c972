"""Topics that are made because a client asks for them, where the cluster wants that."""

import asyncio
import logging
import threading

import pytest
from tests.plimsoll_broker.described import PAYMENTS, Harness, an_image, versions
from tests.plimsoll_broker.test_replication import until

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.handlers import metadata
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.server.connection_state import SERVING, ConnectionState
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import CreateTopics, NewTopic, TopicAnswer, TopicsAnswer
from plimsoll_wire.api_versions import ApiKey

METADATA = ApiKey.METADATA


def made(request):
    return TopicsAnswer(topics=tuple(TopicAnswer(name=topic.name) for topic in request.topics))


@pytest.fixture
def harness(monkeypatch):
    # However long a busy machine takes for a test.
    monkeypatch.setattr(metadata, "AGAIN_S", 3_600.0)
    found = Harness(**{"auto.create.topics.enable": "true"})
    found.answer = made
    return found


async def ask(harness, *names, version=12, allowed=True):
    values = {
        "topics": [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": allowed,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    reply = harness.ask(METADATA, version, values)
    reply = await reply if asyncio.iscoroutine(reply) else reply
    for _ in range(3):
        await asyncio.sleep(0)
    return [topic.error_code for topic in reply.topics]


def asked_for(harness):
    return [tuple(topic.name for topic in request.topics) for request, _ in harness.commands]


@pytest.mark.parametrize("version", versions(METADATA))
async def test_auto_created_topic_is_unknown_until_it_exists(harness, version):
    assert await ask(harness, "new", "orders", version=version) == [3, 0]
    ((request, _),) = harness.commands
    assert request == CreateTopics(topics=(NewTopic(name="new"),)), "with the cluster's defaults"
    harness.watch.update(harness.watch.image, an_image())
    assert await ask(harness, "payments", version=version) == [0]


@pytest.mark.parametrize("version", range(4, 14))
async def test_client_that_wants_no_topic_made_gets_none(harness, version):
    assert await ask(harness, "new", version=version, allowed=False) == [3]
    assert harness.commands == []


async def test_nothing_is_auto_created_unless_configured():
    harness = Harness()
    assert await ask(harness, "new") == [3]
    assert harness.commands == []


async def test_names_clients_may_not_create_are_skipped(harness):
    names = ("bad name", "", "__consumer_offsets", "__cluster_metadata")
    assert await ask(harness, *names) == [17, 17, 3, 3]
    assert harness.commands == []


async def test_name_is_requested_once_and_again_later(harness, monkeypatch):
    monkeypatch.setattr(metadata, "AGAIN_S", 0.0)
    answered = asyncio.Event()
    command = harness.command

    async def later(request, timeout_ms):
        answer = await command(request, timeout_ms)
        await answered.wait()
        return answer

    object.__setattr__(harness.handlers[METADATA]._view, "command", later)
    for _ in range(5):
        assert await ask(harness, "new") == [3]
    assert asked_for(harness) == [("new",)]
    answered.set()
    async with asyncio.timeout(30):
        while len(harness.commands) == 1:
            await ask(harness, "new")
    assert asked_for(harness) == [("new",), ("new",)]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(metadata, "NAMES_MAX", 6)
    monkeypatch.setattr(metadata, "NAMES_FLOOR", 0)
    monkeypatch.setattr(metadata, "AGAIN_S", 3_600.0)
    found = Harness(**{"auto.create.topics.enable": "true"})
    found.answer = made
    return found


async def test_auto_creation_requests_are_bounded(few):
    await ask(few, "a", "b")
    await ask(few, "c", "d", "e")
    assert asked_for(few) == [("a", "b"), ("c",)]


async def test_flood_leaves_room_for_others_topics(few):
    """Whoever asked for a thousand names a second kept everybody's topics from being made."""
    for client, names in (("mallory", "abcdefgh"), ("victim", "vw")):
        connection = ConnectionState()
        connection.logged_in_as(f"User:{client}")
        token = SERVING.set(connection)
        await ask(few, *names)
        SERVING.reset(token)
    assert asked_for(few) == [("a", "b", "c"), ("v",)]


async def test_long_request_has_its_topics_made(harness):
    names = [f"{number:04}-{'x' * 200}" for number in range(30)]
    assert await ask(harness, *names) == [3] * 30
    assert asked_for(harness) == [tuple(names)]


@pytest.mark.parametrize(
    "answer",
    [
        NoController("no answer"),
        TopicsAnswer(topics=(TopicAnswer(name="new", code=44, message="Clients may not."),)),
    ],
)
async def test_refusal_leaves_the_topic_unknown(harness, answer):
    harness.answer = answer
    assert await ask(harness, "new") == [3]
    assert await ask(harness, "new") == [3]
    assert len(harness.commands) == 1
    assert PAYMENTS in harness.watch.image.topics


class Charged:
    """`QuotaCharges` with room for so many."""

    def __init__(self, room):
        self.room = room
        self.told = []

    def resumes(self):
        """Time is not counted."""

    took = resumes

    def may_mutate(self):
        return self.room > 0

    def reserve(self, partitions):
        self.room -= partitions

    def mutated(self, partitions):
        self.told.append(partitions)


@pytest.mark.parametrize("known", [True, False])
async def test_auto_created_topics_count_as_mutations(harness, known):
    """Else whoever may create topics is held to no rate."""
    if known:
        harness.answer = lambda request: TopicsAnswer(
            topics=tuple(TopicAnswer(name=one.name, partitions=6) for one in request.topics)
        )
    else:
        harness.answer = NoController()
    charged = Charged(2)
    view = ClusterView(
        broker_id=BrokerId(1),
        watch=harness.watch,
        command=harness.command,
        configs={"auto.create.topics.enable": "true"},
    )
    creation = metadata.AutoCreation(view)
    assert creation.want(["a", "b", "c"], charged)
    await asyncio.gather(*creation._asking, return_exceptions=True)
    assert asked_for(harness) == [("a", "b")]
    assert charged.told == [12 if known else None]


async def test_names_of_long_request_are_checked_in_thread(harness, monkeypatch):
    """A request of a hundred thousand unknown names held the event loop for as long as that took,
    whenever it came."""
    here, threads = threading.get_ident(), set()
    check = metadata.check_form

    def checked(name):
        threads.add(threading.get_ident())
        return check(name)

    monkeypatch.setattr(metadata, "check_form", checked)
    names = [f"topic-{number}" for number in range(2 * metadata.NAMES_MAX)]
    assert set(await ask(harness, *names)) == {3}
    assert here not in threads
    assert len(asked_for(harness)[0]) == metadata.NAMES_MAX // 2


async def test_auto_creations_of_one_client_log_boundedly(harness, monkeypatch, caplog):
    """Each left a line: 14,353 in ten minutes."""
    monkeypatch.setattr(metadata, "INTERVAL_S", 0.0)
    caplog.set_level(logging.INFO, "plimsoll.metadata")
    alice, bob = ConnectionState(), ConnectionState()
    alice.logged_in_as("User:alice")
    bob.logged_in_as("User:bob")
    SERVING.set(alice)
    for number in range(300):
        await ask(harness, f"new-{number}")
    SERVING.set(bob)
    await ask(harness, "of-bob")
    SERVING.set(None)
    await until(lambda: any("of-bob" in record.message for record in caplog.records))
    assert len(caplog.records) <= metadata.ROOM
    assert sum("'User:alice'" in record.message for record in caplog.records) >= 1
