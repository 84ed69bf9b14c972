"""Metadata: the brokers, and the leader of each partition.

Every client starts with this request and repeats it after an error. Source: the protocol's Metadata
rules.

`ClientLines`: log lines about single clients, bounded for each client. Lines beyond a client's
share are not written; the client's next line states their number.

`AutoCreation`: creates topics on demand (`auto.create.topics.enable`). Called by Metadata, which
answers UNKNOWN_TOPIC_OR_PARTITION until the topic exists; clients retry. The controller decides as
for CreateTopics, by the rights of the client. Each name is requested once at a time, and not again
for a while. Source: Kafka's AutoTopicCreationManager.

`AwaitedLeaders`: holds a Metadata reply that would name a leader that this broker has just lost,
until the controller has fenced that leader. `awaited_fences` decides which leaders are awaited and
for how long. Later replies to the same client wait behind a held one; a reply that names no lost
leader is not held itself. `AwaitedLeaders` never answers a request.

`SharedAnswer`: a reply that several clients wait for. It is made once, and cancelled when all these
clients have disconnected. The work is counted for the principal that asked first, and goes on
without that client's connection while others wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll_broker.background import in_slices
from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.cluster_view import AskedOn, ClusterView
from plimsoll_broker.handlers.forward import ask, behalf_of
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, is_short
from plimsoll_broker.handlers.mutation_quota import reserved
from plimsoll_broker.server.client_quotas import QuotaCharges, in_steps
from plimsoll_broker.server.connection_state import (
    SERVING,
    Closable,
    CloseConnection,
    ConnectionState,
)
from plimsoll_broker.server.dispatch import Change, Handler, RequestContext
from plimsoll_broker.storage.checkpoint_formats import uuid_text
from plimsoll_core.cluster.awaited_fences import (
    AWAITED_MS,
    awaited,
    hosted_count,
    led_topics,
    not_fenced,
)
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, PartitionKey, Topic
from plimsoll_core.cluster.topic_configs import AUTO_CREATE
from plimsoll_core.cluster.topic_names import CLUSTER_METADATA, check_form, is_internal
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import CreateTopics, NewTopic
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.security.acl import TOLD_BITS, ResourceType
from plimsoll_process.log_lines import LineRoom
from plimsoll_process.waits import heard
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

INTERVAL_S = 1.0
LINES_MAX = 20
"""The most log lines in one interval of INTERVAL_S seconds."""
ROOM = 40
"""The most log lines in a minute, of all principals together; one principal may write at most half
of them."""
FLOOR = 1


class ClientLines:
    """Writes lines about clients to one logger, at level INFO, within bounds."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._room: LineRoom[str] = LineRoom(ROOM, FLOOR)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """The number of lines that were not written."""
        return self._room.dropped

    def tell(self, principal: str, sentence: str) -> None:
        """Write the line within a second if the principal has room; otherwise count it as
        dropped."""
        loop = asyncio.get_running_loop()
        self._room.note(principal, sentence, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(INTERVAL_S, self._write)

    def _write(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for sentence, times, left_out in self._room.due(loop.time(), LINES_MAX):
            again = f" ({times} times)" if times > 1 else ""
            more = (
                f"; {left_out} more log lines about this client were left out" if left_out else ""
            )
            self._logger.info("%s%s%s", sentence, again, more)
        if self._room:
            self._timer = loop.call_later(INTERVAL_S, self._write)


TIMEOUT_MS = 10_000
AGAIN_S = 1.0
NAMES_MAX = 1_000
"""The most topic names that are being requested or were requested a moment ago, of all principals
together; one principal may hold at most half. Further names wait for a later request."""
NAMES_FLOOR = 16


def wanted_names() -> FairPool:
    """Return the pool of the names of topics that clients ask Metadata for."""
    return FairPool(NAMES_MAX, floor=NAMES_FLOOR)


class AutoCreation:
    """Creates topics that clients ask Metadata for. A broker has one. Each of its tasks ends with
    the controller's answer or a timeout."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.enabled = is_enabled(view.configs)
        # Names requested now or less than `AGAIN_S` ago, and their number by principal.
        self._recent: set[str] = set()
        self._held = wanted_names() if view.wanted is None else view.wanted
        self._asking: set[asyncio.Future[None]] = set()
        self._lines = ClientLines(logging.getLogger("plimsoll.metadata"))

    def may_make(self, name: str) -> bool:
        """Return True if a Metadata request may create a topic of this name: creation on demand is
        enabled, and the name is valid and not internal. The topic may exist already."""
        own = is_internal(name) or name == CLUSTER_METADATA
        return self.enabled and not own and check_form(name) is None

    def want(
        self,
        names: Iterable[str],
        charges: QuotaCharges | None = None,
        behalf: OnBehalf | None = None,
    ) -> bool:
        """Have the controller create those of these topics that were not requested a moment ago.
        The client's share of NAMES_MAX and its quota limit their number, and its rights (`behalf`)
        apply. `charges`: the client's quota usage; None if it has no quota. Return True if `names`
        is not empty, even if nothing is requested now. The controller's answer is not awaited."""
        possible = dict.fromkeys(names)
        who = _asker()
        new = list(islice((name for name in possible if name not in self._recent), NAMES_MAX))
        wanted = len(new)
        while new and not self._held.admits(who, len(new)):
            new.pop()
        self._held.refused += len(new) < wanted
        # The controller decides the number of partitions; they are charged then.
        new = reserved(charges, [(name, 1) for name in new], strict=True)
        if new:
            self._ask_for(new, charges, behalf)
        return bool(possible)

    def _ask_for(
        self, new: list[str], charges: QuotaCharges | None, behalf: OnBehalf | None
    ) -> None:
        self._recent.update(new)
        self._held.take(_asker(), len(new))
        request = CreateTopics(topics=tuple(NewTopic(name=name) for name in new), behalf=behalf)
        task = asyncio.ensure_future(in_steps(charges, self._make(request, charges)))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _make(self, request: CreateTopics, charges: QuotaCharges | None) -> None:
        names = tuple(topic.name for topic in request.topics)
        who = _asker()
        partitions: int | None = None
        try:
            answers = await ask(self._view, request, names, TIMEOUT_MS)
            if all(one.code != Code.REQUEST_TIMED_OUT for one in answers):
                partitions = sum(max(one.partitions, 0) for one in answers if not one.code)
            for answer in answers:
                asked = f"which a Metadata request of {who!a} named (auto.create.topics.enable)"
                became = f"did not create topic {answer.name}, {asked}: {answer.message}"
                if not answer.code:
                    became = f"created topic {answer.name}, {asked}"
                self._lines.tell(who, f"the cluster {became}")
        finally:
            if charges is not None:
                charges.mutated(partitions)
            loop = asyncio.get_running_loop()
            loop.call_later(AGAIN_S, self._forget, who, names)

    def _forget(self, who: str, names: tuple[str, ...]) -> None:
        self._recent.difference_update(names)
        self._held.give_back(who, len(names))


