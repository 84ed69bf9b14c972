"""The mutable working state of one call of `decide`, and the decision that it returns.

Every rule takes a `DecisionContext` and a request and returns an answer or a refusal.
`DecisionContext.image` always includes the records added so far: later steps of a decision see
earlier ones.  `stale_epoch` and `too_old` are checks that many rules begin with.

`held_back` says for how long a broker with repeated failures is held back from ISRs. A fence, and a
registration after a crash, record a failure (`note_flap`). While a broker is held back, it stays
fenced, and it joins no ISR that has enough members without it: neither a proposed ISR nor that of a
new partition. Each failure within the window doubles the wait, up to a maximum; a requested stop
does not count. Source: docs/protocol.md 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll_core.cluster.image import append
from plimsoll_core.cluster.model import Broker, ClusterImage, Partition
from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.cluster.records import Record, TopicRemoved
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, as_records, change
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import Answer, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of `decide`: the records to commit, and the answer to send once they are
    committed.

    `image` is the image with `records` applied, so that the caller need not apply them again.
    `again` is set if the decision was too long for one turn: the caller submits that request after
    all others that wait, and sends its answer instead (`answer` is void). `hand_over` is True if
    most brokers fell silent at once: this controller may be cut off, and should let another one
    lead.
    """

    records: tuple[Record, ...] = ()
    image: ClusterImage
    answer: Answer
    again: Request | None = None
    hand_over: bool = False


