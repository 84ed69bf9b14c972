"""Where clients of a local cluster connect: addresses by listener, and what they have to trust.

Several brokers have one address here, so each adds its number to the port of a declared listener.
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
from plimsoll_operator.metalog.directory_files import write_whole


def addresses(listener: Listener, broker_ids: Iterable[BrokerId], host: str = LOOPBACK) -> str:
    """As Kafka clients take them; `host`: where all brokers are."""
    return ",".join(host_and_port(host, listener.port + broker_id) for broker_id in broker_ids)


def bootstrap(
    listeners: tuple[Listener, ...],
    broker_ids: Iterable[BrokerId],
    implicit: str,
    host: str = LOOPBACK,
) -> str:
    """For clients that are not told a listener: of the first that all can use, else of the first;
    `implicit`: where none is declared."""
    if not listeners:
        return implicit
    return addresses(open_to_all(listeners) or listeners[0], broker_ids, host)


def show_authority(server: MemoryApiServer, key: Key, layout: DirectoryLayout) -> str:
    """Write what signs the listeners' certificates to a file; where it is, empty: nothing does."""
    namespace, name = key
    shown = found(server, resources.CONFIG_MAPS, namespace, labels.listener_authority_map(name))
    if shown is None:
        return ""
    layout.pki.mkdir(mode=0o700, exist_ok=True)
    write_whole(layout.listener_authority, shown.body["data"][CA_FILE].encode())
    return str(layout.listener_authority)