def _asker() -> str:
    """Return the principal of the request that is being served; empty if there is none."""
    owner = SERVING.get()
    return "" if owner is None else owner.holder


def is_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(AUTO_CREATE, "false") == "true"


LOOK_AGAIN_MS = 25
"""The interval in ms at which lost leaders are checked while replies are held. A fetcher reconnects
after this time at the earliest."""

Lost = frozenset[BrokerId]
_NOBODY: Lost = frozenset()
Named = Callable[[ClusterImage], frozenset[UUID] | None]
"""Takes a cluster image and returns the ids of the topics in the reply, or None for all topics."""


class _LedByLost(NamedTuple):
    """The topics that lost leaders lead in an image, found once for all held replies."""

    image: ClusterImage
    lost: Lost
    topics: asyncio.Task[frozenset[UUID]]


class _Held(NamedTuple):
    """A held reply: its deadline by the loop's clock, and the image and the lost leaders for which
    it is held."""

    until_s: float
    image: ClusterImage
    lost: Lost


class AwaitedLeaders:
    """Holds Metadata replies until lost leaders are fenced. A broker has one."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._led: _LedByLost | None = None
        # Held replies, and the task that watches for them.
        self._waiting: dict[asyncio.Future[None], _Held] = {}
        self._watching: asyncio.Task[None] | None = None

    def some(self) -> Lost:
        """Return the leaders that this broker has lost and because of which replies are held now:
        those that are not fenced yet and not lost for too long. An empty set if there are none."""
        lost = self._view.lost_leaders()
        found = awaited(self._view.image, lost) if lost else _NOBODY
        if not found:
            self._led = None  # it holds an image
        return found

    async def wait(self, things: int, named: Named) -> None:
        """Return once the reply would name no lost leader any more, since each was fenced or
        reached again, or after AWAITED_MS; at once if there is none. `named`: returns the topics of
        the reply; `things`: the number of items that `named` visits."""
        view, loop = self._view, asyncio.get_running_loop()
        until_s = loop.time() + AWAITED_MS / 1000
        seen, topics = None, None
        while loop.time() < until_s and (lost := self.some()):
            image = view.image
            if image is not seen:
                seen, topics = image, await view.aside.some(things, partial(named, image))
            # A leader without partitions is not followed, so a reply about all topics names each
            # lost one.
            if topics is not None and topics.isdisjoint(await self._led_by(image, lost)):
                break
            await self._change(_Held(until_s, image, lost))

    def _change(self, held: _Held) -> asyncio.Future[None]:
        """Return a future that completes when the image or the lost leaders change, or at the
        deadline."""
        change = asyncio.get_running_loop().create_future()
        self._waiting[change] = held
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
            self._watching.add_done_callback(heard)
        return change

    async def _watch(self) -> None:
        """Complete the futures of held replies when the image or the set of lost leaders changes,
        or at their deadlines; return when no reply is held. One task does so for all: if a broker
        dies, all its clients ask another one at once, and a thousand tasks would keep the event
        loop busy for seconds."""
        view, loop, waiting = self._view, asyncio.get_running_loop(), self._waiting
        try:
            while waiting:
                await view.watch.wait_for(partial(_are_fenced, self.some()), LOOK_AGAIN_MS)
                image, lost, now_s = view.image, self.some(), loop.time()
                # Compared with what each saw: it may have changed while that one was looking.
                told = [
                    one
                    for one, held in waiting.items()
                    if held.until_s <= now_s or held.image is not image or held.lost != lost
                ]
                async for one in in_slices(told):
                    _tell(one)
                    del waiting[one]
        finally:
            self._watching = None
            for one in waiting:
                _tell(one)
            waiting.clear()

    async def _led_by(self, image: ClusterImage, lost: Lost) -> frozenset[UUID]:
        led = self._led
        if led is None or led.image is not image or led.lost != lost:
            find = partial(led_topics, image, lost)
            work = self._view.aside.some(hosted_count(image, lost), find)
            led = self._led = _LedByLost(image, lost, asyncio.ensure_future(work))
            led.topics.add_done_callback(heard)
        return await asyncio.shield(led.topics)


def _tell(change: asyncio.Future[None]) -> None:
    if not change.done():  # the waiting request may have gone
        change.set_result(None)


def _are_fenced(lost: Lost, image: ClusterImage) -> bool:
    return not not_fenced(image, lost)


class _First:
    """A `WorkOwner` for the work of a shared reply. The work is counted for the principal that
    asked first, but is not dropped with that client's connection."""

    def __init__(self, asker: ConnectionState) -> None:
        self.holder = asker.holder
        self.slices = asker.slices
        self.waits: dict[Closable, None] = {}


