"""ConnectionState: the state that handlers keep of one connection, for as long as it lasts.

`RejectedSequences`: keeps a batch from overtaking an earlier one that was rejected. A broker may
reject the first of several batches in flight (too few replicas in sync, not the leader yet, topic
not known yet), or truncate it because another broker led, and a moment later accept the next. A log
accepts any sequence from a producer that it does not know. So it would begin in the middle, and the
earlier batch could never be written. A log that knows the producer would answer "out of order";
librdkafka then begins a new producer epoch, and batches of unknown outcome are written twice. So a
batch that would overtake is rejected with the error of the first: clients send both again, in
order. A client sends all batches in flight over one connection, so it is enough to remember
rejections by connection. A connection remembers a bounded number of partitions and producers. Once
that is exceeded, a batch that is not remembered and does not continue its log is rejected, too.
Source: KIP-98; the protocol's rule for idempotent producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from plimsoll_broker.server.client_memory import MemoryAccount, RequestAccount
from plimsoll_broker.server.turn_budget import SliceTurns
from plimsoll_core.addresses import network_of
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.topic_names import NAME_LENGTH_MAX
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_core.security.inside import Peer
from plimsoll_core.security.sasl import SaslSession, mechanisms_of
from plimsoll_wire.batches import BatchError, Buffer, parse_header

REMEMBERED_MAX = 1_000
"""The most rejections that one connection remembers, by partition and producer, at about 300 bytes
each."""
REMEMBERED_MS = 10_000
"""The age in ms from which a rejection may be forgotten. Clients retry within a second. A rejection
must not hold up a batch for ever if the batch before it was written elsewhere meanwhile."""
IN_FLIGHT_MAX = 5
"""The most batches of a partition that an idempotent producer has in flight. That many may wait in
the connection behind the rejected one, however late a paused broker reads them."""
_SEQUENCES = 2**31

# Transient errors. After any other error a client does not send the same batch again.
_PASSES = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.KAFKA_STORAGE_ERROR,
    }
)

_Where = tuple[str, int, int]
"""Topic name, partition index and producer id."""
_Producer = tuple[int, int, int]
"""Producer id, producer epoch and base sequence."""


class _Lowest(NamedTuple):
    epoch: int
    sequence: int
    code: int
    at_ms: int
    # The number of damaged batches of the connection before it.
    damages: int
    # The number of later batches that were rejected behind it.
    behind: int = 0


class RejectedSequences:
    """The rejections of one connection: for each partition and producer, the lowest sequence that
    was rejected and not accepted since, with its error. `_forgot`: the error code of the last
    rejection that could not be remembered, that dropped another one, or of a damaged batch, which
    may name another producer; None if all are remembered. `_damages`: the number of damaged
    batches so far. After another one a remembered batch must follow its log, too: the batch before
    it may have been damaged again."""

    __slots__ = ("_damages", "_forgot", "_lowest")

    def __init__(self) -> None:
        self._lowest: dict[_Where, _Lowest] = {}
        self._forgot: int | None = None
        self._damages = 0

    def __bool__(self) -> bool:
        return bool(self._lowest) or self._forgot is not None

    def overtaken_by(
        self,
        topic: str,
        index: int,
        records: Buffer | None,
        newest: Callable[[int], tuple[int, int] | None],
        now_ms: int,
    ) -> int | None:
        """Return the error code with which to reject this batch, because it would overtake an
        earlier rejected batch of its partition and producer, or None if it may be handled. A
        rejection by this method counts for the batches behind it. `newest`: returns the producer
        epoch and last sequence of a producer id in the log, or None if the log does not know the
        producer. `now_ms`: the monotonic clock."""
        found = _producer(records)
        if found is None:
            return None
        producer_id, epoch, sequence = found
        where = (topic, index, producer_id)
        lowest = self._lowest.get(where)
        if lowest is None or lowest.epoch != epoch or not _after(sequence, lowest.sequence):
            if lowest is not None and (lowest.epoch > epoch or lowest.damages == self._damages):
                return None
            return self._unless_it_follows(where, found, newest, now_ms)
        if now_ms - lowest.at_ms >= REMEMBERED_MS and lowest.behind >= IN_FLIGHT_MAX - 1:
            return None
        last = newest(producer_id)
        if last is not None and _follows(found, *last):
            return None  # this log has all that was rejected before the batch
        self._lowest[where] = lowest._replace(behind=lowest.behind + 1)
        return lowest.code

    def _unless_it_follows(
        self,
        where: _Where,
        producer: _Producer,
        newest: Callable[[int], tuple[int, int] | None],
        now_ms: int,
    ) -> int | None:
        """Return None if the batch continues the log. Otherwise remember it as rejected, and return
        the error code with which to reject it, since a rejected batch before it may have been
        forgotten."""
        producer_id, epoch, sequence = producer
        if self._forgot is None or _follows(producer, *newest(producer_id) or (-1, -1)):
            return None
        self._remember(where, _Lowest(epoch, sequence, self._forgot, now_ms, self._damages))
        return self._forgot

    def damaged(self) -> None:
        """Record that a damaged batch was rejected. Its header may be damaged, too, so that it may
        have been any producer's."""
        self._forgot = int(Code.CORRUPT_MESSAGE)
        self._damages += 1

    def answered(
        self, topic: str, index: int, records: Buffer | None, code: int, now_ms: int
    ) -> None:
        """Record the result of a batch that overtook no other: `code`, NONE for success. A
        transient error is remembered, so that later batches do not overtake this one; any other
        result removes an earlier rejection of the partition and producer. A batch without an
        idempotent producer is ignored."""
        found = _producer(records)
        if found is None:
            return
        producer_id, epoch, sequence = found
        where = (topic, index, producer_id)
        self._lowest.pop(where, None)
        if code in _PASSES and len(topic) <= NAME_LENGTH_MAX:  # an invalid name never succeeds
            self._remember(where, _Lowest(epoch, sequence, code, now_ms, self._damages))

    def not_committed(
        self, topic: str, index: int, producer: _Producer, code: int, now_ms: int
    ) -> None:
        """Remember the error code of a batch that was appended but not committed, if it is
        transient and no earlier batch is remembered. The log may be truncated before the later
        batches of this connection are read; these must not overtake the batch then."""
        producer_id, epoch, sequence = producer
        where = (topic, index, producer_id)
        known = self._lowest.get(where)
        if known is not None and (
            known.epoch > epoch or (known.epoch == epoch and not _after(known.sequence, sequence))
        ):
            return  # that entry holds back this batch, too
        if code in _PASSES:
            self._remember(where, _Lowest(epoch, sequence, code, now_ms, self._damages))

    def _remember(self, where: _Where, lowest: _Lowest) -> None:
        remembered = self._lowest
        if len(remembered) >= REMEMBERED_MAX and where not in remembered:
            self._forgot = lowest.code
            oldest = next(iter(remembered))
            if lowest.at_ms - remembered[oldest].at_ms < REMEMBERED_MS:
                return
            del remembered[oldest]  # its client would have retried by now
        remembered.pop(where, None)
        remembered[where] = lowest  # newest last


