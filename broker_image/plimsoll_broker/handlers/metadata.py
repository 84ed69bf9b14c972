"""Metadata: the brokers, and the leader of each partition.

The request that every client starts with and repeats after an error. Source: the protocol's
Metadata rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.auto_creation import AutoCreation
from plimsoll_broker.handlers.awaited_leaders import AwaitedLeaders
from plimsoll_broker.handlers.cluster_view import AskedOn, ClusterView
from plimsoll_broker.handlers.forward import behalf_of
from plimsoll_broker.handlers.large_messages import THINGS_AT_ONCE, is_short
from plimsoll_broker.handlers.shared_answer import SharedAnswer
from plimsoll_broker.server.dispatch import CloseConnection, Handler, RequestContext
from plimsoll_broker.storage.checkpoint_formats import uuid_text
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, PartitionKey, Topic
from plimsoll_core.cluster.topic_names import check_form, is_internal
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.security.acl import ResourceType
from plimsoll_process.waits import heard
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

_LISTENER_CODE_VERSION = 6
_NULLABLE_NAME_VERSION = 12
REMEMBERED_MAX = 64
"""Remembered replies; with authorization each of some principals has its own."""
REMEMBERED_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of all remembered requests and replies."""
ASKED_BYTES_MAX = 256 * 1024
"""The largest request whose reply is remembered."""
OPENED_MS_MAX = 5_000
"""How long a client waits until there is a broker to name."""
_TOPIC = ResourceType.TOPIC


class _MetadataQuestion(NamedTuple):
    """The key of a remembered reply, besides the image."""

    listener: Listener
    version: int
    body: bytes


class _Answering(NamedTuple):
    """The immutable inputs of a reply."""

    image: ClusterImage
    controller_id: int
    listener: Listener
    version: int
    just_fenced: frozenset[BrokerId]

    def encoded(self, request: Any) -> bytes:
        topics = self._topics(request.topics)
        values: dict[str, Any] = {
            "brokers": self._brokers(),
            "cluster_id": uuid_text(self.image.cluster_id),
            "controller_id": self.controller_id,
            "topics": topics,
            "error_code": Code.NONE,
        }
        # All operations; if authorization is on, the guard replaces them by each client's own.
        if getattr(request, "include_cluster_authorized_operations", False):
            values["cluster_authorized_operations"] = shared.EVERY_OPERATION[ResourceType.CLUSTER]
        if getattr(request, "include_topic_authorized_operations", False):
            for topic in topics:
                if topic["name"] is not None:
                    topic["topic_authorized_operations"] = shared.EVERY_OPERATION[_TOPIC]
        return encode_response(ApiKey.METADATA, self.version, values)

    def _brokers(self) -> list[dict[str, Any]]:
        """Return the brokers that are open on the listener, without fenced ones unless they were
        fenced a moment ago (`RecentFences`), or all of them if none is left: librdkafka forgets its
        brokers if it is told of none, and then asks no more."""
        image, late = self.image, self.just_fenced
        opened = [
            (broker, endpoint)
            for _, broker in sorted(image.brokers.items())
            if (endpoint := shared.endpoint_of(broker, self.listener)) is not None
        ]
        told = [each for each in opened if not each[0].fenced or each[0].id in late]
        return [
            {"node_id": broker.id, **shared.node(broker, endpoint)}
            for broker, endpoint in told or opened
        ]

    def _topics(self, asked: Any) -> list[dict[str, Any]]:
        """Return each requested topic once, as in Kafka."""
        image = self.image
        if _all_are_asked_for(asked, self.version):
            topics = sorted(image.topics.values(), key=lambda topic: topic.name)
            return [_topic(self, topic) for topic in topics]
        once = {(item.name, getattr(item, "topic_id", None)): item for item in asked}
        found: list[dict[str, Any]] = []
        told: set[UUID] = set()
        for item in once.values():
            topic_id = _topic_id(image, item)
            if topic_id is None or topic_id not in told:
                found.append(_asked(self, item))
            if topic_id is not None:
                told.add(topic_id)
        return found

    def of(self, body: memoryview) -> bytes:
        """Decode the request and encode the reply."""
        return self.encoded(decode_request(ApiKey.METADATA, self.version, body))


