"""Status of a LogBroker: state, figures, its node, and since when it is fenced.

Rendered from the committed image and from what a term remembers of the broker. Figures (sizes,
lags) are read at intervals by `look`, not whenever a status is rendered, so that they do not change
the written status more often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerShutdownStarted,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerUnregistered,
    BrokerUpdated,
    MembersChanged,
    Record,
    RestartEnded,
    RestartGranted,
)
from plimsoll_core.controller.kernel.decision import HoldBack, held_back
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.logbroker import FencedStatus
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.logbroker.reconcile import wanted
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.status.broker_status import BrokerSeen, ShownBroker, broker_status, view_of
from plimsoll_operator.status.status_writer import StatusDraft

CATCHES_UP = "it has registered, but has not yet caught up with the cluster's metadata"
WHY_LENGTH_MAX = 1_000
OF_ONE = (
    BrokerFenced,
    BrokerRegistered,
    BrokerShutdownStarted,
    BrokerUnfenced,
    BrokerUpdated,
    RestartGranted,
    RestartEnded,
)
"""Kinds of records that change the state of one broker."""
OF_SEVERAL = (MembersChanged, BrokersLeaving, BrokerUnregistered)


class _ShownBroker(msgspec.Struct):
    fenced: FencedStatus | None = None


@dataclass(slots=True)
class BrokerMemory:
    """State about the cluster's brokers that a term keeps between passes, for the statuses of
    LogBrokers."""

    # Since when and why each fenced broker is fenced, as far as known.
    fenced: dict[BrokerId, FencedStatus] = field(default_factory=dict)
    # Figures that each LogBroker shows until the next `look`.
    views: dict[BrokerId, ShownBroker] = field(default_factory=dict)

    def happened(self, records: Iterable[Record], now_ms: int) -> set[BrokerId]:
        """Store the fencings in `records`, committed at the wall-clock time `now_ms`. Return the
        brokers of which the records changed the state."""
        changed: set[BrokerId] = set()
        for record in records:
            if not isinstance(record, OF_ONE):
                continue
            changed.add(record.broker_id)
            if isinstance(record, BrokerFenced):
                self._away(record.broker_id, record.cause, now_ms)
            elif isinstance(record, BrokerRegistered):
                self._away(record.broker_id, CATCHES_UP, now_ms)
            elif isinstance(record, BrokerUnfenced):
                self.fenced.pop(record.broker_id, None)
        return changed

    def _away(self, broker_id: BrokerId, why: str, now_ms: int) -> None:
        since = timestamp(now_ms)
        if (known := self.fenced.get(broker_id)) is not None:
            since = known.since
        self.fenced[broker_id] = FencedStatus(since=since, why=why[:WHY_LENGTH_MAX])

    def look(self, term: Term, broker_id: BrokerId) -> None:
        """Read the present figures (sizes, lags) of a broker; its LogBroker shows them until the
        next call."""
        if broker_id not in self.fenced and (known := self._shown(term, broker_id)):
            self.fenced[broker_id] = known
        if not is_away(term.image, broker_id):
            self.fenced.pop(broker_id, None)
        self.views[broker_id] = view_of(term.controller, broker_id)

    def _shown(self, term: Term, broker_id: BrokerId) -> FencedStatus | None:
        """Return since when the broker is fenced, from its LogBroker's status, the only place where
        an earlier term stored that. Return None if the status states nothing."""
        namespace, name = term.key
        key = namespace, labels.log_broker(name, broker_id)
        found = term.objects.log_brokers.get(key)
        try:
            return None if found is None else msgspec.convert(found.status, _ShownBroker).fenced
        except msgspec.ValidationError:
            return None

    def forget_others(self, image: ClusterImage) -> None:
        """Forget the brokers that are neither members nor registered."""
        for memory in (self.fenced, self.views):
            for broker_id in [b for b in memory if b not in {*image.members, *image.brokers}]:
                memory.pop(broker_id, None)


def is_away(image: ClusterImage, broker_id: BrokerId) -> bool:
    """Return True if the broker is registered and fenced."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.fenced


def brokers_of(term: Term) -> BrokerMemory:
    """Return this term's `BrokerMemory`, which the first call creates."""
    return term.kept(BrokerMemory, BrokerMemory)


def render(term: Term, key: Key) -> StatusDraft | None:
    """Return the status of the LogBroker `key`, or None if the broker or its object does not exist
    or the metadata log has not been read."""
    shelf = term.objects.log_brokers
    found, broker_id = shelf.get(key), wanted(term).get(key)
    if found is None or broker_id is None or not term.image.controller_epoch:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=broker_status(term.image, broker_id, _seen(term, broker_id)),
        generation=found.metadata.generation,
        shown=shelf.conditions(key),
        version=found.metadata.resource_version,
    )


def _seen(term: Term, broker_id: BrokerId) -> BrokerSeen:
    memory, rolls = brokers_of(term), rolls_of(term)
    if broker_id not in memory.views:
        memory.look(term, broker_id)
    return BrokerSeen(
        view=memory.views[broker_id],
        fenced=memory.fenced.get(broker_id),
        pool=_pool(term, broker_id),
        node=rolls.nodes.get(broker_id),
        trouble=rolls.troubles.get(broker_id, ""),
        held_back=_held_back(term.controller, broker_id),
        waits=waits_of(term, broker_id),
    )


def _pool(term: Term, broker_id: BrokerId) -> str | None:
    """Return the name of the broker's pool, None without pools."""
    pool = None if term.cluster is None else term.cluster.pool_of(broker_id)
    return None if pool is None else pool.name


def waits_of(term: Term, broker_id: BrokerId) -> str:
    """Return a sentence on the first voluntary action about this broker that waits, "" if none
    does."""
    rows = (row for _, rows in sorted(term.shown.blocked.items()) for row in rows)
    return next((row.sentence for row in rows if row.broker == broker_id), "")


def _held_back(controller: Controller, broker_id: BrokerId) -> HoldBack | None:
    """Return why the broker may not join ISRs yet, or None if it may. Return None too if the broker
    has sent no heartbeat since its last fencing."""
    held = held_back(controller.soft, broker_id, controller.now_ms, controller.settings)
    contact = controller.soft.contacts.get(broker_id)
    return None if held is None or contact is None or contact.last_ms < held.last_ms else held
