"""Bounds replies: each takes memory from its principal's share before it is made (`ReplyRoom`).

`bounded` wraps a table of handlers, for each port that clients reach. Each API has a row in
`BOUNDS`: an upper bound of the reply's size, from the length of the request and the cluster's
contents, or the reason that the API needs no bound. A bound costs no more than a few
multiplications, so it is generous; memory that a reply does not use is given back, and an excess is
counted once the reply is made. If there is no memory the request waits, as `MemoryAccount.admit`
describes; requests of other principals do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from plimsoll_broker.handlers.cluster_description import PARTITIONS_MAX
from plimsoll_broker.handlers.configs import CONFIGS_MAX
from plimsoll_broker.handlers.producers import PRODUCERS_MAX
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext, Result
from plimsoll_broker.server.requests_and_replies import ReplyRoom
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.topic_configs import KEYS
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import NAMED_MAX, NUMBERS_MAX

FREE_BYTES = 64 * 1024
"""The largest bound, in bytes, of a reply that takes no memory beforehand. Each connection has one
such reply at a time."""

HEAD = 256
"""The most bytes of a reply beside its items: codes, a cluster id, a message."""
TOPIC = 300
"""The most bytes of a topic in a reply, without its partitions: a name of 249 bytes, an id,
codes."""
PARTITION = 200
"""The most bytes of a partition in a reply, with six replicas, all of them in each list."""
BROKER = 600
"""The most bytes of a broker in a reply, with the names of its host and rack."""
MESSAGE = 400
"""The most bytes of a refusal in a reply: the item's name and a message."""
CONFIG = 700
"""The most bytes of a config in a reply, with its documentation and synonyms."""
RULE = 2_400
"""The most bytes of an ACL in a reply, with the longest names that it may have."""
QUOTA = 1_200
USER = 1_200
PRODUCER = 48
TRANSACTION = 64
"""The most bytes of a transactional id in a reply, without its name and its partitions."""
VALUES = 320
"""The memory, in bytes, of the values from which a partition of a reply is encoded."""
CONFIGS = len(KEYS) + 40
"""The most configs of one topic or broker in a reply."""


class ToBeTold(NamedTuple):
    """The contents that replies describe, by which their size is bounded: the cluster image, the
    number of partitions that this broker hosts, and the bytes that its transactional ids are
    charged, which are more than they take in a reply."""

    image: ClusterImage
    hosted: int
    transactions: int = 0


