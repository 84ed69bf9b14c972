"""Builds a broker's parts for one lifetime: the only module that connects them to each other.

`node.broker` calls `assemble` once the broker epoch is known; tests make a data path alone.
Everything is made here, inside the event loop that will run it; nothing runs yet, no file is read
and no port is open. `Serving` and `DataPath` start and stop the parts.

The limits of a broker's clients, from its configs and from the limits of its process. Configs have
Kafka's names where Kafka has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.control.controller_client import ControllerClient
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.metadata import is_enabled, wanted_names
from plimsoll_broker.handlers.reply_bounds import ToBeTold, bounded
from plimsoll_broker.handlers.routes import OF_TRANSACTIONS, replication_routes, routes
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_broker.handlers.security.logins import login_handlers
from plimsoll_broker.node.client_listeners import (
    CONNECTIONS_MIN,
    ClientListeners,
    Register,
    connections_room,
)
from plimsoll_broker.node.serving import DataPath, Serving
from plimsoll_broker.replication.fetcher import FetcherPool
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.replication.replica_manager import (
    ControllerEpochs,
    ReplicaManager,
    ReplicaSettings,
)
from plimsoll_broker.reporting.isr_proposals import ProposalSender, ProposalTarget
from plimsoll_broker.reporting.replica_reports import CopyReports, RecoveryReports
from plimsoll_broker.security.audit_log import AuditLog
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.security.certificate_logins import CertificateLogins
from plimsoll_broker.server.client_memory import (
    MEMORY_ASSUMED,
    Budgets,
    ClientMemory,
    PrincipalHoldings,
    budgets_of,
)
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import MIB, ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster.cluster_configs import OWN_DEFAULTS
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.ids import BrokerEpoch, BrokerId, BrokerLifetime
from plimsoll_core.published_limits import replicas_by_memory
from plimsoll_core.quotas.connections import AddressConnections, per_ip_overrides
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_core.transactions.memory import TransactionMemory
from plimsoll_core.transactions.settings import TransactionSettings


def address_limits(configs: Mapping[str, str]) -> AddressConnections:
    """Return the limits on the number of connections of each client address, from the broker's
    configs max.connections.per.ip and its overrides."""
    name, of_some = "max.connections.per.ip", "max.connections.per.ip.overrides"
    overrides = per_ip_overrides(configs.get(of_some, OWN_DEFAULTS[of_some]))
    assert overrides is not None, f"{of_some} was not checked"
    return AddressConnections(int(configs.get(name, OWN_DEFAULTS[name])), overrides)


def partitions_max(
    configs: Mapping[str, str], memory: int | None = None, files: int | None = None
) -> int:
    """Return the number of replicas that this broker has room for: they may take a quarter of its
    memory and half of its descriptors. `memory`: bytes that the process may use; None if not known.
    `files`: descriptors that the process may have; None if not limited."""
    stated = int(configs.get("memory.limit.bytes", OWN_DEFAULTS["memory.limit.bytes"]))
    memory = stated if stated > 0 else memory or MEMORY_ASSUMED
    by_memory = replicas_by_memory(memory)
    return by_memory if files is None else min(by_memory, files // 2)


class ClientLimits(NamedTuple):
    """The limits of a broker's clients: those of each listener, and the memory budgets that all
    listeners share."""

    listener: ListenerLimits
    budgets: Budgets


def client_limits(
    configs: Mapping[str, str], memory: int | None = None, files: int | None = None
) -> ClientLimits:
    """Return the clients' limits, from the configs and the limits of the process. `memory`: the
    bytes that the process may use; None if not known. `files`: the descriptors that it may have;
    None if not limited."""

    def number(name: str) -> int | None:
        value = int(configs.get(name, OWN_DEFAULTS[name]))
        return None if value < 0 else value

    budgets = budgets_of(
        number("memory.limit.bytes") or memory,
        replies=number("queued.max.response.bytes"),
        requests=number("queued.max.request.bytes"),
        frame=number("socket.request.max.bytes"),
    )
    connections = number("max.connections") or CONNECTIONS_MIN
    room = connections_room(files)
    if room is not None:
        connections = min(connections, room)
    listener = ListenerLimits(
        connections_max=connections,
        idle_ms_max=number("connections.max.idle.ms") or ListenerLimits().idle_ms_max,
        frame_bytes_max=budgets.frame,
    )
    return ClientLimits(listener, budgets)


REPLICATION_LIMITS = ListenerLimits(
    connections_max=1024,
    idle_ms_max=60_000,
    frame_bytes_max=16 * MIB,
    other_frame_bytes_max=16 * MIB,
    in_flight_max=4,
)
"""The limits of the replication listener. Brokers open a few connections to each other, with one
request at a time on each; the largest request names 100,000 partitions."""


class ControllerLink(ProposalTarget, ControllerEpochs, Protocol):
    """The part of the controller client that the data path needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLifetime:
    """The objects that belong to one registration of this broker. `lease`: the leader lease, which
    heartbeats extend. `register`: has the controller commit a changed set of client endpoints under
    `broker_epoch`."""

    broker_epoch: BrokerEpoch
    lease: LeaderLease
    register: Register