@dataclass(slots=True, kw_only=True)
class DecisionContext:
    """The inputs of one decision (image, volatile state, time, settings), and the records that it
    has added so far. `image` includes these records. `now_ms` is the time on the controller's
    monotonic clock. `again` and `hand_over` become those of the `Decision`."""

    image: ClusterImage
    soft: VolatileState
    now_ms: int
    settings: Settings
    records: list[Record] = field(default_factory=list)
    again: Request | None = None
    hand_over: bool = False

    def add(self, record: Record) -> None:
        if isinstance(record, TopicRemoved):
            topic = self.image.topics[record.topic_id]
            self.soft.forget(topic.id, topic.partitions)
        self.image = append(self.image, record)
        self.records.append(record)

    def change(
        self,
        wishes: Iterable[tuple[Partition, PartitionUpdate]],
        cause: str,
        *,
        without: AbstractSet[BrokerId] = frozenset(),
    ) -> None:
        """Add the records that change partitions as `wishes` say, and update the volatile state to
        match; each partition may occur once. `cause` is the cause in the records. Brokers in
        `without` are not elected."""

        absent = away(self.image)

        def changed(p: Partition, wish: PartitionUpdate) -> Partition:
            return change(p, wish, lambda b: b not in without and self.may_lead(b, p), absent)

        pairs = [(p, changed(p, wish)) for p, wish in wishes]
        for record in as_records(pairs, cause):
            self.add(record)
        for _, new in pairs:
            self.soft.saw(new, self.now_ms)

    def acceptable(self, broker_id: BrokerId) -> bool:
        """Return True if a broker may be in an ISR and lead: it is registered and active, no fence
        or registration of it is under way, and the cluster does not hibernate."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.active or self.image.hibernated:
            return False
        return broker_id not in self.soft.leaving

    def may_lead(self, broker_id: BrokerId, partition: Partition) -> bool:
        """Return True if the broker may be elected for the partition: it is acceptable, and its log
        of the partition is online."""
        return self.acceptable(broker_id) and not self.out_of_service(broker_id, partition)

    def out_of_service(self, broker_id: BrokerId, partition: Partition) -> bool:
        """Return True if the broker has reported, in its present registration, that its log of the
        partition is offline."""
        failed = self.soft.failed.get(partition.key) if self.soft.failed else None
        if not failed:
            return False
        return failed.get(broker_id) == self.image.brokers[broker_id].broker_epoch

    def active(self) -> set[BrokerId]:
        return {broker_id for broker_id in self.image.brokers if self.acceptable(broker_id)}

    def receivers(self) -> set[BrokerId]:
        """Return the brokers on which new replicas may be placed and that are active now
        (`acceptable`)."""
        return {broker_id for broker_id in self.active() if self.image.takes_replicas(broker_id)}

    def has_session(self, broker: Broker) -> bool:
        """Return True if the broker's present registration has sent a heartbeat or request within
        the session timeout."""
        contact = self.soft.contacts.get(broker.id)
        return (
            contact is not None
            and contact.broker_epoch == broker.broker_epoch
            and self.now_ms - contact.last_ms < self.settings.session_timeout_ms
        )

    def hosted(self, broker_id: BrokerId) -> list[Partition]:
        """Return the partitions with a replica on the broker, empty if there are none."""
        keys = self.image.hosted.get(broker_id)
        return [] if keys is None else [self.image.partitions[key] for key in keys]


Rule = Callable[[DecisionContext, Any], Answer | Refusal]
"""The type of a rule: it decides one kind of request, adds records to the context and returns the
answer. If it returns a Refusal it has added no record."""


def stale_epoch(
    turn: DecisionContext, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Refusal | None:
    """Return a refusal if the broker is not registered with this broker epoch, or None."""
    broker = turn.image.brokers.get(broker_id)
    if broker is not None and broker.broker_epoch == broker_epoch:
        return None
    now = (
        "is not registered any more"
        if broker is None
        else f"has registered again, with broker epoch {broker.broker_epoch}"
    )
    return Refusal(
        reason=Reason.StaleBrokerEpoch,
        message=(
            f"Broker {broker_id} {now}. A process that still uses its former broker epoch "
            f"{broker_epoch} exits at its next heartbeat, and registers again when it is "
            "restarted; nothing needs to be done."
        ),
    )


def too_old(turn: DecisionContext, since: int, needing: str) -> Refusal | None:
    """Return a refusal if the finalised metadata version is below `since`, or None. `needing` is
    the beginning of its message, such as "spec.listeners needs"."""
    finalised = turn.image.metadata_version
    if finalised >= since:
        return None
    return Refusal(
        reason=Reason.MetadataTooOld,
        message=(
            f"{needing} metadata version {release_of(since)} (#{since}), but the cluster is still "
            f"at {release_of(finalised)} (#{finalised}). Upgrade every broker to release "
            f"{release_of(since)} or later; the operator then raises the metadata version by "
            "itself, unless spec.metadataVersion holds it back."
        ),
    )


ACCESS_SINCE = 3
"""The metadata version from which on the log may hold credentials, users, ACLs and quotas."""


def access_too_old(turn: DecisionContext) -> Refusal | None:
    """Return a refusal if the finalised metadata version does not know the records of users,
    credentials, ACLs and quotas, or None."""
    return too_old(turn, ACCESS_SINCE, "Users, rights and quotas need")


def note_flap(turn: DecisionContext, broker_id: BrokerId) -> None:
    """Record a failure of a broker at `turn.now_ms`, and forget those older than the flap window.
    Callers do not record a requested stop."""
    kept = _recent(turn.soft, broker_id, turn.now_ms, turn.settings)
    turn.soft.flaps[broker_id] = [*kept[-15:], turn.now_ms]


class HoldBack(NamedTuple):
    """The reason why a broker is held back. `times`: the number of its failures within the flap
    window. `last_ms`: the time of the last one (the controller's clock, milliseconds); from then on
    the broker is held back for `wait_ms`."""

    times: int
    last_ms: int
    wait_ms: int


def held_back(
    soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings
) -> HoldBack | None:
    """Return the reason why the broker is held back at `now_ms`, or None if it is not."""
    recent = _recent(soft, broker_id, now_ms, settings)
    wait_ms = min(1_000 << len(recent), settings.flap_wait_ms_max)
    if not recent or now_ms >= recent[-1] + wait_ms:
        return None
    return HoldBack(len(recent), recent[-1], wait_ms)


def is_held_back(turn: DecisionContext, broker_id: BrokerId) -> bool:
    return held_back(turn.soft, broker_id, turn.now_ms, turn.settings) is not None


def _recent(soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings) -> list[int]:
    """Return the instants (milliseconds) of the broker's failures within the window, oldest
    first."""
    since = now_ms - settings.flap_window_ms
    return [at for at in soft.flaps.get(broker_id, []) if at > since]
