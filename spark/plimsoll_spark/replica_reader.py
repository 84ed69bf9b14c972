"""Reads a range of offsets of one replica, batch by batch, past what cannot be read.

Called in Spark's tasks (`audit_range`, the data sources). It judges nothing: it returns the valid
batches, the places without one, and where the replica begins and ends. It skips the offsets that
retention deletes meanwhile, waits for a replica that lags, and gives up when its time is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from plimsoll_spark.batches import Batch, Problem, Rows, aborted_among, rows, scan
from plimsoll_spark.broker_connection import (
    BrokerConnection,
    ConnectionLost,
    Fetched,
    LoginRefused,
    Standing,
)

FETCH_BYTES = 2**20
TIMEOUT_S = 30.0
RETRY_S = 0.2
SETTLE_S = 30.0
"""Seconds for which a replica may take to show the records that the leader has committed."""
AWAY_S = 60.0
"""Seconds for which a broker that is away, or a replica that moves, is waited for."""

NONE, OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC, NOT_LEADER = 0, 1, 2, 3, 6
TOPIC_DENIED, OFFLINE = 29, 56


class Why(Enum):
    """Why a range was not read to its end."""

    UNREACHABLE = "the broker cannot be reached"
    NOT_SERVED = "the broker serves no reads of its own replica"
    OLD = "the broker's release is older than 0.3, so it reads no replica from disk for an audit"
    NO_LEADER = "no leader of the partition was found"
    LOGIN = "the broker refused the login, or does not support its mechanism"
    BUSY = "the replica changed too much meanwhile to be looked through again"
    OFFLINE = "the replica is offline"
    STARVED = "the broker sends none of the records that it says it has"
    SHORT = "the replica ends before records that the leader has committed"
    MOVED = "the replica left the ISR, or the leader changed, while it was read"
    GONE = "the broker does not have the replica any more"
    DENIED = "the user may not read the topic"
    TIME = "the time was up"


FINAL = frozenset({Why.OFFLINE, Why.DENIED, Why.OLD, Why.LOGIN})
"""The causes that do not pass while one waits."""


Take = Callable[[memoryview, list[Batch], frozenset[int]], None]


class Place(NamedTuple):
    """A replica and its place: topic, partition, and the id, host and port of its broker."""

    topic: str
    partition: int
    broker: int
    host: str
    port: int


class Bad(NamedTuple):
    """Offsets from `first` to before `end` that hold no valid batch."""

    first: int
    end: int
    problem: Problem


@dataclass(slots=True)
class Held:
    """The content of one replica in a range. `batches`: the valid ones that end in the range, and
    those behind it that came with the last fetch; `bad`: the offsets without a valid batch;
    `start`: the log start offset after the reading; `end`: the offset before which everything was
    read; `high_watermark`: as of the last fetch; `size`: bytes of valid batches; `why`: why no more
    was read, None at the range's end; `skipped_to`: the offsets at which the reading went on after
    retention had deleted what came next."""

    broker: int
    batches: Rows
    bad: list[Bad] = field(default_factory=list)
    skipped_to: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    size: int = 0
    why: Why | None = None


class RateLimit:
    """A limit on the bytes per second that one task reads. None: no limit. Of unused time, at most
    one second counts."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._due_s = time.monotonic()

    def spend(self, size: int) -> None:
        """Count `size` bytes as read, and sleep until they are within the limit."""
        if self._rate is None:
            return
        now_s = time.monotonic()
        self._due_s = max(self._due_s, now_s - 1.0) + size / self._rate
        if self._due_s > now_s:
            time.sleep(self._due_s - now_s)