class RequestLength(NamedTuple):
    """The length of a request in bytes, from which the bound of its reply is computed before the
    request is parsed."""

    size: int

    def rows(self, least: int) -> int:
        """Return the largest number of items that the request can name, if each item takes at least
        `least` bytes; at most NAMED_MAX."""
        return min(self.size // least, NAMED_MAX)

    def numbers(self, least: int) -> int:
        """Return the largest number of items that the request can name if these are numbers."""
        return min(self.size // least, NUMBERS_MAX)


Bound = Callable[[RequestLength, ToBeTold], int]


def by_request(least: int, row: int) -> Bound:
    """Return the function that bounds a reply with one row for each item of the request, in bytes.
    `least`: the fewest bytes of an item in the request. `row`: the most bytes of a row beside the
    item's name."""
    return lambda asked, _: asked.size + asked.rows(least) * row


def _metadata(asked: RequestLength, there: ToBeTold) -> int:
    image = there.image
    every = len(image.topics) * TOPIC + len(image.partitions) * PARTITION
    return len(image.brokers) * BROKER + every + asked.size + asked.rows(3) * 40


def _topic_partitions(asked: RequestLength, there: ToBeTold) -> int:
    page = min(len(there.image.partitions), PARTITIONS_MAX)
    return page * (PARTITION + TOPIC) + asked.size + asked.rows(3) * 40


def _configs(asked: RequestLength, _: ToBeTold) -> int:
    return min(asked.rows(7) * CONFIGS, CONFIGS_MAX + CONFIGS) * CONFIG + asked.rows(7) * MESSAGE


def _created(asked: RequestLength, _: ToBeTold) -> int:
    """Return the bound of CreateTopics. From version 5 on its reply lists each topic's configs,
    without documentation."""
    return asked.rows(10) * (MESSAGE + len(KEYS) * 100)


def _moving(_: RequestLength, there: ToBeTold) -> int:
    return len(there.image.partitions) * PARTITION + len(there.image.topics) * TOPIC


def _elected(asked: RequestLength, there: ToBeTold) -> int:
    return (len(there.image.partitions) + asked.numbers(4)) * MESSAGE


HERE = "its reply is short, whatever the cluster contains"
ITS_OWN = "its handler takes the memory, by the size of the coordinators' answers"

BOUNDS: Mapping[ApiKey, Bound | str] = {
    ApiKey.PRODUCE: "its request may name 10,000 partitions, each of 33 bytes in the reply",
    ApiKey.FETCH: "its reply has no more bytes than the connection's account grants",
    ApiKey.LIST_OFFSETS: by_request(12, 32),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: ITS_OWN,
    ApiKey.OFFSET_FETCH: ITS_OWN,
    ApiKey.FIND_COORDINATOR: by_request(2, BROKER),
    ApiKey.JOIN_GROUP: ITS_OWN,
    ApiKey.HEARTBEAT: ITS_OWN,
    ApiKey.LEAVE_GROUP: ITS_OWN,
    ApiKey.SYNC_GROUP: ITS_OWN,
    ApiKey.DESCRIBE_GROUPS: ITS_OWN,
    ApiKey.LIST_GROUPS: ITS_OWN,
    ApiKey.SASL_HANDSHAKE: HERE,
    ApiKey.API_VERSIONS: HERE,
    ApiKey.CREATE_TOPICS: _created,
    ApiKey.DELETE_TOPICS: by_request(3, MESSAGE),
    ApiKey.DELETE_RECORDS: by_request(12, 20),
    ApiKey.INIT_PRODUCER_ID: HERE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: by_request(8, 32),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda asked, _: asked.size + asked.numbers(4) * VALUES,
    ApiKey.ADD_OFFSETS_TO_TXN: HERE,
    ApiKey.END_TXN: HERE,
    ApiKey.WRITE_TXN_MARKERS: by_request(4, 16),
    ApiKey.TXN_OFFSET_COMMIT: ITS_OWN,
    ApiKey.DESCRIBE_ACLS: lambda _, there: len(there.image.security.acls) * RULE,
    ApiKey.CREATE_ACLS: by_request(8, MESSAGE),
    ApiKey.DELETE_ACLS: lambda asked, there: (
        len(there.image.security.acls) * RULE + asked.rows(6) * MESSAGE
    ),
    ApiKey.DESCRIBE_CONFIGS: _configs,
    ApiKey.ALTER_CONFIGS: by_request(4, MESSAGE),
    ApiKey.DESCRIBE_LOG_DIRS: lambda _, there: there.hosted * TOPIC,
    ApiKey.SASL_AUTHENTICATE: HERE,
    ApiKey.CREATE_PARTITIONS: by_request(8, MESSAGE),
    ApiKey.DELETE_GROUPS: ITS_OWN,
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: by_request(4, MESSAGE),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: by_request(5, MESSAGE),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _moving,
    ApiKey.OFFSET_DELETE: ITS_OWN,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda _, there: len(there.image.quotas.rows) * QUOTA,
    ApiKey.ALTER_CLIENT_QUOTAS: by_request(8, MESSAGE),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda asked, there: (
        len(there.image.security.credentials) * USER + asked.size + asked.rows(2) * MESSAGE
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: by_request(3, MESSAGE),
    ApiKey.DESCRIBE_CLUSTER: lambda _, there: len(there.image.brokers) * BROKER,
    ApiKey.DESCRIBE_PRODUCERS: lambda asked, _: (
        PRODUCERS_MAX * PRODUCER + asked.size + asked.numbers(4) * VALUES
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda asked, there: (
        there.transactions + asked.size + asked.rows(2) * TRANSACTION
    ),
    ApiKey.LIST_TRANSACTIONS: lambda asked, there: there.transactions + asked.size,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: HERE,
    ApiKey.LIST_CONFIG_RESOURCES: lambda _, there: (
        len(there.image.topics) * TOPIC + len(there.image.brokers) * 16
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: HERE,
}
"""The bound of each API, or the reason that it needs none. An API without a row cannot have a
handler: `bounded` raises KeyError."""


def bounded(
    handlers: Mapping[ApiKey, Handler], there: Callable[[], ToBeTold]
) -> dict[ApiKey, Handler]:
    """Return a table of the same handlers, each wrapped so that it takes memory for its reply
    before it runs, unless its API needs no bound. `there`: returns the contents by which replies
    are bounded. Raise KeyError for an API without a row in `BOUNDS`."""
    table: dict[ApiKey, Handler] = {}
    for key, handler in handlers.items():
        bound = BOUNDS[key]
        table[key] = handler if isinstance(bound, str) else partial(_handle, bound, handler, there)
    return table


def _handle(
    bound: Bound, handler: Handler, there: Callable[[], ToBeTold], context: RequestContext
) -> Result:
    size = HEAD + bound(RequestLength(len(context.body)), there())
    if size <= FREE_BYTES:
        return handler(context)
    room = ReplyRoom(context.connection.account)
    if not room.take_now(size):
        return _when_there_is_room(room, size, handler, context)
    try:
        result = handler(context)
    except BaseException:
        room.give_back()
        raise
    if isinstance(result, asyncio.Future):
        task = asyncio.ensure_future(_finished(room, result))
        task.add_done_callback(partial(_given_up, result))
        return task
    if isinstance(result, Awaitable):
        return _finished(room, result)
    return None if result is None else room.reply(result)


async def _when_there_is_room(
    room: ReplyRoom, size: int, handler: Handler, context: RequestContext
) -> Reply | None:
    await room.take_estimate(size)
    with room:
        result = handler(context)
        reply = await result if isinstance(result, Awaitable) else result
        return None if reply is None else room.reply(reply)


async def _finished(room: ReplyRoom, result: Awaitable[Reply | None]) -> Reply | None:
    """Wait for the reply, and return it with the memory that `room` has taken; without a reply give
    the memory back and return None. The memory needs no release if this task is cancelled before
    its first turn: then the connection is lost, which gives back all its memory."""
    with room:
        reply = await result
        return None if reply is None else room.reply(reply)


def _given_up(result: asyncio.Future[Reply | None], task: asyncio.Future[Reply | None]) -> None:
    if task.cancelled():
        result.cancel()
