"""A broker's endpoints: the kind of peers that each serves, and the requests that these may send
there.

Clients use one port and followers another: the fetches of followers, which move high watermarks,
are served on a port that no client needs. Endpoints are found by name.
"""

from __future__ import annotations

from enum import Enum

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Broker, Endpoint

CLIENTS = "PLAINTEXT"
REPLICATION = "REPLICATION"
IMPLICIT = Listener(name=CLIENTS, port=0)
"""The listener of a cluster that declares no listeners. Its port is in each broker's own
configuration."""


class Port(Enum):
    """The kind of peers that connect to a listener."""

    CLIENTS = "Clients"
    REPLICATION = "Replication"


def endpoint(broker: Broker, name: str) -> Endpoint | None:
    """Return the broker's endpoint with the name `name`, or None."""
    return next((found for found in broker.endpoints if found.name == name), None)


def for_clients(broker: Broker, listener: Listener = IMPLICIT) -> Endpoint | None:
    """Return the address at which clients that use `listener` reach the broker, or None if the
    broker has not registered one. Metadata answers name this address only.

    Until the broker has registered a declared listener by its name, the endpoint of the implicit
    listener is returned in its place, if both have the same port and the declared one is without
    TLS, authentication and addresses for clients outside.
    """
    own = endpoint(broker, listener.name)
    if own is not None or listener.tls or listener.authentication or listener.external:
        return own
    before = endpoint(broker, CLIENTS)
    return before if before is not None and before.port == listener.port else None


def open_to_all(listeners: tuple[Listener, ...]) -> Listener | None:
    """Return the first listener that a client inside the cluster can use without TLS and
    credentials, or None if there is none. Return the implicit listener if none is declared."""
    if not listeners:
        return IMPLICIT
    inside = (one for one in listeners if not one.external)
    return next((one for one in inside if not one.tls and not one.authentication), None)


def for_followers(broker: Broker) -> Endpoint | None:
    """Return the address at which followers connect to the broker, or None if the broker registered
    none."""
    return endpoint(broker, REPLICATION)


def may_ask(port: Port, replica_id: int | None) -> bool:
    """Return True if a listener of kind `port` serves a fetch by `replica_id`, which is None if a
    client fetches. The replication port serves followers only, a clients' port clients only: a
    client that posed as a follower could read every topic, uncommitted records included."""
    return (port is Port.REPLICATION) == (replica_id is not None)