class Connections:
    """The connections of one task, one a broker."""

    def __init__(self, login: Mapping[str, str]) -> None:
        """Create the connections; none is open yet. `login`: settings of librdkafka."""
        self._login = login
        self._open: dict[tuple[str, int], BrokerConnection] = {}

    def to(self, place: Place) -> BrokerConnection:
        """Return the open connection to the replica's broker, or open one. Raises `ConnectionLost`
        and `LoginRefused`."""
        address = (place.host, place.port)
        if address not in self._open:
            self._open[address] = BrokerConnection(*address, self._login, TIMEOUT_S)
        return self._open[address]

    def standing(self, places: Sequence[Place]) -> Standing | None:
        """Return the standing of a partition by the metadata of all brokers with a replica that can
        be reached: the newest leader epoch, and the brokers that all of them count in the ISR.
        Return None if none shows the partition. `places`: the partition's."""
        told: list[Standing] = []
        for place in places:
            try:
                one = self.to(place).standing(place.topic, place.partition)
            except (ConnectionLost, LoginRefused):
                self.drop(place)
                continue
            told += [] if one is None else [one]
        if not told:
            return None
        in_sync = frozenset.intersection(*(one.in_sync for one in told))
        return Standing(max(one.leader_epoch for one in told), in_sync)

    def drop(self, place: Place) -> None:
        """Close the connection to the replica's broker, if there is one."""
        found = self._open.pop((place.host, place.port), None)
        if found is not None:
            found.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class Stop(Exception):
    """The range cannot be read any further."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class ReplicaReader:
    """Reads ranges of one replica. `own_copy`: True to read the broker's own files, whether or not
    it is the leader; False to read as a consumer from the leader, and to follow a change of
    leader."""

    def __init__(
        self,
        connections: Connections,
        place: Place,
        *,
        own_copy: bool,
        until_s: float,
        limit: RateLimit,
        settle_s: float = SETTLE_S,
    ) -> None:
        """`until_s`: the wall-clock time at which to give up, in seconds since 1970. `settle_s`:
        seconds for which the replica may take to show the range's end."""
        self._connections = connections
        self._place = place
        self._own_copy = own_copy
        self._committed = False
        self._until_s = until_s
        self._limit = limit
        self._settle_s = settle_s
        self._start = 0
        self._high_watermark = 0
        # Batches that begin before it were read already.
        self._floor = 0

    def read(
        self, first: int, end: int, take: Take | None = None, *, committed: bool = False
    ) -> Held:
        """Return the replica's batches from `first` to before `end`. If they cannot all be read,
        return the part that was read, with the cause in `why`. `take`: is called with the bytes of
        consecutive valid batches, which do not stay valid, these batches, and the base offsets of
        those that belong to aborted transactions; these are known only with `committed`: True to
        read as a consumer of committed records, up to the last stable offset."""
        self._committed = committed
        held = Held(self._place.broker, rows([]))
        found: list[Batch] = []
        position = first
        try:
            while position < end:
                fetched = self._fetch(position, FETCH_BYTES)
                if fetched is None:
                    position = max(position, self._start)
                    held.skipped_to.append(position)
                    continue
                scanned = scan(fetched.records, position, fetched.high_watermark)
                problem = scanned.problem
                if take is not None and scanned.batches:
                    aborted = aborted_among(scanned.batches, fetched.aborted)
                    take(fetched.records[: scanned.size], scanned.batches, aborted)
                held.size += scanned.size
                found += scanned.batches
                if scanned.batches:
                    _shorten(held.bad, scanned.batches[0].base_offset)
                    position = scanned.batches[-1].last_offset + 1
                elif problem is None:
                    problem = Problem.MALFORMED
                if problem is not None and position < end:
                    self._floor = position
                    after = self._next_valid(position, end)
                    held.bad.append(Bad(position, after, problem))
                    position = after
        except Stop as stop:
            held.why = stop.why
        held.batches = rows([one for one in found if one.last_offset >= first])
        held.start, held.end = self._start, min(position, end)
        held.high_watermark = self._high_watermark
        held.broker = self._place.broker
        return held

    def _next_valid(self, position: int, end: int) -> int:
        """Return the first offset behind `position` at which a valid batch begins, at most `end`.
        Damaged batches are few, so nearly every offset behind is in a valid one: search in doubling
        steps, and then between the last two."""
        low, step = position, 1
        if (begin := self._valid_from(position)) is not None:
            return begin
        while (high := min(position + step, end)) < end:
            if (begin := self._valid_from(high)) is not None:
                break
            low, step = high, 2 * step
        else:
            begin = end
        while begin - low > 1:
            middle = (low + begin) // 2
            found = self._valid_from(middle)
            if found is None or found >= begin:
                low = middle
            else:
                begin = max(found, low + 1)
        return max(begin, position + 1)

    def _valid_from(self, offset: int) -> int | None:
        """Return the base offset of the batch at `offset`, or of a later one after a hole, if that
        batch is valid, else None. If the log now begins behind `offset`, return its start."""
        fetched = self._fetch(offset, 1)
        if fetched is None:
            return self._start
        found = scan(fetched.records, offset, fetched.high_watermark).batches
        return max(found[0].base_offset, self._floor) if found else None

    def _fetch(self, offset: int, max_bytes: int) -> Fetched | None:
        """Fetch from `offset` on, with retries, and return the answer: with records, or with none
        where the files hold no batch. Return None if the log now begins behind `offset`. Raises
        `Stop` when no further try is allowed. While a quota holds the answers back, only the
        reader's own time runs out."""
        began_s = time.time()
        while True:
            fetched, why = self._attempt(offset, max_bytes)
            if why is Why.TIME:
                # `ask` sleeps for the time that the quota demands.
                began_s = math.inf
            elif began_s == math.inf:
                began_s = time.time()
            patience_s = self._settle_s if why is Why.SHORT else AWAY_S
            if why is None:
                return fetched
            if why in FINAL:
                raise Stop(why)
            if time.time() >= min(began_s + patience_s, self._until_s):
                raise Stop(Why.TIME if time.time() >= self._until_s else why)
            time.sleep(RETRY_S)

    def _ask(self, offset: int, max_bytes: int) -> Fetched | Why:
        """Ask the broker once. As a consumer, turn to the partition's new leader for the next try
        if this broker does not lead it any more."""
        place = self._place
        try:
            connection = self._connections.to(place)
            if self._own_copy and not connection.reads_own_copy:
                return Why.OLD
            connection.ask(
                place.topic,
                place.partition,
                offset,
                max_bytes,
                own_copy=self._own_copy,
                committed=self._committed,
            )
            fetched = connection.answer()
            if self._own_copy or fetched.code not in (UNKNOWN_TOPIC, NOT_LEADER):
                return fetched
            now = connection.standing(place.topic, place.partition)
        except ConnectionLost:
            self._connections.drop(place)
            return Why.UNREACHABLE
        except LoginRefused:
            return Why.LOGIN
        if now is not None and now.leader is not None:
            self._place = place._replace(**now.leader._asdict())
        return Why.NO_LEADER

    def _attempt(self, offset: int, max_bytes: int) -> tuple[Fetched | None, Why | None]:
        fetched = self._ask(offset, max_bytes)
        if isinstance(fetched, Why):
            return None, fetched
        self._limit.spend(len(fetched.records))
        if fetched.is_held_back:
            return None, Why.TIME
        self._start = max(self._start, fetched.log_start_offset)
        self._high_watermark = max(self._high_watermark, fetched.high_watermark)
        if fetched.code == NONE:
            if fetched.records:
                return fetched, None
            # A broker that lacks memory for an answer sends an empty one, too.
            return None, Why.SHORT if offset >= fetched.high_watermark else Why.STARVED
        if fetched.code == CORRUPT:
            return fetched, None
        if fetched.code == OUT_OF_RANGE:
            return None, None if offset < self._start else Why.SHORT
        known = {
            UNKNOWN_TOPIC: Why.GONE,
            NOT_LEADER: Why.NOT_SERVED,
            TOPIC_DENIED: Why.DENIED,
            OFFLINE: Why.OFFLINE,
        }
        return None, known.get(fetched.code, Why.UNREACHABLE)


def _shorten(bad: list[Bad], base_offset: int) -> None:
    """End the last bad range where the valid batch behind it begins: a damaged batch may claim
    offsets of the next one."""
    if bad and bad[-1].end > base_offset:
        last = bad.pop()
        if last.first < base_offset:
            bad.append(last._replace(end=base_offset))
