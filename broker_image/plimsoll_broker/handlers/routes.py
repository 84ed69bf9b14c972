"""The table of Kafka APIs and their handlers; an API that is missing here is not advertised.

Called by `node.assembly`, once per lifetime. Each port has a table of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable

from plimsoll_broker.control.controller_client import ControllerClient
from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.admin import admin_handlers
from plimsoll_broker.handlers.cluster_view import ClusterView, ImageWatch
from plimsoll_broker.handlers.delete_records import DeleteRecordsHandler
from plimsoll_broker.handlers.describe_log_dirs import describe_log_dirs
from plimsoll_broker.handlers.describe_producers import describe_producers
from plimsoll_broker.handlers.fetch import FetchHandler
from plimsoll_broker.handlers.groups.table import group_handlers
from plimsoll_broker.handlers.init_producer_id import InitProducerIdHandler, ProducerIds
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.handlers.list_offsets import ListOffsetsHandler
from plimsoll_broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Handler
from plimsoll_core.cluster.listener_peers import Port
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.requests import Answer, Forwarded
from plimsoll_wire.api_versions import ApiKey


def routes(
    broker: BrokerLifetime,
    client: ControllerClient,
    watch: ImageWatch,
    coordinators: Coordinators,
    port: Port,
    aside: Aside,
) -> dict[ApiKey, Handler]:
    """Return the APIs for clients and other peers of `port`."""

    manager = coordinators.manager

    def forward(request: Forwarded, timeout_ms: int) -> Awaitable[Answer]:
        return client.command(request, timeout_ms, once=True)

    view = ClusterView(
        broker_id=broker[0],
        watch=watch,
        command=forward,
        configs=manager.settings.configs,
        aside=aside,
        topic_defaults=lambda: client.topic_defaults,
        lost_leaders=manager.fetchers.lost_leaders,
    )
    data: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: ProduceHandler(manager, aside),
        ApiKey.FETCH: FetchHandler(manager, port, aside),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(manager, port, aside),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(manager, aside),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(manager, aside),
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs(manager, aside),
        ApiKey.DESCRIBE_PRODUCERS: describe_producers(manager, aside),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(ProducerIds(client, broker)),
    }
    return data | admin_handlers(view) | group_handlers(view, coordinators)


def replication_routes(manager: ReplicaManager) -> dict[ApiKey, Handler]:
    """Return the APIs that followers use."""
    return {
        ApiKey.FETCH: FetchHandler(manager, Port.REPLICATION),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(manager, Port.REPLICATION),
    }
