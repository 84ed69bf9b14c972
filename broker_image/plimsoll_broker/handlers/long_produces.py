"""Produces that take longer than a moment, one after the other for each connection.

Called by the produce handler.  A large or compressed batch is checked in a thread, and one whose
topic asks for another codec is compressed anew in one; whatever the same connection sends meanwhile
waits behind it (`connection_lines`), because a client's batches must not overtake each other and a
client sends those of a partition over one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from plimsoll_broker.handlers.batch_checks import BadSent, check_batch, codec_of, effort
from plimsoll_broker.handlers.connection_lines import ConnectionLines
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.handlers.recompression import Recompressed, recompressed
from plimsoll_broker.replication.hosted_partition import Demand, Hosted
from plimsoll_core.errors import Code
from plimsoll_wire.batches import BatchHeader
from plimsoll_wire.compression import ZSTD, TooLarge
from plimsoll_wire.produce import ProduceRequest, ProduceTopic

RECORDS_AT_ONCE = 10_000
"""Walked over on the event loop: a millisecond or two."""
KEYED_AT_ONCE = 1_000
"""The same of a compacted topic, where each record is looked at for its key."""
BYTES_AT_ONCE = 4 * 2**20
"""Summed up and written without a turn of the event loop."""
PARTITIONS_AT_ONCE = 100
RECORDS_IN_TURN = 100_000
"""Walked over in one turn of a thread, some 50 ms, unless one batch has more: then others come."""
OPENING_AS_RECORDS = 10_000
"""What it costs to open a batch of any size, as records that are walked over."""

OPENING_AT_ONCE = 128 * 2**10
OPENED_AT_ONCE = 2 * 2**20
"""Of compressed batches, before and after: a producer's usual request is opened on the event loop,
since a thread costs more than that."""

Checked = BatchHeader | BadSent
_Where = tuple[int, int]
"""Which topic and which of its partitions, as the request counts them."""
Answers = dict[_Where, Checked]


ZSTD_VERSION = 7
"""Of the first request that may hold batches of this codec (KIP-110)."""
_NO_ZSTD = BadSent(Code.UNSUPPORTED_COMPRESSION_TYPE, "")

Wanted = Callable[[str, int, int], Demand | None]
"""Of a topic, a partition and a size; None: it may not be taken here at all."""
_Sent = tuple[_Where, memoryview | None, bool]
"""`True`: its records need keys."""


def check_at_once(request: ProduceRequest, wanted: Wanted) -> Answers | None:
    """What `check_batch` says of every batch that is wanted, or None: that takes longer than a
    moment, or compressing or writing them does."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        return _check_single_batch(request.topics[0], wanted)
    room = _room(request)
    if room is None:
        return None
    found: Answers = {}
    keyed_records = 0
    try:
        for number, topic in enumerate(request.topics):
            for at, (index, records) in enumerate(topic.partitions):
                demand = wanted(topic.name, index, len(records or b""))
                if demand is None:
                    continue
                if demand.codec is not None and codec_of(records) != demand.codec:
                    return None
                keyed = demand.keyed
                if keyed and (keyed_records := keyed_records + effort(records)[0]) > KEYED_AT_ONCE:
                    return None
                found[number, at] = check_batch(records, room, keyed=keyed)
    except TooLarge:
        return None
    return found


def _check_single_batch(topic: ProduceTopic, wanted: Wanted) -> Answers | None:
    """As `check_at_once`, of a request of one batch, as most producers send: it is looked at once
    instead of twice, which halves what deciding costs beside the check itself."""
    index, records = topic.partitions[0]
    size = 0 if records is None else len(records)
    walked, opening = effort(records)
    if not _is_short(walked, opening, size):
        return None
    demand = wanted(topic.name, index, size)
    if demand is None:
        return {}
    if demand.codec is not None and codec_of(records) != demand.codec:
        return None
    keyed = demand.keyed
    if keyed and walked > KEYED_AT_ONCE:
        return None
    try:
        return {(0, 0): check_batch(records, OPENED_AT_ONCE, keyed=keyed)}
    except TooLarge:
        return None


