"""Declared listeners that are not open everywhere: on which brokers, and why.  Pure.

The committed endpoints say where a listener is open; why it is not, brokers tell with heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.listener_peers import for_clients
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text

WHY_MAX = 3
"""Brokers whose own words are told of one listener."""

Told = Mapping[BrokerId, Mapping[str, str]]
"""Why a broker has not opened a listener, by its name."""

NOTHING_TOLD: Told = {}


def told_by(contacts: Mapping[BrokerId, Contact]) -> Told:
    """What brokers said last."""
    return {
        broker_id: contact.figures.closed_listeners
        for broker_id, contact in contacts.items()
        if contact.figures is not None
    }


def closed(image: ClusterImage) -> dict[str, list[BrokerId]]:
    """By listener, the brokers that take part without having it open.  One that has no address
    outside yet registers no endpoint: `without_address` says that."""
    active = [broker for _, broker in sorted(image.brokers.items()) if broker.active]
    found = {
        one.name: [
            broker.id
            for broker in active
            if for_clients(broker, one) is None
            and not (one.external and one.advertised_of(broker.id) is None)
        ]
        for one in image.listeners
    }
    return {name: brokers for name, brokers in found.items() if brokers}


def without_address(image: ClusterImage, whys: Mapping[str, str]) -> str:
    """A sentence for each listener whose clients are outside and that has no address there for a
    broker that takes part; empty: there is none.  `whys`: by listener, what was missing last."""
    said = []
    for one in image.listeners:
        if not one.external:
            continue
        active = [broker for _, broker in sorted(image.brokers.items()) if broker.active]
        lacking = [b.id for b in active if one.advertised_of(b.id) is None]
        if active and not (lacking or one.bootstrap_servers):
            said.append(f"Listener {one.name} has no external bootstrap address yet.")
        if lacking:
            why = f": {whys[one.name]}" if whys.get(one.name) else ""
            who = brokers_text(lacking)
            said.append(f"Listener {one.name} has no external address for {who} yet{why}.")
    return " ".join(said)


def sentences(image: ClusterImage, told: Told) -> str:
    """One for each listener; empty: all are open wherever a broker takes part."""
    return " ".join(
        f"Listener {name} is not open on {brokers_text(brokers)}{_why(name, brokers, told)}."
        for name, brokers in closed(image).items()
    )


def _why(name: str, brokers: list[BrokerId], told: Told) -> str:
    known = [(one, told[one][name]) for one in brokers if name in told.get(one, {})]
    if not known:
        return ""
    return f" ({'; '.join(f'broker {one}: {why}' for one, why in known[:WHY_MAX])})"