def _producer(records: Buffer | None) -> _Producer | None:
    """Return the id, epoch and base sequence of an idempotent producer's batch. Return None for any
    other batch, and for one that cannot be parsed."""
    if not records:
        return None
    try:
        header = parse_header(records)
    except BatchError:
        return None
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return header.producer_id, header.producer_epoch, header.base_sequence


def _follows(producer: _Producer, epoch: int, sequence: int) -> bool:
    """Return True if the batch leaves no gap behind the newest batch of its producer in the log,
    which has this producer epoch and last sequence; also if the log has the batch already, or a
    newer epoch."""
    _, its_epoch, its_sequence = producer
    if its_epoch != epoch:
        return its_epoch < epoch or its_sequence == 0
    return not _after(its_sequence, (sequence + 1) % _SEQUENCES)


def _after(sequence: int, other: int) -> bool:
    """Return True if `sequence` is after `other`. Sequences wrap around at 2**31; those in flight
    are never half that range apart."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


class CloseConnection(Exception):
    """Raised by a handler to close the connection without a reply. The message is the reason."""


class Closable(Protocol):
    """An object that belongs to a connection and is closed when the connection is lost: its fetch
    session, or waiting work."""

    def close(self) -> None: ...


class FollowerFetches(Closable, Protocol):
    """The fetch session of a follower's connection."""

    def acknowledge(self, frame: bytearray) -> None:
        """Record a follower's acknowledgement of pushes. Raise MalformedMessage, or CloseConnection
        if no follower can say so."""


class WorkOwner(Protocol):
    """The part of a connection that long work needs (`FairWork`).

    `holder`: the principal that the work is counted for. `slices`: where slices on the event loop
    wait; None if they need not. `waits`: work that waits for a thread, closed when the connection
    is lost.
    """

    @property
    def holder(self) -> str: ...

    @property
    def slices(self) -> SliceTurns | None: ...

    @property
    def waits(self) -> dict[Closable, None]: ...


SERVING: ContextVar[WorkOwner | None] = ContextVar("serving", default=None)
"""The connection of the request that is being served, or None. Tasks that a handler creates inherit
it."""


def _no_session_to_close(_: str) -> None:
    """Default of `cut_off` for a connection without a session."""


def _no_session_to_refuse() -> None:
    """Default of `_refuse` for a connection without a session."""


def _no_session_to_push(_: Sequence[Buffer]) -> bool:
    """Default of `push` for a connection without a session."""
    return False


