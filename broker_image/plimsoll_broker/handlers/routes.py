"""The table of Kafka APIs and their handlers, from which `node.assembly` builds a broker's
dispatch.

An API that is missing here is not listed in ApiVersions. `assembly` calls `routes` once in a
broker's lifetime, for the clients' ports, and `replication_routes` for the replication port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from plimsoll_broker.control.controller_client import ControllerClient
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.cluster_description import describe_cluster, describe_topic_partitions
from plimsoll_broker.handlers.cluster_view import ClusterView, ImageWatch
from plimsoll_broker.handlers.configs import alter_configs, describe_configs, list_config_resources
from plimsoll_broker.handlers.delete_records import DeleteRecordsHandler
from plimsoll_broker.handlers.describe_log_dirs import describe_log_dirs
from plimsoll_broker.handlers.fetch import FetchHandler
from plimsoll_broker.handlers.groups.find_coordinator import FindCoordinatorHandler
from plimsoll_broker.handlers.groups.group_admin import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from plimsoll_broker.handlers.groups.group_api import GroupApi, GroupHandler
from plimsoll_broker.handlers.groups.membership import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    refuse_heartbeat,
)
from plimsoll_broker.handlers.groups.offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from plimsoll_broker.handlers.groups.transactional_offsets import TXN_OFFSET_COMMIT
from plimsoll_broker.handlers.list_offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from plimsoll_broker.handlers.long_work import Aside, ConnectionLines
from plimsoll_broker.handlers.metadata import metadata
from plimsoll_broker.handlers.partition_changes import (
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.handlers.producers import (
    InitProducerIdHandler,
    ProducerIds,
    describe_producers,
)
from plimsoll_broker.handlers.security.acls import create_acls, delete_acls, describe_acls
from plimsoll_broker.handlers.security.client_quotas import alter_quotas, describe_quotas
from plimsoll_broker.handlers.security.scram_credentials import alter_scram, describe_scram
from plimsoll_broker.handlers.topic_changes import create_partitions, create_topics, delete_topics
from plimsoll_broker.handlers.transactions.adding_offsets import add_offsets
from plimsoll_broker.handlers.transactions.listing import (
    DESCRIBE_TRANSACTIONS,
    list_transactions,
)
from plimsoll_broker.handlers.transactions.producing import (
    ADD_PARTITIONS,
    END_TRANSACTION,
    write_markers,
)
from plimsoll_broker.handlers.transactions.transaction_api import TransactionHandler
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext, Result
from plimsoll_core.cluster.listener_peers import Port
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.requests import Answer, Forwarded
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire.api_versions import ApiKey


def admin_handlers(view: ClusterView) -> dict[ApiKey, Handler]:
    """Return the handlers that read the cluster image or forward requests to the controller."""
    return {
        ApiKey.METADATA: metadata(view),
        ApiKey.DESCRIBE_CLUSTER: describe_cluster(view),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions(view),
        ApiKey.DESCRIBE_CONFIGS: describe_configs(view),
        ApiKey.LIST_CONFIG_RESOURCES: list_config_resources(view),
        ApiKey.CREATE_TOPICS: create_topics(view),
        ApiKey.DELETE_TOPICS: delete_topics(view),
        ApiKey.CREATE_PARTITIONS: create_partitions(view),
        ApiKey.ALTER_CONFIGS: alter_configs(view),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs(view),
        ApiKey.ELECT_LEADERS: elect_leaders(view),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_reassignments(view),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments(view),
        ApiKey.DESCRIBE_ACLS: describe_acls(view),
        ApiKey.CREATE_ACLS: create_acls(view),
        ApiKey.DELETE_ACLS: delete_acls(view),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_quotas(view),
        ApiKey.ALTER_CLIENT_QUOTAS: alter_quotas(view),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_scram(view),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_scram(view),
    }


_APIS: dict[ApiKey, GroupApi] = {
    ApiKey.OFFSET_COMMIT: OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: OFFSET_FETCH,
    ApiKey.JOIN_GROUP: JOIN_GROUP,
    ApiKey.SYNC_GROUP: SYNC_GROUP,
    ApiKey.HEARTBEAT: HEARTBEAT,
    ApiKey.LEAVE_GROUP: LEAVE_GROUP,
    ApiKey.OFFSET_DELETE: OFFSET_DELETE,
    ApiKey.LIST_GROUPS: LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS: DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS: DELETE_GROUPS,
}


_IN_TRANSACTIONS: dict[ApiKey, GroupApi] = {ApiKey.TXN_OFFSET_COMMIT: TXN_OFFSET_COMMIT}


def group_handlers(view: ClusterView, coordinators: Coordinators) -> dict[ApiKey, Handler]:
    """Return the handlers of the group APIs."""
    lines = ConnectionLines()
    apis = _APIS if coordinators.transactions is None else _APIS | _IN_TRANSACTIONS
    found = {key: GroupHandler(api, coordinators, view.aside, lines) for key, api in apis.items()}
    return {
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(
            view, coordinators.topics, coordinators.transactions
        ),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: refuse_heartbeat,
        ApiKey.SHARE_GROUP_HEARTBEAT: refuse_heartbeat,
        **found,
    }


def routes(
    broker: BrokerLifetime,
    client: ControllerClient,
    watch: ImageWatch,
    coordinators: Coordinators,
    aside: Aside,
    wanted: FairPool | None = None,
) -> dict[ApiKey, Handler]:
    """Return the handlers of all APIs that are served to clients, except those of logins. `wanted`:
    the pool of the names of topics on demand; None for one of these handlers alone."""

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
        wanted=wanted,
    )
    data: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: ProduceHandler(manager, aside, coordinators.transactions),
        ApiKey.FETCH: FetchHandler(manager, Port.CLIENTS, aside),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(manager, Port.CLIENTS, aside),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(manager, aside),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(manager, aside),
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs(manager, aside),
        ApiKey.DESCRIBE_PRODUCERS: describe_producers(manager, aside),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(
            ProducerIds(client, broker), coordinators.transactions
        ),
    }
    found = data | admin_handlers(view) | group_handlers(view, coordinators)
    if coordinators.transactions is not None:
        found |= transaction_handlers(coordinators.transactions.coordinators, aside)
    return found


OF_TRANSACTIONS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
"""The APIs that clients are told of only if the cluster has transactions."""


def transaction_handlers(
    coordinators: TransactionCoordinators, aside: Aside
) -> dict[ApiKey, Handler]:
    """Return the handlers of the APIs that ask transaction coordinators, for clients."""
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: TransactionHandler(ADD_PARTITIONS, coordinators, aside),
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets(coordinators, aside),
        ApiKey.END_TXN: TransactionHandler(END_TRANSACTION, coordinators, aside),
        ApiKey.DESCRIBE_TRANSACTIONS: TransactionHandler(
            DESCRIBE_TRANSACTIONS, coordinators, aside
        ),
        ApiKey.LIST_TRANSACTIONS: list_transactions(coordinators, aside),
    }


def replication_routes(
    manager: ReplicaManager,
    transactions: ServedTransactions | None = None,
    *,
    may_be_slowed: bool = True,
) -> dict[ApiKey, Handler]:
    """Return the handlers of the APIs that other brokers use, for the replication port.
    `transactions`: None if this broker has no part in transactions. `may_be_slowed`: True if a
    drill may slow this broker's links."""
    handlers: dict[ApiKey, Handler] = {
        ApiKey.FETCH: FetchHandler(manager, Port.REPLICATION),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(manager, Port.REPLICATION),
    }
    if transactions is not None:
        handlers[ApiKey.WRITE_TXN_MARKERS] = write_markers(manager)
        handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = TransactionHandler(
            ADD_PARTITIONS, transactions.coordinators, Aside()
        )
    if not may_be_slowed:
        return handlers
    return {key: _slowed(handler, manager) for key, handler in handlers.items()}


def _slowed(handler: Handler, manager: ReplicaManager) -> Handler:
    """Return a handler that answers as `handler` does, later while a drill slows this broker's
    links."""

    async def late(context: RequestContext, delay_s: float) -> Reply | None:
        await asyncio.sleep(delay_s)
        result = handler(context)
        return await result if isinstance(result, Awaitable) else result

    def handle(context: RequestContext) -> Result:
        delay_s = manager.peers.delay_s
        return late(context, delay_s) if delay_s else handler(context)

    return handle
