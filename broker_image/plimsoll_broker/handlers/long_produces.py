"""InOrder: produce requests that take long, in sequence for each connection.

Called by the produce handler. A large or compressed batch is checked in a thread, and recompressed
in one if its topic asks for another codec. Later requests of the same connection wait behind it
(`connection_lines`): a client's batches must not overtake each other, and a client sends those of a
partition over one connection.
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
"""Records walked over on the event loop: a millisecond or two."""
KEYED_AT_ONCE = 1_000
"""The same for a compacted topic, where each record's key is checked."""
BYTES_AT_ONCE = 4 * 2**20
"""Bytes checked and written without a break."""
PARTITIONS_AT_ONCE = 100
RECORDS_IN_TURN = 100_000
"""Records walked over in one turn of a thread, some 50 ms; one larger batch is not split."""
OPENING_AS_RECORDS = 10_000
"""The cost of decompressing a batch of any size, as walked-over records."""

OPENING_AT_ONCE = 128 * 2**10
OPENED_AT_ONCE = 2 * 2**20
"""Bytes of compressed batches, before and after: a usual request is decompressed on the event loop,
since a thread costs more."""

Checked = BatchHeader | BadSent
_Where = tuple[int, int]
"""The positions of the topic and of the partition in the request."""
Answers = dict[_Where, Checked]


ZSTD_VERSION = 7
"""The first request version that may hold batches of this codec (KIP-110)."""
_NO_ZSTD = BadSent(Code.UNSUPPORTED_COMPRESSION_TYPE, "")

Wanted = Callable[[str, int, int], Demand | None]
"""By topic, partition and size; None: the batch may not be accepted here."""
_Sent = tuple[_Where, memoryview | None, bool]
"""True: its records need keys."""


def check_at_once(request: ProduceRequest, wanted: Wanted) -> Answers | None:
    """Return the results of `check_batch`, by position, for every batch that is wanted; None if
    checking, compressing or writing them takes too long for the event loop."""
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
    """As `check_at_once`, for a request of one batch, as most producers send: one look instead of
    two halves the overhead."""
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
    """Return how large each compressed batch may become, or None if the request is too long."""
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
    """Return True if all batches of a request are short together."""
    return records <= RECORDS_AT_ONCE and opening <= OPENING_AT_ONCE and size <= BYTES_AT_ONCE


def by_version(found: Answers, version: int) -> Answers:
    """Replace the results of zstd batches in a request version that does not allow them."""
    if version >= ZSTD_VERSION:
        return found
    return {
        place: _NO_ZSTD if isinstance(one, BatchHeader) and one.codec == ZSTD else one
        for place, one in found.items()
    }


class CheckedFor:
    """The demands of each batch when its check began. Before it is written the name may have passed
    to another topic, or the topic may now require keys; then the client must send it again."""

    def __init__(self, wanted: Wanted, by_name: Callable[[str, int], Hosted | None]) -> None:
        self._wanted = wanted
        self._by_name = by_name
        # By topic and partition: the hosted partition, and True if keys were required.
        self._asked: dict[tuple[str, int], tuple[Hosted | None, bool]] = {}

    def __call__(self, topic: str, index: int, size: int) -> Demand | None:
        demand = self._wanted(topic, index, size)
        if demand is not None:
            self._asked[topic, index] = self._by_name(topic, index), demand.keyed
        return demand

    def still(self, topic: str, index: int) -> bool:
        """Return True if the check still applies, or if there was none."""
        asked, hosted = self._asked.get((topic, index)), self._by_name(topic, index)
        if asked is None or hosted is None:
            return True
        before, keyed = asked
        return hosted is before and (keyed or not hosted.demand.keyed)


class InOrder:
    """A broker's long produces: each in its connection's line, in threads by `aside`."""

    def __init__(self, aside: Aside) -> None:
        self.lines = ConnectionLines()
        self._aside = aside

    async def check_in_threads(self, request: ProduceRequest, wanted: Wanted) -> Answers:
        """Return what `check_at_once` would return."""
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
        """Recompress one batch in a thread, when its append is next. A whole request's decompressed
        size is not bounded, so it is done batch by batch."""
        return await self._aside.do(partial(recompressed, header, records, codec, size_max))

    async def _check_some(self, some: list[_Sent]) -> Answers:
        return await self._aside.do(partial(_check_all, some))


def _check_all(some: list[_Sent]) -> Answers:
    return {where: check_batch(records, keyed=keyed) for where, records, keyed in some}