def _room(request: ProduceRequest) -> int | None:
    """How large each of its compressed batches may turn out to be, if all of them are short."""
    partitions = records = opening = compressed = size = 0
    for topic in request.topics:
        partitions += len(topic.partitions)
        if partitions > PARTITIONS_AT_ONCE:
            return None
        for _, data in topic.partitions:
            walked, opened = effort(data)
            records += walked
            opening += opened
            compressed += opened > 0
            size += len(data or b"")
    return OPENED_AT_ONCE // max(compressed, 1) if _is_short(records, opening, size) else None


def _is_short(records: int, opening: int, size: int) -> bool:
    """Of all batches of a request together: what is walked over, opened, and written."""
    return records <= RECORDS_AT_ONCE and opening <= OPENING_AT_ONCE and size <= BYTES_AT_ONCE


def by_version(found: Answers, version: int) -> Answers:
    """What was found, by whether a request of `version` may hold zstd."""
    if version >= ZSTD_VERSION:
        return found
    return {
        place: _NO_ZSTD if isinstance(one, BatchHeader) and one.codec == ZSTD else one
        for place, one in found.items()
    }


class CheckedFor:
    """What was `wanted` of each batch when its check began.  When it is written, another topic may
    have the name, or the topic ask for keys: it has to be sent again then."""

    def __init__(self, wanted: Wanted, by_name: Callable[[str, int], Hosted | None]) -> None:
        self._wanted = wanted
        self._by_name = by_name
        # By topic and partition: whose batch it was to be, and whether its records needed keys.
        self._asked: dict[tuple[str, int], tuple[Hosted | None, bool]] = {}

    def __call__(self, topic: str, index: int, size: int) -> Demand | None:
        demand = self._wanted(topic, index, size)
        if demand is not None:
            self._asked[topic, index] = self._by_name(topic, index), demand.keyed
        return demand

    def still(self, topic: str, index: int) -> bool:
        """Whether what was checked is what is to be written; of what was not checked, yes."""
        asked, hosted = self._asked.get((topic, index)), self._by_name(topic, index)
        if asked is None or hosted is None:
            return True
        before, keyed = asked
        return hosted is before and (keyed or not hosted.demand.keyed)


class InOrder:
    """A broker's produces that take long: each in its connection's line, in threads by `aside`."""

    def __init__(self, aside: Aside) -> None:
        self.lines = ConnectionLines()
        self._aside = aside

    async def check_in_threads(self, request: ProduceRequest, wanted: Wanted) -> Answers:
        """What `check_at_once` says where it says anything."""
        found: Answers = {}
        some: list[_Sent] = []
        size = walked = 0
        for number, topic in enumerate(request.topics):
            for at, (index, records) in enumerate(topic.partitions):
                bytes_ = len(records or b"")
                demand = wanted(topic.name, index, bytes_)
                if demand is None:
                    continue
                some.append(((number, at), records, demand.keyed))
                size += bytes_
                records_in, opening = effort(records)
                walked += records_in + OPENING_AS_RECORDS * bool(opening)
                if (
                    size > BYTES_AT_ONCE
                    or walked > RECORDS_IN_TURN
                    or len(some) >= PARTITIONS_AT_ONCE
                ):
                    found |= await self._check_some(some)
                    some, size, walked = [], 0, 0
        return found | await self._check_some(some) if some else found

    async def recompressed(
        self, header: BatchHeader, records: memoryview, codec: int, size_max: int
    ) -> Recompressed | BadSent:
        """In a thread.  One batch at a time, when its append is next: what a whole request opens to
        is not bounded by its size."""
        return await self._aside.do(partial(recompressed, header, records, codec, size_max))

    async def _check_some(self, some: list[_Sent]) -> Answers:
        return await self._aside.do(partial(_check_all, some))


def _check_all(some: list[_Sent]) -> Answers:
    return {where: check_batch(records, keyed=keyed) for where, records, keyed in some}