@dataclass(slots=True, eq=False)
class ConnectionState:
    """The state that handlers read and keep of one client connection, for as long as it lasts."""

    account: MemoryAccount = field(default_factory=lambda: MemoryAccount(None, 0))
    """The connection's account in the pool of unsent replies."""
    listener: Listener = listener_peers.IMPLICIT
    requests: RequestAccount = field(default_factory=lambda: RequestAccount(None))
    """The connection's account in the pool of requests."""
    fetch_replied_ms: int | None = field(default=None, init=False)
    """The time in ms when the last reply to a follower's fetch was made; None if there was none."""
    fetch_session: FollowerFetches | None = field(default=None, init=False)
    is_broker: bool = field(default=False, init=False)
    """True for the connection of a registered broker."""
    refused: RejectedSequences | None = field(default=None, init=False)
    """Rejected batches that later ones must not overtake."""
    line: asyncio.Task[Any] | None = field(default=None, init=False)
    """The last task in the connection's line: a request that takes more than one turn of the event
    loop. Later requests wait for it."""
    sasl: SaslSession | None = field(default=None, init=False)
    """The login state; None if no login is required."""
    principal: str = field(default=ANONYMOUS, init=False)
    login: bytes = field(default=b"", init=False)
    """The fingerprint of the key that the client logged in with (`OnBehalf`), or empty."""
    host: str = field(default="", init=False)
    address: str = field(default="", init=False)
    """The client's address, or the /64 of an IPv6 address."""
    client: str = field(default="", init=False)
    holder: str = field(default="", init=False)
    """The principal for which the connection's usage is counted: the user, or the address without a
    login."""
    inside_peer: Peer | None = field(default=None, init=False)
    """The identity in the certificate of a peer broker; None if it presented none."""
    rights: Any = field(default=None, init=False)
    """The `Rights` of the connection, with cached decisions; None until the first request after a
    login."""
    limits: Any = field(default=None, init=False)
    """The `HeldLimits` of the client, with their usage; None until they are first needed after a
    login."""
    ending: str = field(default="", init=False)
    """The reason to close the connection after its last reply; empty while it stays open."""
    cut_off: Callable[[str], None] = field(default=_no_session_to_close, init=False)
    """The session's callback that closes the connection."""
    _refuse: Callable[[], None] = field(default=_no_session_to_refuse, init=False)
    push: Callable[[Sequence[Buffer]], bool] = field(default=_no_session_to_push, init=False)
    """Sends a frame that is no reply, given in pieces, and returns True. Returns False, and sends
    nothing, while the peer takes nothing."""
    slices: SliceTurns | None = field(default=None, init=False)
    """The listener's; None without a session."""
    forget: Callable[[], None] | None = field(default=None, init=False)
    """Called when the connection is lost, or None."""
    waits: dict[Closable, None] = field(default_factory=dict, init=False)
    """Work of this connection that waits for a thread; dropped when the connection is lost."""
    is_lost: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.listener.authentication:
            self.sasl = SaslSession(mechanisms_of(self.listener.authentication))

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def let_in(self) -> bool:
        """True if the client has logged in or no login is required. It stays True during
        re-authentication."""
        return self.sasl is None or self.sasl.identity is not None

    def opened(
        self,
        transport: asyncio.BaseTransport,
        cut_off: Callable[[str], None],
        refuse: Callable[[], None],
        push: Callable[[Sequence[Buffer]], bool],
    ) -> None:
        """Record the client's address and the session's callbacks. `cut_off`: closes the connection
        at once. `refuse`: stops the serving of further requests. `push`: as the field."""
        self._refuse, self.push = refuse, push
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host, self.client, self.cut_off = peer[0], f"{peer[0]}:{peer[1]}", cut_off
        self.address = network_of(peer[0])
        self._belongs_to_holder()

    def logged_in_as(self, principal: str) -> None:
        """Set the principal, and count the memory that the connection holds for that principal from
        now on."""
        self.principal = principal
        self._belongs_to_holder()

    def ends(self, reason: str) -> None:
        """Have the session serve no further request, and close the connection once its last reply
        is sent. `reason`: the reason to count for the close."""
        self.ending = reason
        self._refuse()

    def _belongs_to_holder(self) -> None:
        self.holder = self.address if self.principal == ANONYMOUS else self.principal
        self.account.belongs_to(self.holder)
        self.requests.belongs_to(self.holder)

    def speaks_for(self, replica_id: int | None) -> bool:
        """Return True if the peer may act as broker `replica_id`: its certificate names that
        broker, or it presented none."""
        peer = self.inside_peer
        return peer is None or peer.broker_id == replica_id

    def check(self, api_key: int) -> None:
        """Raise CloseConnection if the login state does not allow a request of this API."""
        if self.sasl is not None and (why := self.sasl.refuses(api_key)):
            raise CloseConnection(why)

    def lost(self) -> None:
        """Release everything that refers to the connection, because it is lost for good: end its
        fetch session, drop its waiting work and its cached rights, and call `forget`, if set."""
        self.is_lost = True
        self.close()
        for wait in tuple(self.waits):
            wait.close()
        self.cut_off, self._refuse = _no_session_to_close, _no_session_to_refuse
        self.push = _no_session_to_push
        self.rights = None
        forget, self.forget = self.forget, None
        if forget is not None:
            forget()

    def belongs_to_broker(self) -> None:
        """Mark the connection as a follower's, if it is not yet: its replies no longer count
        against the clients' memory budget, and it is never evicted."""
        if not self.is_broker:
            self.is_broker = True
            self.account.close()

    def close(self) -> None:
        """End the follower's fetch session of this connection, if there is one. Called when the
        connection is lost, or the fetch session is replaced or refused."""
        session, self.fetch_session = self.fetch_session, None
        if session is not None:
            session.close()
