"""Addresses of a local cluster's listeners, and the authority that clients must trust.

All brokers share one address here, so each adds its id to the port of a declared listener.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster.listener_peers import open_to_all
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.local.ports import LOOPBACK
from plimsoll_operator.manifests.listener_secrets import CA_FILE
from plimsoll_operator.metalog.directory import write_whole


def addresses(listener: Listener, broker_ids: Iterable[BrokerId], host: str = LOOPBACK) -> str:
    """Format the addresses of a listener as Kafka clients take them. `host`: the address of all
    brokers."""
    return ",".join(host_and_port(host, listener.port + broker_id) for broker_id in broker_ids)


def bootstrap(
    listeners: tuple[Listener, ...],
    broker_ids: Iterable[BrokerId],
    implicit: str,
    host: str = LOOPBACK,
) -> str:
    """Return the addresses for clients without a chosen listener: those of the first listener open
    to everyone, else of the first. `implicit`: returned if none is declared."""
    if not listeners:
        return implicit
    return addresses(open_to_all(listeners) or listeners[0], broker_ids, host)


def show_authority(server: MemoryApiServer, key: Key, layout: DirectoryLayout) -> str:
    """Write the authority of the listeners' certificates to a file and return its path; "" if there
    is none."""
    namespace, name = key
    shown = found(server, resources.CONFIG_MAPS, namespace, labels.listener_authority_map(name))
    if shown is None:
        return ""
    layout.pki.mkdir(mode=0o700, exist_ok=True)
    write_whole(layout.listener_authority, shown.body["data"][CA_FILE].encode())
    return str(layout.listener_authority)
