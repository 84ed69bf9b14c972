"""Renders a LogBroker from the committed image and this term's memory of the broker."""

from __future__ import annotations

from plimsoll_core.controller.kernel.held_back_brokers import HoldBack, held_back
from plimsoll_core.ids import BrokerId
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.logbroker.broker_memory import brokers_of
from plimsoll_operator.reconcile.logbroker.reconcile import wanted
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.status.broker_status import BrokerSeen, broker_status
from plimsoll_operator.status.status_writer import StatusDraft


def render(term: Term, key: Key) -> StatusDraft | None:
    """Return None if the broker or its object does not exist."""
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
    memory = brokers_of(term)
    if broker_id not in memory.views:
        memory.look(term, broker_id)
    return BrokerSeen(
        view=memory.views[broker_id],
        fenced=memory.fenced.get(broker_id),
        node=memory.nodes.get(broker_id),
        trouble=term.troubles.get(broker_id, ""),
        held_back=_held_back(term.controller, broker_id),
    )


def _held_back(controller: Controller, broker_id: BrokerId) -> HoldBack | None:
    """Return the hold-back, or None, also if the process has sent no heartbeat since its last
    fencing."""
    held = held_back(controller.soft, broker_id, controller.now_ms, controller.settings)
    contact = controller.soft.contacts.get(broker_id)
    return None if held is None or contact is None or contact.last_ms < held.last_ms else held