class SharedAnswer:
    """A reply that is made once for several clients. `task` makes the reply. `given_up`: True once
    all clients have disconnected."""

    __slots__ = ("_waiting", "given_up", "task")

    def __init__(self, context: RequestContext, answer: Coroutine[Any, Any, bytes]) -> None:
        self._waiting = 0
        self.given_up = False
        own = copy_context()
        own.run(SERVING.set, _First(context.connection))
        steps: Any = in_steps(context.charges, answer)  # a coroutine, since `answer` is one
        self.task: asyncio.Task[bytes] = asyncio.get_running_loop().create_task(steps, context=own)

    def another(self) -> asyncio.Future[bytes]:
        """Return a future of the reply for one more client. When all futures returned so far are
        cancelled, the task that makes the reply is cancelled, too, and `given_up` is True."""
        self._waiting += 1
        mine = asyncio.shield(self.task)
        mine.add_done_callback(self._done)
        return mine

    def _done(self, mine: asyncio.Future[bytes]) -> None:
        self._waiting -= 1
        if mine.cancelled() and not self._waiting:
            self.given_up = True
            self.task.cancel()


_LISTENER_CODE_VERSION = 6
_NULLABLE_NAME_VERSION = 12
REMEMBERED_MAX = 64
"""The most remembered replies. With authorization, principals that see different topics have
replies of their own."""
REMEMBERED_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of all remembered requests and replies together."""
ASKED_BYTES_MAX = 256 * 1024
"""The largest request, in bytes, with a remembered reply."""
OPENED_MS_MAX = 5_000
"""The time in ms for which a client waits if no broker has an endpoint on its listener yet."""
_TOPIC = ResourceType.TOPIC


class _MetadataQuestion(NamedTuple):
    """The key of a remembered reply. Replies are remembered for one image only."""

    listener: Listener
    version: int
    body: bytes


class _Answering(NamedTuple):
    """The immutable values from which a reply is made. A long reply is made in a thread. `changes`:
    those of the client's rights, which apply to no other client's reply."""

    image: ClusterImage
    controller_id: int
    listener: Listener
    version: int
    just_fenced: frozenset[BrokerId]
    changes: tuple[Change, ...]

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
            values["cluster_authorized_operations"] = TOLD_BITS[ResourceType.CLUSTER]
        if getattr(request, "include_topic_authorized_operations", False):
            for topic in topics:
                if topic["name"] is not None:
                    topic["topic_authorized_operations"] = TOLD_BITS[_TOPIC]
        for change in self.changes:
            change(values)
        return encode_response(ApiKey.METADATA, self.version, values)

    def _brokers(self) -> list[dict[str, Any]]:
        """Return the brokers with an endpoint on the listener. Leave out fenced brokers, unless
        they were fenced a moment ago (`RecentFences`). If no broker would be left, return all:
        librdkafka forgets its brokers if a reply has none, and then asks no more."""
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
        """Return the entries of the requested topics in the request's order, each topic once, as in
        Kafka; all topics by name if all are requested."""
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

    def of(self, context: RequestContext) -> bytes:
        """Parse the request and return the encoded reply. May be called in a thread."""
        return self.encoded(context.decoded())


class MetadataHandler:
    """The handler of Metadata. It remembers replies until the image changes, since after an event
    all clients send the same request. A reply about many partitions is made in a thread, once for
    all clients that ask meanwhile. A reply that depends on its client's rights is neither
    remembered nor shared."""

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
        context.applies_changes = True
        if not _is_opened(context.connection.listener, self._view.image):
            return self._after_registration(context)
        if self._awaited.some():
            return self._after_fences(context)
        return self._answer(context)

    async def _after_registration(self, context: RequestContext) -> bytes:
        """Wait up to OPENED_MS_MAX until any broker has an endpoint on the client's listener, which
        none has in a new cluster, and return the reply. Raise CloseConnection if there is none by
        then."""
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
        answering = _Answering(image, target, listener, version, late, context.changes)
        asked = None
        if not context.changes and len(context.body) <= ASKED_BYTES_MAX:
            asked = _MetadataQuestion(listener, version, bytes(context.body))
            answer = self._answers.get(asked)
            if answer is not None:
                return answer
            making = self._making.get(asked)
            if making is not None and not making.given_up:
                return making.another()
        if not is_short(context):
            return self._later(context, asked, self._read_aside(context, answering, asked))
        request = context.decoded()
        if self._creation.enabled and self._want(context, self._to_be_made(image, context)):
            return answering.encoded(request)  # not remembered: the next request asks again
        if _told(image, request.topics, version) > THINGS_AT_ONCE:
            return self._later(context, asked, self._made_aside(answering, asked, request))
        answer = answering.encoded(request)
        self._remember(answering, asked, answer)
        return answer

    async def _read_aside(
        self, context: RequestContext, answering: _Answering, asked: _MetadataQuestion | None
    ) -> bytes:
        """Parse the request and make the reply in a thread. If creation on demand is enabled, have
        missing topics created. `asked`: the key under which the reply is remembered; None if it is
        not. A reply that lacks topics being created is not remembered."""
        aside, wanted = self._view.aside, False
        if not self._creation.enabled:
            answer = await aside.do(partial(answering.of, context))
        else:
            names = await aside.do(partial(self._to_be_made, answering.image, context))
            context.settled()
            wanted = self._want(context, names)
            answer = await aside.do(partial(answering.of, context))
        if not wanted:
            self._remember(answering, asked, answer)
        return answer

    def _want(self, context: RequestContext, names: list[str]) -> bool:
        """Have the controller create these topics, by the quota and rights of this request's
        client. Return True if `names` is not empty."""
        return self._creation.want(names, context.charges, behalf_of(self._view, context))

    def _to_be_made(self, image: ClusterImage, context: RequestContext) -> list[str]:
        """Return the names in the request that do not exist and may be created on demand; empty if
        the client does not allow it. May be called in a thread."""
        return list(filter(self._creation.may_make, _unknown(image, context.decoded())))

    async def _made_aside(
        self, answering: _Answering, asked: _MetadataQuestion | None, request: Any
    ) -> bytes:
        answer = await self._view.aside.do(partial(answering.encoded, request))
        self._remember(answering, asked, answer)
        return answer

    def _later(
        self,
        context: RequestContext,
        asked: _MetadataQuestion | None,
        answer: Coroutine[Any, Any, bytes],
    ) -> Awaitable[bytes]:
        """Begin to make the reply in a task, which further clients with the same request share, and
        return a future of it. The work is charged to the first client. If `asked` is None the reply
        is not shared, and `answer` is returned."""
        if asked is None:
            return answer
        making = self._making[asked] = SharedAnswer(context, answer)
        making.task.add_done_callback(partial(self._made, asked, making))
        return making.another()

    def _made(
        self, asked: _MetadataQuestion, making: SharedAnswer, task: asyncio.Future[bytes]
    ) -> None:
        """Remove a finished task from the shared ones, and retrieve its exception, so that asyncio
        does not report it; the waiting clients get it."""
        if self._making.get(asked) is making:
            del self._making[asked]
        heard(task)

    def _remember(
        self, answering: _Answering, asked: _MetadataQuestion | None, answer: bytes
    ) -> None:
        if asked is None:
            return
        size = len(asked.body) + len(answer)
        full = self._remembered + size > REMEMBERED_BYTES_MAX
        current = answering.image is self._image and answering.just_fenced == self._late
        if current and len(self._answers) < REMEMBERED_MAX and not full:
            self._answers[asked] = answer
            self._remembered += size


def _is_opened(listener: Listener, image: ClusterImage) -> bool:
    """Return True if any broker has an endpoint for clients of this listener."""
    return any(shared.endpoint_of(each, listener) for each in image.brokers.values())


def metadata(view: ClusterView) -> Handler:
    return MetadataHandler(view)


def _all_are_asked_for(asked: Any, version: int) -> bool:
    return asked is None or (version == 0 and not asked)


def _told(image: ClusterImage, asked: Any, version: int) -> int:
    """Return the largest number of topics and partitions that the reply may contain."""
    if _all_are_asked_for(asked, version):
        return len(image.topics) + len(image.partitions)
    topics = [image.topics.get(topic_id) for topic_id in _ids(asked, image)]
    return len(asked) + sum(topic.partitions for topic in topics if topic is not None)


def _named(asked: Any, version: int, image: ClusterImage) -> frozenset[UUID] | None:
    """Return the ids of the topics in the reply, or None for all topics."""
    return None if _all_are_asked_for(asked, version) else frozenset(_ids(asked, image))


def _ids(asked: Any, image: ClusterImage) -> set[UUID]:
    found = {_topic_id(image, item) for item in asked}
    return {topic_id for topic_id in found if topic_id is not None}


def name_asked_for(item: Any) -> str | None:
    """Return the topic name in an item of the request, or None if the item has a topic id. A name
    beside an id is ignored, as in Kafka; Java's admin client sends an empty one."""
    name: str | None = item.name
    return None if getattr(item, "topic_id", None) else name


def _topic_id(image: ClusterImage, item: Any) -> UUID | None:
    name = name_asked_for(item)
    return image.topic_ids.get(name) if name is not None else getattr(item, "topic_id", None)


def _unknown(image: ClusterImage, request: Any) -> list[str]:
    """Return the requested names that do not exist, if the client allows their creation. A request
    below version 4 always allows it."""
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