class MetadataHandler:
    """Remembers replies until the image changes: after an event every client asks the same. A reply
    about many partitions is made in a thread, once for all clients that ask meanwhile.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._image, self._late = view.image, view.watch.just_fenced
        self._answers: dict[_MetadataQuestion, bytes] = {}
        # Bytes of the remembered replies.
        self._remembered = 0
        self._creation = AutoCreation(view)
        self._making: dict[_MetadataQuestion, SharedAnswer] = {}
        self._awaited = AwaitedLeaders(view)

    def __call__(self, context: RequestContext) -> bytes | Awaitable[bytes]:
        if not _is_opened(context.connection.listener, self._view.image):
            return self._after_registration(context)
        if self._awaited.some():
            return self._after_fences(context)
        return self._answer(context)

    async def _after_registration(self, context: RequestContext) -> bytes:
        """Wait until this broker has seen the first broker of a new cluster."""
        is_opened = partial(_is_opened, context.connection.listener)
        if not await self._view.watch.wait_for(is_opened, OPENED_MS_MAX):
            raise CloseConnection("no-broker")
        return await self._after_fences(context)

    async def _after_fences(self, context: RequestContext) -> bytes:
        request = await self._view.aside.decoded(context)
        topics = request.topics
        await self._awaited.wait(len(topics or ()), partial(_named, topics, context.api_version))
        answer = self._answer(context)
        return answer if isinstance(answer, bytes) else await answer

    def _answer(self, context: RequestContext) -> bytes | Awaitable[bytes]:
        image = self._view.image
        late, target = self._view.watch.just_fenced, shared.admin_target(self._view)
        if image is not self._image or late != self._late:
            self._answers.clear()
            self._making.clear()
            self._image, self._late, self._remembered = image, late, 0
        version, listener = context.api_version, context.connection.listener
        answering = _Answering(image, target, listener, version, late)
        if len(context.body) > ASKED_BYTES_MAX:
            return self._read_aside(context, answering, None)
        asked = _MetadataQuestion(listener, version, bytes(context.body))
        answer = self._answers.get(asked)
        if answer is not None:
            return answer
        making = self._making.get(asked)
        if making is not None and not making.given_up:
            return making.another()
        if not is_short(context):
            return self._later(context, asked, self._read_aside(context, answering, asked))
        request = decode_request(ApiKey.METADATA, version, context.body)
        if self._creation.enabled and self._want(context, self._to_be_made(image, request)):
            return answering.encoded(request)  # not remembered: the next request asks again
        if _told(image, request.topics, version) > THINGS_AT_ONCE:
            return self._later(context, asked, self._made_aside(asked, answering, request))
        answer = answering.encoded(request)
        self._remember(answering, asked, answer)
        return answer

    async def _read_aside(
        self, context: RequestContext, answering: _Answering, asked: _MetadataQuestion | None
    ) -> bytes:
        """Make the reply in a thread. `asked` None: it is not remembered."""
        aside, wanted = self._view.aside, False
        if not self._creation.enabled:
            answer = await aside.do(partial(answering.of, context.body))
        else:
            request = await aside.decoded(context)
            names = await aside.do(partial(self._to_be_made, answering.image, request))
            wanted = self._want(context, names)
            answer = await aside.do(partial(answering.encoded, request))
        if asked is not None and not wanted:
            self._remember(answering, asked, answer)
        return answer

    def _want(self, context: RequestContext, names: list[str]) -> bool:
        """Have these topics created. Return True if there are any."""
        return self._creation.want(names, context.charges, behalf_of(self._view, context))

    def _to_be_made(self, image: ClusterImage, request: Any) -> list[str]:
        """Return the requested topics that may be created on demand."""
        return list(filter(self._creation.may_make, _unknown(image, request)))

    async def _made_aside(
        self, asked: _MetadataQuestion, answering: _Answering, request: Any
    ) -> bytes:
        answer = await self._view.aside.do(partial(answering.encoded, request))
        self._remember(answering, asked, answer)
        return answer

    def _later(
        self, context: RequestContext, asked: _MetadataQuestion, answer: Coroutine[Any, Any, bytes]
    ) -> Awaitable[bytes]:
        """Share the reply; the first client is charged."""
        making = self._making[asked] = SharedAnswer(context, answer)
        making.task.add_done_callback(partial(self._made, asked, making))
        return making.another()

    def _made(
        self, asked: _MetadataQuestion, making: SharedAnswer, task: asyncio.Future[bytes]
    ) -> None:
        """Forget a finished reply, and retrieve its exception."""
        if self._making.get(asked) is making:
            del self._making[asked]
        heard(task)

    def _remember(self, answering: _Answering, asked: _MetadataQuestion, answer: bytes) -> None:
        size = len(asked.body) + len(answer)
        full = self._remembered + size > REMEMBERED_BYTES_MAX
        current = answering.image is self._image and answering.just_fenced == self._late
        if current and len(self._answers) < REMEMBERED_MAX and not full:
            self._answers[asked] = answer
            self._remembered += size


def _is_opened(listener: Listener, image: ClusterImage) -> bool:
    """Return True if there is a broker to name to clients of the listener."""
    return any(shared.endpoint_of(each, listener) for each in image.brokers.values())


def metadata(view: ClusterView) -> Handler:
    return MetadataHandler(view)


def _all_are_asked_for(asked: Any, version: int) -> bool:
    return asked is None or (version == 0 and not asked)


def _told(image: ClusterImage, asked: Any, version: int) -> int:
    """Return the number of topics and partitions in a reply, at most."""
    if _all_are_asked_for(asked, version):
        return len(image.topics) + len(image.partitions)
    topics = [image.topics.get(topic_id) for topic_id in _ids(asked, image)]
    return len(asked) + sum(topic.partitions for topic in topics if topic is not None)


def _named(asked: Any, version: int, image: ClusterImage) -> frozenset[UUID] | None:
    """Return the topics of a reply, or None for all."""
    return None if _all_are_asked_for(asked, version) else frozenset(_ids(asked, image))


def _ids(asked: Any, image: ClusterImage) -> set[UUID]:
    found = {_topic_id(image, item) for item in asked}
    return {topic_id for topic_id in found if topic_id is not None}


def name_asked_for(item: Any) -> str | None:
    """Return the topic's name in an item of the request, or None if the item has a topic id. A name
    beside an id is ignored, as in Kafka; Java's admin client sends an empty one."""
    name: str | None = item.name
    return None if getattr(item, "topic_id", None) else name


