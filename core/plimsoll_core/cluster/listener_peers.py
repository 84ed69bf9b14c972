"""A broker's endpoints: the peers that each serves, and the requests that they may send there.

Clients know one port, followers another: what moves a high watermark is served where no client has
a reason to be.  Endpoints are found by name.  A broker of version 0.1 registered the clients'
alone, first in its list: it is fetched from there, and fetches there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Broker, Endpoint
from plimsoll_core.ids import BrokerId

CLIENTS = "PLAINTEXT"
REPLICATION = "REPLICATION"
IMPLICIT = Listener(name=CLIENTS, port=0)
"""The clients' listener of a cluster that declares none; each broker knows its own port."""


class Port(Enum):
    """The peers that a listener serves.  EVERYBODY: all peers, on the only listener of a broker
    without a replication port, as in version 0.1."""

    CLIENTS = "Clients"
    REPLICATION = "Replication"
    EVERYBODY = "Everybody"


def endpoint(broker: Broker, name: str) -> Endpoint | None:
    """Return the broker's endpoint of that name."""
    return next((found for found in broker.endpoints if found.name == name), None)


def for_clients(broker: Broker, listener: Listener = IMPLICIT) -> Endpoint | None:
    """Return the address at which clients of a listener reach the broker; answers to clients name
    no other. A listener declared on the port of the implicit one continues it: until the broker has
    registered it by name, the implicit listener's endpoint is returned."""
    own = endpoint(broker, listener.name)
    if own is not None or listener.tls or listener.authentication or listener.external:
        return own
    before = endpoint(broker, CLIENTS)
    return before if before is not None and before.port == listener.port else None


def open_to_all(listeners: tuple[Listener, ...]) -> Listener | None:
    """Return a listener that a client inside can use without certificates and credentials: the
    first that is plaintext without authentication, or None. If no listener is declared, it is the
    implicit one."""
    if not listeners:
        return IMPLICIT
    inside = (one for one in listeners if not one.external)
    return next((one for one in inside if not one.tls and not one.authentication), None)


def for_followers(broker: Broker) -> Endpoint | None:
    """Return the replication address: followers connect there, and the process listens there for
    its whole life."""
    first = broker.endpoints[0] if broker.endpoints else None
    return endpoint(broker, REPLICATION) or first


def may_ask(port: Port, replica_id: int | None, brokers: Mapping[BrokerId, Broker]) -> bool:
    """Return True if a request that names `replica_id` (None: a client's) is answered on the port.

    Followers fetch on the replication port, and no other peer does.  On the clients' port only a
    broker counts as a follower that is registered without a replication endpoint, as those of
    version 0.1 are: it cannot do otherwise.  So after the last upgrade no follower is served on
    clients' ports, and a broker that goes back to 0.1 is served there under its own id alone.
    """
    if port is Port.EVERYBODY:
        return True
    if port is Port.REPLICATION or replica_id is None:
        return (port is Port.REPLICATION) == (replica_id is not None)
    broker = brokers.get(BrokerId(replica_id))
    return broker is not None and endpoint(broker, REPLICATION) is None
