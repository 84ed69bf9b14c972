"""Determines which broker one connection to the controllers' port speaks for, and limits
connections until that is known.

The server calls this before it passes a request on. A connection speaks for one broker until it is
closed, the first that it names; a request that names another broker or another broker epoch is
refused. The connection is identified once the metadata log knows the broker epoch that it names.
With a certificate the identity is proven (`inside_server`). Without one, connections that are not
identified (strangers) share limits on their number and bytes, so that they cannot exhaust what
brokers need.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.metadata_copy import OfferMetadataCopy
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import BrokerRequest, Refused
from plimsoll_operator.controller.refusals import refused


class ConnectionIdentity:
    """The broker that one connection speaks for. `cluster_id` and `broker_id` are set together, by
    the certificate or the first request. `broker_epoch` is set once the image knows it.
    `reads_metadata` is True once the connection serves a metadata stream."""

    def __init__(self) -> None:
        self.cluster_id: UUID | None = None
        self.broker_id: BrokerId | None = None
        self.broker_epoch: BrokerEpoch | None = None
        self.reads_metadata = False

    @property
    def shown(self) -> bool:
        return self.broker_epoch is not None or self.reads_metadata

    def is_known(self, cluster_id: UUID, broker_id: BrokerId | None) -> None:
        """Bind the connection to the cluster and broker that its certificate names: requests for
        any other are refused. With `broker_id` None, the first request that names a broker binds
        it."""
        self.cluster_id, self.broker_id = cluster_id, broker_id

    def hear(self, cluster_id: UUID, request: BrokerRequest, image: ClusterImage) -> Refused | None:
        """Return None if the request may be passed on, else its refusal. The first request that
        names a broker binds the connection to that broker and cluster; the first with the broker
        epoch in `image` binds it to that epoch. Requests of any other broker or epoch are refused.
        A forwarded client request names no broker, and counts as one of the connection's broker."""
        broker_id: BrokerId | None = getattr(request, "broker_id", None)
        epoch: BrokerEpoch | None = getattr(request, "broker_epoch", None)
        if broker_id is None:
            broker_id = self.broker_id
        if self.broker_id is None:
            if broker_id is None:
                return None
            self.cluster_id, self.broker_id = cluster_id, broker_id
        if (cluster_id, broker_id) != (self.cluster_id, self.broker_id):
            return self._not_ours(f"broker {broker_id} of cluster {cluster_id}")
        if epoch is None:
            return None
        if self.broker_epoch is None and _registered(image, broker_id) == epoch:
            self.broker_epoch = epoch
        if self.broker_epoch not in (None, epoch):
            return self._not_ours(f"another process of that broker (epoch {epoch})")
        return None

    def registered(self, broker_epoch: BrokerEpoch) -> None:
        """Note that a registration over this connection was committed with `broker_epoch`."""
        self.broker_epoch = broker_epoch

    def hear_stream(self, fetch: FetchMetadata, image: ClusterImage) -> Refused | None:
        """Bind the connection to the broker of `fetch` if it has none, set `reads_metadata` and
        return None. Return a refusal instead, without setting it, if the connection is another
        broker's, or if the broker is not registered in `image`."""
        if self.broker_id is None:
            self.cluster_id, self.broker_id = fetch.cluster_id, fetch.broker_id
        if (fetch.cluster_id, fetch.broker_id) != (self.cluster_id, self.broker_id):
            return self._not_ours(f"broker {fetch.broker_id} of cluster {fetch.cluster_id}")
        if _registered(image, fetch.broker_id) is None:
            text = (
                f"Broker {fetch.broker_id} is not registered with this controller, so it gets no "
                "metadata; it must register first, and does so by itself."
            )
            return refused(Reason.BrokerIdNotRegistered, text)
        self.reads_metadata = True
        return None

    def hear_offer(self, offer: OfferMetadataCopy) -> bool:
        """Bind the connection to the broker of `offer` if it has none, and return True. Return
        False if the connection is another broker's. The metadata log cannot tell if the broker is
        registered: it lacks records."""
        if self.broker_id is None:
            self.cluster_id, self.broker_id = offer.cluster_id, offer.broker_id
        return (offer.cluster_id, offer.broker_id) == (self.cluster_id, self.broker_id)

    def _not_ours(self, who: str) -> Refused:
        mine = f"broker {self.broker_id} of cluster {self.cluster_id}"
        text = (
            f"The controller refused a request of {who}, because it came over the connection of "
            f"{mine}, and each broker process must use a connection of its own. If a proxy between "
            "brokers and operator shares connections, remove it; otherwise please report this as a "
            "bug."
        )
        return refused(Reason.InvalidRequest, text)


def _registered(image: ClusterImage, broker_id: BrokerId | None) -> BrokerEpoch | None:
    broker = None if broker_id is None else image.brokers.get(broker_id)
    return None if broker is None else broker.broker_epoch


STRANGERS_MAX = 256
"""Maximum number of connections without a known broker. One more closes the oldest."""


STRANGERS_BYTES_MAX = 32 * 1024 * 1024
"""Maximum bytes of incomplete requests that all connections without a known broker may have sent
together."""


STRANGER_MS_MAX = 30_000
"""Milliseconds after which a connection is closed if it is not identified as a registered broker's.
A broker that still waits for acceptance connects again."""


class ClosableConnection(Protocol):
    """A connection as `Strangers` sees it: it can close the connection to keep the limits."""

    def close(self, why: str) -> None: ...


class Strangers:
    """The connections of a server that are not known to be a broker's, oldest first. Limits their
    number and the bytes of their incomplete requests."""

    def __init__(self) -> None:
        self._held: dict[ClosableConnection, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def came(self, connection: ClosableConnection) -> None:
        """Add a new connection. Close the oldest if there are more than `STRANGERS_MAX`."""
        self._held[connection] = 0
        if len(self._held) > STRANGERS_MAX:
            oldest = next(iter(self._held))
            del self._held[oldest]
            oldest.close(
                "too many connections are open that have not said which broker they belong to"
            )

    def left(self, connection: ClosableConnection) -> None:
        """Remove a connection that is closed or has named its broker. Does nothing if it was
        removed before."""
        self._held.pop(connection, None)

    def holds(self, connection: ClosableConnection, size: int) -> bool:
        """Record that the incomplete request of `connection` has `size` bytes, if the set contains
        the connection. Return False if the incomplete requests of all connections in the set exceed
        `STRANGERS_BYTES_MAX` together."""
        if connection in self._held:
            self._held[connection] = size
        return sum(self._held.values()) <= STRANGERS_BYTES_MAX