def _topic_id(image: ClusterImage, item: Any) -> UUID | None:
    name = name_asked_for(item)
    return image.topic_ids.get(name) if name is not None else getattr(item, "topic_id", None)


def _unknown(image: ClusterImage, request: Any) -> list[str]:
    """Return the unknown names that the client would have created. Versions below 4 always
    would."""
    if not getattr(request, "allow_auto_topic_creation", True):
        return []
    names = map(name_asked_for, request.topics or ())
    return [name for name in names if name is not None and name not in image.topic_ids]


def _asked(answering: _Answering, item: Any) -> dict[str, Any]:
    image = answering.image
    by_id: UUID | None = getattr(item, "topic_id", None)
    name = name_asked_for(item)
    topic_id = _topic_id(image, item)
    topic = None if topic_id is None else image.topics.get(topic_id)
    if topic is not None:
        return _topic(answering, topic)
    code = Code.UNKNOWN_TOPIC_ID
    if name is None and answering.version < _NULLABLE_NAME_VERSION:
        name = ""
    elif name is not None:
        illegal = check_form(name) is not None
        code = Code.INVALID_TOPIC_EXCEPTION if illegal else Code.UNKNOWN_TOPIC_OR_PARTITION
    return {"error_code": code, "name": name, "topic_id": by_id, "partitions": []}


def _topic(answering: _Answering, topic: Topic) -> dict[str, Any]:
    image = answering.image
    asked_on = AskedOn(answering.listener, answering.version >= _LISTENER_CODE_VERSION)
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = (image.partitions.get(key) for key in keys)
    return {
        "error_code": Code.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": is_internal(topic.name),
        "partitions": [
            shared.partition(image, partition, asked_on)
            for partition in partitions
            if partition is not None
        ],
    }