def assemble(
    config: BrokerConfig,
    store: LogStore,
    client: ControllerClient,
    stream: MetadataStream,
    own: OwnLifetime,
) -> Serving:
    """Make all components that serve in one lifetime, connect them, and return them. Nothing is
    started."""
    broker_epoch, lease, register = own.broker_epoch, own.lease, own.register
    broker = BrokerLifetime(BrokerId(config.id), broker_epoch)
    settings = replica_settings(
        broker.broker_id, config.kafka_configs, config.on_controller_loss == "StopServing"
    )
    data = assemble_data_path(broker, settings, store, client, lease)
    manager = data.manager
    manager.peers = client.inside
    watch = ImageWatch(stream.image)
    limits, budgets = client_limits(
        config.kafka_configs, config.memory_limit_bytes, config.open_files_max
    )
    store.partitions_max = partitions_max(
        config.kafka_configs, config.memory_limit_bytes, config.open_files_max
    )
    store.recent.limit = budgets.recent
    store.producers.bound(budgets.producers)
    store.segment_room.bound(budgets.segments)
    coordinators = Coordinators(
        *(manager, GroupSettings.of(config.kafka_configs), InternalTopics(client.command)),
        memory=GroupMemory(budgets.groups),
    )
    coordinators.transactions = served = _transactions(coordinators, config, budgets)
    quotas = Quotas(address_limits(config.kafka_configs))
    authority = Authority(
        stream.image, AuditLog(broker.broker_id), makes_topics=is_enabled(config.kafka_configs)
    )
    aside = Aside()
    memory = ClientMemory(budgets)
    wanted = wanted_names()
    _tell_of_pools(memory.holdings, coordinators, aside.queue, authority.audit, wanted)
    memory.holdings.add("segments", store.segment_room.pool)
    handlers = routes(broker, client, watch, coordinators, aside, wanted)
    handlers |= login_handlers(authority, aside)
    checked = guarded(handlers, authority, aside)
    used = served.used_bytes if served else lambda: 0
    clients = Dispatch(
        bounded(checked, lambda: ToBeTold(watch.image, len(manager), used())),
        lambda: frozenset() if served and served.now else OF_TRANSACTIONS,
    )
    followers = replication_routes(manager, served, may_be_slowed=config.allow_drills)
    replication = BrokerListener(Dispatch(followers), REPLICATION_LIMITS)
    replication.inside = client.inside
    return Serving(
        config=config,
        stream=stream,
        data=data,
        watch=watch,
        coordinators=coordinators,
        authority=authority,
        quotas=quotas,
        long_work=aside.queue,
        reports=RecoveryReports(manager, client, broker),
        copies=CopyReports(manager, client, broker),
        clients=ClientListeners(
            *(config, clients, limits, memory, quotas),
            certificates=CertificateLogins(authority),
        ),
        replication=replication,
        register=register,
    )


def _transactions(
    groups: Coordinators, config: BrokerConfig, budgets: Budgets
) -> ServedTransactions | None:
    """Make this broker's part in transactions; None if they are switched off. Their memory is a
    quarter of that of groups."""
    if not config.transactions:
        return None
    settings = TransactionSettings.of(config.kafka_configs)
    memory = TransactionMemory(budgets.groups // 4)
    coordinators = TransactionCoordinators(groups.manager, settings, groups.topics, memory)
    return ServedTransactions.of(coordinators)


def _tell_of_pools(
    holdings: PrincipalHoldings,
    groups: Coordinators,
    work: FairWork,
    audit: AuditLog,
    wanted: FairPool,
) -> None:
    """Register the pools of groups, transactions, long work, audit log and topics on demand
    (`wanted`) in the accounts of each principal's holdings."""
    holdings.add("group memory", groups.memory.pool)
    if groups.transactions is not None:
        holdings.add("transaction memory", groups.transactions.coordinators.memory.pool)
    holdings.add("topics on demand", wanted)
    holdings.add_several("groups", lambda: (one.state.memory.groups for one in groups.shards()))
    holdings.add_several("members", lambda: (one.state.memory.seats for one in groups.shards()))
    holdings.add("threads", work.threads)
    holdings.add("long work", work.waiting)
    holdings.add_several("audit", lambda: audit.pools)


def replica_settings(
    broker_id: BrokerId, configs: Mapping[str, str], stops_serving: bool = False
) -> ReplicaSettings:
    """Return the replica manager's settings from the broker's configs, by Kafka's names."""
    return ReplicaSettings(
        broker_id=broker_id,
        stops_serving=stops_serving,
        lag_time_max_ms=_number(configs, "replica.lag.time.max.ms", 30_000),
        fetchers_per_leader=max(_number(configs, "num.replica.fetchers", 1), 1),
        # Off, and stated by the simulator alone, until more seeds have held with it.
        takes_pushes=configs.get("replica.takes.pushes") == "true",
        configs=configs,
    )


def assemble_data_path(
    broker: BrokerLifetime,
    settings: ReplicaSettings,
    store: LogStore,
    controller: ControllerLink,
    lease: LeaderLease | None = None,
) -> DataPath:
    """Make the replica manager and its fetchers, chores and proposal sender, and return them.
    `lease`: the leader lease that heartbeats extend; None if there are no heartbeats."""
    broker_epoch = broker.broker_epoch

    def fetchers(manager: ReplicaManager) -> FetcherPool:
        return FetcherPool(manager, lambda: broker_epoch)

    manager = ReplicaManager(settings, store, monotonic_ms, controller, fetchers, lease)
    return DataPath(
        store, manager, ProposalSender(manager, controller, broker), PeriodicChores(manager)
    )


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    text = configs.get(name, "")
    return int(text) if text.isdecimal() else default
